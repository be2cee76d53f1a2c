/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A thread that polls and is busy in between, and knows for how long.
 *
 *   loops POLLER rounds busy_us spins|sleeps
 *
 * Says a line, begins at the first byte on stdin, prints its account, and ends at
 * the end of stdin.
 */
#define _GNU_SOURCE
#include "clock.h"
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ready, epoll;

static long call_poller(const char *name)
{
	struct epoll_event event;
	struct pollfd one = {.fd = ready, .events = POLLIN};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(ready, &set);
	if (!strcmp(name, "epoll_pwait"))
		return epoll_pwait(epoll, &event, 1, -1, NULL);
	if (!strcmp(name, "epoll_pwait2"))
		return syscall(441, epoll, &event, 1, NULL, NULL, 0);
	if (!strcmp(name, "poll"))
		return poll(&one, 1, -1);
	if (!strcmp(name, "ppoll"))
		return ppoll(&one, 1, NULL, NULL);
	if (!strcmp(name, "select"))
		return select(ready + 1, &set, NULL, NULL, NULL);
	if (!strcmp(name, "pselect6"))
		return pselect(ready + 1, &set, NULL, NULL, NULL, NULL);
	return epoll_wait(epoll, &event, 1, -1);
}

int main(int argc, char **argv)
{
	struct epoll_event event = {.events = EPOLLIN};
	ns_t busy, began, took, total = 0, longest = 0;
	char byte;
	int rounds;

	if (argc != 5)
		return 2;
	rounds = atoi(argv[2]);
	busy = atoi(argv[3]) * 1000ULL;
	ready = must("eventfd", eventfd(1, 0));
	epoll = must("epoll", epoll_create1(0));
	must("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, ready, &event));
	printf("ready\n");
	fflush(stdout);
	must("read", read(0, &byte, 1));
	must(argv[1], call_poller(argv[1]));
	for (int i = 0; i < rounds; i++) {
		began = now_ns();
		if (!strcmp(argv[4], "spins"))
			spin_ns(busy);
		else
			sleep_ns(busy);
		took = now_ns() - began;
		total += took;
		longest = took > longest ? took : longest;
		must(argv[1], call_poller(argv[1]));
	}
	printf("{\"iterations\": %d, \"busy\": %llu, \"longest\": %llu}\n", rounds, total, longest);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
}
