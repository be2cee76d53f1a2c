/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The oldest of the calls that wait for descriptors, counted. Architectures
 * made since 2011, arm64 among them, have only those with a signal mask.
 */
#ifndef WAITS_H
#define WAITS_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

/* Timeouts in milliseconds; -1 is for ever. They return as syscall(2), errno included. */
long wait_epoll(int poller, struct epoll_event *events, int room, int timeout_ms);
long wait_poll(struct pollfd *watched, int count, int timeout_ms);

/* Readable descriptors below `count`, without waiting. */
long ask_select(int count, fd_set *watched);

#endif
