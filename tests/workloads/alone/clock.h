/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* CLOCK_MONOTONIC, pauses of a known length, and calls that must succeed. */
#ifndef CLOCK_H
#define CLOCK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned long long ns_t;

static inline ns_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static inline void sleep_ns(ns_t duration)
{
	struct timespec pause = {.tv_sec = duration / 1000000000, .tv_nsec = duration % 1000000000};

	while (duration && nanosleep(&pause, &pause) && errno == EINTR)
		;
}

static inline void spin_ns(ns_t duration)
{
	ns_t end = now_ns() + duration;

	while (now_ns() < end)
		;
}

static inline long must(const char *what, long result)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

#endif
