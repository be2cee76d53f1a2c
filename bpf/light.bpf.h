/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Detail "light": no program is on system calls. The socket layer tells of each message that it
 * moved, in the context of who moved it (net/socket.c, call_trace_sock_send_length and
 * call_trace_sock_recv_length; Linux kernel commit 6e6eda44b939, in v6.3). That and sk_data_ready
 * tell requests, bytes and queues. When a call began is not told, nor what accept() and connect()
 * returned: a connection is known from its first message on. A request that is taken out by
 * splice() is not told either, but the queue that it left is empty when the reply goes.
 */
#ifndef LIGHT_BPF_H
#define LIGHT_BPF_H

#include "iterators.bpf.h"
#include "requests.bpf.h"
#include "uring.bpf.h"

/* One message, and who moved it. */
struct message {
	struct task_struct *task;
	struct socket_ref ref;
	bytes_t bytes;
	ns_t now;
	u32 tgid;
};

static __always_inline u8 endpoint_of_socket(address_t at)
{
	struct sock *sk = (void *)at;

	if (!direct_loads)
		return endpoint_of(BPF_CORE_READ(sk, __sk_common.skc_family),
				   BPF_CORE_READ(sk, sk_type), BPF_CORE_READ(sk, sk_protocol));
	sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	return endpoint_of(sk->__sk_common.skc_family, sk->sk_type, sk->sk_protocol);
}

static __always_inline void count_traffic(struct message *message, u32 direction)
{
	u32 row = message->ref.endpoint * TRAFFIC_DIRECTIONS + direction;
	struct cpu_counts *counts = cpu_counts();

	barrier_var(row);
	if (!counts || row >= TRAFFIC_ROWS)
		return;
	count_add(&counts->traffic[row].messages, 1);
	count_add(&counts->traffic[row].bytes, message->bytes);
}

/* It has the name of its listener; its client has none. */
static __always_inline bool is_accepted_unix(struct sock *sk, u8 endpoint)
{
	struct unix_sock *unix = (struct unix_sock *)sk, *peer;

	if (!is_unix_with_queue(endpoint) || !BPF_CORE_READ(unix, addr))
		return false;
	peer = (struct unix_sock *)BPF_CORE_READ(unix, peer);
	return peer && !BPF_CORE_READ(peer, addr);
}

/* Another CPU took it out of the queue before its listener was told of it. */
static __always_inline void adopt_accepted(struct message *message, struct connection *known)
{
	struct connection *fresh = new_connection(message->ref.sk, known);

	if (!fresh)
		return;
	fresh->established_ns = message->now;
	fresh->tgid = message->tgid;
	fresh->role = ROLE_SERVED;
	fresh->endpoint = message->ref.endpoint;
	fresh->inode = message->ref.inode;
}

/* Who uses it first accepted or opened it, or got it from who did. */
static __subprogram int adopt_used(struct message *message, struct connection *known)
{
	struct sock *sk = (void *)message->ref.sk;
	u8 endpoint = message->ref.endpoint;

	if (known && known->phase == PHASE_QUEUED) {
		known->inode = message->ref.inode;
		known->tgid = message->tgid;
		known->unread = 0;
		known->phase = PHASE_IDLE;
	} else if (is_accepted_unix(sk, endpoint)) {
		adopt_accepted(message, known);
	} else if (is_client(sk, endpoint)) {
		connection_opened(message->task, &message->ref, message->now);
	}
	return 0;
}

static __always_inline struct connection *connection_used(struct message *message)
{
	address_t sk = message->ref.sk;
	struct connection *connection = NULL;

	message->ref.inode = inode_of_socket((struct sock *)sk);
	if (is_followed(sk))
		connection = bpf_map_lookup_elem(&connections, &sk);
	if (connection && connection->inode == message->ref.inode)
		return connection;
	/* One of the kernel's own. */
	if (!message->ref.inode)
		return NULL;
	adopt_used(message, connection);
	return connection_of(sk, message->ref.inode);
}

