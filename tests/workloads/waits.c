/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <time.h>

#include "truth.h"
#include "waits.h"

long wait_epoll(int poller, struct epoll_event *events, int room, int timeout_ms)
{
#ifdef SYS_epoll_wait
	return CALL(OTHER, epoll_wait, poller, events, room, timeout_ms);
#else
	return CALL(OTHER, epoll_pwait, poller, events, room, timeout_ms, NULL, 8);
#endif
}

long wait_poll(struct pollfd *watched, int count, int timeout_ms)
{
#ifdef SYS_poll
	return CALL(OTHER, poll, watched, count, timeout_ms);
#else
	struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

	return CALL(OTHER, ppoll, watched, count, timeout_ms < 0 ? NULL : &timeout, NULL, 8);
#endif
}

long ask_select(int count, fd_set *watched)
{
#ifdef SYS_select
	struct timeval none = {0};

	return CALL(OTHER, select, count, watched, NULL, NULL, &none);
#else
	struct timespec none = {0};

	return CALL(OTHER, pselect6, count, watched, NULL, NULL, &none, NULL);
#endif
}
