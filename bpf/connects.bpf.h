/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * connect() on Unix sockets, whoever calls it: refused, or made to wait because
 * the queue is full. A thread that went to sleep in there slept for exactly
 * that (net/unix/af_unix.c, unix_wait_for_peer).
 */
#ifndef CONNECTS_BPF_H
#define CONNECTS_BPF_H

#include "listeners.bpf.h"

#define EINPROGRESS 115
#define TCP_SYN_SENT 2

static __always_inline bool is_unix_with_queue(u8 endpoint)
{
	return endpoint == ENDPOINT_UNIX_STREAM || endpoint == ENDPOINT_UNIX_SEQPACKET;
}

/* In one read, for whoever asks while the call lasts; exact when it fails. */
static __always_inline void name_at_entry(u64 address, u32 length, struct socket_name *name)
{
	if (length > SUN_PATH_AT + SUN_PATH_LEN)
		length = SUN_PATH_AT + SUN_PATH_LEN;
	if (length < SUN_PATH_AT || bpf_probe_read_user(&name->port, length, (void *)address))
		return;
	name->family = name->port;
	name->port = 0;
	name->length = length - SUN_PATH_AT;
}

static __noinline void connect_entered(struct task_struct *task, struct pt_regs *regs)
{
	struct connecting connecting = {}, *before;
	bool compat = is_compat(task);
	struct socket_ref ref = {};
	u32 tid = task_read(task, pid);

	resolve_fd(task, first_argument(regs, compat), &ref);
	if (!is_unix_with_queue(ref.endpoint))
		return;
	connecting.sk = ref.sk;
	connecting.tgid = tgid_of(task);
	connecting.sleeps = task_read(task, nvcsw);
	connecting.mount_ns = mount_ns_of(task);
	connecting.net_ns = net_ns_of(task);
	name_at_entry(second_argument(regs, compat), third_argument(regs, compat),
		      &connecting.name);
	connecting.newest_listener_ns = newest_listener_ns;
	connecting.start_ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&connectings, &tid, &connecting, BPF_NOEXIST))
		return;
	before = bpf_map_lookup_elem(&connectings, &tid);
	/* Restarted after a signal: it has waited since it began. */
	if (before && before->sk == ref.sk) {
		before->interrupted = 0;
		return;
	}
	if (bpf_map_update_elem(&connectings, &tid, &connecting, BPF_ANY))
		shared_add(&connects_turned_away, 1);
}

/* Killed while it waited. */
static __always_inline void connecting_thread_exited(struct task_struct *task)
{
	u32 tid = task_read(task, pid);

	bpf_map_delete_elem(&connectings, &tid);
}

/* Through the other end, which knows whose queue it is or was in. */
static __always_inline struct listener *listener_connected_to(address_t sk)
{
	struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	struct connection *connection;
	address_t address = (u64)peer;

	connection = bpf_map_lookup_elem(&connections, &address);
	return connection ? bpf_map_lookup_elem(&listeners, &connection->listener) : NULL;
}

static __always_inline void connect_failed(struct pt_regs *regs, bool compat,
					   struct connecting *connecting, long error)
{
	struct failed_connect failed = {
		.tgid = connecting->tgid,
		.mount_ns = connecting->mount_ns,
		.net_ns = connecting->net_ns,
		.error = error,
		.newest_listener_ns = connecting->newest_listener_ns,
	};
	count_t *count, one = 1;

	/* Memory that was not there when the call began is there now. */
	if (!name_given(second_argument(regs, compat), third_argument(regs, compat), &failed.name))
		return;
	count = bpf_map_lookup_elem(&failed_connects, &failed);
	if (count)
		shared_add(count, 1);
	else if (bpf_map_update_elem(&failed_connects, &failed, &one, BPF_ANY))
		shared_add(&connects_turned_away, 1);
}

static __noinline void connect_returned(struct task_struct *task, struct pt_regs *regs, long ret)
{
	struct connecting *connecting;
	struct listener *listener;
	u32 tid = task_read(task, pid);

	connecting = bpf_map_lookup_elem(&connectings, &tid);
	if (!connecting)
		return;
	if (ret == -512) {
		connecting->interrupted = 1;
		return;
	}
	if (ret < 0) {
		connect_failed(regs, is_compat(task), connecting, -ret);
	} else if (task_read(task, nvcsw) != connecting->sleeps) {
		listener = listener_connected_to(connecting->sk);
		if (listener)
			shared_latency_add(&listener->blocked,
					   bpf_ktime_get_ns() - connecting->start_ns);
	}
	bpf_map_delete_elem(&connectings, &tid);
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

/* connect() said that it goes on, and it failed: net/ipv4/tcp.c, tcp_done_with_error
 * (tcp_reset and tcp_write_err before it) sets the error and then the state. Whoever
 * closes the socket meanwhile leaves no error.
 */
static __always_inline void failed_in_background(struct sock *sk, ns_t began_ns)
{
	struct destination destination = { .endpoint = ENDPOINT_TCP, .in_background = 1 };

	destination.error = BPF_CORE_READ(sk, sk_err);
	if (!destination.error)
		return;
	name_of_peer(sk, &destination.name);
	count_destination(&destination, bpf_ktime_get_ns() - began_ns);
}

static __always_inline void tcp_state_changed(struct sock *sk, int before, int after)
{
	struct connection *connection;
	struct cpu_counts *counts;
	address_t address = (u64)sk;

	if (before == TCP_SYN_RECV && after == TCP_ESTABLISHED) {
		counts = cpu_counts();
		if (counts)
			counts->established_child = address;
		return;
	}
	if (after != TCP_CLOSE)
		return;
	connection = bpf_map_lookup_elem(&connections, &address);
	if (!connection)
		return;
	if (before == TCP_SYN_SENT && connection->role == ROLE_UPSTREAM)
		failed_in_background(sk, connection->established_ns);
	connection_gone(connection);
	bpf_map_delete_elem(&connections, &address);
}

/* On loopback the refusal is there before connect() returns: nothing is in progress any more. */
static __always_inline bool is_over_already(address_t at)
{
	return BPF_CORE_READ((struct sock *)at, __sk_common.skc_state) == TCP_CLOSE;
}

#endif
