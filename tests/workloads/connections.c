/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Opening and closing, and the ways in which they fail. */
#define _GNU_SOURCE
#include <linux/netlink.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "cases.h"
#include "family.h"

enum {
	ABSENT_FD = 999
};

static char payload[PAYLOAD];

/* 32-bit x86 has no accept, only accept4. */
static int accept_plain(const struct family *family, int listener)
{
#ifdef SYS_accept
	int fd = CALL(family->kind, accept, listener, NULL, NULL);
#else
	int fd = CALL(family->kind, accept4, listener, NULL, NULL, 0);
#endif
	if (fd < 0)
		die("accept", fd);
	return fd;
}

static int accept_flagged(const struct family *family, int listener)
{
	int fd = CALL(family->kind, accept4, listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		die("accept4", fd);
	return fd;
}

void case_connect(const struct family *family)
{
	struct address address;
	int listener = listening_socket(family, &address, ROUNDS);

	for (int i = 0; i < ROUNDS; i++) {
		int client = connected_socket(family, &address);
		int server =
			i % 2 ? accept_plain(family, listener) : accept_flagged(family, listener);

		FAILS(EISCONN, family->kind, connect, client, &address.bytes, address.size);
		MUST(0, family->kind, shutdown, client, SHUT_RDWR);
		close_counted(family->kind, client);
		close_counted(family->kind, server);
	}
	MUST(0, family->kind, listen, listener, 1);
	close_counted(family->kind, listener);
}

/* A port or name that is bound but not listened on refuses. */
static void refused(const struct family *family)
{
	struct address address;
	int bound = bound_socket(family, &address);

	for (int i = 0; i < ROUNDS; i++) {
		int client = family_socket(family, SOCK_CLOEXEC);

		FAILS(ECONNREFUSED, family->kind, connect, client, &address.bytes, address.size);
		close_counted(family->kind, client);
	}
	int second = family_socket(family, SOCK_NONBLOCK);
	FAILS(EADDRINUSE, family->kind, bind, second, &address.bytes, address.size);
	close_counted(family->kind, second);
	close_counted(family->kind, bound);
}

static void nothing_to_accept(const struct family *family)
{
	struct address address;
	int idle = bound_socket(family, &address);
	int listener = family_socket(family, SOCK_NONBLOCK);

	FAILS(EINVAL, family->kind, accept4, idle, NULL, NULL, 0);
	must("bind",
	     CALL(family->kind, bind, listener, &(sa_family_t){family->domain},
		  sizeof(sa_family_t)),
	     family->domain == AF_UNIX ? 0 : -1);
	MUST(0, family->kind, listen, listener, 1);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EAGAIN, family->kind, accept4, listener, NULL, NULL, 0);
	close_counted(family->kind, idle);
	close_counted(family->kind, listener);
}

static void not_connected(const struct family *family)
{
	int fd = family_socket(family, 0);

	if (family->domain == AF_UNIX) {
		FAILS(ENOTCONN, family->kind, sendto, fd, payload, PAYLOAD, 0, NULL, 0);
	} else {
		FAILS(ENOTCONN, family->kind, recvfrom, fd, payload, PAYLOAD, 0, NULL, NULL);
		FAILS(ENOTCONN, family->kind, shutdown, fd, SHUT_RDWR);
	}
	close_counted(family->kind, fd);
}

static void broken_pipe(const struct family *family)
{
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	connected_pair(family, fds);
	MUST(0, family->kind, shutdown, fds[0], SHUT_WR);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EPIPE, family->kind, write, fds[0], payload, PAYLOAD);
	FAILS(EFAULT, family->kind, sendto, fds[1], NULL, PAYLOAD, 0, NULL, 0);
	close_pair(family, fds);
}

static void out_of_descriptors(const struct family *family)
{
	struct address address;
	int listener = listening_socket(family, &address, 1);
	int client = connected_socket(family, &address);
	struct rlimit before;
	struct rlimit none;

	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EMFILE, family->kind, accept4, listener, NULL, NULL, 0);
	FAILS(EMFILE, family->kind, socket, family->domain, family->type, 0);
	setrlimit(RLIMIT_NOFILE, &before);
	close_counted(family->kind, client);
	close_counted(family->kind, listener);
}

/* No such path, for Unix; a connection still in the making, for TCP. */
static void connect_specially(const struct family *family)
{
	struct sockaddr_un absent = {AF_UNIX, "/nonexistent/udsprobe.sock"};
	struct address address;
	int client = family_socket(family, SOCK_NONBLOCK);

	if (family->domain == AF_UNIX) {
		for (int i = 0; i < ROUNDS; i++)
			FAILS(ENOENT, family->kind, connect, client, &absent, sizeof(absent));
	} else {
		int listener = listening_socket(family, &address, 1);

		FAILS(EINPROGRESS, family->kind, connect, client, &address.bytes, address.size);
		close_counted(family->kind, listener);
	}
	close_counted(family->kind, client);
}

void case_errors(const struct family *family)
{
	refused(family);
	nothing_to_accept(family);
	not_connected(family);
	broken_pipe(family);
	connect_specially(family);
	out_of_descriptors(family);
}

/* ICMP is no UDP, though its sockets are of the same family and type. */
static void ping_socket(void)
{
	int fd = CALL(OTHER, socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP);

	if (fd >= 0)
		close_counted(OTHER, fd);
}

/* Without a descriptor there is no socket; a few sockets have no transport of ours. */
void case_no_socket(const struct family *family)
{
	int netlink = CALL(OTHER, socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct address address;
	int datagram = bound_socket(family_named("udp4"), &address);

	(void)family;
	for (int i = 0; i < ROUNDS; i++) {
		FAILS(EBADF, OTHER, read, ABSENT_FD, payload, PAYLOAD);
		FAILS(EBADF, OTHER, sendto, -1, payload, PAYLOAD, 0, NULL, 0);
		FAILS(EBADF, OTHER, close, ABSENT_FD);
		FAILS(EBADF, OTHER, accept4, 0x7fffffff, NULL, NULL, 0);
		FAILS(EAGAIN, OTHER, recvfrom, netlink, payload, PAYLOAD, MSG_DONTWAIT, NULL, NULL);
	}
	FAILS(EOPNOTSUPP, UDP, listen, datagram, 1);
	FAILS(ENOTSOCK, OTHER, sendto, truth_fd(), payload, PAYLOAD, 0, NULL, 0);
	ping_socket();
	close_counted(OTHER, netlink);
	close_counted(UDP, datagram);
}
