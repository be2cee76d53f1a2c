/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where each target's thread spends its time: thirteen activities, exactly one
 * at any moment, so they add up to the wall clock.
 */
#ifndef THREADS_BPF_H
#define THREADS_BPF_H

#include "core_fixes.bpf.h"
#include "cpu_holders.bpf.h"
#include "maps.bpf.h"
#include "stops.bpf.h"
#include "registers.bpf.h"
#include "thread_slots.bpf.h"
#include "wakers.bpf.h"

/* The activity until now is over, another begins. */
static __always_inline void change_activity(struct thread_state *state, ns_t now, u8 next)
{
	u32 before = state->activity;

	if (now > state->since_ns && before < ACTIVITY_MAX) {
		state->activity_ns[before] += now - state->since_ns;
		state->since_ns = now;
	}
	state->activity = next;
}

static __always_inline u8 activity_on_cpu(struct thread_state *state)
{
	if (!(state->flags & THREAD_IN_CALL))
		return ACTIVITY_USER;
	if (state->now.waits == WAITS_POLL || state->now.waits == WAITS_ANSWER)
		return ACTIVITY_SYS_POLL;
	return state->now.endpoint == ENDPOINT_OTHER ? ACTIVITY_SYS_OTHER : ACTIVITY_SYS_SOCKET;
}

static __always_inline u8 activity_in_call(struct call_in_flight *call, bool is_uninterruptible)
{
	bool is_socket = call->endpoint != ENDPOINT_OTHER;

	if (is_uninterruptible && (call->waits == WAITS_DISK ||
				   (!is_socket && (call->waits == WAITS_RECV ||
						   call->waits == WAITS_SEND))))
		return ACTIVITY_BLOCKED_DISK;
	if (is_uninterruptible)
		return ACTIVITY_BLOCKED_OTHER;
	switch (call->waits) {
	case WAITS_POLL:
		return ACTIVITY_BLOCKED_POLL;
	case WAITS_ANSWER:
		return ACTIVITY_BLOCKED_RECV;
	case WAITS_RECV:
		return is_socket ? ACTIVITY_BLOCKED_RECV : ACTIVITY_BLOCKED_OTHER;
	case WAITS_SEND:
		return is_socket ? ACTIVITY_BLOCKED_SEND : ACTIVITY_BLOCKED_OTHER;
	case WAITS_ACCEPT:
		return ACTIVITY_BLOCKED_ACCEPT;
	case WAITS_CONNECT:
		return ACTIVITY_BLOCKED_CONNECT;
	case WAITS_LOCK:
	case WAITS_FILE_LOCK:
		return ACTIVITY_BLOCKED_LOCK;
	}
	return ACTIVITY_BLOCKED_OTHER;
}

#ifdef BY_FUNCTIONS

/* A call that has no program: its number is read from where the kernel keeps it. */
static __always_inline int unseen_call(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	int nr = regs ? syscall_nr(regs) : -1;

	return nr < 0 || nr >= NR_MAX || may_be_fault(nr) ? -1 : nr;
}

static __always_inline u8 unseen_waits(struct task_struct *task, int nr)
{
	const volatile struct call_entry *entry;
	u32 at = nr;

	if (nr < 0)
		return WAITS_OTHER;
	/* The compiler knows that it is in range, the verifier does not. */
	barrier_var(at);
	entry = is_compat(task) ? &compat_entries[at & (NR_MAX - 1)] :
				  &native_entries[at & (NR_MAX - 1)];
	return entry->call == CALL_NONE ? entry->waits : WAITS_OTHER;
}

static __always_inline u8 activity_unseen(struct task_struct *task, bool is_uninterruptible)
{
	struct call_in_flight call = { .endpoint = ENDPOINT_OTHER };
	int nr = unseen_call(task);

	if (nr < 0)
		return is_uninterruptible ? ACTIVITY_BLOCKED_DISK : ACTIVITY_BLOCKED_OTHER;
	call.waits = unseen_waits(task, nr);
	return activity_in_call(&call, is_uninterruptible);
}

#else

#define unseen_call(task) (-1)
#define unseen_waits(task, nr) WAITS_OTHER

static __always_inline u8 activity_unseen(struct task_struct *task, bool is_uninterruptible)
{
	return is_uninterruptible ? ACTIVITY_BLOCKED_DISK : ACTIVITY_BLOCKED_OTHER;
}

