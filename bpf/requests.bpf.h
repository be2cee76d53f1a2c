/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Turns on accepted connections: bytes in, then bytes out, is one request. It
 * begins when its first byte reaches the receive queue and ends when the send
 * call that starts the reply returns.
 */
#ifndef REQUESTS_BPF_H
#define REQUESTS_BPF_H

#include "latency.bpf.h"
#include "lookups.bpf.h"
#include "pushed_to.bpf.h"
#include "queues.bpf.h"
#include "reply_pieces.bpf.h"
#include "sockets.bpf.h"
#include "stops.bpf.h"
#include "tls.bpf.h"
#include "upstream.bpf.h"
#include "whole_requests.bpf.h"

static __always_inline struct listener *accepted_from(struct connection *connection)
{
	address_t at = connection->listener;
	struct listener *listener = at ? bpf_map_lookup_elem(&listeners, &at) : NULL;

	return listener && listener->inode == connection->listener_inode ? listener : NULL;
}

/* Of a program that has all the connections it allows itself, or that only speaks: which of the
 * two, others of its listener tell.
 */
static __always_inline void note_closed_unread(struct connection *connection, address_t sk)
{
	struct listener *listener;
	bool has_sent;

	if (connection->role != ROLE_SERVED || connection->bytes_in || !connection->accepted_ns ||
	    bpf_ktime_get_ns() - connection->accepted_ns >= AT_ONCE_NS)
		return;
	/* Before: a client that ends the connection in between is not there, and the FIN that it
	 * sends is no byte.
	 */
	has_sent = has_unread(sk, connection->endpoint);
	if (!client_is_there(sk, connection->endpoint))
		return;
	listener = accepted_from(connection);
	if (!listener)
		return;
	shared_add(&listener->closed_unread, 1);
	if (has_sent)
		shared_add(&listener->closed_unread_sent, 1);
}

static __always_inline void note_first_byte(struct connection *connection)
{
	struct listener *listener = accepted_from(connection);

	if (listener)
		shared_add(&listener->read_from, 1);
}

/* What becomes of it, tcp_state_changed tells. */
static __always_inline bool is_connecting(struct connection *connection, address_t sk)
{
	return connection->role == ROLE_UPSTREAM && connection->endpoint == ENDPOINT_TCP &&
	       BPF_CORE_READ((struct sock *)sk, __sk_common.skc_state) == TCP_SYN_SENT;
}

static __always_inline void connection_closing(struct task_struct *task,
					       struct thread_state *state, u32 fd,
					       struct socket_ref *ref)
{
	struct connection *connection = connection_of(ref->sk, ref->inode);
	struct file *file;

	if (!connection || is_connecting(connection, ref->sk))
		return;
	file = file_of_fd(task, fd);
	if (!file || !is_last_reference(file))
		return;
	note_closed_unread(connection, ref->sk);
	if (connection->endpoint == ENDPOINT_UDP)
		lookups_closed(connection);
	else if (connection->role == ROLE_UPSTREAM)
		upstream_closed(connection, ref->sk);
	pieces_end(connection, ref->sk);
	no_reply_will_come(task, state, connection, ref->sk);
	connection_gone(connection, ref->sk);
	bpf_map_delete_elem(&connections, &ref->sk);
}

/* shutdown(): as Node does before it closes what its client has closed. */
static __always_inline void sends_no_more(struct task_struct *task, struct thread_state *state,
					  struct socket_ref *ref)
{
	struct connection *connection = connection_of(ref->sk, ref->inode);

	if (!connection)
		return;
	if (connection->role == ROLE_SERVED)
		pieces_end(connection, ref->sk);
	if (connection->phase != PHASE_RECEIVING)
		return;
	no_reply_will_come(task, state, connection, ref->sk);
	request_gone(connection);
	connection->phase = PHASE_IDLE;
}

/* Whom they wake is woken in the same breath (sock_def_readable). */
static __always_inline void note_arrival(struct connection *connection, ns_t now)
{
	struct cpu_counts *cpu = cpu_counts();

	if (!cpu)
		return;
	cpu->arrival_ns = connection->peer_tgid ? now : 0;
	cpu->arrival_tgid = connection->tgid;
	cpu->arrival_peer = connection->peer_tgid;
}

