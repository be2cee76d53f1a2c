/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads the clock for ever; the kernel answers inside of the process (its vdso), whatever the clock is. */
#include <stdio.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile long long last;

NOINLINE static void planted_reader(void)
{
	struct timespec now;

	for (int i = 0; i < 1000; i++) {
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
		last = now.tv_nsec;
	}
}

int main(void)
{
	puts("spins");
	fflush(stdout);
	for (;;)
		planted_reader();
}
