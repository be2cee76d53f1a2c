/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * gateway.py's loop in C: one epoll, a connection upstream and a timerfd for each
 * client.
 *
 *   gateway PATH UPSTREAM
 */
#define _GNU_SOURCE
#include "clock.h"
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 64
#define WIDTH 4
#define SIZE (3 * WIDTH)
#define MS 1000000ULL

struct client {
	int fd, upstream, timer;
	int upstream_ms, timer_ms, work_ms;
	ns_t began;
	char request[SIZE];
};

enum source { FROM_CLIENT, FROM_UPSTREAM, FROM_TIMER, FROM_LISTENER, FROM_STDIN };

static struct client clients[CLIENTS_MAX];
static unsigned client_count;
static unsigned long long requests, upstream_ns, timer_ns, work_ns;
static int poller;

static void watch(int fd, enum source source, unsigned index)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (unsigned long long)index << 8 | source};

	must("epoll_ctl", epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event));
}

static int unix_socket(const char *path, bool listens)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = must("socket", socket(AF_UNIX, SOCK_STREAM, 0));

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (listens) {
		must("bind", bind(fd, (void *)&address, sizeof(address)));
		must("listen", listen(fd, CLIENTS_MAX));
	} else {
		must("connect", connect(fd, (void *)&address, sizeof(address)));
	}
	return fd;
}

static void accept_client(int listener, const char *upstream)
{
	struct client *client = &clients[client_count];

	if (client_count == CLIENTS_MAX)
		exit(1);
	client->fd = must("accept", accept(listener, NULL, NULL));
	client->upstream = unix_socket(upstream, false);
	client->timer = must("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
	watch(client->fd, FROM_CLIENT, client_count);
	watch(client->upstream, FROM_UPSTREAM, client_count);
	watch(client->timer, FROM_TIMER, client_count);
	client_count++;
}

static int field(const char *text)
{
	char digits[WIDTH + 1] = {};

	memcpy(digits, text, WIDTH);
	return atoi(digits);
}

static void reply(struct client *client)
{
	ns_t began = now_ns();

	if (client->work_ms) {
		while (now_ns() < began + client->work_ms * MS)
			;
		work_ns += now_ns() - began;
	}
	requests++;
	must("send", send(client->fd, client->request, SIZE, 0));
}

static void start_timer(struct client *client)
{
	struct itimerspec when = {.it_value = {client->timer_ms / 1000,
					       client->timer_ms % 1000 * (long)MS}};

	if (!client->timer_ms) {
		reply(client);
		return;
	}
	client->began = now_ns();
	must("timerfd_settime", timerfd_settime(client->timer, 0, &when, NULL));
}

static void client_asked(struct client *client)
{
	ssize_t got = must("recv", recv(client->fd, client->request, SIZE, 0));

	if (got != SIZE) {
		close(client->fd);
		close(client->upstream);
		close(client->timer);
		return;
	}
	client->upstream_ms = field(client->request);
	client->timer_ms = field(client->request + WIDTH);
	client->work_ms = field(client->request + 2 * WIDTH);
	if (!client->upstream_ms) {
		start_timer(client);
		return;
	}
	client->began = now_ns();
	must("send", send(client->upstream, client->request, SIZE, 0));
}

static void upstream_answered(struct client *client)
{
	char answer[SIZE];

	must("recv", recv(client->upstream, answer, SIZE, 0));
	upstream_ns += now_ns() - client->began;
	start_timer(client);
}

static void timer_ended(struct client *client)
{
	unsigned long long times;

	must("read", read(client->timer, &times, sizeof(times)));
	timer_ns += now_ns() - client->began;
	reply(client);
}

int main(int argc, char **argv)
{
	struct epoll_event event;
	int listener;

	if (argc != 3)
		return 2;
	poller = must("epoll", epoll_create1(0));
	listener = unix_socket(argv[1], true);
	watch(listener, FROM_LISTENER, 0);
	watch(0, FROM_STDIN, 0);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		must("epoll_wait", epoll_wait(poller, &event, 1, -1));
		struct client *client = &clients[event.data.u64 >> 8];

		switch (event.data.u64 & 0xff) {
		case FROM_CLIENT:
			client_asked(client);
			break;
		case FROM_UPSTREAM:
			upstream_answered(client);
			break;
		case FROM_TIMER:
			timer_ended(client);
			break;
		case FROM_LISTENER:
			accept_client(listener, argv[2]);
			break;
		default:
			printf("{\"requests\": %llu, \"upstream\": %llu, \"timer\": %llu, "
			       "\"work\": %llu}\n", requests, upstream_ns, timer_ns, work_ns);
			return 0;
		}
	}
}
