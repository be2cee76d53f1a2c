/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Clients whose TCP handshake does not end: a full queue drops their SYN, which is sent again
 * after a second. Only the client's end shows since when it waits. The listener's entry is
 * updated when the connection is established after all.
 */
#ifndef HANDSHAKES_BPF_H
#define HANDSHAKES_BPF_H

#include "listeners.bpf.h"

#define LOOPBACK_IFINDEX 1		/* include/net/flow.h: of each network namespace */
#define HANDSHAKE_WAITS_NS 1000000	/* on loopback one that does not wait takes microseconds */

static __always_inline void map_address(u8 *address, u16 family, const void *v4, const void *v6)
{
	if (family == AF_INET6) {
		bpf_probe_read_kernel(address, 16, v6);
		return;
	}
	address[10] = 0xff;
	address[11] = 0xff;
	bpf_probe_read_kernel(address + 12, 4, v4);
}

/* The client, as read from its own socket. */
static __always_inline void name_of_client(struct sock *sk, struct tcp_client *client)
{
	u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	map_address(client->address, BPF_CORE_READ(sk, __sk_common.skc_family),
		    &sk->__sk_common.skc_rcv_saddr, &sk->__sk_common.skc_v6_rcv_saddr);
	client->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	client->listener_port = __builtin_bswap16(port);
}

/* The same client, as read from the listener's end. */
static __always_inline void name_of_accepted(struct sock *sk, struct tcp_client *client)
{
	u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	map_address(client->address, BPF_CORE_READ(sk, __sk_common.skc_family),
		    &sk->__sk_common.skc_daddr, &sk->__sk_common.skc_v6_daddr);
	client->port = __builtin_bswap16(port);
	client->listener_port = BPF_CORE_READ(sk, __sk_common.skc_num);
}

static __always_inline void handshake_began(address_t sk)
{
	ns_t now = bpf_ktime_get_ns();

	if (bpf_map_update_elem(&handshakes, &sk, &now, BPF_ANY))
		shared_add(&connects_turned_away, 1);
}

static __always_inline void handshake_over(struct sock *sk, int after)
{
	address_t address = (u64)sk;
	ns_t *start_ns = bpf_map_lookup_elem(&handshakes, &address), waited_ns;
	struct tcp_client client = {};

	if (!start_ns)
		return;
	if (after == TCP_ESTABLISHED && BPF_CORE_READ((struct tcp_sock *)sk, total_retrans)) {
		waited_ns = bpf_ktime_get_ns() - *start_ns;
		name_of_client(sk, &client);
		if (!bpf_map_update_elem(&clients_let_in, &client, &waited_ns, BPF_ANY))
			shared_add(&clients_ever_let_in, 1);
	}
	bpf_map_delete_elem(&handshakes, &address);
}

/* The listener's end of the connection exists now, so the queue is known. */
static __always_inline void client_queued(address_t accepted, struct listener *listener)
{
	struct tcp_client client = {};
	ns_t *waited_ns;

	if (!clients_ever_let_in)
		return;
	name_of_accepted((struct sock *)accepted, &client);
	waited_ns = bpf_map_lookup_elem(&clients_let_in, &client);
	if (!waited_ns)
		return;
	shared_latency_add(&listener->blocked, *waited_ns);
	bpf_map_delete_elem(&clients_let_in, &client);
}

/* The handshake began before attach, so its wait is counted from now. It is entered first and then
 * seen in progress, so its end comes after the entry.
 */
static __always_inline void adopt_handshake(struct sock *sk)
{
	address_t address = (u64)sk;
	ns_t now = bpf_ktime_get_ns();

	if (!bpf_map_update_elem(&handshakes, &address, &now, BPF_NOEXIST) &&
	    BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_SYN_SENT)
		bpf_map_delete_elem(&handshakes, &address);
}

/* Of this network namespace itself. */
static __always_inline bool is_to_loopback(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_dst_cache, dev, ifindex) == LOOPBACK_IFINDEX;
}

/* False: it is not to be listed. */
static __always_inline bool read_handshake(struct handshake_record *record, address_t *key,
					   ns_t *start_ns)
{
	struct sock *sk = (void *)*key;

	if (bpf_ktime_get_ns() - *start_ns < HANDSHAKE_WAITS_NS)
		return false;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_SYN_SENT || !is_to_loopback(sk))
		return false;
	__builtin_memset(record, 0, sizeof(*record));
	record->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	name_of_peer(sk, &record->peer);
	return true;
}

#endif
