/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the values of a call mean, for every strategy: no map and no field of a kernel type is used
 * here.
 */
#ifndef CALLS_H
#define CALLS_H

#include "udsprobe.h"
#ifndef __KERNEL__	/* else BCC compiles, and its program includes the kernel's headers */
#include "kernel_constants.h"
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#endif

/* Layouts of struct mmsghdr, native and 32-bit. */
#define MESSAGE_SIZE 64
#define MESSAGE_LENGTH_AT 56
#define COMPAT_MESSAGE_SIZE 32
#define COMPAT_MESSAGE_LENGTH_AT 28

/* The compiler may compare one copy of a value and index by another, whose bound the verifier then
 * does not know.
 */
#define use_one_copy(value) asm volatile("" : "+r"(value))

/* include/uapi/asm-generic/poll.h, struct pollfd */
struct polled {
	int fd;
	short events;
	short returned;
};

struct arguments {
	u64 first;
	u64 second;
	u64 third;
	u64 fourth;
};

/* The strategies add in ways of their own. */
static __always_inline void count_add(count_t *counter, u64 amount);
/* The number of the highest bit that is set; the strategies compute it in ways of their own. */
static __always_inline u32 floor_log2(u64 value);

/* By which calls are counted: below SERIES_KEYS. */
static __always_inline u32 series_key(u8 call, u8 abi, u8 endpoint)
{
	u32 row = (abi & 1) * CALL_MAX + (call & (CALL_MAX - 1));

	return row * ENDPOINT_MAX + (endpoint & (ENDPOINT_MAX - 1));
}

static __always_inline u8 endpoint_of(u16 family, u16 type, u16 protocol)
{
	if (family == AF_UNIX) {
		if (type == SOCK_STREAM)
			return ENDPOINT_UNIX_STREAM;
		if (type == SOCK_SEQPACKET)
			return ENDPOINT_UNIX_SEQPACKET;
		return ENDPOINT_UNIX_DGRAM;
	}
	if (family == AF_INET || family == AF_INET6) {
		if (type == SOCK_STREAM && protocol != IPPROTO_SCTP)
			return ENDPOINT_TCP;
		/* ICMP "ping" sockets are datagrams too. */
		if (type == SOCK_DGRAM &&
		    (!protocol || protocol == IPPROTO_UDP || protocol == IPPROTO_UDPLITE))
			return ENDPOINT_UDP;
	}
	return ENDPOINT_OTHER;
}

/* A signal interrupted the call, and the kernel makes it again unless a handler prevents that. */
static __always_inline bool is_restart(long ret)
{
	return ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND ||
	       ret == -ERESTART_RESTARTBLOCK;
}

static __always_inline bool can_peek(u8 call)
{
	return call == CALL_RECVFROM || call == CALL_RECVMSG || call == CALL_RECVMMSG;
}

/* Of a call that can: what is only looked at stays in the queue. */
static __always_inline bool has_peek_flag(u8 call, const struct arguments *arguments)
{
	return (call == CALL_RECVMSG ? arguments->third : arguments->fourth) & MSG_PEEK;
}

/* The same value, of which the verifier does not know that it is the same: what it learns of one in a
 * branch holds for its copies too, and where these are used later it walks all from there once for
 * each branch (kernel/bpf/verifier.c, find_equal_scalars; adjust_reg_min_max_vals ends that).
 */
static __always_inline u64 apart(u64 value)
{
	asm volatile("%0 ^= 0" : "+r"(value));
	return value;
}

/* 0 when `to` is earlier: calls of two threads on one connection can overlap. */
static __always_inline ns_t elapsed(ns_t from, ns_t to)
{
	ns_t end = apart(to);

	return end > from ? end - from : 0;
}

/* Log-linear histograms: 16 slots per power of two, midpoint within 3.125 %.
 *
 * Without branches, which would multiply the verifier's paths, and without a call: where the
 * processor's returns are guarded (retbleed, SRSO), one costs more than all of this.
 */
static __always_inline u32 latency_slot(ns_t value)
{
	u64 beyond = value >> LATENCY_TOP_BITS, is_linear;
	u32 exponent;

	value |= -((beyond | -beyond) >> 63);
	value &= (1ULL << LATENCY_TOP_BITS) - 1;
	is_linear = ((value >> LATENCY_LINEAR_BITS) - 1) >> 63;
	exponent = floor_log2(value | (1ULL << LATENCY_LINEAR_BITS)) & 63;
	return ((exponent - LATENCY_LINEAR_BITS + 1 - is_linear) << LATENCY_SUB_BITS) +
	       ((value >> (exponent - LATENCY_SUB_BITS)) & ((1 << LATENCY_SUB_BITS) - 1));
}

static __always_inline void latency_add_at(struct latency *latency, ns_t value, u32 slot)
{
	count_add(&latency->count, 1);
	count_add(&latency->total_ns, value);
	if (value > latency->max_ns)
		latency->max_ns = value;
	use_one_copy(slot);
	if (slot < LATENCY_SLOTS)
		count_add(&latency->slots[slot], 1);
}

/* A call that returned `now`: how long it took, and how much of that on a CPU. */
static __always_inline void record_time(struct call_counts *counts, struct call_in_flight *call,
					ns_t now)
{
	ns_t wall = elapsed(call->start_ns, now);

	if (call->early) {
		count_add(&counts->early_calls, 1);
		count_add(&counts->early_wall_ns, wall);
	} else {
		latency_add_at(&counts->latency, wall, latency_slot(wall));
	}
	if (wall > call->off_cpu_ns)
		count_add(&counts->cpu_ns, wall - call->off_cpu_ns);
	if (wall >= SLOW_CALL_NS)
		count_add(&counts->slow_ns, wall);
}

/* Where errors of this result are counted. */
static __always_inline u64 error_slot(long ret)
{
	u64 error = -ret;

	if (error >= ERRNO_MAX)
		error = 0;
	use_one_copy(error);
	return error;
}

#endif
