/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requests of each process: how many, where their time went, how many wait
 * now. Touched when a request begins or ends, never by other calls.
 *
 * While a process has S requests that it has received and not answered, and U
 * requests of its own that are not answered yet, at most U of the S can be
 * waiting for those: each of them waits with a share of min(U, S) / S. That is
 * summed up over the time in which the thread that moves requests on is asleep.
 * An answer that has come and is not received is waited for by nobody: a loop
 * that sleeps elsewhere has many of those.
 * An own request counts while those it can belong to are in progress: from its
 * first byte, until the process is once without a request in progress.
 */
#ifndef SERVERS_BPF_H
#define SERVERS_BPF_H

#include "latency.bpf.h"
#include "namespaces.bpf.h"
#include "sockets.bpf.h"

/* Received that often and never answered: a protocol without replies, or a large upload. */
#define RECEIVES_MAX 64
/* Beside that number: its client went on to send without a reply, so it waits for none, or sends its
 * request slowly.
 */
#define SPOKE_AGAIN 0x80
/* Of a request of its own, which are not numbered so. */
#define SAID_GOODBYE 0x01
#define ASKS_MAX 255

/* In streams.bpf.h. */
u64 streams_gone(address_t sk);
u64 streams_unanswered(address_t sk, u64 other_left);
u64 stream_begins(address_t sk, u64 id);
u64 oldest_stream_ns(address_t sk, bytes_t bytes_in, bytes_t bytes_out);

static __always_inline struct server *server_of(u32 tgid)
{
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	if (server)
		return server;
	bpf_map_update_elem(&servers, &tgid, &no_server, BPF_NOEXIST);
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (!server)
		shared_add(&servers_turned_away, 1);
	return server;
}

/* It is not known how long this thread slept since another thread's event: possibly all the time. */
static __always_inline ns_t slept_since(struct server *server, u64 thread, ns_t asleep_ns,
					ns_t elapsed_ns)
{
	ns_t slept_ns = asleep_ns - server->event_asleep_ns;

	return server->event_thread == thread && slept_ns < elapsed_ns ? slept_ns : elapsed_ns;
}

static __always_inline void add_came(struct server *server, ns_t now)
{
	ns_t before = exchange(&server->came_until_ns, now);
	int came = server->came;

	if (came > 0 && now > before)
		shared_add(&server->came_ns, (u32)came * (now - before));
}

/* Of own requests since the last event, all together: that their answers had not come. */
static __always_inline ns_t waited_since(struct server *server, u32 asking, ns_t elapsed_ns,
					 ns_t now)
{
	ns_t came_ns, before = server->event_came_ns;

	if (server->came > 0)
		add_came(server, now);
	came_ns = server->came_ns;
	server->event_came_ns = came_ns;
	return elapsed(came_ns - before, asking * elapsed_ns);
}

/* Called before S or U changes, so the time until now counts with the old values. */
static __subprogram int settle_shares(struct server *server, struct thread_state *state, u64 thread,
				      ns_t now)
{
	ns_t before = exchange(&server->event_ns, now);
	int in_progress = server->in_progress, asking = server->asking;
	ns_t asleep_ns, slept_ns, waited_ns;

	/* What can be a wait for an answer: not a disk, a full buffer, a connection. */
	asleep_ns = state->activity_ns[ACTIVITY_BLOCKED_POLL] +
		    state->activity_ns[ACTIVITY_BLOCKED_RECV] +
		    state->activity_ns[ACTIVITY_BLOCKED_LOCK] +
		    state->activity_ns[ACTIVITY_BLOCKED_OTHER];
	if (in_progress > 0 && asking > 0 && now > before) {
		slept_ns = slept_since(server, thread, asleep_ns, now - before);
		slept_ns *= (u32)(asking < in_progress ? asking : in_progress);
		waited_ns = waited_since(server, asking, now - before, now);
		slept_ns = slept_ns < waited_ns ? slept_ns : waited_ns;
		shared_add(&server->share_ns, slept_ns / (u32)in_progress);
	}
	server->event_thread = thread;
	server->event_asleep_ns = asleep_ns;
	return 0;
}

