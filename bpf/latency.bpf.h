/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What calls.h leaves to the strategy of histograms. */
#ifndef LATENCY_BPF_H
#define LATENCY_BPF_H

#include "calls.h"
#include "maps.bpf.h"

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

/* A global function, which the verifier walks once, for what is not done at each call. */
__noinline u32 latency_slot_called(ns_t value)
{
	return latency_slot(value);
}

static __always_inline void latency_add(struct latency *latency, ns_t value)
{
	latency_add_at(latency, value, latency_slot_called(value));
}

#endif
