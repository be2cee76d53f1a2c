/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every way of moving bytes over a socket, one way a case. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "cases.h"
#include "family.h"

enum {
	MESSAGES = 5,
	MESSAGES_ASKED = 2000,
	MESSAGES_TAKEN = 1024,
	FILL_BYTES = 4096
};

static char payload[FILL_BYTES];

static void set_nonblocking(int fd)
{
	must("fcntl", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static void end_of_stream(const struct family *family, const int fds[2])
{
	if (!is_connection_oriented(family))
		return;
	MUST(0, family->kind, shutdown, fds[0], SHUT_WR);
	MUST(0, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
}

/* The calls of their own that 32-bit ARM has for send() and recv(). */
static void without_address(const struct family *family, const int fds[2])
{
#if defined(SYS_send) && defined(SYS_recv)
	must("send", CALL_PADDED(family->kind, "sendto", SYS_send, fds[0], payload, PAYLOAD, 0, 0, 0, 0),
	     PAYLOAD);
	must("recv",
	     CALL_PADDED(family->kind, "recvfrom", SYS_recv, fds[1], payload, PAYLOAD, 0, 0, 0, 0),
	     PAYLOAD);
#else
	(void)family;
	(void)fds;
#endif
}

void case_send(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, sendto, fds[0], payload, PAYLOAD, 0, NULL, 0);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	without_address(family, fds);
	end_of_stream(family, fds);
	close_pair(family, fds);
}

void case_read(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, write, fds[0], payload, PAYLOAD);
		MUST(PAYLOAD, family->kind, read, fds[1], payload, PAYLOAD);
	}
	end_of_stream(family, fds);
	close_pair(family, fds);
}

void case_readv(const struct family *family)
{
	struct iovec parts[3] = {{payload, 1}, {payload + 1, 40}, {payload + 41, 23}};
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, writev, fds[0], parts, 3);
		MUST(PAYLOAD, family->kind, readv, fds[1], parts, 3);
	}
	close_pair(family, fds);
}

/* A socket has no position: offset -1 works, any other is ESPIPE. */
void case_preadv2(const struct family *family)
{
	struct iovec part = {payload, PAYLOAD};
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, pwritev2, fds[0], &part, 1, -1, -1, 0);
		MUST(PAYLOAD, family->kind, preadv2, fds[1], &part, 1, -1, -1, 0);
	}
	FAILS(EAGAIN, family->kind, preadv2, fds[1], &part, 1, -1, -1, RWF_NOWAIT);
	FAILS(ESPIPE, family->kind, preadv, fds[1], &part, 1, 0, 0);
	FAILS(ESPIPE, family->kind, pwritev, fds[0], &part, 1, 0, 0);
	FAILS(ESPIPE, family->kind, pread64, fds[1], payload, PAYLOAD, 0, 0);
	FAILS(ESPIPE, family->kind, pwrite64, fds[0], payload, PAYLOAD, 0, 0);
	close_pair(family, fds);
}

void case_sendmsg(const struct family *family)
{
	struct iovec parts[2] = {{payload, 23}, {payload + 23, 41}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, sendmsg, fds[0], &message, 0);
		MUST(PAYLOAD, family->kind, recvmsg, fds[1], &message, 0);
	}
	close_pair(family, fds);
}

