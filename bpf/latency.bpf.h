/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Log-linear histograms: 16 slots per power of two, midpoint within 3.125 %. */
#ifndef LATENCY_BPF_H
#define LATENCY_BPF_H

#include "maps.bpf.h"

/* 0 when `to` is earlier: calls of two threads on one connection can overlap. */
static __always_inline ns_t elapsed(ns_t from, ns_t to)
{
	return to > from ? to - from : 0;
}

/* By a de Bruijn sequence: branches here would multiply the verifier's paths. */
#define DE_BRUIJN 0x03f79d71b4cb0a89ULL

static const volatile u8 log2_by_product[64] = {
	0, 47, 1, 56, 48, 27, 2, 60, 57, 49, 41, 37, 28, 16, 3, 61,
	54, 58, 35, 52, 50, 42, 21, 44, 38, 32, 29, 23, 17, 11, 4, 62,
	46, 55, 26, 59, 40, 36, 15, 53, 34, 51, 20, 43, 31, 22, 10, 45,
	25, 39, 14, 33, 19, 30, 9, 24, 13, 18, 8, 12, 7, 6, 5, 63,
};

static __always_inline u32 floor_log2(u64 value)
{
	value |= value >> 1;
	value |= value >> 2;
	value |= value >> 4;
	value |= value >> 8;
	value |= value >> 16;
	value |= value >> 32;
	return log2_by_product[(value * DE_BRUIJN) >> 58];
}

/* Without branches, which would multiply the verifier's paths, and without a call: where the
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

/* A global function, which the verifier walks once, for what is not done at each call. */
__noinline u32 latency_slot_called(ns_t value)
{
	return latency_slot(value);
}

static __always_inline void latency_add_at(struct latency *latency, ns_t value, u32 slot)
{
	count_add(&latency->count, 1);
	count_add(&latency->total_ns, value);
	if (value > latency->max_ns)
		latency->max_ns = value;
	/* The compiler would compare one register and index by another. */
	barrier_var(slot);
	if (slot < LATENCY_SLOTS)
		count_add(&latency->slots[slot], 1);
}

static __always_inline void latency_add(struct latency *latency, ns_t value)
{
	latency_add_at(latency, value, latency_slot_called(value));
}

#endif
