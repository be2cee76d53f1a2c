/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * connects one|two MILLISECONDS RATE: opens so many Unix connections a second,
 * with RATE 0 as many as it can, and prints how many it opened, in how many ns
 * of wall time and of CPU time.
 * `one`: a single thread is client and server, so nothing waits for anybody.
 * `two`: client and server are processes of their own. Prints its PID first and
 * begins when it reads a byte; ends when its input is closed.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	BACKLOG = 4096,
	BETWEEN_CLOCKS = 64
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long cpu_ns_of(int who)
{
	struct rusage used;

	getrusage(who, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL +
	       (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
}

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static int listening(struct sockaddr_un *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "udsprobe-bench-%d",
		 getpid());
	check(fd < 0 || bind(fd, (void *)address, length) || listen(fd, BACKLOG), "listen");
	return fd;
}

static int open_one(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	check(fd < 0 || connect(fd, (const void *)address, sizeof(*address)), "connect");
	return fd;
}

static void close_next(int listener)
{
	int fd = accept(listener, NULL, NULL);

	check(fd < 0, "accept");
	close(fd);
}

static pid_t accepting(int listener)
{
	pid_t pid = fork();

	check(pid < 0, "fork");
	while (!pid)
		close_next(listener);
	return pid;
}

static void sleep_until(long long at_ns)
{
	struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void run(const struct sockaddr_un *address, int listener, int accepts, long long for_ns,
		long long rate)
{
	long long began = now_ns(), cpu = cpu_ns_of(RUSAGE_SELF), opened = 0;
	long long end = began + for_ns, now;

	do {
		for (int i = 0; i < BETWEEN_CLOCKS; i++) {
			int fd = open_one(address);

			if (accepts)
				close_next(listener);
			close(fd);
		}
		opened += BETWEEN_CLOCKS;
		if (rate)
			sleep_until(began + opened * 1000000000LL / rate);
		now = now_ns();
	} while (now < end);
	printf("%lld %lld %lld\n", opened, now - began, cpu_ns_of(RUSAGE_SELF) - cpu);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address;
	int listener, alone;
	pid_t server = 0;
	char go;

	if (argc != 4)
		return 2;
	alone = !strcmp(argv[1], "one");
	listener = listening(&address);
	if (!alone)
		server = accepting(listener);
	printf("%d\n", getpid());
	fflush(stdout);
	while (read(0, &go, 1) == 1)
		run(&address, listener, alone, atoll(argv[2]) * 1000000LL, atoll(argv[3]));
	if (server) {
		kill(server, SIGTERM);
		waitpid(server, NULL, 0);
	}
	return 0;
}
