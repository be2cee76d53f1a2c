/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A server and its client: REQUESTS_MADE turns over CONNECTIONS connections,
 * whatever the number of calls and processes a turn takes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "cases.h"
#include "family.h"
#include "waits.h"

enum {
	CONNECTIONS = 7,
	WORKERS = 3,
	FIRST_PIECE = 24,
	SHORT_CONNECTIONS = 1009,
	REQUESTS_MADE = CONNECTIONS * ROUNDS,
};

/* How both sides cut a message of PAYLOAD bytes. */
struct manner {
	int pieces;
	int greeting;
};

static const struct manner WHOLE = {.pieces = 1};
static const struct manner PIECES = {.pieces = 2};
static const struct manner GREETING = {.pieces = 1, .greeting = 1};

static char payload[PAYLOAD];

static int piece_bytes(const struct manner *manner, int piece)
{
	if (manner->pieces == 1)
		return PAYLOAD;
	return piece ? PAYLOAD - FIRST_PIECE : FIRST_PIECE;
}

static void send_message(const struct family *family, int fd, const struct manner *manner)
{
	for (int i = 0; i < manner->pieces; i++) {
		int bytes = piece_bytes(manner, i);
		MUST(bytes, family->kind, sendto, fd, payload, bytes, 0, NULL, 0);
	}
}

/* Returns 0 at the end of the stream. */
static int receive_message(const struct family *family, int fd, const struct manner *manner)
{
	for (int i = 0; i < manner->pieces; i++) {
		int bytes = piece_bytes(manner, i);
		long got =
			CALL(family->kind, recvfrom, fd, payload, bytes, MSG_WAITALL, NULL, NULL);
		if (got == 0)
			return 0;
		must("recvfrom", got, bytes);
	}
	return 1;
}

static void use_connection(const struct family *family, int fd, const struct manner *manner)
{
	if (manner->greeting)
		receive_message(family, fd, manner);
	for (int i = 0; i < ROUNDS; i++) {
		send_message(family, fd, manner);
		must("reply", receive_message(family, fd, manner), 1);
	}
	if (manner->greeting) /* a farewell, which nobody answers */
		send_message(family, fd, manner);
	close_counted(family->kind, fd);
}

static void use_connections(const struct family *family, const struct address *address,
			    const struct manner *manner)
{
	for (int i = 0; i < CONNECTIONS; i++)
		use_connection(family, connected_socket(family, address), manner);
}

static void use_server(const struct family *family, const struct address *address,
		       const struct manner *manner)
{
	use_connections(family, address, manner);
	close_counted(family->kind, connected_socket(family, address)); /* asks nothing */
}

static void serve_connection(const struct family *family, int fd, const struct manner *manner)
{
	if (manner->greeting)
		send_message(family, fd, manner);
	for (int i = 0; receive_message(family, fd, manner); i++)
		if (i < ROUNDS)
			send_message(family, fd, manner);
	close_counted(family->kind, fd);
}

static int accepted(const struct family *family, int listener, int flags)
{
	return CALL(family->kind, accept4, listener, NULL, NULL, flags);
}

/* Runs the client in a child; the server goes on with the listener. */
static pid_t start_client(const struct family *family, int *listener, const struct manner *manner)
{
	struct address address;

	truth_requests(REQUESTS_MADE);
	*listener = listening_socket(family, &address, CONNECTIONS + 1);
	pid_t client = fork();
	if (!client) {
		use_server(family, &address, manner);
		_exit(0);
	}
	return client;
}

static void wait_for_child(pid_t child)
{
	int status;

	must("waitpid", waitpid(child, &status, 0), child);
	must("child", status, 0);
}

static void serve_one_by_one(const struct family *family, const struct manner *manner)
{
	int listener;
	pid_t client = start_client(family, &listener, manner);

	for (int i = 0; i < CONNECTIONS; i++)
		serve_connection(family, accepted(family, listener, 0), manner);
	int unused = accepted(family, listener, 0);
	MUST(0, family->kind, recvfrom, unused, payload, PAYLOAD, 0, NULL, NULL);
	close_counted(family->kind, unused);
	wait_for_child(client);
	close_counted(family->kind, listener);
}

void case_requests(const struct family *family)
{
	serve_one_by_one(family, &WHOLE);
}

void case_requests_pieces(const struct family *family)
{
	serve_one_by_one(family, &PIECES);
}

/* The server speaks first and owes no answer at the end: neither is a turn. */
void case_requests_greeting(const struct family *family)
{
	serve_one_by_one(family, &GREETING);
}

struct connection_of_thread {
	const struct family *family;
	int fd;
};

static void *serve_in_thread(void *argument)
{
	struct connection_of_thread *connection = argument;

	serve_connection(connection->family, connection->fd, &WHOLE);
	return NULL;
}

void case_requests_threads(const struct family *family)
{
	struct connection_of_thread connections[CONNECTIONS + 1];
	pthread_t threads[CONNECTIONS + 1];
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	for (int i = 0; i <= CONNECTIONS; i++) {
		connections[i].family = family;
		connections[i].fd = accepted(family, listener, 0);
		must("pthread_create",
		     pthread_create(&threads[i], NULL, serve_in_thread, &connections[i]), 0);
	}
	for (int i = 0; i <= CONNECTIONS; i++)
		must("pthread_join", pthread_join(threads[i], NULL), 0);
	wait_for_child(client);
}

