/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Strategy "fentry": programs are attached to the functions of 64-bit system calls. Tracepoints
 * report what these do not see, as long as a thread needs that: calls that began before the
 * programs were attached, commands that are not started yet, and 32-bit programs.
 */
#ifndef TRACED_BPF_H
#define TRACED_BPF_H

#include "maps.bpf.h"
#include "registers.bpf.h"

#ifdef BY_FUNCTIONS

static __always_inline void count_traced(u32 flags)
{
	if (flags & THREAD_TRACED)
		shared_add(&traced_threads, 1);
}

static __always_inline void traced_no_more(struct thread_state *state)
{
	if (!(state->flags & THREAD_TRACED))
		return;
	state->flags &= ~THREAD_TRACED;
	shared_add(&traced_threads, -1);
}

/* It may be inside a call. Workers of io_uring make none. */
static __always_inline u32 seed_traced(struct task_struct *task)
{
	return task->flags & PF_IO_WORKER ? 0 : THREAD_TRACED;
}

static __always_inline u32 child_traced(struct task_struct *parent)
{
	return is_compat(parent) ? THREAD_TRACED : 0;
}

/* From its next call on, the functions tell, unless this is a 32-bit one. */
static __always_inline void first_event_seen(struct thread_state *state, struct task_struct *task)
{
	if (state->flags & THREAD_TRACED && !is_compat(task))
		traced_no_more(state);
}

/* The call that it sleeps in has no programs. */
static __always_inline bool ends_unseen(struct thread_state *state, struct task_struct *task)
{
	return state->now.call == CALL_NONE && !is_compat(task);
}

/* What it returns to is 32-bit (arch/x86/kernel/process_64.c, __set_personality_ia32). */
static __always_inline void trace_32_bit_program(struct thread_state *state,
						 struct task_struct *task)
{
	if (!is_compat(task) || state->flags & THREAD_TRACED)
		return;
	count_traced(THREAD_TRACED);
	state->flags |= THREAD_TRACED;
	if (!tracepoints_are_on)
		shared_add(&programs_unseen, 1);
}

#else

#define count_traced(flags) ((void)0)
#define child_traced(parent) 0
#define seed_traced(task) 0
#define traced_no_more(state) ((void)0)
#define first_event_seen(state, task) ((void)0)
#define ends_unseen(state, task) false
#define trace_32_bit_program(state, task) ((void)0)

#endif

#endif
