/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A server and a client that do everything through io_uring, raw, and count every completion:
 *
 *     uring_ops unix|tcp plain|async|sqpoll|fixed [hold]
 *     uring_ops unix|tcp silent|crowded
 *
 * prints one line for each kind of operation: who, name, calls, bytes, then ERRNO=COUNT. With
 * `hold` multishot operations are armed, "armed" is said, and nothing happens before a line comes
 * on stdin. `silent` asks for no completion of SHOTS sends, which succeed, and of one recv, which
 * does not. `crowded` has no room in its ring for the completions of SHOTS sends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../older_libc.h"

enum {
	ENTRIES = 32,
	ROUNDS = 5,
	SHOTS = 6,
	SIZE = 64,
	BUFFERS = 16,
	GROUP = 7,
	ERRORS = 134,
	OPS = 64,
};

static const char *const names[OPS] = {
	[IORING_OP_READ] = "read",	 [IORING_OP_WRITE] = "write",
	[IORING_OP_READV] = "readv",	 [IORING_OP_WRITEV] = "writev",
	[IORING_OP_SEND] = "send",	 [IORING_OP_RECV] = "recv",
	[IORING_OP_SENDMSG] = "sendmsg", [IORING_OP_RECVMSG] = "recvmsg",
	[IORING_OP_SEND_ZC] = "send_zc", [IORING_OP_SPLICE] = "splice",
	[IORING_OP_ACCEPT] = "accept",	 [IORING_OP_CONNECT] = "connect",
	[IORING_OP_SHUTDOWN] = "shutdown",
};

/* Of each operation: on a socket of the transport, or on none. */
static struct counts {
	long calls;
	long bytes;
	long errors[ERRORS];
} counts[OPS][2];

static struct ring {
	int fd;
	struct io_uring_params params;
	char *rings;
	struct io_uring_sqe *entries;
	unsigned int sqe_flags;
} ring;

static char buffer[SIZE], buffers[BUFFERS][SIZE];
static unsigned int serial;
static union {
	struct sockaddr any;
	struct sockaddr_un local;
	struct sockaddr_in tcp;
} place;
static socklen_t place_size;
static int is_fixed;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static long need(const char *what, long result)
{
	if (result < 0)
		die(what);
	return result;
}

static void *map_ring(size_t size, long offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
			offset);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