/* Message i has i + 1 parts of 7 bytes, so the lengths differ. */
static void set_messages(struct mmsghdr messages[MESSAGES], struct iovec parts[MESSAGES])
{
	memset(messages, 0, MESSAGES * sizeof(messages[0]));
	for (int i = 0; i < MESSAGES; i++) {
		parts[i] = (struct iovec){payload, 7 * (i + 1)};
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
}

static long sum_of_lengths(const struct mmsghdr messages[MESSAGES], long count)
{
	long sum = 0;

	for (long i = 0; i < count; i++)
		sum += messages[i].msg_len;
	return sum;
}

/* More than the kernel takes at once (UIO_MAXIOV); of datagrams some are dropped. */
static void many_messages(const struct family *family, const int fds[2])
{
	static struct mmsghdr messages[MESSAGES_ASKED];
	struct iovec part = {payload, 7};

	for (int i = 0; i < MESSAGES_ASKED; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	MUST(MESSAGES_TAKEN, family->kind, sendmmsg, fds[0], messages, MESSAGES_ASKED, 0);
	truth_bytes(family->kind, "sendmmsg", sum_of_lengths(messages, MESSAGES_TAKEN));
	long got =
		CALL(family->kind, recvmmsg, fds[1], messages, MESSAGES_ASKED, MSG_DONTWAIT, NULL);
	if (got < 1)
		die("recvmmsg", got);
	truth_bytes(family->kind, "recvmmsg", sum_of_lengths(messages, got));
}

void case_sendmmsg(const struct family *family)
{
	struct mmsghdr messages[MESSAGES];
	struct iovec parts[MESSAGES];
	int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		long vlen = 1 + i % MESSAGES;

		set_messages(messages, parts);
		MUST(vlen, family->kind, sendmmsg, fds[0], messages, vlen, 0);
		truth_bytes(family->kind, "sendmmsg", sum_of_lengths(messages, vlen));
		set_messages(messages, parts);
		MUST(vlen, family->kind, recvmmsg, fds[1], messages, vlen, 0, NULL);
		truth_bytes(family->kind, "recvmmsg", sum_of_lengths(messages, vlen));
	}
	FAILS(EAGAIN, family->kind, recvmmsg, fds[1], messages, MESSAGES, MSG_DONTWAIT, NULL);
	FAILS(EFAULT, family->kind, sendmmsg, fds[0], NULL, MESSAGES, 0);
	if (family->domain != AF_UNIX) /* whose buffers are too small for so many */
		many_messages(family, fds);
	close_pair(family, fds);
}

/* Sends until the buffers are full; how many that takes is the kernel's affair. */
static void fill(const struct family *family, int fd)
{
	for (int full = 0; full < ROUNDS;) {
		long sent = CALL(family->kind, write, fd, payload, FILL_BYTES);

		if (sent < 0 && errno != EAGAIN)
			die("write", sent);
		full += sent < 0;
	}
}

void case_nonblocking(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	set_nonblocking(fds[0]);
	set_nonblocking(fds[1]);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EAGAIN, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EAGAIN, family->kind, read, fds[1], payload, PAYLOAD);
	if (family->kind != UDP)
		fill(family, fds[0]);
	close_pair(family, fds);
}

void case_sendfile(const struct family *family)
{
	int file = memfd_create("content", 0);
	off_t offset = 0;
	int fds[2];
	int pipe_fds[2];

	must("ftruncate", ftruncate(file, ROUNDS * PAYLOAD), 0);
	must("pipe", pipe(pipe_fds), 0);
	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, sendfile, fds[0], file, NULL, PAYLOAD);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	MUST(0, family->kind, sendfile, fds[0], file, NULL, PAYLOAD);
	MUST(PAYLOAD, OTHER, sendfile, pipe_fds[1], file, &offset, PAYLOAD);
	FAILS(EBADF, family->kind, sendfile, fds[0], -1, NULL, PAYLOAD);
	close_pair(family, fds);
}

void case_splice(const struct family *family)
{
	int in[2];
	int out[2];
	int pipe_fds[2];
	int file_pipe[2];

	must("pipe", pipe(pipe_fds), 0);
	must("pipe", pipe(file_pipe), 0);
	connected_pair(family, in);
	connected_pair(family, out);
	for (int i = 0; i < ROUNDS; i++) {
		MUST(PAYLOAD, family->kind, sendto, in[0], payload, PAYLOAD, 0, NULL, 0);
		MUST(PAYLOAD, family->kind, splice, in[1], NULL, pipe_fds[1], NULL, PAYLOAD, 0);
		MUST(PAYLOAD, family->kind, splice, pipe_fds[0], NULL, out[0], NULL, PAYLOAD, 0);
		MUST(PAYLOAD, family->kind, recvfrom, out[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	FAILS(EAGAIN, OTHER, splice, pipe_fds[0], NULL, file_pipe[1], NULL, PAYLOAD,
	      SPLICE_F_NONBLOCK);
	close_pair(family, in);
	close_pair(family, out);
}
