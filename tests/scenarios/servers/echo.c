// Sends back what came, whole messages of BYTES: echo ADDRESS BYTES [PIECE]. One thread, poll().
// PIECE: the most bytes that one call takes or gives.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listening.h"

enum { CONNECTIONS = 256 };

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int echo(int fd, char *message, size_t bytes, size_t piece)
{
	for (size_t have = 0; have < bytes;) {
		ssize_t n = recv(fd, message + have, least(bytes - have, piece), 0);
		if (n <= 0)
			return -1;
		have += (size_t)n;
	}
	for (size_t sent = 0; sent < bytes;) {
		ssize_t n = send(fd, message + sent, least(bytes - sent, piece), MSG_NOSIGNAL);
		if (n <= 0)
			return -1;
		sent += (size_t)n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pollfd watched[CONNECTIONS] = { { 0 } };
	nfds_t count = 1;
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
	size_t piece = argc > 3 ? strtoul(argv[3], NULL, 10) : bytes;
	char *message = malloc(bytes);
	watched[0] = (struct pollfd){ .fd = argc > 1 ? listen_at(argv[1]) : -1, .events = POLLIN };
	if (watched[0].fd < 0) {
		perror("echo");
		return 1;
	}
	for (;;) {
		poll(watched, count, -1);
		for (nfds_t i = count; i-- > 1;)
			if (watched[i].revents && echo(watched[i].fd, message, bytes, piece)) {
				close(watched[i].fd);
				watched[i] = watched[--count];
			}
		if (watched[0].revents && count < CONNECTIONS) {
			int on = 1, fd = accept(watched[0].fd, NULL, NULL);
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); // no effect on Unix
			watched[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
		}
	}
}