static void open_ring(const char *mode)
{
	struct io_uring_params *params = &ring.params;
	size_t size;

	if (!strcmp(mode, "sqpoll"))
		params->flags = IORING_SETUP_SQPOLL;
	if (!strcmp(mode, "async") || !strcmp(mode, "leaderless"))
		ring.sqe_flags = IOSQE_ASYNC;
	is_fixed = !strcmp(mode, "fixed");
	params->sq_thread_idle = 1;
	if (!strcmp(mode, "crowded")) {
		params->flags = IORING_SETUP_CQSIZE;
		params->cq_entries = ENTRIES;
	}
	ring.fd = need("io_uring_setup", syscall(SYS_io_uring_setup, ENTRIES, params));
	size = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
	ring.rings = map_ring(size, IORING_OFF_SQ_RING);
	ring.entries = map_ring(ENTRIES * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
}

static _Atomic unsigned int *word(unsigned int offset)
{
	return (_Atomic unsigned int *)(ring.rings + offset);
}

static void enter(unsigned int submit, unsigned int wait)
{
	unsigned int flags = wait ? IORING_ENTER_GETEVENTS : 0;

	if (ring.params.flags & IORING_SETUP_SQPOLL)
		flags |= IORING_ENTER_SQ_WAKEUP;
	while (syscall(SYS_io_uring_enter, ring.fd, submit, wait, flags, NULL, 0) < 0)
		if (errno != EINTR)
			die("io_uring_enter");
}

/* Returns the user_data: the opcode, whether it is on a socket, and a number of its own. */
static unsigned long submit(struct io_uring_sqe entry, int on_socket)
{
	unsigned int slot = *word(ring.params.sq_off.tail) & (ENTRIES - 1);

	entry.user_data = entry.opcode | on_socket << 8 | (unsigned long)++serial << 16;
	entry.flags |= names[entry.opcode] ? ring.sqe_flags : 0;
	ring.entries[slot] = entry;
	*word(ring.params.sq_off.array + 4 * slot) = slot;
	++*word(ring.params.sq_off.tail);
	enter(1, 0);
	return entry.user_data;
}

struct completion {
	unsigned long user_data;
	int res;
	unsigned int flags;
};

static struct completion take(void)
{
	unsigned int head = *word(ring.params.cq_off.head);
	struct completion *all = (void *)(ring.rings + ring.params.cq_off.cqes), cqe;
	struct counts *count;
	unsigned int op;

	while (head == *word(ring.params.cq_off.tail))
		enter(0, 1);
	cqe = all[head & (ring.params.cq_entries - 1)];
	++*word(ring.params.cq_off.head);
	op = cqe.user_data & 0xff;
	if (!names[op] || cqe.flags & IORING_CQE_F_NOTIF)
		return cqe;
	count = &counts[op][cqe.user_data >> 8 & 1];
	count->calls++;
	if (cqe.res < 0)
		count->errors[-cqe.res]++;
	else if (op != IORING_OP_ACCEPT && op != IORING_OP_CONNECT && op != IORING_OP_SHUTDOWN)
		count->bytes += cqe.res;
	return cqe;
}

static int done(struct io_uring_sqe entry, int on_socket)
{
	unsigned long asked = submit(entry, on_socket);
	struct completion cqe = take();

	if (cqe.user_data != asked) {
		fprintf(stderr, "%s: another one completed\n", names[entry.opcode]);
		_exit(1);
	}
	if (entry.opcode == IORING_OP_SEND_ZC && cqe.flags & IORING_CQE_F_MORE)
		take(); /* the buffer is free again */
	return cqe.res;
}

static int move(int op, int fd, int flags)
{
	struct io_uring_sqe entry = {
		.opcode = op,
		.fd = fd,
		.addr = (unsigned long)buffer,
		.len = SIZE,
		.msg_flags = flags,
	};

	return done(entry, 1);
}

static int message(int op, int fd)
{
	struct iovec part = {.iov_base = buffer, .iov_len = SIZE};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	struct io_uring_sqe entry = {
		.opcode = op, .fd = fd, .addr = (unsigned long)&header, .len = 1};

	if (op == IORING_OP_READV || op == IORING_OP_WRITEV)
		entry.addr = (unsigned long)&part;
	return done(entry, 1);
}

static void must(const char *what, long result, long wanted)
{
	if (result == wanted)
		return;
	fprintf(stderr, "%s: %ld, not %ld\n", what, result, wanted);
	_exit(1);
}

static int connect_to(const void *address, socklen_t size)
{
	int fd = need("socket", socket(((struct sockaddr *)address)->sa_family, SOCK_STREAM, 0));
	struct io_uring_sqe entry = {
		.opcode = IORING_OP_CONNECT, .fd = fd, .addr = (unsigned long)address, .off = size};
	int result = done(entry, 1);

	if (!result)
		return fd;
	close(fd);
	return result;
}

static void splice_through(int fd)
{
	struct io_uring_sqe entry = {.opcode = IORING_OP_SPLICE, .len = SIZE, .off = -1};
	int ends[2];

	need("pipe", pipe(ends));
	entry.splice_off_in = -1;
	entry.splice_fd_in = fd;
	entry.fd = ends[1];
	must("splice from the socket", done(entry, 1), SIZE);
	entry.splice_fd_in = ends[0];
	entry.fd = fd;
	must("splice to the socket", done(entry, 1), SIZE);
	must("write to a pipe", write(ends[1], buffer, SIZE), SIZE);
	entry = (struct io_uring_sqe){.opcode = IORING_OP_READ,
				      .fd = ends[0],
				      .addr = (unsigned long)buffer,
				      .len = SIZE};
	must("read of a pipe", done(entry, 0), SIZE);
	close(ends[0]);
	close(ends[1]);
}

static void client(int is_tcp)
{
	struct sockaddr_un nowhere = {AF_UNIX, "/nonexistent/udsprobe"};
	int fd = connect_to(&place, place_size), shots[SHOTS];

	for (int i = 0; i < is_fixed; i++) {
		must("send", move(IORING_OP_SEND, fd, 0), SIZE);
		must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
	}
	must("connect to nowhere", connect_to(&nowhere, sizeof(nowhere)), -ENOENT);
	for (int i = 0; i < ROUNDS; i++) {
		must("send", move(IORING_OP_SEND, fd, 0), SIZE);
		must("recv", move(IORING_OP_RECV, fd, MSG_WAITALL), SIZE);
		must("sendmsg", message(IORING_OP_SENDMSG, fd), SIZE);
		must("recvmsg", message(IORING_OP_RECVMSG, fd), SIZE);
		must("write", move(IORING_OP_WRITE, fd, 0), SIZE);
		must("read", move(IORING_OP_READ, fd, 0), SIZE);
		must("writev", message(IORING_OP_WRITEV, fd), SIZE);
		must("readv", message(IORING_OP_READV, fd), SIZE);
	}
	must("zero-copy", move(IORING_OP_SEND_ZC, fd, 0), is_tcp ? SIZE : -EOPNOTSUPP);
	if (!is_tcp)
		must("send", move(IORING_OP_SEND, fd, 0), SIZE);
	must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
	must("send", move(IORING_OP_SEND, fd, 0), SIZE);
	must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
	must("nothing there", move(IORING_OP_RECV, fd, MSG_DONTWAIT), -EAGAIN);
	for (int i = 0; i < SHOTS; i++) {
		shots[i] = connect_to(&place, place_size);
		need("connect", shots[i]);
		must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
	}
	for (int i = 0; i < SHOTS; i++) {
		must("send", move(IORING_OP_SEND, shots[0], 0), SIZE);
		must("recv", move(IORING_OP_RECV, shots[0], 0), SIZE);
	}
	must("shutdown",
	     done((struct io_uring_sqe){
			  .opcode = IORING_OP_SHUTDOWN, .fd = shots[0], .len = SHUT_WR},
		  1),
	     0);
	must("end", move(IORING_OP_RECV, shots[0], 0), 0);
	must("end", move(IORING_OP_RECV, fd, 0), 0);
}

static void serve_rounds(int fd)
{
	for (int i = 0; i < ROUNDS; i++) {
		must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
		must("send", move(IORING_OP_SEND, fd, 0), SIZE);
		must("recvmsg", message(IORING_OP_RECVMSG, fd), SIZE);
		must("sendmsg", message(IORING_OP_SENDMSG, fd), SIZE);
		must("read", move(IORING_OP_READ, fd, 0), SIZE);
		must("write", move(IORING_OP_WRITE, fd, 0), SIZE);
		must("readv", message(IORING_OP_READV, fd), SIZE);
		must("writev", message(IORING_OP_WRITEV, fd), SIZE);
	}
	must("recv", move(IORING_OP_RECV, fd, MSG_PEEK), SIZE);
	must("recv", move(IORING_OP_RECV, fd, 0), SIZE);
	must("send", move(IORING_OP_SEND, fd, 0), SIZE);
	splice_through(fd);
}

static void cancel(unsigned long asked)
{
	struct io_uring_sqe entry = {.opcode = IORING_OP_ASYNC_CANCEL, .addr = asked};

	submit(entry, 0);
	take();
	take();
}

static unsigned long arm(int op, int fd, int flags)
{
	struct io_uring_sqe entry = {.opcode = op, .fd = fd, .ioprio = flags};

	if (op == IORING_OP_RECV) {
		entry.flags = IOSQE_BUFFER_SELECT;
		entry.buf_group = GROUP;
	}
	return submit(entry, 1);
}

/* `tells` is told of each connection, on it the client waits. */
static void serve_shots(int listener, int tells)
{
	struct io_uring_sqe give = {.opcode = IORING_OP_PROVIDE_BUFFERS,
				    .fd = BUFFERS,
				    .addr = (unsigned long)buffers,
				    .len = SIZE,
				    .buf_group = GROUP};
	unsigned long armed = arm(IORING_OP_ACCEPT, listener, IORING_ACCEPT_MULTISHOT);
	int fds[SHOTS];

	for (int i = 0; i < SHOTS; i++) {
		fds[i] = need("multishot accept", take().res);
		must("send", move(IORING_OP_SEND, tells, 0), SIZE);
	}
	cancel(armed);
	must("buffers", done(give, 0), 0);
	arm(IORING_OP_RECV, fds[0], IORING_RECV_MULTISHOT);
	for (int i = 0; i < SHOTS; i++) {
		must("multishot recv", take().res, SIZE);
		must("send", move(IORING_OP_SEND, fds[0], 0), SIZE);
	}
	must("end of multishot recv", take().res, 0);
	for (int i = 0; i < SHOTS; i++)
		close(fds[i]);
}

static void register_file(int fd)
{
	need("register", syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &fd, 1));
}

