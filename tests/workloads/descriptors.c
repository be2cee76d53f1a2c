/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a descriptor is does not depend on its number or on who opened it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "cases.h"
#include "family.h"

enum {
	HIGH_FD = 1000
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
