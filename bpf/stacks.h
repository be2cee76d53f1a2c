/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the stack sampler hands over: one record for each sample. */
#ifndef STACKS_H
#define STACKS_H

#include "kernel_types.h"

enum stack_limits {
	KERNEL_FRAMES_MAX = 64,
	USER_FRAMES_MAX = 127,	/* PERF_MAX_STACK_DEPTH */
	COPY_CHUNK_BYTES = 1024,
	COPY_CHUNKS_MAX = 16,
	COPY_BYTES_MAX = COPY_CHUNK_BYTES * COPY_CHUNKS_MAX,
	RED_ZONE_BYTES = 128,	/* x86-64 ABI, 3.2.2 */
	SAMPLED_PROCESSES_MAX = 1024,
	RING_BYTES = 1 << 22,
};

/* Registers of the program are 0 where this kernel does not give them. `frames` are return
 * addresses, the innermost first; those of the program were found by frame pointers. `copy` is
 * the memory from the red zone below `sp` on, as far as it was there: its last chunk ends with the stack.
 */
struct stack_sample {
	u32 tgid;
	u32 tid;
	u64 ip;
	u64 sp;
	u64 fp;
	u64 link;
	u32 kernel_frames_bytes;
	u32 user_frames_bytes;
	u32 copy_bytes;
	u32 unused;
	u64 kernel_frames[KERNEL_FRAMES_MAX];
	u64 user_frames[USER_FRAMES_MAX];
	u8 copy[COPY_BYTES_MAX];
};

#endif