static void server(int listener)
{
	struct io_uring_sqe accept = {.opcode = IORING_OP_ACCEPT, .fd = listener};
	struct io_uring_sqe nothing = {.opcode = IORING_OP_RECV, .fd = 4000, .len = SIZE};
	int fd = need("accept", done(accept, 1));

	if (is_fixed) {
		register_file(fd);
		ring.sqe_flags = IOSQE_FIXED_FILE;
		must("recv", move(IORING_OP_RECV, 0, 0), SIZE);
		must("send", move(IORING_OP_SEND, 0, 0), SIZE);
		ring.sqe_flags = 0;
	}
	must("no descriptor", done(nothing, 0), -EBADF);
	serve_rounds(fd);
	serve_shots(listener, fd);
	/* The ring may hold it too. */
	need("shutdown", shutdown(fd, SHUT_RDWR));
	close(fd);
}

static void print_counts(const char *who)
{
	static char text[8192];
	size_t at = 0;

	for (int i = 0; i < 2 * OPS; i++) {
		struct counts *count = &counts[i / 2][i % 2];

		if (!count->calls)
			continue;
		at += sprintf(text + at, "%s %s %s %ld %ld", who, names[i / 2],
			      i % 2 ? "socket" : "other", count->calls, count->bytes);
		for (int error = 0; error < ERRORS; error++)
			if (count->errors[error])
				at += sprintf(text + at, " %s=%ld", strerrorname_np(error),
					      count->errors[error]);
		at += sprintf(text + at, "\n");
	}
	if (write(1, text, at) != (ssize_t)at)
		die("write");
}

