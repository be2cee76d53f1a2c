/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every way of waiting for a socket. A poller itself is no socket. */
#define _GNU_SOURCE
#include <linux/time_types.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "cases.h"
#include "family.h"
#include "waits.h"

static char payload[PAYLOAD];

static void send_one(const struct family *family, int fd)
{
	MUST(PAYLOAD, family->kind, sendto, fd, payload, PAYLOAD, 0, NULL, 0);
}

static void receive_one(const struct family *family, int fd)
{
	MUST(PAYLOAD, family->kind, recvfrom, fd, payload, PAYLOAD, 0, NULL, NULL);
}

static void control_all(const struct family *family, int poller, const int fds[2], int pipe_fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	MUST(0, family->kind, epoll_ctl, poller, EPOLL_CTL_ADD, fds[1], &event);
	MUST(0, OTHER, epoll_ctl, poller, EPOLL_CTL_ADD, pipe_fd, &event);
	MUST(0, family->kind, epoll_ctl, poller, EPOLL_CTL_MOD, fds[1], &event);
	FAILS(EEXIST, family->kind, epoll_ctl, poller, EPOLL_CTL_ADD, fds[1], &event);
	FAILS(ENOENT, family->kind, epoll_ctl, poller, EPOLL_CTL_DEL, fds[0], &event);
	FAILS(EBADF, OTHER, epoll_ctl, poller, EPOLL_CTL_ADD, -1, &event);
}

static void wait_rounds(const struct family *family, int poller, const int fds[2])
{
	struct __kernel_timespec none = {0};
	struct epoll_event events[3];

	for (int i = 0; i < ROUNDS; i++) {
		must("epoll_wait", wait_epoll(poller, events, 3, 0), 0);
		send_one(family, fds[0]);
		must("epoll_wait", wait_epoll(poller, events, 3, -1), 1);
		MUST(1, OTHER, epoll_pwait, poller, events, 3, -1, NULL, 8);
		MUST(1, OTHER, epoll_pwait2, poller, events, 3, NULL, NULL, 8);
		receive_one(family, fds[1]);
		MUST(0, OTHER, epoll_pwait2, poller, events, 3, &none, NULL, 8);
	}
	must_fail("epoll_wait", wait_epoll(poller, events, 0, 0), EINVAL);
}

void case_epoll(const struct family *family)
{
	int poller = epoll_create1(0);
	int pipe_fds[2];
	int fds[2];

	must("pipe", pipe(pipe_fds), 0);
	connected_pair(family, fds);
	control_all(family, poller, fds, pipe_fds[0]);
	wait_rounds(family, poller, fds);
	MUST(0, family->kind, epoll_ctl, poller, EPOLL_CTL_DEL, fds[1], NULL);
	close_pair(family, fds);
	close_counted(OTHER, poller);
}

static void poll_once(int fd, int ready)
{
	struct pollfd watched = {.fd = fd, .events = POLLIN};
	struct timespec none = {0};

	must("poll", wait_poll(&watched, 1, 0), ready);
	MUST(ready, OTHER, ppoll, &watched, 1, &none, NULL, 8);
}

/* 32-bit x86 keeps this number for a call of another shape. */
static void select_once(int fd, int ready)
{
#ifdef __LP64__
	struct timespec none_ns = {0};
	fd_set watched;

	FD_ZERO(&watched);
	FD_SET(fd, &watched);
	must("select", ask_select(fd + 1, &watched), ready);
	FD_SET(fd, &watched);
	MUST(ready, OTHER, pselect6, fd + 1, &watched, NULL, NULL, &none_ns, NULL);
#else
	(void)fd;
	(void)ready;
#endif
}

void case_poll(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		poll_once(fds[1], 0);
		select_once(fds[1], 0);
		send_one(family, fds[0]);
		poll_once(fds[1], 1);
		select_once(fds[1], 1);
		receive_one(family, fds[1]);
	}
	close_pair(family, fds);
}
