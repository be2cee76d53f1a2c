/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests that share a connection: of HTTP/2, and of gRPC over it, each stream is one. It begins with the
 * first frame of headers that its client sends, and has its reply with the first that the server sends
 * (RFC 9113, 8.1). The heads of frames are read in the memory of the caller, and frames are followed from
 * call to call, in both directions. Where bytes were missed, what was open is forgotten, and the next call
 * begins anew.
 */
#ifndef STREAMS_BPF_H
#define STREAMS_BPF_H

#include "http2.bpf.h"
#include "requests.bpf.h"
#include "thread_slots.bpf.h"

#define FRAMES_AT_ONCE 32	/* that the verifier walks; buffers are counted, too */
#define FRAME_ROUNDS 256
#define NOBODY 1	/* no task's address */
#define RECV_MAX_NS 0xffffffffULL

static __always_inline struct frames *frames_of(struct streams *streams, u64 is_sent)
{
	return is_sent ? &streams->sent : &streams->received;
}

static __always_inline struct stream *stream_at(struct streams *streams, u64 place)
{
	return &streams->streams[place & (STREAMS_MAX - 1)];
}

/* A client numbers them 1, 3, 5. NULL: it has its reply, or is not known. */
static __always_inline struct stream *find_stream(struct streams *streams, u32 id)
{
	for (u64 i = 0; i < STREAMS_MAX && i <= streams->displaced; i++) {
		struct stream *stream = stream_at(streams, (id >> 1) + i);

		if (stream->id == id)
			return stream;
	}
	return NULL;
}

/* Where an older one has its place, the next will do. NULL: all are taken. */
static __always_inline struct stream *free_place(struct streams *streams, u32 id)
{
	for (u64 i = 0; i < STREAMS_MAX; i++) {
		struct stream *stream = stream_at(streams, (id >> 1) + i);

		if (stream->id)
			continue;
		if (i > streams->displaced)
			streams->displaced = i;
		return stream;
	}
	return NULL;
}

/* What is served there is not known request by request. */
static __always_inline void no_turn(struct connection *connection)
{
	u32 tgid = connection->tgid;
	struct cpu_counts *counts = cpu_counts();

	if (counts && connection->role == ROLE_SERVED)
		count_multiplexed(counts, bpf_map_lookup_elem(&servers, &tgid));
}

static __always_inline void stream_over(struct streams *streams, struct stream *stream)
{
	stream->in_progress_at = 0;
	stream->id = 0;
	shared_add(&streams->open, -1);
}

/* It waits for nobody any more. */
static __always_inline void own_stream_over(struct stream *stream, struct server *server)
{
	if (server && stream->before == server->epoch)
		shared_add(&server->asking, -1);
}

static __always_inline struct server *server_with(struct stream *stream)
{
	u32 tgid = stream->in_progress_at;

	return tgid ? bpf_map_lookup_elem(&servers, &tgid) : NULL;
}

/* No reply of these is seen. Returns how many there were. */
__noinline u64 streams_forgotten(address_t sk)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	u64 forgotten = 0;

	if (!streams || !streams->open)
		return 0;
	for (u64 i = 0; i < STREAMS_MAX; i++) {
		struct stream *stream = stream_at(streams, i);
		struct server *server;

		if (!stream->id)
			continue;
		forgotten++;
		server = server_with(stream);
		if (server && streams->asks_by_sending)
			own_stream_over(stream, server);
		else if (server)
			request_left(server);
		stream_over(streams, stream);
	}
	return forgotten;
}

/* Its connection is closed. */
__noinline u64 streams_gone(address_t sk)
{
	streams_forgotten(sk);
	bpf_map_delete_elem(&shared_connections, &sk);
	return 0;
}

/* When the one that waits longest was asked; 0: none is known to be open. */
__noinline u64 oldest_stream_ns(address_t sk, bytes_t bytes_in, bytes_t bytes_out)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	ns_t oldest_ns = 0;

	if (!streams || streams->open <= 0 || streams->received.moved != bytes_in ||
	    streams->sent.moved != bytes_out)
		return 0;
	for (u64 i = 0; i < STREAMS_MAX; i++) {
		struct stream *stream = stream_at(streams, i);

		if (stream->id && (!oldest_ns || stream->arrived_ns < oldest_ns))
			oldest_ns = stream->arrived_ns;
	}
	return oldest_ns;
}

