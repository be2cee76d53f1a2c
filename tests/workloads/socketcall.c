/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a C library of 32-bit x86 makes its calls on sockets: all of them by one
 * number, socketcall, with the arguments in memory. Each counts as what it is.
 */
#define _GNU_SOURCE
#include <linux/net.h>
#include <sys/uio.h>

#include "cases.h"
#include "family.h"

#ifdef SYS_socketcall

static char payload[PAYLOAD];

static long by_socketcall(enum kind kind, const char *name, long call, const long arguments[6])
{
	const long both[6] = {call, (long)arguments};

	return counted_call(kind, name, SYS_socketcall, both);
}

#define ARGUMENTS(a, b, c, d, e, f) \
	((const long[6]){(long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)})
#define SOCKETCALL(kind, name, call, ...) \
	by_socketcall(kind, #name, call, SOCKETCALL_PADDED(__VA_ARGS__, 0, 0, 0, 0, 0))
#define SOCKETCALL_PADDED(a, b, c, d, e, f, ...) ARGUMENTS(a, b, c, d, e, f)

static int server_and_client(const struct family *family, int *client)
{
	struct address address;
	int listener = listening_socket(family, &address, 1);

	*client = SOCKETCALL(family->kind, socket, SYS_SOCKET, family->domain, family->type, 0);
	must("connect",
	     SOCKETCALL(family->kind, connect, SYS_CONNECT, *client, &address.bytes, address.size),
	     0);
	int server = SOCKETCALL(family->kind, accept, SYS_ACCEPT, listener, 0, 0);
	close_counted(family->kind, listener);
	return server;
}

static void message_round(const struct family *family, int from, int to)
{
	struct iovec part = {payload, PAYLOAD};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr messages = {.msg_hdr = message};

	must("sendmsg", SOCKETCALL(family->kind, sendmsg, SYS_SENDMSG, from, &message, 0), PAYLOAD);
	must("recvmsg", SOCKETCALL(family->kind, recvmsg, SYS_RECVMSG, to, &message, 0), PAYLOAD);
	must("sendmmsg", SOCKETCALL(family->kind, sendmmsg, SYS_SENDMMSG, from, &messages, 1, 0),
	     1);
	truth_bytes(family->kind, "sendmmsg", messages.msg_len);
	must("recvmmsg", SOCKETCALL(family->kind, recvmmsg, SYS_RECVMMSG, to, &messages, 1, 0, 0),
	     1);
	truth_bytes(family->kind, "recvmmsg", messages.msg_len);
}

static void turn(const struct family *family, int client, int server)
{
	must("send", SOCKETCALL(family->kind, sendto, SYS_SEND, client, payload, PAYLOAD, 0),
	     PAYLOAD);
	must("recv", SOCKETCALL(family->kind, recvfrom, SYS_RECV, server, payload, PAYLOAD, 0),
	     PAYLOAD);
	must_fail("recv",
		  SOCKETCALL(family->kind, recvfrom, SYS_RECVFROM, server, payload, PAYLOAD,
			     MSG_DONTWAIT, 0, 0),
		  EAGAIN);
	must("sendto",
	     SOCKETCALL(family->kind, sendto, SYS_SENDTO, server, payload, PAYLOAD, 0, 0, 0),
	     PAYLOAD);
	must("recvfrom",
	     SOCKETCALL(family->kind, recvfrom, SYS_RECVFROM, client, payload, PAYLOAD, 0, 0, 0),
	     PAYLOAD);
}

void case_socketcall(const struct family *family)
{
	int client;
	int server;

	truth_requests(ROUNDS);
	server = server_and_client(family, &client);
	for (int i = 0; i < ROUNDS; i++)
		turn(family, client, server);
	for (int i = 0; i < ROUNDS; i++)
		message_round(family, server, client);
	must("shutdown", SOCKETCALL(family->kind, shutdown, SYS_SHUTDOWN, client, SHUT_RDWR), 0);
	close_counted(family->kind, client);
	close_counted(family->kind, server);
}

#else

void case_socketcall(const struct family *family)
{
	die(family->name, -1); /* this machine has a number for each */
}

#endif
