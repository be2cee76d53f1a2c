/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * As many socket calls as the CPUs make, of known number, until stdin ends:
 *
 *   full_load PATH SENDERS
 *
 * SENDERS threads send to themselves on socket pairs; one more opens connections to a
 * listener at PATH, serves a request on each and closes both ends, so that the kernel gives
 * new sockets the memory of old ones; every FORK_EVERY connections it forks a child that
 * sends once and exits. Says `ready`, begins with the first line of stdin, and prints which
 * calls on Unix sockets there were.
 */
#define _GNU_SOURCE
#include "clock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	SENDERS_MAX = 64,
	BATCH = 256,
	MESSAGE = 64,
	FORK_EVERY = 1000
};

struct made {
	unsigned long long sent, received, connected, accepted, forked;
};

struct worker {
	pthread_t thread;
	int ends[2];
	struct made made;
};

static atomic_bool over;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener;

static void pass(const int ends[2], struct made *made)
{
	char message[MESSAGE] = "";

	must("send", send(ends[0], message, sizeof(message), 0));
	must("recv", recv(ends[1], message, sizeof(message), 0));
	made->sent++;
	made->received++;
}

static void *send_on_and_on(void *argument)
{
	struct worker *worker = argument;

	while (!over)
		for (int i = 0; i < BATCH; i++)
			pass(worker->ends, &worker->made);
	return NULL;
}

static void send_from_child(struct worker *worker)
{
	pid_t child = must("fork", fork());

	if (!child) {
		struct made of_child = {0};

		pass(worker->ends, &of_child);
		_exit(0);
	}
	must("waitpid", waitpid(child, NULL, 0));
	worker->made.sent++;
	worker->made.received++;
	worker->made.forked++;
}

static void serve_one(struct worker *worker)
{
	int client = must("socket", socket(AF_UNIX, SOCK_STREAM, 0)), served;

	must("connect", connect(client, (struct sockaddr *)&address, sizeof(address)));
	served = must("accept", accept(listener, NULL, NULL));
	pass((int[2]){client, served}, &worker->made);
	pass((int[2]){served, client}, &worker->made);
	close(client);
	close(served);
	worker->made.connected++;
	worker->made.accepted++;
}

static void *connect_on_and_on(void *argument)
{
	struct worker *worker = argument;

	while (!over) {
		serve_one(worker);
		if (worker->made.connected % FORK_EVERY == 0)
			send_from_child(worker);
	}
	return NULL;
}

static void say(const struct worker *workers, int count)
{
	struct made all = {0};

	for (int i = 0; i < count; i++) {
		all.sent += workers[i].made.sent;
		all.received += workers[i].made.received;
		all.connected += workers[i].made.connected;
		all.accepted += workers[i].made.accepted;
		all.forked += workers[i].made.forked;
	}
	printf("{\"sendto\": %llu, \"recvfrom\": %llu, \"connect\": %llu, \"accept\": %llu, "
	       "\"forks\": %llu}\n",
	       all.sent, all.received, all.connected, all.accepted, all.forked);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct worker workers[SENDERS_MAX + 1];
	int senders = argc == 3 ? atoi(argv[2]) : 0;

	if (senders < 1 || senders > SENDERS_MAX) {
		fprintf(stderr, "usage: full_load PATH SENDERS\n");
		return 2;
	}
	strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
	listener = must("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	must("bind", bind(listener, (struct sockaddr *)&address, sizeof(address)));
	must("listen", listen(listener, 16));
	for (int i = 0; i <= senders; i++)
		must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, workers[i].ends));
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (int i = 0; i <= senders; i++)
		pthread_create(&workers[i].thread, NULL,
			       i < senders ? send_on_and_on : connect_on_and_on, &workers[i]);
	while (getchar() != EOF)
		;
	over = 1;
	for (int i = 0; i <= senders; i++)
		pthread_join(workers[i].thread, NULL);
	say(workers, senders + 1);
	return 0;
}
