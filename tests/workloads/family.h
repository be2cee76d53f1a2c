/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The transports a workload runs over, and connected pairs of their sockets. */
#ifndef FAMILY_H
#define FAMILY_H

#include <sys/socket.h>

#include "truth.h"

struct family {
	const char *name;
	enum kind kind;
	int domain;
	int type;
};

struct address {
	struct sockaddr_storage bytes;
	socklen_t size;
};

const struct family *family_named(const char *name);
int is_connection_oriented(const struct family *family);

/* All of these count the calls they make. */
int family_socket(const struct family *family, int flags);
int bound_socket(const struct family *family, struct address *bound);
int listening_socket(const struct family *family, struct address *bound, int backlog);
int connected_socket(const struct family *family, const struct address *to);

/* Two connected sockets: by socketpair where there is one, else fds[1] accepted. */
void connected_pair(const struct family *family, int fds[2]);
void close_counted(enum kind kind, int fd);
void close_pair(const struct family *family, const int fds[2]);

/* ROUNDS payloads from one end to the other by sendto and recvfrom. */
void send_rounds(enum kind kind, int fd);
void receive_rounds(enum kind kind, int fd);

#endif
