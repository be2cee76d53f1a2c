/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Burns CPU in a function that is inlined in another one, and that has one inlined itself, until
 * stdin ends. "spins" is said first.
 */
#include <poll.h>
#include <stdio.h>

static volatile unsigned sink;

static inline __attribute__((always_inline)) unsigned planted_step(unsigned value)
{
	sink = value;
	return sink * 1664525 + 1013904223;
}

static inline __attribute__((always_inline)) unsigned planted_mix(unsigned rounds)
{
	unsigned value = rounds;

	for (unsigned i = 0; i < rounds; i++)
		value = planted_step(value ^ i);
	return value;
}

__attribute__((noinline, noclone)) unsigned planted_handle(unsigned rounds)
{
	return planted_mix(rounds) | 1;
}

int main(void)
{
	struct pollfd end = { .fd = 0, .events = POLLIN };

	puts("spins");
	fflush(stdout);
	while (!poll(&end, 1, 0))
		sink += planted_handle(3000000);
	return 0;
}
