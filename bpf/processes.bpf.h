/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which tasks are targets: fork, exec and exit. */
#ifndef PROCESSES_BPF_H
#define PROCESSES_BPF_H

#include "syscalls.bpf.h"

static __always_inline struct thread_state *adopt_thread(struct task_struct *task, u32 flags)
{
	struct thread_state *state;

	state = new_thread_state(task);
	if (state) {
		count_traced(flags);
		state->flags = flags;
		state->since_ns = bpf_ktime_get_ns();
		state->activity = ACTIVITY_RUNQ;
		state->left_cpu_ns = state->since_ns;
	} else {
		atomic_add(&threads_turned_away, 1);
	}
	return state;
}

static __always_inline void adopt_process(struct task_struct *task, u32 parent, u32 via)
{
	struct process_state process = {
		.started_ns = bpf_ktime_get_ns(),
		.parent = parent,
		.via = via,
	};
	u32 tgid = tgid_of(task);

	bpf_probe_read_kernel_str(process.comm, sizeof(process.comm), task->comm);
	atomic_add(&targets_alive, 1);
	if (bpf_map_update_elem(&processes, &tgid, &process, BPF_ANY))
		atomic_add(&processes_turned_away, 1);
}

/* Between the choice of the first targets and the end of seeding, a thread
 * that was not visited yet can have children.
 */
static __always_inline bool is_seed(struct task_struct *task)
{
	u32 tgid = tgid_of(task);

	return seeding && bpf_map_lookup_elem(&seed_tgids, &tgid);
}

/* kernel_clone() did; what it refuses is counted where its call returns. */
static __always_inline void count_started(struct task_struct *parent)
{
	u32 tgid = tgid_of(parent);
	struct process_state *process = bpf_map_lookup_elem(&processes, &tgid);

	if (process)
		shared_add(&process->started, 1);
}

static __always_inline void process_forked(struct task_struct *parent, struct task_struct *child)
{
	struct thread_state *state = thread_state_of(parent);
	bool is_thread = parent->tgid == child->tgid;
	u32 flags = THREAD_NEWBORN;

	if (!state && !is_seed(parent))
		return;
	if (state && !(state->flags & THREAD_DORMANT))
		count_started(parent);
	if (!is_thread && !follow_forks) {
		note_partner(tgid_of(child));
		return;
	}
	if (state)
		flags |= state->flags & THREAD_DORMANT;
	flags |= child_traced(parent);
	if (adopt_thread(child, flags) && !is_thread)
		adopt_process(child, tgid_of(parent), VIA_FORK);
}

static __always_inline void program_replaced(struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);
	struct process_state *process;
	u32 tgid = tgid_of(task);

	if (!state)
		return;
	if (state->flags & THREAD_DORMANT) {
		state->since_ns = bpf_ktime_get_ns();
		state->activity = ACTIVITY_SYS_OTHER;
		/* Counting begins in the execve call itself, whose entry was not looked at. */
		state->flags = (state->flags & ~THREAD_DORMANT) | THREAD_NEWBORN;
	}
	state->polled_ns = 0;
	if (state->flags & THREAD_SET_ASIDE)
		leave_all(state);
	trace_32_bit_program(state, task);
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process)
		bpf_probe_read_kernel_str(process->comm, sizeof(process->comm), task->comm);
}

/* Of the last thread; do_group_exit() gives all the same code, mark_oom_victim() sets oom_mm. */
static __always_inline void note_exit(struct task_struct *task, struct process_state *process,
				      u32 tgid)
{
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	process->exit_code = BPF_CORE_READ(task, exit_code);
	process->out_of_memory = BPF_CORE_READ(task, signal, oom_mm) != NULL;
	if (server && !server->exited_ns) {
		process->served = 1;
		process->unanswered = server->in_progress;
	}
}

static __always_inline void thread_exited(struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);
	struct process_state *process;
	u32 tgid = tgid_of(task);

	connecting_thread_exited(task);
	if (state) {
		if (state->flags & THREAD_SET_ASIDE)
			leave_all(state);
		keep_activities(state);
		traced_no_more(state);
	}
	/* The first thread's is that of io_uring's workers as well, as long as there are any. */
	if (task->pid != task->tgid)
		thread_state_gone(task);
	/* The last thread of a process can be one of io_uring's, which have no state, and on their
	 * way out not everywhere a flag.
	 */
	if (untrusted(task)->signal->live.counter)
		return;
	thread_state_gone(task->group_leader);
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process || process->exited_ns)
		return;
	note_exit(task, process, tgid);
	if (!set_once(&process->exited_ns, bpf_ktime_get_ns()))
		return;
	server_exited(tgid);
	atomic_add(&targets_alive, -1);
	atomic_add(&targets_exited, 1);
}

#endif
