/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Two threads that wait for each other until they are killed: argv[1] is `pingpong`, a byte on a
 * Unix socketpair, or `handover`, a futex. Keeps rounds done and its own CPU time (ns) in the file
 * argv[2], as two numbers of 64 bits.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_BETWEEN_LOOKS 50

static volatile unsigned long long *account;
static _Atomic int ball;
static int ends[2], throws_ball;

static void look(unsigned long long rounds)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	account[0] = rounds;
	account[1] = now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void send_byte(int me)
{
	char byte = 0;

	if (write(ends[me], &byte, 1) != 1)
		exit(1);
}

static void await_byte(int me)
{
	char byte;

	if (read(ends[me], &byte, 1) != 1)
		exit(1);
}

static void give(int me)
{
	if (!throws_ball) {
		send_byte(me);
		return;
	}
	atomic_store(&ball, !me);
	syscall(SYS_futex, &ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void await(int me)
{
	if (!throws_ball)
		await_byte(me);
	while (throws_ball && atomic_load(&ball) != me)
		syscall(SYS_futex, &ball, FUTEX_WAIT_PRIVATE, !me, NULL, NULL, 0);
}

static void *answer(void *unused)
{
	for (;;) {
		await(1);
		give(1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;
	int file;

	if (argc < 3)
		return 2;
	throws_ball = !strcmp(argv[1], "handover");
	file = open(argv[2], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, 16) || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	account = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (account == MAP_FAILED || pthread_create(&other, NULL, answer, NULL))
		return 1;
	for (unsigned long long rounds = 1;; rounds++) {
		give(0);
		await(0);
		if (rounds % ROUNDS_BETWEEN_LOOKS == 0)
			look(rounds);
	}
}
