/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The accept queue: how deep it is after every new connection, how long each
 * waits in it, who takes them out. The kernel tells a listener of a new
 * connection with sk_data_ready, in the context of whoever connects, after it
 * was queued; nothing is told when one is taken out, so accept()'s return is.
 */
#ifndef LISTENERS_BPF_H
#define LISTENERS_BPF_H

#include "latency.bpf.h"
#include "registers.bpf.h"
#include "servers.bpf.h"
#include "socket_names.bpf.h"

/* How many CPUs can be between queueing a connection and notifying the listener. */
#define QUEUE_TAIL_MAX 16

static __always_inline void shared_latency_add(struct latency *latency, ns_t value)
{
	u32 slot = latency_slot_called(value);

	shared_add(&latency->count, 1);
	shared_add(&latency->total_ns, value);
	if (value > latency->max_ns)
		latency->max_ns = value;
	if (slot < LATENCY_SLOTS)
		shared_add(&latency->slots[slot], 1);
}

static __always_inline u32 depth_slot(u32 depth)
{
	u32 exponent, slot;

	if (depth < DEPTH_EXACT)
		return depth;
	exponent = floor_log2(depth) & 31;
	slot = DEPTH_EXACT + ((exponent - 5) << 4) + ((depth >> (exponent - 4)) & 15);
	return slot < DEPTH_SLOTS ? slot : DEPTH_SLOTS - 1;
}

/* An address that was used again by another socket has another inode. */
static __always_inline struct listener *listener_of(address_t sk)
{
	struct listener *listener = bpf_map_lookup_elem(&listeners, &sk);

	if (!listener || listener->inode != inode_of_socket((struct sock *)sk))
		return NULL;
	return listener;
}

static __always_inline u32 queue_length(struct sock *sk, u8 endpoint)
{
	if (endpoint == ENDPOINT_TCP)
		return BPF_CORE_READ(sk, sk_ack_backlog);
	return BPF_CORE_READ(sk, sk_receive_queue.qlen);
}

static __always_inline void describe_listener(struct listener *listener, struct sock *sk,
					      u64 inode, u32 tgid)
{
	struct inode *file;

	listener->seen_ns = bpf_ktime_get_ns();
	listener->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	listener->somaxconn = BPF_CORE_READ(sk, __sk_common.skc_net.net, core.sysctl_somaxconn);
	listener->tgid = tgid;
	listener->backlog = BPF_CORE_READ(sk, sk_max_ack_backlog);
	listener->drops_before = BPF_CORE_READ(sk, sk_drops.counter);
	name_of_socket(sk, &listener->name);
	if (listener->name.family == AF_UNIX) {
		file = BPF_CORE_READ((struct unix_sock *)sk, path.dentry, d_inode);
		listener->file_inode = file ? BPF_CORE_READ(file, i_ino) : 0;
		listener->file_device =
			file ? BPF_CORE_READ((struct unix_sock *)sk, path.dentry, d_sb, s_dev) : 0;
	}
	listener->queued_before = queue_length(sk, listener->endpoint);
	listener->depth_max = listener->queued_before;
	listener->inode = inode;
	newest_listener_ns = listener->seen_ns;
}

/* The counts of this listener are still to be reported. */
static __always_inline void keep_closed_listener(address_t sk, struct listener *listener)
{
	struct closed_listener key = { .sk = sk, .inode = listener->inode };

	if (bpf_map_update_elem(&closed_listeners, &key, listener, BPF_ANY))
		shared_add(&listeners_turned_away, 1);
}

/* Returns its entry, old or new; NULL when there is no room. */
static __always_inline struct listener *adopt_listener(struct socket_ref *ref, u32 tgid)
{
	struct listener *listener = bpf_map_lookup_elem(&listeners, &ref->sk);

	if (listener && listener->inode == ref->inode)
		return listener;
	if (listener)
		keep_closed_listener(ref->sk, listener);
	follow(ref->sk);
	if (bpf_map_update_elem(&listeners, &ref->sk, &no_listener, BPF_ANY)) {
		shared_add(&listeners_turned_away, 1);
		return NULL;
	}
	listener = bpf_map_lookup_elem(&listeners, &ref->sk);
	if (!listener)
		return NULL;
	listener->endpoint = ref->endpoint;
	describe_listener(listener, (struct sock *)ref->sk, ref->inode, tgid);
	return listener;
}

static __always_inline void listen_returned(address_t sk, u64 inode, u8 endpoint, u32 tgid,
					    int requested)
{
	struct socket_ref ref = { .sk = sk, .inode = inode, .endpoint = endpoint };
	struct listener *listener;

	if (!sk || endpoint == ENDPOINT_OTHER)
		return;
	listener = adopt_listener(&ref, tgid);
	if (!listener)
		return;
	listener->requested = requested;
	listener->is_requested = 1;
	listener->backlog = BPF_CORE_READ((struct sock *)sk, sk_max_ack_backlog);
	listener->somaxconn = BPF_CORE_READ((struct sock *)sk, __sk_common.skc_net.net,
					    core.sysctl_somaxconn);
}