static int listen_somewhere(int is_tcp)
{
	int fd = need("socket", socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0));

	if (is_tcp) {
		place.tcp.sin_family = AF_INET;
		place.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		place_size = sizeof(place.tcp);
	} else {
		place.local.sun_family = AF_UNIX;
		place_size = sizeof(sa_family_t) + 1 +
			     sprintf(place.local.sun_path + 1, "udsprobe-uring-%d", getpid());
	}
	need("bind", bind(fd, &place.any, place_size));
	need("getsockname", getsockname(fd, &place.any, &place_size));
	need("listen", listen(fd, SHOTS));
	return fd;
}

/* What was armed before anybody looked: connections, and bytes on the first of them. */
static void hold(int listener)
{
	struct io_uring_sqe give = {.opcode = IORING_OP_PROVIDE_BUFFERS,
				    .fd = BUFFERS,
				    .addr = (unsigned long)buffers,
				    .len = SIZE,
				    .buf_group = GROUP};
	int first = connect_to(&place, place_size), fds[SHOTS + 1];
	struct io_uring_sqe accept = {.opcode = IORING_OP_ACCEPT, .fd = listener};

	fds[SHOTS] = need("accept", done(accept, 1));
	must("buffers", done(give, 0), 0);
	arm(IORING_OP_RECV, fds[SHOTS], IORING_RECV_MULTISHOT);
	arm(IORING_OP_ACCEPT, listener, IORING_ACCEPT_MULTISHOT);
	enter(0, 0);
	memset(counts, 0, sizeof(counts));
	if (write(1, "armed\n", 6) != 6 || getchar() != '\n')
		die("hold");
	for (int i = 0; i < SHOTS; i++) {
		int fd = need("socket", socket(place.any.sa_family, SOCK_STREAM, 0));

		need("connect", connect(fd, &place.any, place_size));
		need("multishot accept", take().res);
		must("send", send(first, buffer, SIZE, 0), SIZE);
		must("multishot recv", take().res, SIZE);
	}
	print_counts("server");
}

