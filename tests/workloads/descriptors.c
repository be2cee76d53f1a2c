/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a descriptor is does not depend on its number or on who opened it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "cases.h"
#include "family.h"

enum {
	HIGH_FD = 1000,
	ONE_FD = 500
};

static char payload[PAYLOAD];

static void pipe_rounds(void)
{
	struct iovec part = {payload, PAYLOAD};
	int fds[2];

	must("pipe", pipe(fds), 0);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, OTHER, write, fds[1], payload, PAYLOAD);
		MUST(PAYLOAD, OTHER, read, fds[0], payload, PAYLOAD);
		MUST(PAYLOAD, OTHER, writev, fds[1], &part, 1);
		MUST(PAYLOAD, OTHER, readv, fds[0], &part, 1);
	}
	close_counted(OTHER, fds[0]);
	close_counted(OTHER, fds[1]);
}

static void file_rounds(void)
{
	int file = memfd_create("content", 0);

	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, OTHER, pwrite64, file, payload, PAYLOAD, 0, 0);
		MUST(PAYLOAD, OTHER, pread64, file, payload, PAYLOAD, 0, 0);
		MUST(i ? 0 : PAYLOAD, OTHER, read, file, payload, PAYLOAD);
	}
	close_counted(OTHER, file);
}

static void event_rounds(void)
{
	unsigned long long one = 1;
	int event = eventfd(0, EFD_NONBLOCK);

	for (int i = 0; i < ROUNDS; i++) {
		MUST(8, OTHER, write, event, &one, 8);
		MUST(8, OTHER, read, event, &one, 8);
		FAILS(EAGAIN, OTHER, read, event, &one, 8);
	}
	close_counted(OTHER, event);
}

void case_files(const struct family *family)
{
	(void)family;
	pipe_rounds();
	file_rounds();
	event_rounds();
}

/* An O_PATH descriptor of a socket is open, and yet no socket to any call. */
void case_path_only(const struct family *family)
{
	char path[64];
	int fds[2];

	connected_pair(family, fds);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	int opened = open(path, O_PATH);
	if (opened < 0)
		die(path, opened);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EBADF, OTHER, read, opened, payload, PAYLOAD);
	close_counted(OTHER, opened);
	close_pair(family, fds);
}

void case_duplicates(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	int copy = dup(fds[0]);
	int high = fcntl(fds[1], F_DUPFD_CLOEXEC, HIGH_FD);
	must("fcntl", high, HIGH_FD);
	send_rounds(family->kind, copy);
	receive_rounds(family->kind, high);
	close_pair(family, fds);
	send_rounds(family->kind, copy);
	receive_rounds(family->kind, high);
	close_counted(family->kind, copy);
	close_counted(family->kind, high);
}

/* By a call that is no row of the table. */
static void drop(int fd)
{
	must("close_range", syscall(SYS_close_range, fd, fd, 0), 0);
}

static void replace(int fd)
{
	must("dup2", dup2(fd, ONE_FD), ONE_FD);
	drop(fd);
}

static void use_once(enum kind kind, int other_end)
{
	MUST(PAYLOAD, kind, write, ONE_FD, payload, PAYLOAD);
	MUST(PAYLOAD, kind, read, other_end, payload, PAYLOAD);
	MUST(PAYLOAD, kind, write, other_end, payload, PAYLOAD);
	MUST(PAYLOAD, kind, read, ONE_FD, payload, PAYLOAD);
}

/* The kernel frees a socket when every processor has passed by, and so does this call. */
static void let_memory_go(void)
{
	for (int i = 0; i < 2; i++)
		must("membarrier", syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0), 0);
}

static void use_pair_of(const char *name)
{
	const struct family *family = family_named(name);
	int fds[2];

	connected_pair(family, fds);
	replace(fds[0]);
	use_once(family->kind, fds[1]);
	close_counted(family->kind, fds[1]);
}

/* One number, another thing at each turn, in the memory of the one before where that was free. */
void case_replaced(const struct family *family)
{
	int fds[2];

	(void)family;
	for (int i = 0; i < ROUNDS; i++) {
		use_pair_of("unix-stream");
		drop(ONE_FD);
		let_memory_go();
		use_pair_of("unix-seqpacket");
		use_pair_of("unix-dgram");
		use_pair_of("tcp4");
		must("pipe", pipe(fds), 0);
		replace(fds[1]);
		MUST(PAYLOAD, OTHER, write, ONE_FD, payload, PAYLOAD);
		MUST(PAYLOAD, OTHER, read, fds[0], payload, PAYLOAD);
		FAILS(EBADF, OTHER, read, ONE_FD, payload, PAYLOAD);
		close_counted(OTHER, fds[0]);
	}
	close_counted(OTHER, ONE_FD);
	FAILS(EBADF, OTHER, write, ONE_FD, payload, PAYLOAD);
}

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr aligned;
};

void pass_descriptor(int over, int fd)
{
	union control control;
	struct iovec part = {payload, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	message.msg_control = control.bytes;
	message.msg_controllen = sizeof(control.bytes);
	control.aligned.cmsg_level = SOL_SOCKET;
	control.aligned.cmsg_type = SCM_RIGHTS;
	control.aligned.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.aligned), &fd, sizeof(int));
	MUST(1, UNIX_STREAM, sendmsg, over, &message, 0);
}

int passed_descriptor(int over)
{
	union control control;
	struct iovec part = {payload, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int fd = -1;

	message.msg_control = control.bytes;
	message.msg_controllen = sizeof(control.bytes);
	if (CALL(UNIX_STREAM, recvmsg, over, &message, 0) == 1)
		memcpy(&fd, CMSG_DATA(&control.aligned), sizeof(int));
	return fd;
}

void case_passed(const struct family *family)
{
	int channel[2];
	int fds[2];

	connected_pair(family_named("unix-stream"), channel);
	connected_pair(family, fds);
	pass_descriptor(channel[0], fds[1]);
	close_counted(family->kind, fds[1]);
	fds[1] = passed_descriptor(channel[1]);
	send_rounds(family->kind, fds[0]);
	receive_rounds(family->kind, fds[1]);
	close_pair(family, fds);
	close_pair(family_named("unix-stream"), channel);
}