/* No request is left that the outstanding upstream requests could belong to. */
static __always_inline void request_left(struct server *server)
{
	if (add_and_get(&server->in_progress, -1) > 0)
		return;
	server->epoch++;
	server->asking = 0;
	server->came = 0;
}

/* Whether what is left over in its connections mostly turns out to be a request. */
static __always_inline bool answers_leftovers(struct server *server)
{
	return server->pipelined > server->leftovers_dropped;
}

static __always_inline bool is_leftover_only(struct connection *connection)
{
	return connection->leftover == LEFTOVER_UNREAD || connection->leftover == LEFTOVER_READ;
}

static __always_inline void request_began(struct task_struct *task, struct thread_state *state,
					  struct connection *connection, ns_t now)
{
	struct server *server = server_of(tgid_of(task));

	connection->receives = 0;
	connection->in_progress_at = 0;
	if (!server || (connection->leftover && !answers_leftovers(server)))
		return;
	settle_shares(server, state, (u64)task, now);
	/* The process before it had the same number. */
	if (server->exited_ns)
		server->exited_ns = 0;
	shared_add(&server->began, 1);
	shared_add(&server->in_progress, 1);
	connection->in_progress_at = tgid_of(task);
	connection->share_before_ns = server->share_ns;
}

/* Takes it out of what is in progress; it may have been received by another process. */
static __subprogram int request_gone(struct connection *connection)
{
	u32 tgid = connection->in_progress_at;
	struct server *server;

	if (!tgid)
		return 0;
	connection->in_progress_at = 0;
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (server)
		request_left(server);
	return 0;
}

/* What was left over was read, and no reply came: it belonged to the request before. */
static __subprogram int leftover_dropped(struct connection *connection)
{
	u32 tgid = connection->tgid;
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	connection->leftover = LEFTOVER_NONE;
	if (server)
		shared_add(&server->leftovers_dropped, 1);
	request_gone(connection);
	return 0;
}

/* The same for who has looked up the server of its own process. */
static __always_inline void request_answered(struct server *server, u32 tgid,
					     struct connection *connection)
{
	int in_progress;

	if (!server || connection->in_progress_at != tgid) {
		if (server)
			shared_add(&server->at_once, 1);
		request_gone(connection);
		return;
	}
	in_progress = server->in_progress;
	shared_add(&server->at_once, in_progress > 1 ? (u32)in_progress : 1);
	connection->in_progress_at = 0;
	request_left(server);
}

static __always_inline void request_continued(struct connection *connection, ns_t now)
{
	u8 receives = connection->receives & ~SPOKE_AGAIN;

	if (elapsed(connection->received_ns, now) >= GOODBYE_NS)
		connection->receives |= SPOKE_AGAIN;
	if (receives >= RECEIVES_MAX)
		return;
	connection->receives++;
	if (receives + 1 == RECEIVES_MAX)
		request_gone(connection);
}

/* Several pieces of one request count once; a request for a client that came later is a new one. */
static __subprogram int own_request_sent(u32 tgid, struct thread_state *state, u64 thread,
					 struct connection *connection, ns_t now)
{
	bool is_first = connection->phase != PHASE_ASKING;
	struct server *server = server_of(tgid);

	if (is_first)
		connection->asks = connection->came_asks = 0;
	if (!server || server->in_progress <= 0)
		return 0;
	if (connection->asks && connection->asked_epoch != server->epoch)
		connection->asks = connection->came_asks = 0;
	if (connection->asks == ASKS_MAX ||
	    (connection->asks && connection->asked_after == (u32)server->began))
		return 0;
	settle_shares(server, state, thread, now);
	shared_add(&server->asking, 1);
	connection->asks++;
	connection->asked_epoch = server->epoch;
	connection->asked_after = server->began;
	connection->asked_by = tgid;
	return 0;
}