static __always_inline void first_byte_arrived(struct connection *connection, ns_t now)
{
	connection->arrived_ns = now;
	if (!is_light && connection->role == ROLE_UPSTREAM && connection->phase == PHASE_ASKING)
		answer_came(connection, now);
}

/* Bytes became readable. Later pieces of the same turn do not move its start.
 * The event may come after a reader on another CPU has taken the bytes already.
 * TCP reports the end of the stream in the same way.
 */
static __always_inline void bytes_arrived(address_t sk)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);

	/* Datagrams come in the context of whoever an interrupt meets. */
	if (!connection || connection->endpoint == ENDPOINT_UDP)
		return;
	note_peer(connection, (struct sock *)sk);
	note_recv_queue(connection, sk);
	if (!connection->arrived_ns && has_unread(sk, connection->endpoint))
		first_byte_arrived(connection, bpf_ktime_get_ns());
	if (wakers_told && connection->endpoint == ENDPOINT_TCP)
		note_arrival(connection, bpf_ktime_get_ns());
}

static __always_inline void turn_began(struct connection *connection, struct thread_state *state,
				       ns_t arrived, ns_t recv_wait, ns_t recv)
{
	if (connection->last_piece_ns)
		reply_ended(connection);
	connection->phase = PHASE_RECEIVING;
	/* A client that asks again has the whole reply: it filled the buffer, and nothing waits. */
	connection->stopped_since_ns = 0;
	connection->turn_ns = arrived;
	connection->recv_wait_ns = recv_wait;
	connection->recv_ns = recv;
	connection->app_ns = 0;
	connection->rest_ns = 0;
	connection->before.received_ns = 0;
	connection->calls_before = state->calls_ended;
}

static __always_inline void begin_turn(struct connection *connection, struct thread_state *state,
				       struct call_in_flight *call, ns_t now)
{
	ns_t arrived = connection->leftover ? connection->turn_ns : connection->arrived_ns;
	ns_t waits_from;

	/* A server that waits inside the call has the bytes at once. */
	if (!arrived || arrived > now)
		arrived = call->start_ns;
	/* What arrived before accept() returned was waiting for that. */
	waits_from = arrived > connection->accepted_ns ? arrived : connection->accepted_ns;
	turn_began(connection, state, arrived, elapsed(waits_from, call->start_ns),
		   now - (call->start_ns > arrived ? call->start_ns : arrived));
}

#define SKBS_COUNTED 4
#define UNREAD_UNKNOWN 0xffffffffU

/* Where the kernel keeps no sum, for the few pieces of a request's end. */
static __subprogram int unread_in_first_skbs(struct sock *sk)
{
	struct sk_buff *end = (void *)&sk->sk_receive_queue;
	struct sk_buff *skb = BPF_CORE_READ(sk, sk_receive_queue.next);
	u32 bytes = 0;

	for (u32 i = 0; i < SKBS_COUNTED; i++) {
		struct unix_skb_parms *parms = (void *)&skb->cb;

		if (!skb || skb == end)
			return bytes;
		bytes += BPF_CORE_READ(skb, len) - BPF_CORE_READ(parms, consumed);
		skb = BPF_CORE_READ(skb, next);
	}
	return skb == end ? bytes : UNREAD_UNKNOWN;
}

/* At least 1 byte, or UNREAD_UNKNOWN; there are some. */
static __always_inline u32 count_unread(address_t sk, u8 endpoint)
{
	u32 bytes;

	if (!tells_unread_bytes(endpoint))
		bytes = unread_in_first_skbs((struct sock *)sk);
	else
		bytes = direct_loads ? unread_bytes_direct(sk, endpoint) :
				       unread_bytes_probed(sk, endpoint);
	return bytes ? bytes : 1;
}

static __always_inline void note_unread(struct connection *connection, struct call_in_flight *call,
					bytes_t bytes)
{
	bool is_more = has_unread(call->sk, call->endpoint);

	if (!is_more)
		connection->arrived_ns = 0;
	if (connection->leftover != LEFTOVER_UNREAD) {
		connection->unread = is_more ? count_unread(call->sk, call->endpoint) : 0;
	} else if (is_more && bytes < connection->unread) {
		connection->unread -= bytes;
	} else {
		connection->leftover = bytes > connection->unread ? LEFTOVER_JOINED : LEFTOVER_READ;
		connection->unread = is_more ? count_unread(call->sk, call->endpoint) : 0;
	}
}

