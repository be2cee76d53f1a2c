/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every call on every kind of descriptor, senseless as it may be: the widest table there is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>

#include "cases.h"
#include "family.h"

static const char *const FAMILY_OF_KIND[] = {
	"unix-stream", "unix-seqpacket", "unix-dgram", "tcp4", "udp4",
};

/* Without buffers and without waiting; most fail, and the truth says how. */
static void call_everything(enum kind kind, int fd)
{
	CALL(kind, read, fd, NULL, 1);
	CALL(kind, write, fd, NULL, 1);
	CALL(kind, readv, fd, NULL, 1);
	CALL(kind, writev, fd, NULL, 1);
	CALL(kind, pread64, fd, NULL, 1, 0, 0);
	CALL(kind, pwrite64, fd, NULL, 1, 0, 0);
	CALL(kind, preadv, fd, NULL, 1, 0, 0);
	CALL(kind, pwritev, fd, NULL, 1, 0, 0);
	CALL(kind, preadv2, fd, NULL, 1, -1, -1, 0);
	CALL(kind, pwritev2, fd, NULL, 1, -1, -1, 0);
	CALL(kind, sendto, fd, NULL, 1, 0, NULL, 0);
	CALL(kind, recvfrom, fd, NULL, 1, 0, NULL, NULL);
	CALL(kind, sendmsg, fd, NULL, 0);
	CALL(kind, recvmsg, fd, NULL, 0);
	CALL(kind, sendmmsg, fd, NULL, 1, 0);
	CALL(kind, recvmmsg, fd, NULL, 1, 0, NULL);
	CALL(kind, sendfile, fd, -1, NULL, 1);
	CALL(kind, splice, fd, NULL, -1, NULL, 1, 0);
#ifdef SYS_accept
	CALL(kind, accept, fd, NULL, NULL);
#endif
	CALL(kind, accept4, fd, NULL, NULL, 0);
	CALL(kind, connect, fd, NULL, 0);
	CALL(kind, bind, fd, NULL, 0);
	CALL(kind, listen, fd, 0);
	CALL(kind, epoll_ctl, -1, 0, fd, NULL);
	CALL(kind, shutdown, fd, SHUT_RDWR);
	CALL(kind, close, fd);
}

void case_wide(const struct family *family)
{
	int pipe_fds[2];

	(void)family;
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof(FAMILY_OF_KIND) / sizeof(FAMILY_OF_KIND[0]); i++) {
		const struct family *each = family_named(FAMILY_OF_KIND[i]);
		call_everything(each->kind, family_socket(each, SOCK_NONBLOCK));
	}
	must("pipe", pipe2(pipe_fds, O_NONBLOCK), 0);
	call_everything(OTHER, pipe_fds[0]);
}