/* The first bytes of an answer lie there, to be received. */
static __subprogram int answer_came(struct connection *connection, ns_t now)
{
	u32 tgid = connection->asked_by;
	struct server *server;

	if (!connection->asks || connection->came_asks)
		return 0;
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (!server || connection->asked_epoch != server->epoch)
		return 0;
	add_came(server, now);
	connection->came_asks = connection->asks;
	shared_add(&server->came, (int)connection->asks);
	return 0;
}

/* Answered, or never to be. */
static __always_inline void forget_asks(struct server *server, struct connection *connection)
{
	if (connection->asks && connection->asked_epoch == server->epoch) {
		shared_add(&server->asking, -(int)connection->asks);
		if (connection->came_asks) {
			add_came(server, bpf_ktime_get_ns());
			shared_add(&server->came, -(int)connection->came_asks);
		}
	}
	connection->came_asks = 0;
	connection->asks = 0;
}

static __subprogram int own_request_answered(struct thread_state *state, u64 thread,
					     struct connection *connection, ns_t now)
{
	u32 tgid = connection->asked_by;
	struct server *server;

	if (!connection->asks)
		return 0;
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (!server)
		return 0;
	settle_shares(server, state, thread, now);
	forget_asks(server, connection);
	return 0;
}

/* Once per request of the process's own, by its destination. */
static __subprogram int count_own_request(u32 tgid, u32 upstream, u32 peer_tgid, ns_t took_ns,
					  ns_t recv_wait_ns)
{
	struct server_upstream_key key = { .tgid = tgid, .upstream = upstream };
	struct server_upstream *counts, fresh = {};

	counts = bpf_map_lookup_elem(&server_upstreams, &key);
	if (!counts) {
		bpf_map_update_elem(&server_upstreams, &key, &fresh, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&server_upstreams, &key);
	}
	if (!counts) {
		shared_add(&servers_turned_away, 1);
		return 0;
	}
	shared_add(&counts->count, 1);
	shared_add(&counts->total_ns, took_ns);
	if (recv_wait_ns)
		shared_add(&counts->recv_wait_ns, recv_wait_ns);
	counts->peer_tgid = peer_tgid;
	return 0;
}

/* How long a request had been received when its connection ended without a byte of a reply. 0: it
 * was none that asked for one, or a goodbye, as of PostgreSQL, MySQL and TLS, which no reply follows
 * and the end of the connection does at once. Of a process that exits, its memory is torn down
 * before its connections are closed.
 */
static __always_inline ns_t unanswered_ns(struct server *server, struct connection *connection,
					  ns_t now)
{
	ns_t waited_ns = elapsed(connection->received_ns, server->exited_ns ?: now);

	if (ended_ns || connection->phase != PHASE_RECEIVING || connection->leftover ||
	    connection->is_multiplexed || connection->is_websocket ||
	    connection->receives & SPOKE_AGAIN || waited_ns < GOODBYE_NS)
		return 0;
	return waited_ns;
}

/* A process that exits had nothing in hand but its client's goodbye: no reply is owed to that. */
static __always_inline void note_goodbye(struct server *server, struct connection *connection)
{
	u32 tgid = connection->in_progress_at;
	struct process_state *process;

	if (!server->exited_ns || connection->phase != PHASE_RECEIVING)
		return;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process && process->unanswered)
		__sync_fetch_and_add(&process->unanswered, -1);
}

