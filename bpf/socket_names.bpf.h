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
	int length;

	if (!address)
		return;
	length = BPF_CORE_READ(address, len) - SUN_PATH_AT;
	if (length < 0)
		return;
	if (length > SUN_PATH_LEN)
		length = SUN_PATH_LEN;
	name->length = length;
	bpf_probe_read_kernel(name->bytes, SUN_PATH_LEN,
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

/* The address a caller gave. The bytes behind a shorter one are not its own:
 * they are left out, as names are keys.
 */
static __always_inline bool name_given(u64 address, u32 length, struct socket_name *name)
{
	u16 family = 0, port = 0;

	if (length < SUN_PATH_AT || bpf_probe_read_user(&family, sizeof(family), (void *)address))
		return false;
	name->family = family;
	if (family == AF_UNIX) {
		length -= SUN_PATH_AT;
		if (length > SUN_PATH_LEN)
			length = SUN_PATH_LEN;
		name->length = length;
		if (length && length <= SUN_PATH_LEN &&
		    bpf_probe_read_user(name->bytes, length, (void *)address + SUN_PATH_AT))
			return false;
		return true;
	}
	if (family != AF_INET && family != AF_INET6)
		return false;
	bpf_probe_read_user(&port, sizeof(port), (void *)address + 2);
	name->port = __builtin_bswap16(port);
	if (family == AF_INET)
		return !bpf_probe_read_user(name->bytes, 4, (void *)address + 4);
	return !bpf_probe_read_user(name->bytes, 16, (void *)address + 8);
}

#endif
