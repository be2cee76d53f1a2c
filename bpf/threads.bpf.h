/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* When a target's thread is on a CPU. */
#ifndef THREADS_BPF_H
#define THREADS_BPF_H

#include "syscalls.bpf.h"

static __always_inline void left_cpu(struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);

	if (state && state->flags & THREAD_IN_CALL)
		state->left_cpu_ns = bpf_ktime_get_ns();
}

static __always_inline void got_cpu(struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);

	if (!state || !state->left_cpu_ns)
		return;
	state->now.off_cpu_ns += bpf_ktime_get_ns() - state->left_cpu_ns;
	state->left_cpu_ns = 0;
}

#endif