/* True when what it speaks may be told by these bytes. */
static __always_inline bool is_worth_a_look(struct connection *connection)
{
	if (connection->looks >= LOOKS_MAX)
		return is_in_handshake(connection) || connection->is_pushed_to ||
		       (connection->is_multiplexed && connection->role == ROLE_SERVED);
	connection->looks++;
	return true;
}

/* At replies of a protocol that is known always, at others while they may be the answer to a login. */
static __always_inline bool is_reply_worth_a_look(struct connection *connection)
{
	if (connection->reply_looks >= SPEAKS_MYSQL)
		return true;
	if (connection->reply_looks >= REPLY_LOOKS_MAX)
		return false;
	connection->reply_looks++;
	return true;
}

static __always_inline int looks_at_answer(struct connection *connection, bool is_answer)
{
	int looks = is_worth_a_look(connection) ? LOOK_PROTOCOL : 0;

	return is_answer && is_reply_worth_a_look(connection) ? looks | LOOK_REPLY : looks;
}

static __always_inline int looks_for_goodbye(bytes_t bytes)
{
	return bytes == GOODBYE_BYTES ? LOOK_GOODBYE : 0;
}

static __always_inline int looks_at_question(struct connection *connection, bytes_t bytes)
{
	bool is_begun = connection->turns || connection->tls == TLS_OPEN;

	return looks_for_goodbye(bytes) | (is_begun ? 0 : LOOK_HELLO);
}

/* A further piece of a request. Only where a client asks one at a time, it is that: the same is true
 * of two requests of which the first one is slow.
 */
static __always_inline void request_goes_on(struct connection *connection,
					    struct call_in_flight *call, ns_t now)
{
	ns_t came = connection->arrived_ns;

	connection->before.received_ns = connection->received_ns;
	connection->before.recv_ns = connection->recv_ns;
	connection->before.app_ns = connection->app_ns;
	connection->before.rest_ns = connection->rest_ns;
	connection->before.came_ns = came && came <= now ? came : call->start_ns;
	connection->recv_ns += now - call->start_ns;
	connection->app_ns += elapsed(connection->received_ns, call->start_ns);
	if (connection->unread)
		return;
	if (!came || came > call->start_ns)
		came = call->start_ns;
	connection->rest_ns += elapsed(connection->received_ns, came);
}

/* Its streams are the requests, and what it received last belongs to any of them. */
static __always_inline int shared_bytes_received(struct thread_state *state,
						 struct connection *connection,
						 struct call_in_flight *call, ns_t now)
{
	ns_t came = connection->arrived_ns;

	connection->phase = PHASE_SHARED;
	connection->stopped_since_ns = 0;
	connection->before.came_ns = came && came <= now ? came : call->start_ns;
	connection->before.received_ns = now;
	if (!has_unread(call->sk, call->endpoint))
		connection->arrived_ns = 0;
	connection->calls_before = state->calls_ended;
	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		connection->app_activity_ns[i] = state->activity_ns[i];
	return LOOK_STREAMS;
}

/* Returns what is to be looked for in the bytes. */
static __always_inline int bytes_received(struct task_struct *task, struct thread_state *state,
					   struct call_in_flight *call, bytes_t bytes, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);
	bool is_first, is_answer;
	int looks = 0;

	if (!connection)
		return 0;
	note_whose(call, connection, bytes);
	if (!connection->bytes_in)
		note_first_byte(connection);
	connection->bytes_in += bytes;
	connection->tgid = tgid_of(task);
	connection->active = interval;
	if (connection->is_held)
		hold_ended(connection, call->sk);
	if (connection->is_multiplexed == STREAMS_FOLLOWED)
		return shared_bytes_received(state, connection, call, now);
	if (connection->role == ROLE_UPSTREAM) {
		connection->stopped_since_ns = 0;
		if (connection->last_piece_ns) {
			piece_received(connection, call->sk, now);
			looks = LOOK_PIECE;
		}
		/* Some servers speak first. */
		is_first = connection->bytes_in == bytes;
		is_answer = upstream_answered(task, state, connection, call->start_ns, now);
		if (is_answer)
			first_piece(connection, now);
		return looks | looks_at_answer(connection, is_answer || is_first);
	}
	if (connection->phase == PHASE_RECEIVING && connection->leftover == LEFTOVER_READ) {
		leftover_dropped(connection);
		connection->phase = PHASE_IDLE;
	}
	if (connection->phase != PHASE_RECEIVING) {
		begin_turn(connection, state, call, now);
		request_began(task, state, connection, now);
	} else {
		request_continued(connection, now);
		request_goes_on(connection, call, now);
		/* Its own count begins with its part of the request. */
		if (connection->receiver != (u64)task)
			connection->calls_before = state->calls_ended;
	}
	note_unread(connection, call, bytes);
	connection->received_ns = now;
	connection->receiver = (u64)task;
	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		connection->app_activity_ns[i] = state->activity_ns[i];
	return (is_worth_a_look(connection) ? LOOK_PROTOCOL : 0) | looks_for_goodbye(bytes);
}