/* A child a connection, the way of inetd; the parent closes its copy at once. */
void case_requests_forks(const struct family *family)
{
	pid_t children[CONNECTIONS + 1];
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	for (int i = 0; i <= CONNECTIONS; i++) {
		int fd = accepted(family, listener, 0);
		children[i] = fork();
		if (!children[i]) {
			serve_connection(family, fd, &WHOLE);
			_exit(0);
		}
		close_counted(family->kind, fd);
	}
	for (int i = 0; i <= CONNECTIONS; i++)
		wait_for_child(children[i]);
	wait_for_child(client);
}

/* Workers share one listener; its shutdown sends them home with EINVAL. */
static void work_on(const struct family *family, int listener)
{
	for (;;) {
		int fd = accepted(family, listener, 0);
		if (fd < 0)
			break;
		serve_connection(family, fd, &WHOLE);
	}
	_exit(errno != EINVAL);
}

void case_requests_prefork(const struct family *family)
{
	pid_t workers[WORKERS];
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	for (int i = 0; i < WORKERS; i++) {
		workers[i] = fork();
		if (!workers[i])
			work_on(family, listener);
	}
	wait_for_child(client);
	MUST(0, family->kind, shutdown, listener, SHUT_RDWR);
	for (int i = 0; i < WORKERS; i++)
		wait_for_child(workers[i]);
}

/* One process accepts, another serves what it is handed. */
void case_requests_passed(const struct family *family)
{
	const struct family *unix_stream = family_named("unix-stream");
	int channel[2];
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	connected_pair(unix_stream, channel);
	pid_t worker = fork();
	if (!worker) {
		close_counted(UNIX_STREAM, channel[0]);
		for (int i = 0; i <= CONNECTIONS; i++)
			serve_connection(family, passed_descriptor(channel[1]), &WHOLE);
		_exit(0);
	}
	for (int i = 0; i <= CONNECTIONS; i++) {
		int fd = accepted(family, listener, 0);
		pass_descriptor(channel[0], fd);
		close_counted(family->kind, fd);
	}
	wait_for_child(client);
	wait_for_child(worker);
}

static void watch(const struct family *family, int poller, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	MUST(0, family->kind, epoll_ctl, poller, EPOLL_CTL_ADD, fd, &event);
}

static void accept_all(const struct family *family, int poller, int listener)
{
	int fd;

	while ((fd = accepted(family, listener, SOCK_NONBLOCK)) >= 0)
		watch(family, poller, fd);
	must_fail("accept4", fd, EAGAIN);
}

/* Reads until EAGAIN, as an event loop does. Returns 1 at the end of the stream. */
static int answer_all(const struct family *family, int fd)
{
	struct iovec parts[2] = {{payload, FIRST_PIECE}, {payload, PAYLOAD - FIRST_PIECE}};
	long got;

	while ((got = CALL(family->kind, read, fd, payload, PAYLOAD)) > 0)
		MUST(PAYLOAD, family->kind, writev, fd, parts, 2);
	if (got == 0)
		close_counted(family->kind, fd);
	else
		must_fail("read", got, EAGAIN);
	return got == 0;
}

void case_requests_epoll(const struct family *family)
{
	struct epoll_event events[CONNECTIONS];
	int poller = epoll_create1(0);
	int open = CONNECTIONS + 1;
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	must("fcntl", fcntl(listener, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	watch(family, poller, listener);
	while (open) {
		long ready = wait_epoll(poller, events, CONNECTIONS, -1);
		for (long i = 0; i < ready; i++) {
			if (events[i].data.fd == listener)
				accept_all(family, poller, listener);
			else
				open -= answer_all(family, events[i].data.fd);
		}
	}
	wait_for_child(client);
}

/* Replies that no call of the send family makes. */
static void reply_from_file(const struct family *family, int fd, int file)
{
	off_t start = 0;

	MUST(PAYLOAD, family->kind, sendfile, fd, file, &start, PAYLOAD);
}

void case_requests_sendfile(const struct family *family)
{
	int file = memfd_create("reply", 0);
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	must("ftruncate", ftruncate(file, PAYLOAD), 0);
	for (int i = 0; i <= CONNECTIONS; i++) {
		int fd = accepted(family, listener, 0);
		while (receive_message(family, fd, &WHOLE))
			reply_from_file(family, fd, file);
		close_counted(family->kind, fd);
	}
	wait_for_child(client);
}

/* Neither request nor reply comes to user space. */
void case_requests_splice(const struct family *family)
{
	int pipe_fds[2];
	int listener;
	pid_t client = start_client(family, &listener, &WHOLE);

	must("pipe", pipe(pipe_fds), 0);
	for (int i = 0; i <= CONNECTIONS; i++) {
		int fd = accepted(family, listener, 0);
		while (CALL(family->kind, splice, fd, NULL, pipe_fds[1], NULL, PAYLOAD, 0) > 0)
			MUST(PAYLOAD, family->kind, splice, pipe_fds[0], NULL, fd, NULL, PAYLOAD,
			     0);
		close_counted(family->kind, fd);
	}
	wait_for_child(client);
}

/* One request a connection: the kernel gives new sockets the memory of old ones. */
static void ask_once(const struct family *family, const struct address *address)
{
	int fd = connected_socket(family, address);

	send_message(family, fd, &WHOLE);
	must("reply", receive_message(family, fd, &WHOLE), 1);
	close_counted(family->kind, fd);
}

void case_requests_short(const struct family *family)
{
	struct address address;
	int listener = listening_socket(family, &address, 1);

	truth_requests(SHORT_CONNECTIONS);
	pid_t client = fork();
	if (!client) {
		for (int i = 0; i < SHORT_CONNECTIONS; i++)
			ask_once(family, &address);
		_exit(0);
	}
	for (int i = 0; i < SHORT_CONNECTIONS; i++)
		serve_connection(family, accepted(family, listener, 0), &WHOLE);
	wait_for_child(client);
}
