/* SPDX-License-Identifier: MIT */
/*
 * many connections N PATH: holds N accepted Unix connections on the listener PATH, both ends
 * (two descriptors each). `turns MILLISECONDS HOT` makes turns on the first HOT of them in
 * turn: ask, receive, reply, receive.
 * many listeners N PATH: N Unix listeners PATH.0 ... . many threads N: so many that sleep.
 * many processes: `turns MILLISECONDS RATE` forks children that end at once.
 * Prints `0 0` when it is ready; answers each line with `median_ns count`: ns per call and
 * calls made, or ns per process and processes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	SLICE = 64,
	SLICES_MAX = 1 << 18,
	STACK_BYTES = 64 * 1024
};

static double slices[SLICES_MAX];
static char bytes[64];
static int *ends;
static int count;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static int listening(struct sockaddr_un *address, const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "%s", path);
	check(fd < 0 || bind(fd, (void *)address, sizeof(*address)) || listen(fd, 128), "listen");
	return fd;
}

static void open_connections(const char *path)
{
	struct sockaddr_un address;
	int listener = listening(&address, path);

	ends = calloc(2 * count, sizeof(*ends));
	for (int at = 0; at < 2 * count; at += 2) {
		ends[at] = socket(AF_UNIX, SOCK_STREAM, 0);
		check(ends[at] < 0, "socket");
		check(connect(ends[at], (void *)&address, sizeof(address)), "connect");
		ends[at + 1] = accept(listener, NULL, NULL);
		check(ends[at + 1] < 0, "accept");
	}
}

static void open_listeners(const char *path)
{
	char name[128];
	struct sockaddr_un address;

	for (int at = 0; at < count; at++) {
		snprintf(name, sizeof(name), "%s.%d", path, at);
		listening(&address, name);
	}
}

static void *sleep_on(void *unused)
{
	pause();
	return unused;
}

static void start_threads(void)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK_BYTES);
	for (int at = 0; at < count; at++)
		check(pthread_create(&thread, &small, sleep_on, NULL), "pthread_create");
}

static void transfer(int from, int to)
{
	if (send(from, bytes, sizeof(bytes), 0) != sizeof(bytes) ||
	    recv(to, bytes, sizeof(bytes), 0) != sizeof(bytes))
		exit(1);
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static void make_turns(long long for_ns, int hot)
{
	long long end = now_ns() + for_ns, before, after = 0;
	int used = 0, at = 0;

	while (after < end && used < SLICES_MAX) {
		before = now_ns();
		for (int call = 0; call < SLICE; call += 4) {
			transfer(ends[2 * at], ends[2 * at + 1]);
			transfer(ends[2 * at + 1], ends[2 * at]);
			at = (at + 1) % hot;
		}
		after = now_ns();
		slices[used++] = (double)(after - before) / SLICE;
	}
	qsort(slices, used, sizeof(*slices), compare);
	printf("%.1f %d\n", slices[used / 2], used * SLICE);
}

static void make_processes(long long for_ns, int rate)
{
	long long began = now_ns(), at_ns;
	int made = 0;

	for (; (at_ns = made * 1000000000LL / rate) < for_ns; made++) {
		struct timespec at = {(began + at_ns) / 1000000000, (began + at_ns) % 1000000000};
		pid_t pid;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		pid = fork();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	printf("%.1f %d\n", (double)(now_ns() - began) / made, made);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long long milliseconds;
	char line[64];
	int argument;

	count = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "connections"))
		open_connections(argv[3]);
	else if (!strcmp(what, "listeners"))
		open_listeners(argv[3]);
	else if (!strcmp(what, "threads"))
		start_threads();
	puts("0 0");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%lld %d", &milliseconds, &argument) != 2)
			return 2;
		if (!strcmp(what, "connections"))
			make_turns(milliseconds * 1000000LL, argument);
		else if (!strcmp(what, "processes"))
			make_processes(milliseconds * 1000000LL, argument);
		else
			puts("0 0");
		fflush(stdout);
	}
	return 0;
}
