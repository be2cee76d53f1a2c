/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How full the queues of a connection get: the receive queue right after bytes
 * came, the send queue when a send call returned or went to sleep for want of
 * room. A high-water mark is kept for the interval and for the one before.
 */
#ifndef QUEUES_BPF_H
#define QUEUES_BPF_H

#include "sockets.bpf.h"

static __always_inline struct connection *connection_of(address_t sk, u64 inode)
{
	struct connection *connection;

	if (!is_followed(sk))
		return NULL;
	connection = bpf_map_lookup_elem(&connections, &sk);
	return connection && connection->inode == inode ? connection : NULL;
}

/* The end of the stream, once it came, has a number of its own among the bytes. */
static __always_inline u32 unread_tcp(u32 received, u32 taken, u8 state)
{
	bool ended = state == TCP_CLOSE_WAIT || state == TCP_LAST_ACK || state == TCP_CLOSING;
	s32 unread = received - taken - ended;

	return unread > 0 ? unread : 0;
}

__noinline int first_skb_has_bytes(u64 at)
{
	struct sock *sk = (void *)at;
	struct sk_buff *first = BPF_CORE_READ(sk, sk_receive_queue.next);

	if (!first || first == (void *)&sk->sk_receive_queue)
		return 0;
	return BPF_CORE_READ(first, len) != 0;
}

/* As another CPU sees it: tcp_data_queue() numbers the end of the stream, which is a packet without
 * bytes, before tcp_fin() changes the state (net/ipv4/tcp_input.c).
 */
static __always_inline u32 unread_tcp_bytes(address_t at, u32 received, u32 taken, u8 state)
{
	u32 unread = unread_tcp(received, taken, state);

	return unread == 1 ? first_skb_has_bytes(at) : unread;
}

/* Linux kernel commit f4e1fb04c123 "af_unix: Use cached value for SOCK_STREAM in
 * unix_inq_len()" (in v6.17): before it, and of seqpacket, the queue would have to
 * be walked at every send.
 */
static __always_inline bool tells_unread_bytes(u8 endpoint)
{
	if (endpoint == ENDPOINT_UNIX_STREAM)
		return bpf_core_field_exists(((struct unix_sock *)0)->inq_len);
	return endpoint == ENDPOINT_TCP;
}

static __always_inline u32 unread_bytes_direct(address_t at, u8 endpoint)
{
	struct sock *sk = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct sock));
	struct unix_sock *unix = (void *)at;
	struct tcp_sock *tcp;

	if (endpoint == ENDPOINT_TCP) {
		if (sk->sk_protocol != IPPROTO_TCP)
			return 0;
		tcp = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct tcp_sock));
		return unread_tcp_bytes(at, tcp->rcv_nxt, tcp->copied_seq,
					sk->__sk_common.skc_state);
	}
	if (!bpf_core_field_exists(unix->inq_len))
		return 0;
	unix = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct unix_sock));
	return unix->inq_len;
}

static __always_inline u32 unread_bytes_probed(address_t at, u8 endpoint)
{
	struct unix_sock *unix = (void *)at;
	struct tcp_sock *tcp = (void *)at;
	struct sock *sk = (void *)at;

	if (endpoint == ENDPOINT_TCP) {
		if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
			return 0;
		return unread_tcp_bytes(at, BPF_CORE_READ(tcp, rcv_nxt),
					BPF_CORE_READ(tcp, copied_seq),
					BPF_CORE_READ(sk, __sk_common.skc_state));
	}
	if (!bpf_core_field_exists(unix->inq_len))
		return 0;
	return BPF_CORE_READ(unix, inq_len);
}

/* Bytes of TCP; of Unix memory, overhead included. Its reference count begins at 1. */
static __always_inline u32 unsent_bytes_direct(address_t at, u8 endpoint)
{
	struct sock *sk = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct sock));

	return endpoint == ENDPOINT_TCP ? sk->sk_wmem_queued : sk->sk_wmem_alloc.refs.counter - 1;
}

static __always_inline u32 unsent_bytes_probed(address_t at, u8 endpoint)
{
	struct sock *sk = (void *)at;

	return endpoint == ENDPOINT_TCP ? BPF_CORE_READ(sk, sk_wmem_queued) :
					  BPF_CORE_READ(sk, sk_wmem_alloc.refs.counter) - 1;
}

/* include/linux/tcp.h, enum tcp_chrono */
#define TCP_CHRONO_RWND_LIMITED 2

/* How long bytes were kept because the reader's receive window had no room for them, in ticks of
 * the kernel (tcp_info has the same as tcpi_rwnd_limited; net/ipv4/tcp_output.c, tcp_chrono_set).
 * The sender need not notice: they wait in its send buffer.
 */
static __always_inline u32 window_full_ticks(address_t at)
{
	struct tcp_sock *tcp = (void *)at;
	u32 ticks = BPF_CORE_READ(tcp, chrono_stat[TCP_CHRONO_RWND_LIMITED - 1]);

	if (BPF_CORE_READ_BITFIELD_PROBED(tcp, chrono_type) == TCP_CHRONO_RWND_LIMITED &&
	    bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_jiffies64))
		ticks += (u32)bpf_jiffies64() - BPF_CORE_READ(tcp, chrono_start);
	return ticks;
}