/* The process that called listen(), which nobody saw, is noted at the socket
 * (net/unix/af_unix.c, unix_listen and init_peercred).
 */
static __always_inline u32 unix_listener_process(struct sock *sk)
{
	struct pid *pid = BPF_CORE_READ(sk, sk_peer_pid);
	u32 on_host = BPF_CORE_READ(pid, numbers[0].nr);

	return in_pid_namespace ? number_of(pid, on_host) : on_host;
}

/* Nothing can have come before: each arrival is told. */
static __always_inline void adopt_listening(address_t sk, u32 tgid)
{
	struct socket_ref ref = { .sk = sk, .is_socket = true };
	struct listener *listener;

	if (!bpf_map_lookup_elem(&processes, &tgid))
		return;
	ref.inode = inode_of_socket((struct sock *)sk);
	ref.endpoint = endpoint_of_socket(ref.sk);
	if (!ref.inode || ref.endpoint == ENDPOINT_OTHER)
		return;
	listener = adopt_listener(&ref, tgid);
	if (!listener || listener->established)
		return;
	listener->queued_before = 0;
	listener->depth_max = 0;
}

/* To a listener that is not followed, perhaps a target's. */
static __always_inline void connection_came(address_t sk)
{
	if (!is_followed(sk) && state_of_socket(sk) == TCP_LISTEN &&
	    is_unix_with_queue(endpoint_of_socket(sk)))
		adopt_listening(sk, unix_listener_process((struct sock *)sk));
}

static __always_inline void begin_light_turn(struct connection *connection, ns_t now)
{
	ns_t arrived = connection->leftover ? connection->turn_ns : connection->arrived_ns;

	request_gone(connection);
	connection->leftover = LEFTOVER_NONE;
	connection->phase = PHASE_RECEIVING;
	connection->stopped_since_ns = 0;
	connection->turn_ns = arrived && arrived < now ? arrived : now;
}

/* A request of a target's own. */
static __always_inline void light_answer_received(struct message *message,
						  struct connection *connection)
{
	bool is_answer = connection->phase == PHASE_ASKING || connection->phase == PHASE_ONE_WAY;
	u32 asked_by = connection->asked_by;
	struct server *server;

	connection->arrived_ns = 0;
	connection->stopped_since_ns = 0;
	connection->phase = PHASE_IDLE;
	if (!is_answer)
		return;
	connection->turns++;
	server = connection->asks ? bpf_map_lookup_elem(&servers, &asked_by) : NULL;
	if (server)
		forget_asks(server, connection);
	count_answer(connection->tgid, connection, 0, message->now);
}

static __subprogram int light_bytes_received(struct message *message,
					     struct connection *connection)
{
	connection->bytes_in += message->bytes;
	connection->tgid = message->tgid;
	connection->active = interval;
	if (connection->is_held)
		hold_ended(connection, message->ref.sk);
	if (connection->role == ROLE_UPSTREAM) {
		light_answer_received(message, connection);
		return 0;
	}
	if (connection->phase != PHASE_RECEIVING)
		begin_light_turn(connection, message->now);
	connection->receiver = 0;
	connection->received_ns = message->now;
	if (!has_unread(message->ref.sk, message->ref.endpoint))
		connection->arrived_ns = 0;
	return 0;
}

static __always_inline void light_request_answered(struct message *message,
						   struct connection *connection)
{
	ns_t took = message->now > connection->turn_ns ? message->now - connection->turn_ns : 0;
	struct server *server = server_of(connection->tgid);
	struct cpu_counts *counts = cpu_counts();

	connection->phase = PHASE_REPLYING;
	connection->turns++;
	if (counts)
		latency_add(&counts->served, took);
	if (server)
		shared_latency_add(&server->latency, took);
	request_gone(connection);
}