/* That is all that was sent since the last reply: nobody waits for one to it. Who replies all the same
 * has served a request of another protocol.
 */
static __subprogram int goodbye_said(struct call_in_flight *call)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return 0;
	if (connection->phase == PHASE_ASKING && connection->turn_ns == call->start_ns)
		connection->receives |= SAID_GOODBYE;
	if (connection->phase == PHASE_RECEIVING && !connection->receives)
		connection->receives |= SPOKE_AGAIN;
	return 0;
}

/* What the thread did between the last receive call and this send call, and what was between the
 * receive calls.
 */
static __always_inline void record_app_activities(struct cpu_counts *counts, struct server *server,
						  struct thread_state *state,
						  struct connection *connection,
						  struct call_in_flight *call, ns_t now)
{
	ns_t on_cpu = elapsed(call->off_cpu_ns, now - call->start_ns);

	for (u32 i = 0; i < ACTIVITY_MAX; i++) {
		ns_t spent = spent_before_send(state, connection, call, i, on_cpu);

		if (!spent)
			continue;
		count_add(&counts->app_activity_ns[i], spent);
		if (server)
			shared_add(&server->app_activity_ns[i], spent);
	}
	if (server && connection->rest_ns && !connection->is_multiplexed)
		shared_add(&server->rest_ns, connection->rest_ns);
}

/* The same in the account of its process, which other threads write as well. */
static __subprogram int record_served(struct server *server, struct connection *connection,
				      struct call_in_flight *call, ns_t now)
{
	shared_latency_add(&server->latency, connection->replied_after_ns);
	if (connection->recv_wait_ns)
		shared_add(&server->stages_ns[STAGE_RECV_WAIT], connection->recv_wait_ns);
	shared_add(&server->stages_ns[STAGE_RECV], connection->recv_ns);
	shared_add(&server->stages_ns[STAGE_APP], connection->app_ns);
	shared_add(&server->stages_ns[STAGE_SEND], now - call->start_ns);
	if (connection->turns == 0 && connection->accepted_ns) {
		shared_add(&server->accept_waits, 1);
		shared_add(&server->stages_ns[STAGE_ACCEPT_WAIT],
			   connection->accepted_ns - connection->established_ns);
	}
	return 0;
}

/* Of the process that answers; its share of sleep is known where it received, too. */
static __subprogram int record_upstream_share(struct server *server, struct thread_state *state,
					      struct connection *connection,
					      struct task_struct *task, ns_t now)
{
	settle_shares(server, state, (u64)task, now);
	if (connection->receiver == (u64)task && connection->in_progress_at == tgid_of(task))
		shared_add(&server->upstream_ns,
			   elapsed(connection->share_before_ns, server->share_ns));
	return 0;
}

static __always_inline void count_multiplexed(struct cpu_counts *counts, struct server *server)
{
	count_add(&counts->multiplexed, 1);
	if (server)
		shared_add(&server->multiplexed, 1);
}

static __always_inline void count_no_turn(struct cpu_counts *counts, struct server *server,
					  struct connection *connection)
{
	if (connection->is_multiplexed == STREAMS_FOLLOWED) {
		count_add(&counts->streams, 1);
	} else if (connection->is_multiplexed) {
		count_multiplexed(counts, server);
	} else if (connection->leftover) {
		count_add(&counts->pipelined, 1);
		if (server)
			shared_add(&server->pipelined, 1);
	}
}

