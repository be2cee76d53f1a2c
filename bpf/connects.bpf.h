/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * connect() on Unix sockets, whoever calls it: refused, or made to wait because
 * the queue is full. A thread that went to sleep in there slept for exactly
 * that (net/unix/af_unix.c, unix_wait_for_peer).
 */
#ifndef CONNECTS_BPF_H
#define CONNECTS_BPF_H

#include "handshakes.bpf.h"
#include "listeners.bpf.h"
#include "upstream.bpf.h"

/* Stands for the voluntary switches of a thread that slept in connect() at attach: a number that
 * no thread reaches.
 */
#define SLEPT_BEFORE (~0ULL)

static __always_inline bool is_unix_with_queue(u8 endpoint)
{
	return endpoint == ENDPOINT_UNIX_STREAM || endpoint == ENDPOINT_UNIX_SEQPACKET;
}

static __subprogram int connect_entered(struct task_struct *task, struct pt_regs *regs)
{
	struct connecting connecting = {}, *before;
	struct socket_ref ref = {};
	u32 tid = task_read(task, pid);

	resolve_fd(task, first_argument(regs, is_compat(task)), &ref);
	if (!is_unix_with_queue(ref.endpoint))
		return 0;
	connecting.sk = ref.sk;
	connecting.sleeps = task_read(task, nvcsw);
	connecting.newest_listener_ns = newest_listener_ns;
	connecting.start_ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&connectings, &tid, &connecting, BPF_NOEXIST))
		return 0;
	before = bpf_map_lookup_elem(&connectings, &tid);
	/* Restarted after a signal: it has waited since it began. */
	if (before && before->sk == ref.sk)
		return 0;
	if (bpf_map_update_elem(&connectings, &tid, &connecting, BPF_ANY))
		shared_add(&connects_turned_away, 1);
	return 0;
}

/* Killed while it waited. */
static __always_inline void connecting_thread_exited(struct task_struct *task)
{
	u32 tid = task_read(task, pid);

	bpf_map_delete_elem(&connectings, &tid);
}

/* Where nobody reports arrivals: found through the other end of the connection, whose entry names
 * the listener once it is accepted.
 */
static __always_inline struct listener *listener_connected_to(address_t sk)
{
	struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	struct connection *connection;
	address_t address = (u64)peer;

	connection = bpf_map_lookup_elem(&connections, &address);
	return connection ? bpf_map_lookup_elem(&listeners, &connection->listener) : NULL;
}

static __always_inline void connect_failed(struct task_struct *task, struct pt_regs *regs,
					   struct connecting *connecting, long error)
{
	struct failed_connect failed = {
		.tgid = tgid_of(task),
		.mount_ns = mount_ns_of(task),
		.net_ns = net_ns_of(task),
		.error = error,
		.newest_listener_ns = connecting->newest_listener_ns,
	};
	bool compat = is_compat(task);
	count_t *count, one = 1;

	/* Read now: the memory may not have been mapped when the call began. */
	if (!name_given(second_argument(regs, compat), third_argument(regs, compat), &failed.name))
		return;
	count = bpf_map_lookup_elem(&failed_connects, &failed);
	if (count)
		shared_add(count, 1);
	else if (bpf_map_update_elem(&failed_connects, &failed, &one, BPF_ANY))
		shared_add(&connects_turned_away, 1);
}

/* The socket of a call whose entry was not seen. */
static __always_inline address_t socket_called(struct task_struct *task, struct pt_regs *regs)
{
	struct socket_ref ref = {};

	resolve_fd(task, first_argument(regs, is_compat(task)), &ref);
	return as_number(ref.sk);
}