/* ------------------------------------------------------------ what becomes of a stream */

static __always_inline void own_stream_begins(struct thread_state *state, struct stream *stream,
					      ns_t now)
{
	u32 tgid = current_tgid();
	struct server *server = server_of(tgid);

	if (!server || server->in_progress <= 0)
		return;
	settle_shares(server, state, (u64)current_task(), now);
	shared_add(&server->asking, 1);
	stream->before = server->epoch;
	stream->in_progress_at = tgid;
}

static __always_inline void note_received(struct stream *stream, ns_t before_ns, ns_t from_ns,
					  ns_t now)
{
	ns_t recv_ns = before_ns + elapsed(from_ns, now);

	stream->recv_ns = recv_ns < RECV_MAX_NS ? recv_ns : RECV_MAX_NS;
	stream->received_by = tid_of(current_task());
	stream->received_ns = now;
}

static __always_inline void served_stream_begins(struct thread_state *state, struct stream *stream,
						 struct connection *connection, ns_t now)
{
	ns_t start_ns = state->now.start_ns, arrived_ns = connection->before.came_ns;
	ns_t waits_from = arrived_ns > connection->accepted_ns ? arrived_ns :
								  connection->accepted_ns;

	stream->arrived_ns = arrived_ns;
	stream->recv_wait_ns = elapsed(waits_from, start_ns);
	note_received(stream, 0, start_ns > arrived_ns ? start_ns : arrived_ns, now);
	request_began(current_task(), state, connection, now);
	stream->in_progress_at = connection->in_progress_at;
	stream->before = connection->share_before_ns;
	connection->in_progress_at = 0;
}

/* Its client sends headers; trailers, if it has begun before. */
__noinline u64 stream_begins(address_t sk, u64 id)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct thread_state *state = thread_state_of(current_task());
	struct stream *stream;
	ns_t now;

	if (!connection || !streams || !state || (u32)id <= streams->last_id)
		return 0;
	streams->last_id = id;
	stream = free_place(streams, id);
	if (!stream) {
		no_turn(connection);
		return 0;
	}
	now = state->since_ns;
	stream->app_ns = 0;
	stream->received_ns = now;
	stream->in_progress_at = 0;
	stream->arrived_ns = state->now.start_ns;
	if (streams->asks_by_sending)
		own_stream_begins(state, stream, now);
	else
		served_stream_begins(state, stream, connection, now);
	stream->id = id;
	shared_add(&streams->open, 1);
	return 0;
}

/* A further piece of a request came. */
__noinline u64 stream_goes_on(address_t sk, u64 id)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct thread_state *state = thread_state_of(current_task());
	struct stream *stream = streams ? find_stream(streams, id) : NULL;
	ns_t now, start_ns;

	if (!stream || !state || streams->asks_by_sending)
		return 0;
	now = state->since_ns;
	start_ns = state->now.start_ns;
	if (stream->received_ns == now)
		return 0;
	stream->app_ns += elapsed(stream->received_ns, start_ns);
	note_received(stream, stream->recv_ns, start_ns, now);
	return 0;
}

/* As if it were the turn in progress of its connection. What its receiver did since is known until more
 * is received there.
 */
static __always_inline void served_stream_answered(struct thread_state *state,
						   struct connection *connection,
						   struct stream *stream, ns_t now)
{
	struct cpu_counts *counts = cpu_counts();
	bool is_receiver = stream->received_by == tid_of(current_task()) &&
			   stream->received_ns == connection->before.received_ns;

	connection->turn_ns = stream->arrived_ns;
	connection->recv_wait_ns = stream->recv_wait_ns;
	connection->recv_ns = stream->recv_ns;
	connection->app_ns = stream->app_ns;
	connection->rest_ns = 0;
	connection->received_ns = stream->received_ns;
	connection->receiver = is_receiver ? (u64)current_task() : NOBODY;
	connection->in_progress_at = stream->in_progress_at;
	connection->share_before_ns = stream->before;
	connection->replied_after_ns = elapsed(stream->arrived_ns, now);
	if (counts)
		record_turn(current_task(), counts, state, connection, &state->now, now);
	connection->turns++;
	connection->in_progress_at = 0;
}

static __always_inline void own_stream_answered(struct thread_state *state,
						struct connection *connection,
						struct stream *stream, ns_t now)
{
	struct server *server = server_with(stream);