/* A quick client has the reply, and asks again, before the send call returns: what was unread
 * before the call is the leftover, and the rest has just arrived. The end of the stream looked
 * like a byte while it was being queued.
 */
static __subprogram int note_leftover(struct connection *connection, struct call_in_flight *call,
				      ns_t now)
{
	u32 unread;

	if (connection->leftover == LEFTOVER_UNREAD)
		return 0;
	connection->leftover = LEFTOVER_NONE;
	if (!connection->arrived_ns || connection->arrived_ns >= call->start_ns)
		return 0;
	if (!has_unread(call->sk, call->endpoint)) {
		connection->arrived_ns = 0;
		return 0;
	}
	unread = count_unread(call->sk, call->endpoint);
	if (!connection->unread)
		connection->unread = unread;
	connection->leftover = LEFTOVER_UNREAD;
	connection->turn_ns = connection->arrived_ns;
	connection->arrived_ns = unread > connection->unread ? now : 0;
	return 0;
}

static __always_inline void record_turn(struct task_struct *task, struct cpu_counts *counts,
					struct thread_state *state, struct connection *connection,
					struct call_in_flight *call, ns_t now)
{
	u32 tgid = tgid_of(task);
	struct server *server = server_of(tgid);

	/* Received while no call was seen, with detail "light". */
	if (!connection->receiver) {
		if (server)
			shared_latency_add(&server->latency, connection->replied_after_ns);
		latency_add(&counts->served, connection->replied_after_ns);
		request_gone(connection);
		return;
	}
	connection->app_ns += elapsed(connection->received_ns, call->start_ns);
	if (server) {
		record_upstream_share(server, state, connection, task, now);
		record_served(server, connection, call, now);
	}
	keep_if_slow(task, state, connection, call, now);
	request_answered(server, tgid, connection);
	latency_add(&counts->served, connection->replied_after_ns);
	latency_add(&counts->stages[STAGE_RECV_WAIT], connection->recv_wait_ns);
	latency_add(&counts->stages[STAGE_RECV], connection->recv_ns);
	latency_add(&counts->stages[STAGE_APP], connection->app_ns);
	latency_add(&counts->stages[STAGE_SEND], now - call->start_ns);
	if (connection->turns == 0 && connection->accepted_ns)
		latency_add(&counts->stages[STAGE_ACCEPT_WAIT],
			    connection->accepted_ns - connection->established_ns);
	count_no_turn(counts, server, connection);
	if (connection->is_multiplexed != STREAMS_FOLLOWED)
		note_leftover(connection, call, now);
	if (connection->receiver == (u64)task) {
		record_app_activities(counts, server, state, connection, call, now);
		return;
	}
	count_add(&counts->handed_over, 1);
	if (server)
		shared_add(&server->handed_over, 1);
}

/* The send call began after a request had come, and before the last receive call returned. A quick
 * client has the reply, and asks again, before the send call returns; another thread has received
 * that (Go's net/http reads on while it replies).
 */
static __always_inline bool is_overtaken(struct connection *connection, struct call_in_flight *call)
{
	ns_t before_ns = connection->before.received_ns;

	return before_ns && before_ns <= call->start_ns;
}

/* To the request that is replied to: what was received last is not of it. */
static __subprogram int leave_next_turn(struct connection *connection)
{
	ns_t received_ns = connection->received_ns;
	ns_t recv_ns = elapsed(connection->before.recv_ns, connection->recv_ns);

	connection->received_ns = connection->before.received_ns;
	connection->recv_ns = connection->before.recv_ns;
	connection->app_ns = connection->before.app_ns;
	connection->rest_ns = connection->before.rest_ns;
	connection->before.received_ns = received_ns;
	connection->before.recv_ns = recv_ns;
	return 0;
}

/* Which that began instead. */
static __subprogram int begin_next_turn(struct task_struct *task, struct thread_state *state,
					struct connection *connection, ns_t now)
{
	ns_t received_ns = connection->before.received_ns;
	ns_t came_ns = connection->before.came_ns;
	ns_t began_ns = elapsed(connection->before.recv_ns, received_ns);

