/* SPDX-License-Identifier: MIT */
/*
 * per_request server PATH: accepts a connection, receives, replies and closes, one by one.
 * per_request client PATH: for every line on stdin, a number of milliseconds, opens one
 * connection after the other for that long, a request each; prints requests per second and
 * the 99th percentile of their times in microseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	REQUESTS_MAX = 1 << 22
};

static unsigned int took_ns[REQUESTS_MAX];

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

static void serve(const struct sockaddr_un *address)
{
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	char bytes[64];

	check(bind(listener, (const void *)address, sizeof(*address)) || listen(listener, 128),
	      "listen");
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd >= 0 && recv(fd, bytes, sizeof(bytes), 0) > 0)
			send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		close(fd);
	}
}

static void request(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	char bytes[64] = {0};

	check(connect(fd, (const void *)address, sizeof(*address)), "connect");
	check(send(fd, bytes, sizeof(bytes), 0) != sizeof(bytes), "send");
	check(recv(fd, bytes, sizeof(bytes), 0) != sizeof(bytes), "recv");
	close(fd);
}

static int compare(const void *left, const void *right)
{
	unsigned int a = *(const unsigned int *)left, b = *(const unsigned int *)right;

	return (a > b) - (a < b);
}

static void run(const struct sockaddr_un *address, long long for_ns)
{
	long long began = now_ns(), before, after = began;
	int made = 0;

	while (after - began < for_ns && made < REQUESTS_MAX) {
		before = after;
		request(address);
		after = now_ns();
		took_ns[made++] = after - before;
	}
	qsort(took_ns, made, sizeof(*took_ns), compare);
	printf("%.1f %.1f\n", made * 1e9 / (after - began), took_ns[made * 99LL / 100] / 1e3);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char line[32];

	if (argc != 3)
		return 2;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argv[2]);
	if (!strcmp(argv[1], "server"))
		serve(&address);
	while (fgets(line, sizeof(line), stdin))
		run(&address, atoll(line) * 1000000LL);
	return 0;
}
