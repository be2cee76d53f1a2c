/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests that a target makes: on a connection it opened, bytes out, then
 * bytes in. They are added up by destination.
 */
#ifndef UPSTREAM_BPF_H
#define UPSTREAM_BPF_H

#include "listeners.bpf.h"
#include "queues.bpf.h"
#include "sockets.bpf.h"
#include "tls.bpf.h"

#define NR_IO_URING_ENTER 426	/* include/uapi/asm-generic/unistd.h: of all architectures */
#define LOOPBACK_NET 127

/* Index + 1; 0 when there is no room for another destination. */
static __always_inline u32 upstream_of(struct sock *sk, u8 endpoint)
{
	struct upstream_key key = { .endpoint = endpoint };
	struct upstream *upstream;
	u32 index, *known;

	name_of_peer(sk, &key.name);
	key.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	known = bpf_map_lookup_elem(&upstream_indices, &key);
	if (known)
		return *known + 1;
	if (upstreams_used >= UPSTREAMS_MAX)
		goto full;
	index = take_number(&upstreams_used);
	upstream = bpf_map_lookup_elem(&upstreams, &index);
	if (!upstream)
		goto full;
	upstream->name = key.name;
	upstream->endpoint = endpoint;
	/* Two CPUs at once make two rows of one destination; user space adds them up. */
	bpf_map_update_elem(&upstream_indices, &key, &index, BPF_ANY);
	return index + 1;
full:
	shared_add(&upstreams_turned_away, 1);
	return 0;
}

static __always_inline struct upstream *upstream_entry(u32 number)
{
	u32 index = number - 1;

	return number ? bpf_map_lookup_elem(&upstreams, &index) : NULL;
}

/* Both ends have the same address, or are in 127/8. */
static __always_inline bool is_within_host(struct sock *sk)
{
	u64 here[2] = {}, there[2] = {};
	u32 a, b;

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET) {
		a = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		b = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		return a == b || (__builtin_bswap32(a) >> 24 == LOOPBACK_NET &&
				  __builtin_bswap32(b) >> 24 == LOOPBACK_NET);
	}
	bpf_probe_read_kernel(here, sizeof(here), &sk->__sk_common.skc_v6_rcv_saddr);
	bpf_probe_read_kernel(there, sizeof(there), &sk->__sk_common.skc_v6_daddr);
	return here[0] == there[0] && here[1] == there[1];
}

/* The two ends of one TCP connection within a host. */
static __always_inline bool are_ends(struct sock *one, struct sock *other)
{
	return BPF_CORE_READ(one, __sk_common.skc_num) ==
		       __builtin_bswap16(BPF_CORE_READ(other, __sk_common.skc_dport)) &&
	       BPF_CORE_READ(other, __sk_common.skc_num) ==
		       __builtin_bswap16(BPF_CORE_READ(one, __sk_common.skc_dport)) &&
	       BPF_CORE_READ(one, __sk_common.skc_net.net) ==
		       BPF_CORE_READ(other, __sk_common.skc_net.net);
}

static __always_inline bool is_open_as(struct task_struct *task, u32 fd, struct sock *other)
{
	struct socket_ref ref = {};

	resolve_fd(task, fd, &ref);
	return ref.endpoint == ENDPOINT_TCP && are_ends((struct sock *)ref.sk, other);
}

/* Bytes of TCP within a host are queued in the context of the call that sends them, but also in
 * that of whoever an interrupt or a timer meets. The caller has the other end open: its call's
 * first argument is it, or the third (splice). Operations of io_uring name no descriptor.
 */
static __subprogram int sends_to(struct sock *sk)
{
#ifdef EARLY_KERNEL
	return true;
#else
	struct task_struct *task = current_task();
	struct pt_regs *regs;
	bool compat;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return true;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs)
		return false;
	if (task_read(task, flags) & PF_IO_WORKER || syscall_nr(regs) == NR_IO_URING_ENTER)
		return true;
	compat = is_compat(task);
	return is_open_as(task, first_argument(regs, compat), sk) ||
	       is_open_as(task, third_argument(regs, compat), sk);
#endif
}

static __always_inline bool is_sender(struct connection *connection, struct sock *sk, u32 tgid)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (connection->endpoint != ENDPOINT_TCP)
		return true;
	if (!tgid || tgid == connection->tgid || BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return false;
	return is_within_host(sk) && sends_to(sk);
}

/* Noted now: the process may have ended when user space reads the holders of CPUs. */
static __always_inline void note_partner(u32 tgid)
{
	u8 is_partner = 1;

	bpf_map_update_elem(&partners, &tgid, &is_partner, BPF_ANY);
}

