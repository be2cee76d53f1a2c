/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* For observers that come later: already inside a call, and in no hurry. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include "cases.h"
#include "family.h"
#include "waits.h"

static char payload[PAYLOAD];

static void *sleep_in_epoll(void *argument)
{
	struct epoll_event event;

	wait_epoll(*(int *)argument, &event, 1, -1);
	return NULL;
}

/* A thread waits for what never comes, until SIGTERM. */
void case_asleep(const struct family *family)
{
	static int poller;
	sigset_t ending;
	pthread_t thread;
	int signal;

	(void)family;
	poller = epoll_create1(0);
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	must("pthread_create", pthread_create(&thread, NULL, sleep_in_epoll, &poller), 0);
	sigwait(&ending, &signal);
}

/* Standard input is a socket whose other end the test holds: echo until it ends. */
void case_echo(const struct family *family)
{
	long got;

	while ((got = CALL(family->kind, recvfrom, STDIN_FILENO, payload, PAYLOAD, 0, NULL, NULL)) >
	       0)
		MUST(got, family->kind, sendto, STDIN_FILENO, payload, got, 0, NULL, 0);
	must("recvfrom", got, 0);
}
