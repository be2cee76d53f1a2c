/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a socket is called, from the kernel's side and from a caller's. */
#ifndef SOCKET_NAMES_BPF_H
#define SOCKET_NAMES_BPF_H

#include "sockets.bpf.h"

#define SUN_PATH_AT 2
#define SUN_PATH_LEN 108

static __always_inline void name_of_unix(struct sock *sk, struct socket_name *name)
{
	struct unix_address *address = BPF_CORE_READ((struct unix_sock *)sk, addr);
	int given;
	u64 length;

	if (!address)
		return;
	given = BPF_CORE_READ(address, len) - SUN_PATH_AT;
	if (given <= 0)
		return;
	length = at_most(given, SUN_PATH_LEN);
	name->length = length;
	/* Names are keys: what lies behind it in memory is not its own. */
	bpf_probe_read_kernel(name->bytes, length,
			      (void *)address + bpf_core_field_offset(address->name) + SUN_PATH_AT);
}

static __always_inline void name_of_inet(struct sock *sk, struct socket_name *name)
{
	name->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (name->family == AF_INET)
		bpf_probe_read_kernel(name->bytes, 4, &sk->__sk_common.skc_rcv_saddr);
	else
		bpf_probe_read_kernel(name->bytes, 16, &sk->__sk_common.skc_v6_rcv_saddr);
}

static __always_inline void name_of_socket(struct sock *sk, struct socket_name *name)
{
	name->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (name->family == AF_UNIX)
		name_of_unix(sk, name);
	else
		name_of_inet(sk, name);
}

/* A path ends at its first NUL; callers who give the size of the whole structure
 * leave anything behind it. An abstract name is all that was given.
 */
static __always_inline bool unix_name_given(u64 path, u32 given, struct socket_name *name)
{
	u64 length = at_most(given, SUN_PATH_LEN);
	char first = 0;
	long copied;

	if (!length)
		return true;
	name->length = length;
	if (bpf_probe_read_user(&first, sizeof(first), (void *)path))
		return false;
	if (!first)
		return !bpf_probe_read_user(name->bytes, length, (void *)path);
	copied = bpf_probe_read_user_str(name->bytes, length + 1, (void *)path);
	if (copied <= 0)
		return false;
	name->length = copied - 1;
	return true;
}

/* Where the other end is: for Unix the name that it or its listener was bound to. */
static __always_inline void name_of_peer(struct sock *sk, struct socket_name *name)
{
	struct sock *peer;
	u16 port;

	name->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (name->family == AF_UNIX) {
		peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
		if (peer)
			name_of_unix(peer, name);
		return;
	}
	port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	name->port = __builtin_bswap16(port);
	if (name->family == AF_INET)
		bpf_probe_read_kernel(name->bytes, 4, &sk->__sk_common.skc_daddr);
	else
		bpf_probe_read_kernel(name->bytes, 16, &sk->__sk_common.skc_v6_daddr);
}

/* The address a caller gave. Names are keys: what is not its own is left out. */
static __always_inline bool name_given(u64 address, u32 length, struct socket_name *name)
{
	u16 family = 0, port = 0;

	if (length < SUN_PATH_AT || bpf_probe_read_user(&family, sizeof(family), (void *)address))
		return false;
	name->family = family;
	if (family == AF_UNIX)
		return unix_name_given(address + SUN_PATH_AT, length - SUN_PATH_AT, name);
	if (family != AF_INET && family != AF_INET6)
		return false;
	bpf_probe_read_user(&port, sizeof(port), (void *)address + 2);
	name->port = __builtin_bswap16(port);
	if (family == AF_INET)
		return !bpf_probe_read_user(name->bytes, 4, (void *)address + 4);
	return !bpf_probe_read_user(name->bytes, 16, (void *)address + 8);
}

#endif
