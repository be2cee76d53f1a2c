/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a thread to its state. Each CPU remembers which thread made the last call on it, so the next
 * call of the same thread needs no lookup: a helper call costs more than most of the other work.
 */
#ifndef THREAD_SLOTS_BPF_H
#define THREAD_SLOTS_BPF_H

#include "sockets.bpf.h"

#define STACK_SHIFT 14
/* As many threads end before the entry of one is another's. */
#define SLOTS_LEFT_FREE 16

/* NULL with SLOT_GONE as well, which is beyond the last entry. */
static __always_inline struct thread_state *state_in_slot(u32 slot)
{
	return slot ? bpf_map_lookup_elem(&thread_states, &slot) : NULL;
}

/* Any thread's. */
static __always_inline struct thread_state *thread_state_of(struct task_struct *task)
{
	return state_in_slot(slot_of(task));
}

/* Registers of a caller lie at the top of its stack, which is aligned to its size, 16 KB or
 * more: a number for each thread there is. No pointer may be shifted, so it is stored and read
 * again, unless another program could store there in between.
 */
static __always_inline u32 stack_of(struct cpu_counts *cpu, struct pt_regs *regs)
{
	if (preemptible)
		return as_number((u64)regs) >> STACK_SHIFT;
	*(volatile u64 *)&cpu->registers = (u64)regs;
	return *(volatile u64 *)&cpu->registers >> STACK_SHIFT;
}

/* The round is read first: who is adopted, or gone, in between is looked for again. Both halves
 * are written at once: where programs can be preempted, another thread's may be doing the same.
 */
static __noinline u32 note_caller(struct cpu_counts *cpu, u32 stack)
{
	u32 round = *(volatile u32 *)&slot_round, slot = slot_of(current_task());

	*(volatile u64 *)&cpu->caller = (u64)stack << 32 | slot;
	*(volatile u32 *)&cpu->caller_round = round;
	return slot;
}

/* Of the thread on this CPU, which makes the call of these registers. */
static __always_inline struct thread_state *caller_state(struct cpu_counts *cpu,
							 struct pt_regs *regs)
{
	u32 round = *(volatile u32 *)&cpu->caller_round, stack = stack_of(cpu, regs);
	u64 caller = *(volatile u64 *)&cpu->caller;

	if (round != slot_round || caller >> 32 != stack)
		return state_in_slot(note_caller(cpu, stack));
	return state_in_slot((u32)caller);
}

/* The state of a thread that is on this CPU. */
static __always_inline struct task_struct *caller_of(struct thread_state *state)
{
#ifndef EARLY_KERNEL
	if (direct_loads)
		return bpf_rdonly_cast((void *)state->task,
				       bpf_core_type_id_kernel(struct task_struct));
#endif
	return current_task();
}

/* A thread is a target's, or none any more: its stack may be noted as nobody's, or be another's. */
static __always_inline void forget_callers(void)
{
	shared_add(&slot_round, 1);
}

static __always_inline struct thread_past *past_in_slot(u32 slot)
{
	return slot ? bpf_map_lookup_elem(&thread_pasts, &slot) : NULL;
}

/* Nothing is known of what it did before. */
static __always_inline void begin_past(u32 slot, struct task_struct *task)
{
	struct thread_past *past = past_in_slot(slot);

	if (!past)
		return;
	past->seen = 0;
	past->object = 0;
	past->wake.author = AUTHOR_UNKNOWN;
	past->wake.tid = 0;
	past->task = (u64)task;
	past->started_ns = task_read(task, start_boottime);
}

static __always_inline u32 take_free_slot(void)
{
	u32 slot;

	if (bpf_map_pop_elem(&free_slots, &slot))
		return 0;
	shared_add(&slots_free, -1);
	return slot;
}

static __always_inline void give_slot_back(u32 slot)
{
	if (!bpf_map_push_elem(&free_slots, &slot, BPF_ANY))
		shared_add(&slots_free, 1);
}

static __always_inline u32 take_slot(void)
{
	bool all_used = slots_used >= threads_max - 1;
	u32 slot = 0;

	if (all_used || slots_free > SLOTS_LEFT_FREE)
		slot = take_free_slot();
	if (slot || all_used)
		return slot;
	slot = take_number(&slots_used) + 1;
	return slot < threads_max ? slot : 0;
}

/* NULL when there is no room. */
static __always_inline struct thread_state *new_thread_state(struct task_struct *task)
{
	struct thread_state *state;
	u32 slot = take_slot();

	if (!slot)
		return NULL;
	bpf_map_update_elem(&thread_states, &slot, &no_thread_state, BPF_ANY);
	state = bpf_map_lookup_elem(&thread_states, &slot);
	if (!state)
		return NULL;
	state->task = (u64)task;
	begin_past(slot, task);
	state->slot = slot;
	if (!keep_slot(task, slot)) {
		give_slot_back(slot);
		return NULL;
	}
	forget_callers();
	return state;
}

/* From now on another thread may take the entry. */
static __always_inline void thread_state_gone(struct task_struct *task)
{
	u32 slot = slot_of(task);

	if (!slot || slot & SLOT_GONE)
		return;
	forget_slot(task);
	forget_callers();
	give_slot_back(slot);
}

#endif