/* Only the program that is told of arrivals makes one, and that never runs twice at once on a CPU
 * (kernel/bpf/trampoline.c, __bpf_prog_enter_recur; of tracepoints Linux kernel commit 05b24ff9b2cf
 * "bpf: Prevent bpf program recursion for raw tracepoint probes", older than sk_data_ready).
 */
static __always_inline struct connection *connection_to_queue(struct listener *listener,
							      address_t at, ns_t now)
{
	struct connection *fresh;
	u32 only = 0;

	fresh = bpf_map_lookup_elem(&connection_to_add, &only);
	if (!fresh)
		return NULL;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->listener = at;
	fresh->listener_inode = listener->inode;
	fresh->established_ns = now;
	fresh->role = ROLE_SERVED;
	fresh->endpoint = listener->endpoint;
	fresh->unread = listener->established;
	fresh->phase = PHASE_QUEUED;
	return fresh;
}

static __always_inline bool is_queued_at(struct connection *known, address_t at,
					 struct listener *listener)
{
	return known->phase == PHASE_QUEUED && known->listener == at &&
	       known->listener_inode == listener->inode;
}

/* Another CPU took it out of the queue before its listener was told of it. Until it is accepted it
 * has no inode.
 */
static __always_inline bool is_accepted(struct connection *known, address_t sk)
{
	return known->inode && known->inode == inode_of_socket((struct sock *)sk);
}

/* False when it is known already or cannot be known. What waits for a living listener waits
 * until it is accepted, so an entry of another listener is of another connection. It is added
 * whole: at any moment another CPU may accept it, and close it.
 */
static __always_inline bool queue_connection(address_t sk, address_t at, struct listener *listener,
					     ns_t now)
{
	struct connection *known = bpf_map_lookup_elem(&connections, &sk), *fresh;
	long error;

	if (known && (is_queued_at(known, at, listener) || is_accepted(known, sk)))
		return false;
	fresh = connection_to_queue(listener, at, now);
	if (!fresh)
		return false;
	/* Accept is deferred until there are bytes, or the handshake's last packet had some: they are
	 * told of before the connection is (net/ipv4/tcp_minisocks.c, tcp_child_process()).
	 */
	if (BPF_CORE_READ((struct sock *)sk, sk_receive_queue.qlen))
		fresh->arrived_ns = now;
	follow(sk);
	error = bpf_map_update_elem(&connections, &sk, fresh, known ? BPF_ANY : BPF_NOEXIST);
	if (!error || error == -EEXIST)
		return !error;
	shared_add(&connections_turned_away, 1);
	shared_add(&listener->no_room, 1);
	return false;
}

/* Connections queued before attach are at the head of the queue, and no event reports them. At least
 * one connection is new.
 */
static __always_inline u32 queued_since(struct sock *sk, struct listener *listener)
{
	u32 depth = queue_length(sk, listener->endpoint);
	u64 early = listener->queued_before;

	early -= listener->accepted < early ? listener->accepted : early;
	return depth > early ? depth - early : 1;
}

/* From the tail on: another CPU may have queued behind us before we were told. */
static __always_inline void queue_unix_connections(struct sock *sk, struct listener *listener,
						   ns_t now)
{
	u64 address = (u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
	struct sk_buff *end = (void *)&sk->sk_receive_queue;
	struct sk_buff *skb = BPF_CORE_READ(sk, sk_receive_queue.prev);
	/* Those turned away before are not tried again: when they came is not known any more. */
	u32 since = listener->no_room ? 1 : queued_since(sk, listener);

	for (u32 i = 0; i < QUEUE_TAIL_MAX; i++) {
		struct sock *fresh;

		if (!skb || skb == end || i >= since)
			return;
		fresh = BPF_CORE_READ(skb, sk);
		/* Another CPU can take it out and free it under our eyes. */
		if (!fresh || (u64)BPF_CORE_READ((struct unix_sock *)fresh, addr) != address)
			return;
		if (!queue_connection((u64)fresh, (u64)sk, listener, now))
			return;
		skb = BPF_CORE_READ(skb, prev);
	}
}

static __always_inline void note_depth(struct listener *listener, u32 depth)
{
	struct recent_depth *recent = &listener->recent[interval & 1];
	u32 slot = depth_slot(depth);

	/* Up to v6.1 the bound below is lost in a shift unless the register is made anew. */
	barrier_var(slot);
	if (recent->interval != interval) {
		recent->depth_max = 0;
		recent->interval = interval;
	}
	if (depth > recent->depth_max)
		recent->depth_max = depth;
	if (depth > listener->depth_max)
		listener->depth_max = depth;
	if (slot < DEPTH_SLOTS)
		shared_add(&listener->depth[slot], 1);
}

/* A thread that went to sleep in connect() slept for room in the queue. */
static __always_inline bool has_slept(struct task_struct *task, struct connecting *connecting)
{
	return BPF_CORE_READ(task, nvcsw) != connecting->sleeps;
}

/* The listener is known for sure here; once the connection is accepted, it may be closed before
 * the client's call returns. The listener is notified in the client's context
 * (net/unix/af_unix.c, unix_stream_connect).
 */
static __always_inline void blocked_client_queued(struct listener *listener, ns_t now)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 tid = bpf_get_current_pid_tgid();
	struct connecting *connecting = bpf_map_lookup_elem(&connectings, &tid);

	if (!connecting || !has_slept(task, connecting))
		return;
	connecting->is_counted = 1;
	shared_latency_add(&listener->blocked, now - connecting->start_ns);
}