	turn_began(connection, state, came_ns, elapsed(came_ns, began_ns),
		   elapsed(came_ns > began_ns ? came_ns : began_ns, received_ns));
	connection->received_ns = received_ns;
	request_began(task, state, connection, now);
	return 0;
}

/* Returns what is to be looked for in the bytes. */
static __always_inline int bytes_sent(struct task_struct *task, struct thread_state *state,
				      struct call_in_flight *call, bytes_t bytes, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);
	struct cpu_counts *counts;
	bool had_room, overtaken;
	int looks;

	if (!connection)
		return 0;
	had_room = !connection->stopped_since_ns;
	note_whose(call, connection, bytes);
	connection->bytes_out += bytes;
	connection->tgid = tgid_of(task);
	connection->active = interval;
	note_send_queue(connection, call->sk);
	note_held_send(connection, call->sk);
	sender_goes_on(connection, (u64)task, state, call->start_ns);
	looks = is_full(call->sk, connection->endpoint) ? LOOK_SHORT : 0;
	if (state->activity_ns[ACTIVITY_BLOCKED_SEND] > call->send_blocked_before_ns)
		send_waited(connection, state->activity_ns[ACTIVITY_BLOCKED_SEND] -
					call->send_blocked_before_ns);
	if (connection->is_multiplexed == STREAMS_FOLLOWED) {
		connection->phase = PHASE_SHARED;
		return looks | LOOK_STREAMS;
	}
	if (connection->role == ROLE_UPSTREAM) {
		if (connection->last_piece_ns && connection->phase != PHASE_ASKING)
			reply_ended(connection);
		upstream_asked(task, state, connection, call, now);
		return looks | looks_at_question(connection, bytes);
	}
	if (connection->phase == PHASE_ASKED_BEFORE)
		connection->phase = PHASE_REPLYING;
	if (connection->role == ROLE_SERVED && is_pushed_meanwhile(connection, bytes))
		return looks;
	if (connection->phase == PHASE_REPLYING && connection->last_piece_ns) {
		piece_sent(connection, connection->receiver == (u64)task ? state : NULL, call,
			   had_room, now);
		return looks | LOOK_PIECE;
	}
	if (connection->phase != PHASE_RECEIVING || connection->role != ROLE_SERVED ||
	    connection->sends_no_reply)
		return looks;
	/* The send call began before the request came: a push, for example, not the reply. */
	overtaken = call->start_ns < connection->received_ns;
	if (overtaken && !is_overtaken(connection, call))
		return looks;
	if (is_in_handshake(connection)) {
		no_request_came(connection);
		return looks;
	}
	/* Once it is said to have the reply, another thread may begin the next turn at any moment. */
	connection->replied_after_ns = elapsed(connection->turn_ns, now);
	if (overtaken)
		leave_next_turn(connection);
	connection->phase = PHASE_REPLYING;
	counts = cpu_counts();
	if (counts)
		record_turn(task, counts, state, connection, call, now);
	connection->turns++;
	if (overtaken) {
		begin_next_turn(task, state, connection, now);
		return looks | (is_reply_worth_a_look(connection) ? LOOK_REPLY : 0);
	}
	if (!is_reply_worth_a_look(connection))
		return looks;
	first_piece_sent(connection, (u64)task, state, now);
	return looks | LOOK_REPLY;
}

/* A call met the end of the other side: where an answer is due, or a request cannot be sent any
 * more. An answer that came before is there to be read.
 */
static __subprogram int peer_gone(struct call_in_flight *call, bool sends, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	if (!connection || connection->role != ROLE_UPSTREAM ||
	    client_is_there(call->sk, connection->endpoint))
		return 0;
	if (connection->is_multiplexed == STREAMS_FOLLOWED)
		return has_unread(call->sk, connection->endpoint) ? 0 :
								    streams_unanswered(call->sk, true);
	if (sends ? has_unread(call->sk, connection->endpoint) : connection->phase != PHASE_ASKING)
		return 0;
	note_no_answer(connection, now, false);
	return 0;
}

/* The buffer is full, and the call is non-blocking. */
static __always_inline void send_refused(struct task_struct *task, struct thread_state *state,
					 struct call_in_flight *call, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return;
	connection->send_eagain++;
	note_send_queue(connection, call->sk);
	sender_stopped(connection, (u64)task, state, now);
}

#endif