/* What a connection had been through before we came is not of the observation. */
static __subprogram int note_window(struct connection *connection, address_t sk)
{
	if (connection->window_known)
		return 0;
	connection->window_known = 1;
	if (!connection->established_ns)
		connection->window_full_before = window_full_ticks(sk);
	return 0;
}

static __always_inline struct recent_queues *recent_queues(struct connection *connection)
{
	u32 now = interval;
	struct recent_queues *recent = &connection->queues[now & 1];

	connection->was_empty = 0;
	if (recent->interval != now) {
		recent->recv_bytes = 0;
		recent->send_bytes = 0;
		recent->interval = now;
	}
	return recent;
}

static __always_inline void note_recv_queue(struct connection *connection, address_t sk)
{
	struct recent_queues *recent = recent_queues(connection);
	u8 endpoint = connection->endpoint;
	u32 bytes;

	if (!tells_unread_bytes(endpoint))
		return;
	bytes = direct_loads ? unread_bytes_direct(sk, endpoint) :
			       unread_bytes_probed(sk, endpoint);
	if (bytes > recent->recv_bytes)
		recent->recv_bytes = bytes;
}

static __always_inline void note_send_queue(struct connection *connection, address_t sk)
{
	struct recent_queues *recent = recent_queues(connection);
	u8 endpoint = connection->endpoint;
	u32 bytes;

	if (endpoint == ENDPOINT_TCP)
		note_window(connection, sk);
	bytes = direct_loads ? unsent_bytes_direct(sk, endpoint) :
			       unsent_bytes_probed(sk, endpoint);
	if (bytes > recent->send_bytes)
		recent->send_bytes = bytes;
}

/* include/net/tcp.h, TCP_NAGLE_OFF (by TCP_NODELAY) and TCP_NAGLE_CORK */
#define NAGLE_OFF_OR_CORKED 3

/* Nagle's algorithm keeps less than a packet back while another small one is not
 * acknowledged (net/ipv4/tcp_output.c, tcp_nagle_test). Where the other end's window or
 * the congestion window stops the sender, it is not that.
 */
static __always_inline bool is_held_back(address_t at)
{
	struct tcp_sock *tcp = (void *)at;
	u32 next, in_flight = BPF_CORE_READ(tcp, packets_out), unsent;

	if (!in_flight ||
	    BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle) & NAGLE_OFF_OR_CORKED)
		return false;
	next = BPF_CORE_READ(tcp, snd_nxt);
	unsent = BPF_CORE_READ(tcp, write_seq) - next;
	return unsent && unsent < BPF_CORE_READ(tcp, mss_cache) &&
	       in_flight < BPF_CORE_READ(tcp, snd_cwnd) &&
	       BPF_CORE_READ(tcp, snd_una) + BPF_CORE_READ(tcp, snd_wnd) - next >= unsent;
}

static __always_inline u32 current_tick(void)
{
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_jiffies64))
		return 0;
	return bpf_jiffies64();
}

/* Of several send calls that add to the same bytes, the first began it. Whether those left before
 * this call, or when, nobody can tell afterwards: then it counts nothing.
 */
static __subprogram int hold_began(struct connection *connection, address_t at)
{
	struct tcp_sock *tcp = (void *)at;
	u32 next = BPF_CORE_READ(tcp, snd_nxt);

	connection->sends_held++;
	if (connection->is_held && connection->held_from == next)
		return 0;
	connection->held_from = next;
	connection->held_since = current_tick();
	connection->is_held = connection->held_since != 0;
	return 0;
}

/* The other end sent something. If the bytes that were held are gone, they are the last that this
 * end sent, and the socket has the tick of that (tcp_info: tcpi_last_data_sent): how long the other
 * end thinks after that is not in it.
 */
static __subprogram int hold_ended(struct connection *connection, address_t at)
{
	struct tcp_sock *tcp = (void *)at;
	s32 ticks = BPF_CORE_READ(tcp, lsndtime) - connection->held_since;

	if (BPF_CORE_READ(tcp, snd_nxt) == connection->held_from)
		return 0;
	connection->is_held = 0;
	if (ticks > 0)
		connection->held += ticks;
	return 0;
}

static __always_inline void note_held_send(struct connection *connection, address_t sk)
{
	if (connection->endpoint != ENDPOINT_TCP)
		return;
	if (is_held_back(sk))
		hold_began(connection, sk);
	else
		connection->is_held = 0;
}

static __always_inline bool has_unread_direct(address_t at, u8 endpoint)
{
	struct sock *sk = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct sock));

	if (endpoint != ENDPOINT_TCP || sk->sk_protocol != IPPROTO_TCP)
		return sk->sk_receive_queue.qlen;
	return unread_bytes_direct(at, endpoint);
}

static __always_inline bool has_unread_probed(address_t at, u8 endpoint)
{
	struct sock *sk = (void *)at;

	if (endpoint != ENDPOINT_TCP || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return BPF_CORE_READ(sk, sk_receive_queue.qlen);
	return unread_bytes_probed(at, endpoint);
}

static __always_inline bool has_unread(address_t sk, u8 endpoint)
{
	return direct_loads ? has_unread_direct(sk, endpoint) : has_unread_probed(sk, endpoint);
}

#endif