static __always_inline void client_queued(address_t accepted, struct listener *listener);

static __always_inline void connection_queued(struct sock *sk)
{
	struct listener *listener = listener_of((u64)sk);
	struct cpu_counts *counts;
	ns_t now;

	if (!listener)
		return;
	now = bpf_ktime_get_ns();
	shared_add(&listener->established, 1);
	note_depth(listener, queue_length(sk, listener->endpoint));
	if (listener->endpoint != ENDPOINT_TCP) {
		blocked_client_queued(listener, now);
		queue_unix_connections(sk, listener, now);
		return;
	}
	counts = cpu_counts();
	if (!counts || !counts->established_child)
		return;
	queue_connection(counts->established_child, (u64)sk, listener, now);
	client_queued(counts->established_child, listener);
}

static __always_inline void count_acceptor(address_t sk, u64 inode, struct task_struct *task)
{
	struct acceptor acceptor = {
		.listener = sk,
		.inode = inode,
		.tgid = tgid_of(task),
		.tid = tid_of(task),
	};
	count_t *accepted = bpf_map_lookup_elem(&acceptors, &acceptor);
	count_t one = 1;

	if (accepted)
		*accepted += 1;	/* only this thread counts here */
	else if (bpf_map_update_elem(&acceptors, &acceptor, &one, BPF_ANY))
		shared_add(&listeners_turned_away, 1);
}

/* The time in the queue; of one that was queued before attach, since we came. False: of one
 * that was turned away nothing is known.
 */
static __always_inline bool connection_left_queue(struct task_struct *task, address_t sk, u64 inode,
						  struct connection *queued, ns_t now)
{
	struct listener *listener = bpf_map_lookup_elem(&listeners, &sk);
	ns_t wait = 0;

	if (!listener || listener->inode != inode)
		return true;
	shared_add(&listener->accepted, 1);
	count_acceptor(sk, inode, task);
	if (queued) {
		/* Another CPU may have queued it after this call ended. */
		wait = elapsed(queued->established_ns, now);
	} else if (listener->accepted_early < listener->queued_before) {
		shared_add(&listener->accepted_early, 1);
		wait = now - listener->seen_ns;
	} else if (listener->accepted_no_room < listener->no_room) {
		shared_add(&listener->accepted_no_room, 1);
		return false;
	}
	shared_latency_add(&listener->wait, wait);
	return true;
}

/* From here on the connection has an inode and can have requests. */
static __always_inline void connection_accepted(struct task_struct *task, address_t sk, u64 inode,
						struct socket_ref *ref, ns_t now)
{
	struct connection *queued = bpf_map_lookup_elem(&connections, &ref->sk);
	struct connection *known = queued, *fresh;
	struct sock *accepted = (void *)ref->sk;

	if (queued && (queued->phase != PHASE_QUEUED || queued->listener_inode != inode))
		queued = NULL;
	if (!connection_left_queue(task, sk, inode, queued, now))
		return;
	if (queued) {
		queued->inode = ref->inode;
		queued->tgid = tgid_of(task);
		queued->accepted_ns = now;
		queued->unread = 0;
		queued->phase = PHASE_IDLE;
		return;
	}
	fresh = new_connection(ref->sk, known);
	if (!fresh)
		return;
	fresh->listener = sk;
	fresh->listener_inode = inode;
	fresh->established_ns = now;
	fresh->accepted_ns = now;
	fresh->tgid = tgid_of(task);
	fresh->role = ROLE_SERVED;
	fresh->endpoint = ref->endpoint;
	/* Sent before the connection had an entry: the bytes have waited since now at least. */
	if (BPF_CORE_READ(accepted, sk_receive_queue.qlen))
		fresh->arrived_ns = now;
	fresh->inode = ref->inode;
}

#endif
