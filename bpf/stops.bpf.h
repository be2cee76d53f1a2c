/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long senders are stopped because there is no room. They sleep in a send call, or a call found
 * a full buffer, or left one before it had sent all, and the next one that moves bytes has not come.
 * In the second case only the time counts that the thread slept for events, if it makes both calls:
 * else it did other work.
 */
#ifndef STOPS_BPF_H
#define STOPS_BPF_H

#include "queues.bpf.h"

/* What is looked for in the arguments of a call that moved bytes, and in the first of these. */
enum look {
	LOOK_PROTOCOL = 1,
	LOOK_REPLY = 2,
	LOOK_PIECE = 4,
	LOOK_HELLO = 16,	/* at what a target asks: its TLS handshake? */
	LOOK_SHORT = 8,		/* a send call left a full buffer: it was to send more */
	LOOK_GOODBYE = 32,	/* as long as a database's client says that it has no more to ask */
	LOOK_STREAMS = 64,	/* at the frames of a connection that they share */
};

static __always_inline bool is_full(address_t at, u8 endpoint)
{
	struct sock *sk = (void *)at;
	s64 unsent, room;

	if (!direct_loads)
		return (s64)unsent_bytes_probed(at, endpoint) >= BPF_CORE_READ(sk, sk_sndbuf);
	sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	room = sk->sk_sndbuf;
	unsent = unsent_bytes_direct(at, endpoint);
	return unsent >= room;
}

/* A runtime with threads of its own waits for events with a lock. */
static __always_inline ns_t asleep_for_events(struct thread_state *state)
{
	return state->activity_ns[ACTIVITY_BLOCKED_POLL] +
	       state->activity_ns[ACTIVITY_BLOCKED_LOCK];
}

static __always_inline void sender_stopped(struct connection *connection, u64 thread,
					   struct thread_state *state, ns_t now)
{
	if (connection->stopped_since_ns)
		return;
	connection->stopped_since_ns = now;
	connection->stopped_thread = thread;
	connection->stopped_asleep_ns = asleep_for_events(state);
	connection->stops++;
}

static __always_inline void sender_goes_on(struct connection *connection, u64 thread,
					   struct thread_state *state, ns_t began_ns)
{
	ns_t since = connection->stopped_since_ns, stopped_ns, asleep_ns;

	if (!since)
		return;
	connection->stopped_since_ns = 0;
	if (!connection->stopped_thread)
		return;
	stopped_ns = began_ns > since ? began_ns - since : 0;
	asleep_ns = asleep_for_events(state) - connection->stopped_asleep_ns;
	if (connection->stopped_thread == thread && asleep_ns < stopped_ns)
		stopped_ns = asleep_ns;
	connection->stopped_ns += stopped_ns;
}

/* For want of room: now it is at its fullest, when the call returns it need not be. */
static __always_inline void send_fell_asleep(struct thread_state *state)
{
	struct call_in_flight *call = &state->now;
	struct connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return;
	connection->send_sleeps++;
	/* A reply can take longer than the observation: count the sleep of its call so far. */
	connection->asleep_in_call_ns =
		state->activity_ns[ACTIVITY_BLOCKED_SEND] - call->send_blocked_before_ns;
	note_send_queue(connection, call->sk);
}

#endif
