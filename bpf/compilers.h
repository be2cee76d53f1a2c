/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Constructs that make every clang (13 and later) produce instructions that the verifier accepts.
 * docs/packaging.md has the compilers that are tested.
 */
#ifndef COMPILERS_H
#define COMPILERS_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#define AS_TEXT(value) #value
#define VERSION(major, minor, patch) AS_TEXT(major) "." AS_TEXT(minor) "." AS_TEXT(patch)

/* The error message names it when the verifier rejects the object. */
const volatile char built_by[24] =
	"clang " VERSION(__clang_major__, __clang_minor__, __clang_patchlevel__);

/* A separate function whose result is not needed: `static __subprogram int`, ending in
 * `return 0`. What a void function leaves in r0 may be a pointer into its stack, which the
 * verifier refuses (kernel/bpf/verifier.c, prepare_func_exit); clang 17 and later leave one.
 * `used` keeps them from dropping a result that no caller reads.
 */
#define __subprogram __noinline __attribute__((used))

/* `length`, but at most `limit`, which is a constant. In plain C, clang 17 and later may compare one
 * copy of the value and use another; the verifier then knows the bound of only one of them.
 */
#define at_most(length, limit)								\
	({										\
		u64 __length = (u32)(length);						\
		asm volatile("if %[value] <= %[most] goto +1\n\t"			\
			     "%[value] = %[most]"					\
			     : [value] "+r"(__length)					\
			     : [most] "i"(limit));					\
		__length;								\
	})

/* Adds, and returns nothing: one instruction that all kernels know. Clang 20 and later make of
 * __sync_fetch_and_add() one that returns the old value, which Linux knows since commit 5ca419f2864a
 * "bpf: Add BPF_FETCH field / create atomic_fetch_add instruction" (in v5.12).
 */
#define atomic_add(place, amount) ((void)__atomic_fetch_add(place, amount, __ATOMIC_RELAXED))

#endif
