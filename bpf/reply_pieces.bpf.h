/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replies in pieces: from the first piece to the last, and the pauses in between in which there was
 * room, and nothing came. Of HTTP/1 and FastCGI, where all that follows a status is the reply. It
 * counts when it is over: its last chunk came, another request, or who replies ends the connection. A
 * stream that its client leaves has no end. Of PostgreSQL, whose replies end with ReadyForQuery, and
 * MySQL, whose rows end with a packet of their own.
 */
#ifndef REPLY_PIECES_BPF_H
#define REPLY_PIECES_BPF_H

#include "stops.bpf.h"
#include "upstream.bpf.h"
#include "whole_requests.bpf.h"

#define ACTIVITY_UNIT_BITS 8	/* of `piece_activity`: 256 ns, up to 18 minutes */

/* Its status shows that it is one of HTTP when its bytes have been looked at. */
static __always_inline void first_piece(struct connection *connection, ns_t now)
{
	connection->first_piece_ns = now;
	connection->last_piece_ns = 0;
}

static __always_inline void note_activities_now(struct connection *connection,
						struct thread_state *state)
{
	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		connection->app_activity_ns[i] = state->activity_ns[i];
}

static __always_inline void first_piece_sent(struct connection *connection, u64 thread,
					     struct thread_state *state, ns_t now)
{
	first_piece(connection, now);
	connection->receiver = thread;
	note_activities_now(connection, state);
}

static __always_inline void follow_pieces(struct connection *connection, address_t sk)
{
	bool is_more;

	if (connection->is_endless || connection->is_multiplexed)
		return;
	is_more = connection->role == ROLE_UPSTREAM && has_unread(sk, connection->endpoint);
	connection->last_piece_ns = connection->first_piece_ns;
	connection->quiet_since_ns = is_more ? 0 : connection->first_piece_ns;
	connection->paused_ns = 0;
	connection->is_piece_known = 0;
	__builtin_memset(connection->piece_activity, 0, sizeof(connection->piece_activity));
}

static __always_inline void later_piece(struct connection *connection, bool after_pause,
					ns_t began_ns, ns_t now)
{
	ns_t since_ns = connection->quiet_since_ns;

	connection->last_piece_ns = now;
	connection->quiet_since_ns = now;
	if (after_pause && began_ns > since_ns)
		connection->paused_ns += began_ns - since_ns;
}

/* Of the thread since the last piece. */
static __subprogram int note_activities(struct connection *connection, struct thread_state *state,
					struct call_in_flight *call, ns_t now)
{
	ns_t on_cpu = elapsed(call->off_cpu_ns, now - call->start_ns);

	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		connection->piece_activity[i] +=
			spent_before_send(state, connection, call, i, on_cpu) >>
			ACTIVITY_UNIT_BITS;
	return 0;
}

/* `state`: of the thread that sent the first piece, or NULL. Where there was no room it was not the
 * sender that paused.
 */
static __always_inline void piece_sent(struct connection *connection, struct thread_state *state,
				       struct call_in_flight *call, bool had_room, ns_t now)
{
	if (state && had_room)
		note_activities(connection, state, call, now);
	if (state)
		note_activities_now(connection, state);
	later_piece(connection, had_room, call->start_ns, now);
}

static __always_inline void piece_received(struct connection *connection, address_t sk,
					   ns_t now)
{
	bool was_read = connection->quiet_since_ns;

	later_piece(connection, was_read, connection->arrived_ns ?: now, now);
	if (has_unread(sk, connection->endpoint))
		connection->quiet_since_ns = 0;
}

static __always_inline void count_pieces(struct pieces *pieces, struct connection *connection)
{
	shared_add(&pieces->count, 1);
	shared_add(&pieces->transfer_ns, connection->last_piece_ns - connection->first_piece_ns);
	shared_add(&pieces->paused_ns, connection->paused_ns);
}

static __always_inline void count_activities(struct server *server, struct connection *connection)
{
	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		if (connection->piece_activity[i])
			shared_add(&server->paused_activity_ns[i],
				   (ns_t)connection->piece_activity[i] << ACTIVITY_UNIT_BITS);
}

static __always_inline void count_reply(struct connection *connection)
{
	u32 tgid = connection->tgid;
	struct upstream *upstream;
	struct server *server;

	if (connection->role == ROLE_UPSTREAM) {
		upstream = upstream_entry(connection->upstream);
		if (upstream)
			count_pieces(&upstream->pieces, connection);
		return;
	}
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (!server)
		return;
	count_pieces(&server->pieces, connection);
	count_activities(server, connection);
}

/* What was its last piece so far is its last one. */
static __always_inline void last_piece(struct connection *connection)
{
	if (connection->last_piece_ns > connection->first_piece_ns)
		count_reply(connection);
	connection->last_piece_ns = 0;
}

/* There is another request, or the connection ends: of HTTP the reply is over. A database says
 * where it is, and goes on to speak where it replicates.
 */
static __subprogram int reply_ended(struct connection *connection)
{
	if (connection->reply_looks == SPEAKS_HTTP)
		last_piece(connection);
	connection->last_piece_ns = 0;
	return 0;
}

/* The connection ends. Whoever asked may have left an endless stream: only a proxy's own requests,
 * which explain its replies, count then.
 */
static __always_inline void pieces_end(struct connection *connection, address_t sk)
{
	if (connection->last_piece_ns && (connection->role == ROLE_UPSTREAM ||
					  client_is_there(sk, connection->endpoint)))
		reply_ended(connection);
}

#endif
