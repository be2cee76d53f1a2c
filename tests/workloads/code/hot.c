/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Burns CPU in two functions of known costs, three times as much in one as in the other, until
 * stdin ends; then says what each had of the thread's own CPU time. "spins" is said first.
 */
#include <poll.h>
#include <stdio.h>
#include <time.h>

static volatile unsigned sink;

static long long cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((noinline, noclone)) void planted_dear(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		sink = sink * 1664525 + 1013904223;
}

__attribute__((noinline, noclone)) void planted_cheap(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		sink = sink * 22695477 + 1;
}

/* What is said after a call keeps it from being a jump: then it would be in no stack. */
__attribute__((noinline, noclone)) long long planted_caller(void (*work)(unsigned), unsigned rounds)
{
	long long before = cpu_ns();

	work(rounds);
	return cpu_ns() - before;
}

int main(void)
{
	struct pollfd end = { .fd = 0, .events = POLLIN };
	long long dear_ns = 0, cheap_ns = 0;

	puts("spins");
	fflush(stdout);
	while (!poll(&end, 1, 0)) {
		dear_ns += planted_caller(planted_dear, 3000000);
		cheap_ns += planted_caller(planted_cheap, 1000000);
	}
	printf("{\"planted_dear\": %lld, \"planted_cheap\": %lld}\n", dear_ns, cheap_ns);
	return 0;
}