static __always_inline void light_sender_stopped(struct connection *connection, ns_t now)
{
	if (connection->stopped_since_ns)
		return;
	connection->stopped_since_ns = now;
	connection->stopped_thread = 0;
	connection->stops++;
}

static __subprogram int light_bytes_sent(struct message *message, struct connection *connection)
{
	address_t sk = message->ref.sk;
	u8 endpoint = message->ref.endpoint;
	bool is_empty;

	connection->bytes_out += message->bytes;
	connection->tgid = message->tgid;
	connection->active = interval;
	connection->stopped_since_ns = 0;
	note_send_queue(connection, sk);
	note_held_send(connection, sk);
	if (is_full(sk, endpoint))
		light_sender_stopped(connection, message->now);
	if (connection->role == ROLE_UPSTREAM) {
		if (connection->phase == PHASE_ASKING &&
		    is_one_way(connection, (struct sock *)sk, message->now))
			connection->phase = PHASE_ONE_WAY;
		if (connection->phase == PHASE_ONE_WAY)
			return 0;
		if (connection->phase != PHASE_ASKING)
			connection->turn_ns = message->now;
		connection->phase = PHASE_ASKING;
		return 0;
	}
	if (connection->role != ROLE_SERVED)
		return 0;
	if (connection->phase == PHASE_ASKED_BEFORE)
		connection->phase = PHASE_REPLYING;
	is_empty = connection->arrived_ns && !has_unread(sk, endpoint);
	if (is_empty && connection->phase != PHASE_RECEIVING)
		begin_light_turn(connection, message->now);
	if (is_empty)
		connection->arrived_ns = 0;
	if (connection->phase == PHASE_RECEIVING)
		light_request_answered(message, connection);
	return 0;
}

/* What io_uring finds full it tries again by itself: no caller is told. */
static __always_inline bool is_by_uring(struct task_struct *task)
{
	struct pt_regs *regs;

	if (task_read(task, flags) & PF_IO_WORKER)
		return true;
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	return regs && syscall_nr(regs) == NR_IO_URING_ENTER;
}

static __subprogram int light_send_refused(struct message *message)
{
	struct connection *connection = connection_used(message);

	if (!connection || is_by_uring(message->task))
		return 0;
	connection->send_eagain++;
	note_send_queue(connection, message->ref.sk);
	light_sender_stopped(connection, message->now);
	return 0;
}

/* False: of nobody's, or nothing that is followed. */
static __always_inline bool is_message(struct message *message, address_t sk, int result)
{
	struct task_struct *task = current_task();

	if (!uring_thread(task))
		return false;
	message->task = task;
	message->tgid = tgid_of(task);
	message->ref.sk = sk;
	message->ref.endpoint = endpoint_of_socket(sk);
	message->ref.is_socket = true;
	message->bytes = result > 0 ? result : 0;
	message->now = bpf_ktime_get_ns();
	return message->ref.endpoint != ENDPOINT_OTHER;
}

static __always_inline void light_sent(address_t sk, int result)
{
	struct message message = {};
	struct connection *connection;

	if ((result <= 0 && result != -EAGAIN) || !is_message(&message, sk, result))
		return;
	if (result < 0) {
		light_send_refused(&message);
		return;
	}
	count_traffic(&message, TRAFFIC_SENT);
	connection = connection_used(&message);
	/* Names are looked up in detail "full" only. */
	if (connection && connection->endpoint != ENDPOINT_UDP)
		light_bytes_sent(&message, connection);
}

/* What is only looked at stays in the queue. */
static __always_inline void light_received(address_t sk, int result, int flags)
{
	struct message message = {};
	struct connection *connection;

	if (result <= 0 || flags & MSG_PEEK || !is_message(&message, sk, result))
		return;
	count_traffic(&message, TRAFFIC_RECEIVED);
	connection = connection_used(&message);
	if (connection && connection->endpoint != ENDPOINT_UDP)
		light_bytes_received(&message, connection);
}

#endif
