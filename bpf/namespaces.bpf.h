/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Process and thread ids as udsprobe's own PID namespace numbers them: those of the host
 * where it runs there, at no cost, and in a container the container's.
 */
#ifndef NAMESPACES_BPF_H
#define NAMESPACES_BPF_H

#include "maps.bpf.h"

/* Of the process that reads the iterator: udsprobe itself. */
static __always_inline void learn_own_namespace(void)
{
	struct task_struct *self = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(self, thread_pid);
	struct upid number = {};

	own_pid_level = BPF_CORE_READ(pid, level);
	bpf_probe_read_kernel(&number, sizeof(number),
			      (void *)&pid->numbers + own_pid_level * sizeof(number));
	own_pid_ns = (u64)number.ns;
}

/* include/linux/pid.h: numbers[] has one for each namespace from the host's, level 0, on. */
static __always_inline u32 number_of(struct pid *pid, u32 on_host)
{
	struct upid number = {};

	if (!on_host)
		return 0;
	if (pid && BPF_CORE_READ(pid, level) >= own_pid_level)
		bpf_probe_read_kernel(&number, sizeof(number),
				      (void *)&pid->numbers + own_pid_level * sizeof(number));
	return (u64)number.ns == own_pid_ns ? number.nr : PID_OUTSIDE | on_host;
}

static __noinline u32 number_inside(u64 task, u32 on_host)
{
	return number_of(BPF_CORE_READ((struct task_struct *)task, thread_pid), on_host);
}

/* An exiting task no longer has its own number, but that of its leader. */
#define tgid_of(task)                                                                    \
	(in_pid_namespace ? number_inside((u64)BPF_CORE_READ(task, group_leader),        \
					  task_read(task, tgid)) :                       \
			    (u32)task_read(task, tgid))

#define tid_of(task)                                                                     \
	(in_pid_namespace ? number_inside((u64)(task), task_read(task, pid)) :           \
			    (u32)task_read(task, pid))

static __always_inline u32 parent_of_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);
	u32 on_host = BPF_CORE_READ(parent, tgid);

	if (!in_pid_namespace)
		return on_host;
	return number_inside((u64)BPF_CORE_READ(parent, group_leader), on_host);
}

static __always_inline u32 current_tgid(void)
{
	u32 on_host = bpf_get_current_pid_tgid() >> 32;
	struct task_struct *task;

	if (!in_pid_namespace)
		return on_host;
	task = (void *)bpf_get_current_task();
	return number_inside((u64)BPF_CORE_READ(task, group_leader), on_host);
}

#endif
