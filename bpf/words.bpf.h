/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Bytes as they are in memory, as a number of our machines. */
#ifndef WORDS_BPF_H
#define WORDS_BPF_H

#define WORD(a, b, c, d, e, f, g, h)                                            \
	((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | \
	 (u64)(f) << 40 | (u64)(g) << 48 | (u64)(h) << 56)
#define WORD_LOW 0xffffffffULL
#define WORD_ALL_BUT_LAST 0x00ffffffffffffffULL

#endif
