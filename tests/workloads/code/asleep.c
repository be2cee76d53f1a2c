/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sleeps in known functions for known times until stdin ends, then says how long each slept, by the
 * wall clock. By argument: `disk` (fsync of its own file), `lock` (a mutex that another thread holds),
 * `timer` (nanosleep), `rare` (many short sleeps and now and then a long one), `turns` (each of eight
 * threads sleeps long, then short, and so on: who did the former is told first). With a path of a
 * socket it does so once for each byte that comes there, and sends one back. "spins" is said first.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void pause_us(long us)
{
	struct timespec time = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	nanosleep(&time, NULL);
}

__attribute__((noinline, noclone)) void planted_dump(void)
{
	static char block[1 << 20];

	block[0]++;
	if (pwrite(fileno(file), block, sizeof(block), 0) < 0)
		exit(1);
	if (fsync(fileno(file)))
		exit(1);
}

static void *held(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		pause_us(20000);
		pthread_mutex_unlock(&lock);
		pause_us(1000);
	}
	return unused;
}

__attribute__((noinline, noclone)) void planted_entry(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pause_us(500);
}

__attribute__((noinline, noclone)) void planted_short(void)
{
	for (int i = 0; i < 200; i++)
		pause_us(100);
}

__attribute__((noinline, noclone)) void planted_long(void)
{
	pause_us(300000);
}

/* What is done after a call keeps it from being a jump. */
__attribute__((noinline, noclone)) long long planted_caller(void (*wait)(void))
{
	long long before = now_ns();

	wait();
	return now_ns() - before;
}

static void pause_long(void)
{
	pause_us(7000);
}

static void pause_short(void)
{
	pause_us(3000);
}

__attribute__((noinline, noclone)) long long planted_first(void)
{
	return planted_caller(pause_long) + 1;
}

__attribute__((noinline, noclone)) long long planted_second(void)
{
	return planted_caller(pause_short) + 1;
}

static _Atomic long long in_first_ns, in_second_ns;
static _Atomic int is_over;

static void *in_turns(void *unused)
{
	while (!is_over) {
		in_first_ns += planted_first();
		in_second_ns += planted_second();
	}
	return unused;
}

static int take_turns(void)
{
	pthread_t threads[8];
	char line[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, in_turns, NULL);
	puts("spins");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		line[0] = 0;
	is_over = 1;
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	printf("{\"first_ns\": %lld, \"second_ns\": %lld}\n", in_first_ns, in_second_ns);
	return 0;
}

static void (*planted(const char *how))(void)
{
	if (!strcmp(how, "disk"))
		return planted_dump;
	return strcmp(how, "lock") ? planted_long : planted_entry;
}

static int serve(const char *how, const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), connection;
	char byte;

	strncpy(name.sun_path, path, sizeof(name.sun_path) - 1);
	if (bind(listener, (void *)&name, sizeof(name)) || listen(listener, 8))
		return 1;
	puts("spins");
	fflush(stdout);
	for (;;) {
		connection = accept(listener, NULL, NULL);
		while (read(connection, &byte, 1) == 1) {
			planted_caller(planted(how));
			if (write(connection, &byte, 1) != 1)
				return 1;
		}
		close(connection);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "timer";
	struct pollfd end = { .fd = 0, .events = POLLIN };
	long long first_ns = 0, second_ns = 0;
	pthread_t other;

	if (!strcmp(how, "turns"))
		return take_turns();
	file = tmpfile();
	if (!strcmp(how, "lock"))
		pthread_create(&other, NULL, held, NULL);
	if (argc > 2)
		return serve(how, argv[2]);
	puts("spins");
	fflush(stdout);
	while (!poll(&end, 1, 0)) {
		if (!strcmp(how, "rare"))
			second_ns += planted_caller(planted_short);
		first_ns += planted_caller(planted(how));
	}
	printf("{\"first_ns\": %lld, \"second_ns\": %lld}\n", first_ns, second_ns);
	return 0;
}