static __subprogram int connect_returned(struct task_struct *task, struct pt_regs *regs, long ret)
{
	struct connecting *connecting;
	struct listener *listener;
	u32 tid = task_read(task, pid);

	connecting = bpf_map_lookup_elem(&connectings, &tid);
	if (!connecting)
		return 0;
	if (!connecting->sk)
		connecting->sk = socket_called(task, regs);
	if (ret == -512)
		return 0;
	if (ret < 0) {
		connect_failed(task, regs, connecting, -ret);
	} else if (!connecting->is_counted && has_slept(task, connecting)) {
		listener = listener_connected_to(connecting->sk);
		if (listener)
			shared_latency_add(&listener->blocked,
					   bpf_ktime_get_ns() - connecting->start_ns);
	}
	bpf_map_delete_elem(&connectings, &tid);
	return 0;
}

static __always_inline void count_destination(struct destination *destination, ns_t took_ns)
{
	struct destination_counts *counts = bpf_map_lookup_elem(&destinations, destination);

	if (!counts) {
		bpf_map_update_elem(&destinations, destination, &no_destination_counts,
				    BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&destinations, destination);
	}
	if (counts)
		shared_latency_add(&counts->latency, took_ns);
	else
		shared_add(&connects_turned_away, 1);
}

/* A target's own connects, of every family. */
static __always_inline void destination_reached(struct arguments *arguments, u8 endpoint, long ret,
						ns_t took_ns)
{
	struct destination destination = { .error = ret < 0 ? -ret : 0, .endpoint = endpoint };

	if (name_given(arguments->second, arguments->third, &destination.name))
		count_destination(&destination, took_ns);
}

/* connect() returned EINPROGRESS, and what became of the connection is told later. */
static __always_inline void ended_in_background(struct sock *sk, int error, ns_t began_ns)
{
	struct destination destination = {
		.error = error,
		.endpoint = ENDPOINT_TCP,
		.in_background = 1,
	};

	name_of_peer(sk, &destination.name);
	count_destination(&destination, bpf_ktime_get_ns() - began_ns);
}

/*
 * tcp_done_with_error (net/ipv4/tcp.c; before it existed, tcp_reset and tcp_write_err) sets the
 * error and then the state. Where the program closes the socket before that, there is `if_none`.
 */
static __always_inline void failed_in_background(struct sock *sk, ns_t began_ns, int if_none)
{
	int error = BPF_CORE_READ(sk, sk_err) ?: if_none;

	if (error)
		ended_in_background(sk, error, began_ns);
}

/* Its first SYN was not answered before connect() returned. */
static __always_inline void connected_in_background(struct sock *sk)
{
	address_t address = (u64)sk;
	struct connection *connection = bpf_map_lookup_elem(&connections, &address);

	if (connection && connection->role == ROLE_UPSTREAM)
		ended_in_background(sk, 0, connection->established_ns);
}

static __always_inline void tcp_state_changed(struct sock *sk, int before, int after)
{
	struct connection *connection;
	struct cpu_counts *counts;
	address_t address = (u64)sk;

	if (after == TCP_SYN_SENT)
		handshake_began(address);
	else if (before == TCP_SYN_SENT)
		handshake_over(sk, after);
	if (before == TCP_SYN_SENT && after == TCP_ESTABLISHED)
		connected_in_background(sk);
	if (before == TCP_SYN_RECV && after == TCP_ESTABLISHED) {
		counts = cpu_counts();
		if (counts)
			counts->established_child = address;
		return;
	}
	if (after != TCP_CLOSE && after != TCP_FIN_WAIT1)
		return;
	connection = bpf_map_lookup_elem(&connections, &address);
	if (!connection)
		return;
	note_tcp_end(connection, sk, before, after);
	if (after != TCP_CLOSE)
		return;
	if (before == TCP_SYN_SENT && connection->role == ROLE_UPSTREAM)
		failed_in_background(sk, connection->established_ns, ECANCELED);
	else if (connection->role == ROLE_UPSTREAM)
		upstream_reset(connection, sk);
	connection_gone(connection, as_number(address));
	bpf_map_delete_elem(&connections, &address);
}

/* On loopback the refusal is there before connect() returns: nothing is in progress any more. */
static __always_inline bool is_over_already(address_t at)
{
	return BPF_CORE_READ((struct sock *)at, __sk_common.skc_state) == TCP_CLOSE;
}

#endif
