/* SPDX-License-Identifier: MIT */
/*
 * call_loop socketpair|unix|tcp: for every line on stdin, a number of milliseconds, makes
 * socket calls of 64 bytes for that long and then getppid for half of it. `socketpair` sends
 * and receives on a pair; `unix` and `tcp` make turns on an accepted connection: one end
 * asks, the other replies. Prints ns of wall time per socket call and per getppid, each the
 * median over slices of 256 calls, then how many send, recv and getppid calls were made.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	SLICE = 256,
	SLICES_MAX = 1 << 17
};

static double slices[SLICES_MAX];
static int ends[2];
static char bytes[64];

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static void connect_ends(struct sockaddr *address, socklen_t length, socklen_t room)
{
	int listener = socket(address->sa_family, SOCK_STREAM, 0), one = 1;

	check(listener < 0 || bind(listener, address, length) || listen(listener, 1), "listen");
	length = room;
	check(getsockname(listener, address, &length), "getsockname");
	ends[0] = socket(address->sa_family, SOCK_STREAM, 0);
	check(ends[0] < 0 || connect(ends[0], address, length), "connect");
	ends[1] = accept(listener, NULL, NULL);
	check(ends[1] < 0, "accept");
	for (int end = 0; address->sa_family == AF_INET && end < 2; end++)
		setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void open_ends(const char *kind)
{
	struct sockaddr_in inet = {.sin_family = AF_INET};
	struct sockaddr_un local = {.sun_family = AF_UNIX};

	inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!strcmp(kind, "tcp"))
		connect_ends((void *)&inet, sizeof(inet), sizeof(inet));
	else if (!strcmp(kind, "unix"))	/* the kernel chooses an abstract name */
		connect_ends((void *)&local, sizeof(local.sun_family), sizeof(local));
	else
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
}

static void transfer(int from, int to)
{
	if (send(from, bytes, sizeof(bytes), 0) != sizeof(bytes) ||
	    recv(to, bytes, sizeof(bytes), 0) != sizeof(bytes))
		exit(1);
}

static void socket_slice(int is_turn)
{
	for (int call = 0; call < SLICE; call += 4) {
		transfer(ends[0], ends[1]);
		transfer(ends[is_turn], ends[!is_turn]);
	}
}

static void other_slice(int unused)
{
	(void)unused;
	for (int call = 0; call < SLICE; call++)
		syscall(SYS_getppid);
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Returns the slices that were run; *median is of ns per call. */
static int run(void (*slice)(int), int argument, long long for_ns, double *median)
{
	long long end = now_ns() + for_ns, before, after;
	int used = 0;

	do {
		before = now_ns();
		slice(argument);
		after = now_ns();
		slices[used++] = (double)(after - before) / SLICE;
	} while (after < end && used < SLICES_MAX);
	qsort(slices, used, sizeof(*slices), compare);
	*median = slices[used / 2];
	return used;
}

int main(int argc, char **argv)
{
	char line[32];
	int is_turn;

	if (argc != 2)
		return 2;
	is_turn = strcmp(argv[1], "socketpair") != 0;
	open_ends(argv[1]);
	while (fgets(line, sizeof(line), stdin)) {
		long long for_ns = atoll(line) * 1000000LL;
		double socket_ns, other_ns;
		int sockets = run(socket_slice, is_turn, for_ns, &socket_ns);
		int others = run(other_slice, 0, for_ns / 2, &other_ns);

		printf("%.1f %.1f %d %d %d\n", socket_ns, other_ns, sockets * SLICE / 2,
		       sockets * SLICE / 2, others * SLICE);
		fflush(stdout);
	}
	return 0;
}
