/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers requests of REQUEST_BYTES on the Unix socket at argv[1], one connection, in functions of known
 * costs: one receives, one computes the reply, one sends it, and one computes between requests. When
 * the connection ends it says what each had of the thread's own CPU time. "spins" is said first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES (1 << 20)

static char bytes[REQUEST_BYTES];
static volatile unsigned sink;

static long long cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void compute(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		sink = sink * 1664525 + 1013904223;
}

__attribute__((noinline, noclone)) int planted_receive(int connection)
{
	long received = 0, now;

	while (received < REQUEST_BYTES) {
		now = read(connection, bytes + received, REQUEST_BYTES - received);
		if (now <= 0)
			return -1;
		received += now;
	}
	return 0;
}

__attribute__((noinline, noclone)) int planted_process(int connection)
{
	compute(1000000);
	return connection < 0;
}

/* The send call that starts the reply is all of it: the socket blocks. */
__attribute__((noinline, noclone)) int planted_send(int connection)
{
	return write(connection, bytes, REQUEST_BYTES) != REQUEST_BYTES;
}

__attribute__((noinline, noclone)) int planted_between(int connection)
{
	compute(500000);
	return connection < 0;
}

static int timed(int (*work)(int), int connection, long long *spent_ns)
{
	long long before = cpu_ns();
	int failed = work(connection);

	*spent_ns += cpu_ns() - before;
	return failed;
}

int main(int argc, char **argv)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), connection;
	long long received = 0, processed = 0, sent = 0, between = 0;

	if (argc < 2)
		return 2;
	strncpy(name.sun_path, argv[1], sizeof(name.sun_path) - 1);
	if (bind(listener, (void *)&name, sizeof(name)) || listen(listener, 8))
		return 1;
	puts("spins");
	fflush(stdout);
	connection = accept(listener, NULL, NULL);
	while (!timed(planted_receive, connection, &received) &&
	       !timed(planted_process, connection, &processed) &&
	       !timed(planted_send, connection, &sent))
		timed(planted_between, connection, &between);
	printf("{\"receiving\": %lld, \"processing\": %lld, \"sending\": %lld, \"none\": %lld}\n",
	       received, processed, sent, between);
	return 0;
}