	if (server)
		settle_shares(server, state, (u64)current_task(), now);
	own_stream_over(stream, server);
	connection->turns++;
	connection->turn_ns = stream->arrived_ns;
	connection->replied_after_ns = elapsed(stream->arrived_ns, now);
	count_answer(current_tgid(), connection, elapsed(connection->before.came_ns,
							  state->now.start_ns), now);
}

/* The server sends headers: the reply begins; trailers, where it has begun before. */
__noinline u64 stream_answered(address_t sk, u64 id)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct thread_state *state = thread_state_of(current_task());
	struct stream *stream = streams ? find_stream(streams, id) : NULL;

	if (!connection || !stream || !state)
		return 0;
	if (streams->asks_by_sending)
		own_stream_answered(state, connection, stream, state->since_ns);
	else
		served_stream_answered(state, connection, stream, state->since_ns);
	stream_over(streams, stream);
	return 0;
}

/* The client did not want to wait any longer, or the program did not want to reply. */
static __always_inline void served_stream_unanswered(struct server *server, struct stream *stream,
						     bool client_left, ns_t now)
{
	ns_t waited_ns = elapsed(stream->received_ns, now);

	if (!server)
		return;
	/* Else clang may add to it before it is known to be there, which the verifier refuses. */
	barrier_var(server);
	shared_add(client_left ? &server->given_up : &server->dropped, 1);
	shared_add(client_left ? &server->given_up_ns : &server->dropped_ns, waited_ns);
	if (client_left)
		shared_add(&server->given_up_upstream_ns,
			   elapsed(stream->before, server->share_ns));
	request_left(server);
}

static __always_inline void own_stream_unanswered(struct server *server, struct stream *stream,
						  struct connection *connection, bool is_there,
						  ns_t now)
{
	struct upstream *upstream = upstream_entry(connection->upstream);

	own_stream_over(stream, server);
	if (upstream)
		count_no_answer(upstream, connection, elapsed(stream->arrived_ns, now), is_there);
}

/* By a reset: of the client, which does not want to wait any longer, or of the server, which may only have
 * refused to take so many at once: its client asks again then.
 */
__noinline u64 stream_reset(address_t sk, u64 id, u64 by_client)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct thread_state *state = thread_state_of(current_task());
	struct stream *stream = streams ? find_stream(streams, id) : NULL;
	struct server *server;
	ns_t now;

	if (!connection || !stream || !state)
		return 0;
	server = server_with(stream);
	now = state->since_ns;
	if (server)
		settle_shares(server, state, (u64)current_task(), now);
	if (!streams->asks_by_sending)
		served_stream_unanswered(server, stream, by_client, now);
	else if (by_client)
		own_stream_unanswered(server, stream, connection, true, now);
	else
		own_stream_over(stream, server);
	stream_over(streams, stream);
	return 0;
}

/* Once for each place of a stream that may be open there. A function of its own: the verifier walks it once. */
__noinline u64 stream_unanswered(address_t sk, u64 place, u64 other_left)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	ns_t now = bpf_ktime_get_ns();
	struct stream *stream;
	struct server *server;

	if (!connection || !streams)
		return 0;
	stream = stream_at(streams, place);
	if (!stream->id)
		return 0;
	server = server_with(stream);
	if (streams->asks_by_sending)
		own_stream_unanswered(server, stream, connection, !other_left, now);
	else
		served_stream_unanswered(server, stream, other_left, now);
	stream_over(streams, stream);
	return 0;
}

/* The connection ends, by the other end where `other_left`: what is open there has no reply. */
__noinline u64 streams_unanswered(address_t sk, u64 other_left)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);

	if (!streams || streams->open <= 0 || ended_ns)
		return 0;
	for (u64 i = 0; i < STREAMS_MAX; i++)
		stream_unanswered(sk, i, other_left);
	return 0;
}

/* ------------------------------------------------------------ frames */

static __always_inline void pass(struct frames *frames, u64 bytes)
{
	frames->at += bytes;
	frames->length -= bytes;
	frames->rest -= bytes;
}

static __always_inline bool next_buffer(struct frames *frames)
{
	struct user_buffer buffer;

	if (!frames->next || bpf_probe_read_user(&buffer, sizeof(buffer), (void *)frames->next))
		return false;
	frames->next += sizeof(buffer);
	frames->at = buffer.at;
	frames->length = buffer.length < frames->rest ? buffer.length : frames->rest;
	return true;
}