#endif

static __always_inline u8 activity_asleep(struct task_struct *task, struct thread_state *state,
					  long task_state)
{
	bool is_uninterruptible = task_state & TASK_UNINTERRUPTIBLE;

	if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
		return ACTIVITY_BLOCKED_DISK;
	if (!(state->flags & THREAD_IN_CALL))
		return activity_unseen(task, is_uninterruptible);
	return activity_in_call(&state->now, is_uninterruptible);
}

/* The number of the call that it is in. */
static __always_inline u16 call_of(struct task_struct *task, struct thread_state *state)
{
	int nr;

	if (state->flags & THREAD_IN_CALL)
		return state->now.nr | (state->now.abi == ABI_COMPAT ? COMPAT_CALL : 0);
	nr = unseen_call(task);
	if (nr < 0)
		return NO_CALL;
	return nr | (is_compat(task) ? COMPAT_CALL : 0);
}

/* The same sleep in the words of waits. */
static __always_inline void falls_asleep(struct task_struct *task, struct thread_state *state,
					 u32 slot, u8 activity)
{
	u8 waits = state->flags & THREAD_IN_CALL ? state->now.waits :
						   unseen_waits(task, unseen_call(task));

	state->doing = doing_asleep(task, state, activity, waits);
	note_object(task, state, slot);
	goes_on_waiting(state, slot);
}

static __always_inline void left_cpu(struct task_struct *task, struct thread_state *state,
				     u32 slot, bool preempted)
{
	ns_t now = bpf_ktime_get_ns();
	long task_state;

	state->left_cpu_ns = now;
	task_state = preempted ? 0 : state_of_task(task);
	state->doing = DOING_CPU;
	change_activity(state, now,
			task_state ? activity_asleep(task, state, task_state) : ACTIVITY_RUNQ);
	if (wakers_told && state->activity > ACTIVITY_RUNQ)
		falls_asleep(task, state, slot, state->activity);
	if (state->activity == ACTIVITY_BLOCKED_SEND)
		send_fell_asleep(state);
}

static __always_inline void woken(struct task_struct *task)
{
	u32 slot = slot_of(task);
	struct thread_state *state = state_in_slot(slot);
	ns_t now;

	if (!state)
		return;
	/* A task can be woken before it went to sleep, and more than once. */
	if (state->activity > ACTIVITY_RUNQ) {
		now = bpf_ktime_get_ns();
		if (wakers_told)
			wait_ended(task, state, slot, now);
		change_activity(state, now, ACTIVITY_RUNQ);
	} else if (wakers_told) {
		forget_wake(slot);
	}
}

static __always_inline void got_cpu(struct task_struct *task, struct thread_state *state, u32 slot)
{
	ns_t now;

	if (!state->left_cpu_ns)
		return;
	now = bpf_ktime_get_ns();
	/* It was never woken, so it never slept: a signal was pending. */
	if (state->activity != ACTIVITY_RUNQ)
		state->doing = DOING_CPU;
	state->activity = ACTIVITY_RUNQ;
	if (wakers_told)
		remember_episode(slot, state, call_of(task, state), now);
	state->now.runq_ns += now - state->since_ns;
	if (now > state->since_ns)
		credit_holders(now - state->since_ns);
	change_activity(state, now, activity_on_cpu(state));
	state->now.off_cpu_ns += now - state->left_cpu_ns;
	state->left_cpu_ns = 0;
}

static __always_inline void thread_switched(struct task_struct *prev, struct task_struct *next,
					    bool preempted)
{
	u32 slot = slot_of(prev);
	struct thread_state *state = state_in_slot(slot);

	if (state)
		left_cpu(prev, state, slot, preempted);
	/* Its last moments are its process's too, though it has no state any more. */
	remember_stay(prev, next, slot != 0);
	slot = slot_of(next);
	state = state_in_slot(slot);
	if (state)
		got_cpu(next, state, slot);
}

/* The thread's time is kept when its state is removed. */
static __always_inline void keep_activities(struct thread_state *state)
{
	struct cpu_counts *counts = cpu_counts();

	change_activity(state, bpf_ktime_get_ns(), ACTIVITY_USER);
	state->flags |= THREAD_EXITED;
	if (!counts)
		return;
	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		count_add(&counts->exited_activity_ns[i], state->activity_ns[i]);
}

#endif