/* The client did not want to wait any longer, or the program did not want to reply. */
static __subprogram int note_unanswered(struct server *server, struct connection *connection,
					ns_t now, bool client_left)
{
	ns_t waited_ns = unanswered_ns(server, connection, now);

	if (!waited_ns) {
		if (client_left)
			note_goodbye(server, connection);
		return 0;
	}
	if (!client_left) {
		shared_add(&server->dropped, 1);
		shared_add(&server->dropped_ns, waited_ns);
		return 0;
	}
	shared_add(&server->given_up, 1);
	shared_add(&server->given_up_ns, waited_ns);
	shared_add(&server->given_up_upstream_ns,
		   elapsed(connection->share_before_ns, server->share_ns));
	return 0;
}

/* The program ends it. What it has waited for upstream until now counts with what is outstanding
 * until now.
 */
static __always_inline void no_reply_will_come(struct task_struct *task,
					       struct thread_state *state,
					       struct connection *connection, address_t sk)
{
	u32 tgid = connection->in_progress_at ?: connection->asks ? connection->asked_by : 0;
	struct server *server = tgid ? bpf_map_lookup_elem(&servers, &tgid) : NULL;
	ns_t now = bpf_ktime_get_ns();

	if (connection->is_multiplexed == STREAMS_FOLLOWED)
		streams_unanswered(sk, !client_is_there(sk, connection->endpoint));
	if (!server)
		return;
	settle_shares(server, state, (u64)task, now);
	if (connection->in_progress_at)
		note_unanswered(server, connection, now,
				!client_is_there(sk, connection->endpoint));
}

/* TCP: the process that runs exits, and so closes this end. Of an end that the other one has reset the
 * kernel sets the error first (tcp_reset() of net/ipv4/tcp_input.c), in the context of whoever runs: on
 * loopback the other process, which may be the one that exits.
 */
static __always_inline bool exits_here(struct sock *sk)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return (BPF_CORE_READ(task, flags) & PF_EXITING) && !BPF_CORE_READ(sk, sk_err);
}

/* TCP, from whatever context: the client has reset it, or has acknowledged that this end, which
 * learned of the client's end first, has closed too; or the process exits, since close() and
 * shutdown() are seen before.
 */
static __always_inline void note_tcp_end(struct connection *connection, struct sock *sk,
					 int before, int after)
{
	bool client_left = after == TCP_CLOSE && (before == TCP_ESTABLISHED ||
						  before == TCP_CLOSE_WAIT ||
						  before == TCP_LAST_ACK);
	u32 tgid = connection->in_progress_at;
	struct server *server = tgid ? bpf_map_lookup_elem(&servers, &tgid) : NULL;
	bool is_shared = connection->is_multiplexed == STREAMS_FOLLOWED &&
			 connection->role == ROLE_SERVED;

	if (is_light || (!server && !is_shared))
		return;
	if (client_left ? exits_here(sk) && before != TCP_LAST_ACK : after != TCP_FIN_WAIT1)
		return;
	if (is_shared)
		streams_unanswered(as_number((address_t)sk), client_left);
	else
		note_unanswered(server, connection, bpf_ktime_get_ns(), client_left);
}

/* The connection is closed: replies that it owed will not come. */
static __always_inline void connection_gone(struct connection *connection, address_t sk)
{
	u32 tgid = connection->asked_by;
	struct server *server;

	if (connection->is_multiplexed == STREAMS_FOLLOWED)
		streams_gone(sk);
	if (connection->phase == PHASE_RECEIVING && is_leftover_only(connection))
		leftover_dropped(connection);
	else
		request_gone(connection);
	if (!connection->asks)
		return;
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (server)
		forget_asks(server, connection);
}

/* Until it has an inode it is nobody's. Not made on the stack: up to v6.12 all frames together have
 * 512 bytes.
 */
static __always_inline struct connection *blank_connection(address_t sk)
{
	follow(sk);
	if (bpf_map_update_elem(&connections, &sk, &no_connection, BPF_ANY)) {
		shared_add(&connections_turned_away, 1);
		return NULL;
	}
	return bpf_map_lookup_elem(&connections, &sk);
}

/* In the place of one whose memory it has. */
static __always_inline struct connection *new_connection(address_t sk, struct connection *known)
{
	if (known)
		connection_gone(known, sk);
	return blank_connection(sk);
}

