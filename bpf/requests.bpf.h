/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns on accepted connections: bytes in, then bytes out, is one request. It
 * begins when its first byte reaches the receive queue and ends when the send
 * call that starts the reply returns.
 */
#ifndef REQUESTS_BPF_H
#define REQUESTS_BPF_H

#include "latency.bpf.h"
#include "sockets.bpf.h"

static __always_inline struct connection *connection_of(address_t sk, u64 inode)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);

	if (!connection || connection->inode != inode)
		return NULL;
	return connection;
}

static __always_inline void connection_closing(struct task_struct *task, u32 fd,
					       struct socket_ref *ref)
{
	struct file *file;

	if (!connection_of(ref->sk, ref->inode))
		return;
	file = file_of_fd(task, fd);
	if (file && is_last_reference(file))
		bpf_map_delete_elem(&connections, &ref->sk);
}

/* Bytes became readable. Later pieces of the same turn do not move its start. */
static __always_inline void bytes_arrived(address_t sk)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);

	if (connection && !connection->arrived_ns)
		connection->arrived_ns = bpf_ktime_get_ns();
}

static __always_inline void bytes_received(struct call_in_flight *call, bytes_t bytes)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return;
	connection->bytes_in += bytes;
	if (connection->phase != PHASE_RECEIVING) {
		connection->phase = PHASE_RECEIVING;
		connection->turn_ns = connection->arrived_ns ?: call->start_ns;
	}
	connection->arrived_ns = 0;
}

static __always_inline void bytes_sent(struct call_in_flight *call, bytes_t bytes, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);
	struct cpu_counts *counts;

	if (!connection)
		return;
	connection->bytes_out += bytes;
	if (connection->phase != PHASE_RECEIVING || connection->role != ROLE_SERVED)
		return;
	connection->phase = PHASE_REPLYING;
	connection->turns++;
	counts = cpu_counts();
	if (counts)
		latency_add(&counts->served, now - connection->turn_ns);
}

#endif
