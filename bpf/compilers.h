/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the verifier has to see in the instructions, whichever clang (13 and later) makes them:
 * docs/packaging.md has the compilers that are tested.
 */
#ifndef COMPILERS_H
#define COMPILERS_H

#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#define AS_TEXT(value) #value
#define VERSION(major, minor, patch) AS_TEXT(major) "." AS_TEXT(minor) "." AS_TEXT(patch)

/* For the message where the verifier refuses what this compiler made. */
const volatile char built_by[24] =
	"clang " VERSION(__clang_major__, __clang_minor__, __clang_patchlevel__);

/* A function of its own whose result nobody needs: `static __subprogram int`, ending in
 * `return 0`. What a void function leaves in r0 may be a pointer into its stack, which the
 * verifier refuses (kernel/bpf/verifier.c, prepare_func_exit); clang 17 and later leave one.
 * `used` keeps them from dropping a result that no caller reads.
 */
#define __subprogram __noinline __attribute__((used))

/* `length`, at most `limit`, which is a constant. In C the comparison and the use may each have
 * a copy of their own (clang 17 and later), and the verifier knows the bound of one of them only.
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

#endif
