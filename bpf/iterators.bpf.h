/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Read on request, never by an event: the first targets, their sockets, their threads. */
#ifndef ITERATORS_BPF_H
#define ITERATORS_BPF_H

#include "processes.bpf.h"

#define COPY_ATTEMPTS 4

/* A thread that sleeps or waits inside a call left its registers on its stack. */
static __always_inline void adopt_sleeping_call(struct task_struct *task,
						struct thread_state *state)
{
	struct pt_regs *regs;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs) || task->on_cpu)
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs || syscall_nr(regs) < 0)
		return;
	adopt_call(task, regs, state, state->since_ns);
	state->flags |= THREAD_IN_CALL;
}

static __always_inline void adopt_activity(struct task_struct *task, struct thread_state *state)
{
	long task_state = state_of_task(task);

	if (task->on_cpu) {
		state->left_cpu_ns = 0;
		state->activity = activity_on_cpu(state);
	} else if (task_state) {
		state->activity = activity_asleep(task, state, task_state);
	}
}

static __always_inline void seed_thread(struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct seed *seed = bpf_map_lookup_elem(&seed_tgids, &tgid);
	struct thread_state *state;

	if (!seed || thread_state_of(task))
		return;
	if (task->group_leader->start_boottime / NS_PER_TICK != seed->start_ticks)
		return;
	state = adopt_thread(task, seed->flags);
	if (!state)
		return;
	if (task->pid == task->tgid)
		adopt_process(task, task->real_parent->tgid, VIA_SELECTOR);
	if (!(seed->flags & THREAD_DORMANT))
		adopt_sleeping_call(task, state);
	adopt_activity(task, state);
}

/* Up to now. The thread may change its activity under our eyes: what it had spent in one
 * would be missing, and the next reading of others less than this one.
 */
static __always_inline void copy_activities(struct thread_state *state, ns_t *activity_ns)
{
	for (u32 attempt = 0; attempt < COPY_ATTEMPTS; attempt++) {
		ns_t since = *(volatile ns_t *)&state->since_ns, now = bpf_ktime_get_ns();
		u32 activity = *(volatile u8 *)&state->activity;

		for (u32 i = 0; i < ACTIVITY_MAX; i++)
			activity_ns[i] = *(volatile ns_t *)&state->activity_ns[i];
		if (activity < ACTIVITY_MAX && now > since)
			activity_ns[activity] += now - since;
		if (since == *(volatile ns_t *)&state->since_ns)
			return;
	}
}

static __always_inline void write_thread(struct seq_file *seq, struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);
	struct thread_record record = {};

	if (!state || state->flags & (THREAD_DORMANT | THREAD_EXITED))
		return;
	copy_activities(state, record.activity_ns);
	record.tgid = task->tgid;
	record.tid = task->pid;
	if (state->flags & THREAD_IN_CALL && state->now.call != CALL_NONE) {
		record.in_call = 1;
		record.since_ns = state->now.start_ns;
		record.call = state->now.call;
		record.abi = state->now.abi;
		record.endpoint = state->now.endpoint;
	}
	bpf_probe_read_kernel_str(record.comm, sizeof(record.comm), task->comm);
	bpf_seq_write(seq, &record, sizeof(record));
}

static __always_inline void write_socket(struct seq_file *seq, struct task_struct *task, u32 fd,
					 struct file *file)
{
	struct socket_record record = {};
	struct socket_ref ref = {};
	struct sock *sk;

	if (!thread_state_of(task) || !read_socket_probed(file, &ref))
		return;
	sk = (void *)ref.sk;
	record.sk = ref.sk;
	record.inode = ref.inode;
	record.endpoint = ref.endpoint;
	record.tgid = task->tgid;
	record.fd = fd;
	record.state = BPF_CORE_READ(sk, __sk_common.skc_state);
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (ref.endpoint == ENDPOINT_UNIX_STREAM || ref.endpoint == ENDPOINT_UNIX_SEQPACKET)
		record.unix_address = (u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
	else
		record.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	bpf_seq_write(seq, &record, sizeof(record));
}

/* The listeners that are open when we come. */
static __always_inline void seed_listener(struct task_struct *task, struct file *file)
{
	struct socket_ref ref = {};
	struct sock *sk;

	if (!thread_state_of(task) || !read_socket_probed(file, &ref))
		return;
	sk = (void *)ref.sk;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN &&
	    ref.endpoint != ENDPOINT_OTHER)
		adopt_listener(&ref, task->tgid);
}

static __always_inline void write_listener(struct seq_file *seq, address_t *key,
					   struct listener *listener)
{
	struct inet_connection_sock *tcp = (void *)*key;
	struct sock *sk = (void *)*key;
	struct listener_record record = { .sk = *key };

	record.is_alive = inode_of_socket(sk) == listener->inode &&
			  BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN;
	record.depth = queue_length(sk, listener->endpoint);
	record.backlog = BPF_CORE_READ(sk, sk_max_ack_backlog);
	record.somaxconn = BPF_CORE_READ(sk, __sk_common.skc_net.net, core.sysctl_somaxconn);
	record.drops = BPF_CORE_READ(sk, sk_drops.counter);
	if (listener->endpoint == ENDPOINT_TCP) {
		record.syn_queue = BPF_CORE_READ(tcp, icsk_accept_queue.qlen.counter);
		record.syn_young = BPF_CORE_READ(tcp, icsk_accept_queue.young.counter);
	}
	bpf_seq_write(seq, &record, sizeof(record));
}

/* Nothing tells of the end of a Unix socket, so its connection is asked for now and then. */
static __always_inline void sweep_connection(address_t *key, struct connection *connection)
{
	address_t sk = *key, at = connection->listener;
	struct listener *listener;

	if (connection->phase == PHASE_QUEUED) {
		listener = bpf_map_lookup_elem(&listeners, &at);
		if (listener && listener->inode == connection->listener_inode &&
		    listener->inode == inode_of_socket((struct sock *)at))
			return;
	} else if (connection->inode == inode_of_socket((struct sock *)sk)) {
		return;
	}
	bpf_map_delete_elem(&connections, &sk);
}

#endif