static __always_inline void server_exited(u32 tgid)
{
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	if (!server)
		return;
	server->epoch++;
	server->asking = 0;
	server->came = 0;
	server->in_progress = 0;
	server->exited_ns = bpf_ktime_get_ns();
}

/* ------------------------------------------------------------ what waits at this moment */

static __always_inline void note_pending(struct pending *pending, ns_t since_ns)
{
	pending->count++;
	if (!pending->oldest_ns || since_ns < pending->oldest_ns)
		pending->oldest_ns = since_ns;
}

static __always_inline void note_turn_that_waits(struct server *server,
						 struct connection *connection, address_t sk)
{
	note_pending(&server->pending[PENDING_IN_PROGRESS], connection->turn_ns);
	if (!(connection->receives & SPOKE_AGAIN) &&
	    connection->inode == inode_of_socket((struct sock *)sk) &&
	    !client_is_there(sk, connection->endpoint))
		note_pending(&server->pending[PENDING_ABANDONED], connection->turn_ns);
}

/* When unread bytes came. */
static __always_inline ns_t came_ns(struct connection *connection)
{
	if (connection->arrived_ns)
		return connection->arrived_ns;
	return ended_ns && (connection->turns || connection->accepted_ns) ? ended_ns : seeded_ns;
}

static __always_inline void note_open_streams(struct server *server, struct connection *connection,
					      address_t sk)
{
	u32 kind = connection->role == ROLE_SERVED ? PENDING_IN_PROGRESS : PENDING_ASKING;
	ns_t since_ns = connection->oldest_stream_ns;
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);

	if (!since_ns || !streams)
		return;
	note_pending(&server->pending[kind], since_ns);
	server->pending[kind].count += streams->open - 1;
}

static __always_inline int note_what_waits(struct connection *connection, address_t sk)
{
	ns_t arrived_ns = came_ns(connection);
	bool is_shared = connection->is_multiplexed || connection->is_websocket;
	bool is_turn = connection->phase == PHASE_RECEIVING && !is_shared;
	struct server *server;

	server = connection->tgid ? server_of(connection->tgid) : NULL;
	if (!server)
		return 0;
	if (server->listing != listing) {
		server->listing = listing;
		__builtin_memset(server->pending, 0, sizeof(server->pending));
	}
	if (connection->phase == PHASE_SHARED)
		note_open_streams(server, connection, sk);
	/* Its last frame may be one that nobody answers. */
	if (is_shared && !connection->arrived_ns)
		return 0;
	if (is_leftover_only(connection)) {
		if (!answers_leftovers(server) && !connection->arrived_ns)
			return 0;
		is_turn = is_turn && answers_leftovers(server);
		if (!connection->arrived_ns)
			arrived_ns = connection->turn_ns;
	}
	if (connection->phase == PHASE_ASKED_BEFORE) {
		note_pending(&server->pending[PENDING_ASKED_BEFORE], connection->turn_ns);
	} else if (connection->phase == PHASE_ASKING) {
		note_pending(&server->pending[PENDING_ASKING], connection->turn_ns);
	} else if (is_turn) {
		note_turn_that_waits(server, connection, sk);
	} else {
		note_pending(&server->pending[PENDING_UNREAD], arrived_ns);
	}
	return 0;
}

/* Once for each connection in a listing, which user space numbers; most wait for nothing. */
static __subprogram int note_waiting(struct connection *connection, address_t sk, bytes_t unread)
{
	u8 phase = connection->phase;

	if (phase == PHASE_ASKING || phase == PHASE_RECEIVING ||
	    phase == PHASE_SHARED ||
	    (phase == PHASE_ASKED_BEFORE && connection->role == ROLE_SERVED) ||
	    (unread && connection->role == ROLE_SERVED))
		note_what_waits(connection, sk);
	return 0;
}

#endif
