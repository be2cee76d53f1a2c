/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Works until it is killed, and keeps rounds done and its own CPU time (ns) in the file argv[2], as two
 * numbers of 64 bits. argv[1]: `computes` below 20 callers, or `switches` between two threads, which
 * fall asleep in each round.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_BETWEEN_LOOKS 50

static volatile unsigned sink;
static volatile unsigned long long *account;
static int there[2], back[2];

static void look(unsigned long long rounds)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	account[0] = rounds;
	account[1] = now.tv_sec * 1000000000ULL + now.tv_nsec;
}

__attribute__((noinline)) static void compute(int depth)
{
	if (depth)
		compute(depth - 1);
	else
		for (int i = 0; i < 20000; i++)
			sink = sink * 1664525 + 1;
	sink++;
}

static void *answer(void *unused)
{
	char byte;

	while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
		;
	return unused;
}

static void ask(void)
{
	char byte = 0;

	if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
		exit(1);
}

int main(int argc, char **argv)
{
	pthread_t other;
	int file, computes;

	if (argc < 3)
		return 2;
	computes = !strcmp(argv[1], "computes");
	file = open(argv[2], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, 16) || pipe(there) || pipe(back))
		return 1;
	account = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (account == MAP_FAILED)
		return 1;
	if (!computes && pthread_create(&other, NULL, answer, NULL))
		return 1;
	for (unsigned long long rounds = 1;; rounds++) {
		if (computes)
			compute(20);
		else
			ask();
		if (rounds % ROUNDS_BETWEEN_LOOKS == 0)
			look(rounds);
	}
}
