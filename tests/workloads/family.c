/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#define _GNU_SOURCE
#include "family.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static const struct family FAMILIES[] = {
	{"unix-stream", UNIX_STREAM, AF_UNIX, SOCK_STREAM},
	{"unix-seqpacket", UNIX_SEQPACKET, AF_UNIX, SOCK_SEQPACKET},
	{"unix-dgram", UNIX_DGRAM, AF_UNIX, SOCK_DGRAM},
	{"tcp4", TCP, AF_INET, SOCK_STREAM},
	{"tcp6", TCP, AF_INET6, SOCK_STREAM},
	{"udp4", UDP, AF_INET, SOCK_DGRAM},
	{"udp6", UDP, AF_INET6, SOCK_DGRAM},
};

const struct family *family_named(const char *name)
{
	for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++)
		if (!strcmp(FAMILIES[i].name, name))
			return &FAMILIES[i];
	die(name, -1);
}

int is_connection_oriented(const struct family *family)
{
	return family->type != SOCK_DGRAM;
}

int family_socket(const struct family *family, int flags)
{
	int fd = CALL(family->kind, socket, family->domain, family->type | flags, 0);

	if (fd < 0)
		die("socket", fd);
	if (family->kind == TCP) /* else small pieces wait for delayed ACKs */
		must("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)),
		     0);
	return fd;
}

/* Loopback with a port of the kernel's choice, or an abstract name. */
static struct address fresh_address(const struct family *family)
{
	static int names;
	struct address address = {.size = sizeof(struct sockaddr_in)};
	struct sockaddr_in6 *in6 = (void *)&address.bytes;
	struct sockaddr_un *un = (void *)&address.bytes;

	address.bytes.ss_family = family->domain;
	if (family->domain == AF_INET) {
		((struct sockaddr_in *)in6)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else if (family->domain == AF_INET6) {
		in6->sin6_addr = in6addr_loopback;
		address.size = sizeof(*in6);
	} else {
		int length = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
				      "udsprobe-workload-%d-%d", getpid(), names++);
		address.size = offsetof(struct sockaddr_un, sun_path) + 1 + length;
	}
	return address;
}

int bound_socket(const struct family *family, struct address *bound)
{
	int fd = family_socket(family, 0);

	*bound = fresh_address(family);
	MUST(0, family->kind, bind, fd, &bound->bytes, bound->size);
	must("getsockname", getsockname(fd, (struct sockaddr *)&bound->bytes, &bound->size), 0);
	return fd;
}

int listening_socket(const struct family *family, struct address *bound, int backlog)
{
	int fd = bound_socket(family, bound);

	MUST(0, family->kind, listen, fd, backlog);
	return fd;
}

int connected_socket(const struct family *family, const struct address *to)
{
	int fd = family_socket(family, 0);

	MUST(0, family->kind, connect, fd, &to->bytes, to->size);
	return fd;
}

static void accepted_pair(const struct family *family, int fds[2])
{
	struct address address;
	int listener = listening_socket(family, &address, 1);

	fds[0] = connected_socket(family, &address);
	fds[1] = CALL(family->kind, accept4, listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0)
		die("accept4", fds[1]);
	close_counted(family->kind, listener);
}

static void datagram_pair(const struct family *family, int fds[2])
{
	struct address addresses[2];

	for (int i = 0; i < 2; i++)
		fds[i] = bound_socket(family, &addresses[i]);
	for (int i = 0; i < 2; i++)
		MUST(0, family->kind, connect, fds[i], &addresses[!i].bytes, addresses[!i].size);
}

void connected_pair(const struct family *family, int fds[2])
{
	if (family->domain == AF_UNIX)
		MUST(0, family->kind, socketpair, AF_UNIX, family->type, 0, fds);
	else if (is_connection_oriented(family))
		accepted_pair(family, fds);
	else
		datagram_pair(family, fds);
}

void close_counted(enum kind kind, int fd)
{
	MUST(0, kind, close, fd);
}

void close_pair(const struct family *family, const int fds[2])
{
	close_counted(family->kind, fds[0]);
	close_counted(family->kind, fds[1]);
}

void send_rounds(enum kind kind, int fd)
{
	char payload[PAYLOAD] = {0};

	for (int i = 0; i < ROUNDS; i++)
		MUST(PAYLOAD, kind, sendto, fd, payload, PAYLOAD, 0, NULL, 0);
}

void receive_rounds(enum kind kind, int fd)
{
	char payload[PAYLOAD];

	for (int i = 0; i < ROUNDS; i++)
		MUST(PAYLOAD, kind, recvfrom, fd, payload, PAYLOAD, MSG_WAITALL, NULL, NULL);
}