/* Bytes that never were in the memory of the caller (sendfile, splice) are all of one frame. */
static __always_inline bool pass_unseen(struct frames *frames)
{
	if (frames->left < frames->rest)
		return false;
	frames->left -= frames->rest;
	frames->rest = 0;
	return true;
}

static __always_inline bool read_head(struct frames *frames)
{
	u64 have = frames->have & 0xf;
	u64 part = FRAME_HEAD_BYTES - have;

	if (part > frames->length)
		part = frames->length;
	part = at_most(part, FRAME_HEAD_BYTES);
	if (bpf_probe_read_user(frames->head + have, part, (void *)frames->at))
		return false;
	frames->have = have + part;
	pass(frames, part);
	return true;
}

/* Its head is read. False: it is none. */
static __always_inline bool frame_begins(address_t sk, struct streams *streams,
					 struct frames *frames, u64 is_sent)
{
	struct frame_head *head = (void *)frames->head;
	u32 id = stream_of(head);
	bool asks = is_sent == streams->asks_by_sending;
	u32 size = frame_size(head);

	if (!size)
		return false;
	frames->have = 0;
	frames->left = size - FRAME_HEAD_BYTES;
	if (head->type == FRAME_RST_STREAM)
		stream_reset(sk, id, asks);
	else if (head->type == FRAME_HEADERS && asks)
		stream_begins(sk, id);
	else if (head->type == FRAME_HEADERS)
		stream_answered(sk, id);
	else if (head->type == FRAME_DATA && asks)
		stream_goes_on(sk, id);
	return true;
}

/* False: these are no frames, or not known. */
static __always_inline bool next_step(address_t sk, struct streams *streams, struct frames *frames,
				      u64 is_sent)
{
	u64 part = frames->left;

	if (!frames->length)
		return next_buffer(frames) || pass_unseen(frames);
	if (part) {
		if (part > frames->length)
			part = frames->length;
		frames->left -= part;
		pass(frames, part);
		return true;
	}
	if (!read_head(frames))
		return false;
	return frames->have < FRAME_HEAD_BYTES || frame_begins(sk, streams, frames, is_sent);
}

/* The next ones of the call. Returns the bytes that are to come after them, or -1. */
__noinline u64 follow_frames(address_t sk, u64 is_sent)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct frames *frames;

	if (!streams)
		return 0;
	frames = frames_of(streams, is_sent);
	for (u64 i = 0; i < FRAMES_AT_ONCE && frames->rest; i++) {
		if (!next_step(sk, streams, frames, is_sent))
			return -1;
	}
	return frames->rest;
}

/* What was asked, or answered, in between is not known. */
static __always_inline void begin_anew(address_t sk, struct connection *connection,
				       struct frames *frames)
{
	frames->left = 0;
	frames->have = 0;
	streams_forgotten(sk);
	no_turn(connection);
}

static __always_inline u64 follow_call(address_t sk, struct user_buffer *buffer, u64 next,
				       bytes_t bytes, u64 is_sent)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);
	struct frames *frames;
	bytes_t moved;
	u64 rest;

	if (!connection || !streams)
		return 0;
	frames = frames_of(streams, is_sent);
	moved = is_sent ? connection->bytes_out : connection->bytes_in;
	if (frames->moved + bytes != moved)
		begin_anew(sk, connection, frames);
	if (moved == bytes && is_preface(buffer->at, buffer->length))
		frames->left = PREFACE_BYTES;
	frames->at = buffer->at;
	frames->length = buffer->length;
	frames->next = next;
	frames->rest = rest = bytes;
	for (u64 i = 0; i < FRAME_ROUNDS && rest && rest != -1ULL; i++)
		rest = follow_frames(sk, is_sent);
	frames->moved = rest ? 0 : moved;
	return 0;
}

/* Of a connection that speaks HTTP/2, by a call that is returning. Global functions, as look_for_protocol. */
__noinline u64 frames_received(address_t sk, u64 at, u64 length, u64 next, bytes_t bytes)
{
	struct user_buffer buffer = { .at = at, .length = length };

	return follow_call(sk, &buffer, next, bytes, false);
}

__noinline u64 frames_sent(address_t sk, u64 at, u64 length, u64 next, bytes_t bytes)
{
	struct user_buffer buffer = { .at = at, .length = length };

	return follow_call(sk, &buffer, next, bytes, true);
}

#endif