/* The last send completes as others do: those before it are over then. */
static void silent(int listener)
{
	struct io_uring_sqe accept = {.opcode = IORING_OP_ACCEPT, .fd = listener};
	struct io_uring_sqe say = {.opcode = IORING_OP_SEND,
				   .addr = (unsigned long)buffer,
				   .len = SIZE,
				   .flags = IOSQE_CQE_SKIP_SUCCESS};
	struct io_uring_sqe nothing = {.opcode = IORING_OP_RECV,
				       .fd = 4000,
				       .len = SIZE,
				       .flags = IOSQE_CQE_SKIP_SUCCESS};
	int fd;

	say.fd = connect_to(&place, place_size);
	fd = need("accept", done(accept, 1));
	for (int i = 0; i < SHOTS; i++) {
		submit(say, 1);
		must("recv", move(IORING_OP_RECV, fd, MSG_WAITALL), SIZE);
	}
	must("no descriptor", done(nothing, 0), -EBADF);
	print_counts("both");
}

/* All room is taken by what is on no socket. */
static void fill(void)
{
	for (unsigned int i = 0; i < ring.params.cq_entries; i++)
		submit((struct io_uring_sqe){.opcode = IORING_OP_NOP}, 0);
}

static void crowded(int listener)
{
	struct io_uring_sqe accept = {.opcode = IORING_OP_ACCEPT, .fd = listener};
	struct io_uring_sqe say = {
		.opcode = IORING_OP_SEND, .addr = (unsigned long)buffer, .len = SIZE};
	int fd;

	say.fd = connect_to(&place, place_size);
	fd = need("accept", done(accept, 1));
	fill();
	for (int i = 0; i < SHOTS; i++)
		submit(say, 1);
	for (unsigned int i = 0; i < ring.params.cq_entries + SHOTS; i++)
		take();
	print_counts("both");
	close(fd);
}

static int work(int argc, char **argv)
{
	int is_tcp, listener, status = 0;
	pid_t child;

	is_tcp = !strcmp(argv[1], "tcp");
	listener = listen_somewhere(is_tcp);
	if (!strcmp(argv[2], "silent")) {
		open_ring("plain");
		silent(listener);
		return 0;
	}
	if (!strcmp(argv[2], "crowded")) {
		open_ring(argv[2]);
		crowded(listener);
		return 0;
	}
	if (argc > 3) {
		open_ring(argv[2]);
		hold(listener);
		return 0;
	}
	child = fork();
	open_ring(argv[2]);
	if (!child) {
		close(listener);
		client(is_tcp);
		print_counts("client");
		return 0;
	}
	server(listener);
	waitpid(child, &status, 0);
	print_counts("server");
	return status != 0;
}

struct task {
	int argc;
	char **argv;
	pthread_t leader;
};

/* The process's first thread is over before anything begins: a zombie until the others end. */
static void *work_without_leader(void *at)
{
	struct task *task = at;

	pthread_join(task->leader, NULL);
	exit(work(task->argc, task->argv));
}

int main(int argc, char **argv)
{
	static struct task task;
	pthread_t worker;

	if (argc < 3)
		return 2;
	if (strcmp(argv[2], "leaderless"))
		return work(argc, argv);
	task = (struct task){.argc = argc, .argv = argv, .leader = pthread_self()};
	if (pthread_create(&worker, NULL, work_without_leader, &task))
		return 2;
	pthread_exit(NULL);
}