/* A process that starts a client for each request works for these requests too. */
static __always_inline void note_parent_of_partner(void)
{
	u32 tgid = parent_of_current();

	if (tgid > 1)
		note_partner(tgid);
}

static __always_inline void note_peer(struct connection *connection, struct sock *sk)
{
	u32 tgid = current_tgid();

	if (tgid == connection->peer_tgid) {
		connection->peer_seen = 0;
		return;
	}
	if (!is_sender(connection, sk, tgid))
		return;
	/* A timer can send in the context of an unrelated task, but hardly twice in a row. */
	if (connection->endpoint == ENDPOINT_TCP && connection->peer_tgid &&
	    connection->peer_seen != tgid) {
		connection->peer_seen = tgid;
		return;
	}
	connection->peer_tgid = tgid;
	connection->peer_seen = 0;
	note_partner(tgid);
	note_parent_of_partner();
}

static __always_inline void connection_opened(struct task_struct *task, struct socket_ref *ref,
					      ns_t now)
{
	struct connection *known = bpf_map_lookup_elem(&connections, &ref->sk);
	struct connection *fresh;
	struct upstream *upstream;

	/* A second connect() on a socket in progress opens nothing. */
	if (known && known->inode == ref->inode)
		return;
	fresh = new_connection(ref->sk, known);
	if (!fresh)
		return;
	fresh->established_ns = now;
	fresh->tgid = tgid_of(task);
	fresh->role = ROLE_UPSTREAM;
	fresh->endpoint = ref->endpoint;
	fresh->upstream = upstream_of((struct sock *)ref->sk, ref->endpoint);
	fresh->inode = ref->inode;
	upstream = upstream_entry(fresh->upstream);
	/* A socket of UDP is no connection that costs its other end anything. */
	if (upstream && ref->endpoint != ENDPOINT_UDP)
		shared_add(&upstream->opened, 1);
}

/* It sends on, for another client than at first, nothing ever came back, and the reader has taken what
 * was sent before: a log, metrics. One that hangs takes nothing; a kept connection that hangs since
 * before we came has answered (TCP); an upload is for one client.
 */
static __always_inline bool is_one_way(struct connection *connection, struct sock *sk, ns_t now)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	u32 tgid = connection->asked_by;
	struct server *server;
	struct sock *peer;

	if (connection->bytes_in || elapsed(connection->turn_ns, now) < ONE_WAY_NS)
		return false;
	server = connection->asks ? bpf_map_lookup_elem(&servers, &tgid) : NULL;
	if (server && connection->asked_after == (u32)server->began)
		return false;
	if (connection->endpoint == ENDPOINT_TCP)
		return !BPF_CORE_READ(tcp, bytes_received);
	peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	return peer && BPF_CORE_READ(peer, sk_receive_queue.qlen) <= 1;
}

static __always_inline void upstream_asked(struct task_struct *task, struct thread_state *state,
					   struct connection *connection,
					   struct call_in_flight *call, ns_t now)
{
	if (connection->phase == PHASE_ONE_WAY)
		return;
	if (connection->phase == PHASE_ASKING &&
	    is_one_way(connection, (struct sock *)call->sk, now)) {
		connection->phase = PHASE_ONE_WAY;
		own_request_answered(state, (u64)task, connection, now);
		return;
	}
	own_request_sent(tgid_of(task), state, (u64)task, connection, now);
	if (connection->phase == PHASE_ASKING) {
		if (elapsed(connection->turn_ns, now) >= GOODBYE_NS)
			connection->receives |= SPOKE_AGAIN;
		return;
	}
	connection->receives = 0;
	connection->phase = PHASE_ASKING;
	connection->turn_ns = call->start_ns;
	/* Before the send call has returned. */
	if (connection->arrived_ns > call->start_ns)
		answer_came(connection, now);
}

static __always_inline void count_answer(u32 tgid, struct connection *connection,
					 ns_t recv_wait_ns, ns_t now)
{
	struct upstream *upstream = upstream_entry(connection->upstream);

	if (!upstream)
		return;
	upstream->peer_tgid = connection->peer_tgid;
	shared_latency_add(&upstream->latency, elapsed(connection->turn_ns, now));
	if (recv_wait_ns)
		shared_add(&upstream->recv_wait_ns, recv_wait_ns);
	count_own_request(tgid, connection->upstream - 1, connection->peer_tgid,
			  elapsed(connection->turn_ns, now), recv_wait_ns);
}

/* How long an answer had been there when it was asked for: its program was busy, or asleep. Bytes
 * from before the request are no answer to it.
 */
static __always_inline ns_t waited_unread_ns(struct connection *connection, ns_t received_from)
{
	ns_t arrived = connection->arrived_ns;

	return arrived > connection->turn_ns ? elapsed(arrived, received_from) : 0;
}

/* True when that is the beginning of an answer. */
static __always_inline bool upstream_answered(struct task_struct *task,
					      struct thread_state *state,
					      struct connection *connection,
					      ns_t received_from, ns_t now)
{
	bool is_answer = connection->phase == PHASE_ASKING || connection->phase == PHASE_ONE_WAY;
	ns_t recv_wait_ns = waited_unread_ns(connection, received_from);

	connection->arrived_ns = 0;
	connection->phase = PHASE_IDLE;
	if (!is_answer)
		return false;
	if (is_in_handshake(connection)) {
		own_request_answered(state, (u64)task, connection, now);
		return false;
	}
	connection->turns++;
	connection->replied_after_ns = elapsed(connection->turn_ns, now);
	own_request_answered(state, (u64)task, connection, now);
	count_answer(tgid_of(task), connection, recv_wait_ns, now);
	return true;
}

/* A request has waited so long; by now the other end is there still, or has left. */
static __always_inline void count_no_answer(struct upstream *upstream,
					    struct connection *connection, ns_t waited_ns,
					    bool is_there)
{
	if (is_there) {
		shared_add(&upstream->given_up, 1);
		shared_add(&upstream->given_up_ns, waited_ns);
		return;
	}
	if (connection->peer_tgid)
		upstream->peer_tgid = connection->peer_tgid;
	shared_add(&upstream->dropped, 1);
	shared_add(&upstream->dropped_ns, waited_ns);
	if (connection->turns)
		shared_add(&upstream->dropped_kept, 1);
}

/* Once for each connection that ends so. What one of many requests at once, or of messages, had open is
 * not known, and a goodbye of TLS, which may find that the other end is gone, asks for nothing.
 */
static __always_inline void note_no_answer(struct connection *connection, ns_t now, bool is_there)
{
	struct upstream *upstream = upstream_entry(connection->upstream);
	ns_t waited_ns = 0;

	if (connection->phase == PHASE_ASKING)
		waited_ns = elapsed(connection->turn_ns, now);
	if (ended_ns || !upstream || connection->phase == PHASE_ENDED ||
	    connection->phase == PHASE_ONE_WAY || connection->is_multiplexed ||
	    connection->is_websocket || connection->receives & SAID_GOODBYE ||
	    (connection->is_tls && waited_ns < GOODBYE_NS))
		return;
	connection->phase = PHASE_ENDED;
	count_no_answer(upstream, connection, waited_ns, is_there);
}

/* This end closes it. A goodbye, and what is sent where no answers come, ask for none; nor does what
 * the other end has closed without this one having looked: a receive call would have told it so.
 */
static __always_inline void upstream_closed(struct connection *connection, address_t sk)
{
	ns_t now = bpf_ktime_get_ns();

	if (connection->phase == PHASE_ASKING && !(connection->receives & SPOKE_AGAIN) &&
	    elapsed(connection->turn_ns, now) >= GOODBYE_NS &&
	    client_is_there(sk, connection->endpoint))
		note_no_answer(connection, now, true);
}

/* TCP, while its state is still that before: the other end has reset it. So it does where it had
 * closed the connection before, in the send call of the request.
 */
static __always_inline void upstream_reset(struct connection *connection, struct sock *sk)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	bool is_unacked = BPF_CORE_READ(tcp, snd_nxt) != BPF_CORE_READ(tcp, snd_una);

	if (is_light || exits_here(sk))
		return;
	if (connection->is_multiplexed == STREAMS_FOLLOWED)
		streams_unanswered(as_number((address_t)sk), true);
	if (connection->phase != PHASE_ASKING && !is_unacked)
		return;
	if (!unread_tcp(BPF_CORE_READ(tcp, rcv_nxt), BPF_CORE_READ(tcp, copied_seq),
			state_of_socket((address_t)sk)))
		note_no_answer(connection, bpf_ktime_get_ns(), false);
}

/* A send call slept because the receiver does not drain. */
static __always_inline void send_waited(struct connection *connection, ns_t waited)
{
	connection->send_blocked++;
	connection->send_blocked_ns += waited;
	connection->asleep_in_call_ns = 0;
	if (waited > connection->send_blocked_max_ns)
		connection->send_blocked_max_ns = waited;
}

#endif
