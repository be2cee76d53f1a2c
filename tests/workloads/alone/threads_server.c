/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that each do one thing, to see where their time is said to go.
 *
 *   threads_server FOLDER active_ms mode=count ...
 *
 * Prints {"tid": "mode", ...} when every thread is where it will be, begins at
 * the first byte on stdin, prints what it measured active_ms later, when all are
 * back at rest, and ends at the end of stdin.
 */
#define _GNU_SOURCE
#include "clock.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define THREADS_MAX 512
#define NAP_NS 1000000
#define FOREVER_NS (3600 * 1000000000ULL)

struct thread {
	pthread_t id;
	const struct mode *mode;
	int tid;
	int fd;
};

struct mode {
	const char *name;
	void (*act)(struct thread *thread);	/* once the signal was given */
	void (*rest)(struct thread *thread);	/* from the beginning, without one */
};

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct thread threads[THREADS_MAX];
static int thread_count, settled, active;
static bool is_on;
static ns_t until;
static const char *folder;
static char payload[4096];

/* ------------------------------------------------------------ at rest for good */

static struct sockaddr_un at(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder, name);
	return address;
}

static int listening(const char *name)
{
	struct sockaddr_un address = at(name);
	int fd = must("socket", socket(AF_UNIX, SOCK_STREAM, 0));

	unlink(address.sun_path);
	must("bind", bind(fd, (void *)&address, sizeof(address)));
	must("listen", listen(fd, 0));
	return fd;
}

static int connecting(const char *name)
{
	struct sockaddr_un address = at(name);
	int fd = must("socket", socket(AF_UNIX, SOCK_STREAM, 0));

	must("connect", connect(fd, (void *)&address, sizeof(address)));
	return fd;
}

static int pair_end(void)
{
	int pair[2];

	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	return pair[0];
}

static void rest_lock(struct thread *thread)
{
	(void)thread;
	pthread_mutex_lock(&held);
}

static void rest_epoll(struct thread *thread)
{
	struct epoll_event event;

	(void)thread;
	epoll_wait(must("epoll", epoll_create1(0)), &event, 1, -1);
}

static void rest_poll(struct thread *thread)
{
	struct pollfd one = {.fd = pair_end(), .events = POLLIN};

	(void)thread;
	poll(&one, 1, -1);
}

static void rest_select(struct thread *thread)
{
	(void)thread;
	select(0, NULL, NULL, NULL, NULL);
}

static void rest_recv(struct thread *thread)
{
	char byte;

	(void)thread;
	recv(pair_end(), &byte, 1, 0);
}

static void rest_read(struct thread *thread)
{
	int ends[2];
	char byte;

	(void)thread;
	must("pipe", pipe(ends));
	must("read", read(ends[0], &byte, 1));
}

static void rest_send(struct thread *thread)
{
	int fd = pair_end();

	(void)thread;
	while (send(fd, payload, sizeof(payload), 0) > 0)
		;
}

static void rest_accept(struct thread *thread)
{
	char name[32];

	snprintf(name, sizeof(name), "accept%d", thread->tid);
	accept(listening(name), NULL, NULL);
}

static void rest_connect(struct thread *thread)
{
	char name[32];

	snprintf(name, sizeof(name), "connect%d", thread->tid);
	listening(name);
	connecting(name);
	connecting(name);
}

static void rest_nap(struct thread *thread)
{
	(void)thread;
	sleep_ns(FOREVER_NS);
}

/* ------------------------------------------------------------ active for a while */

static void act_spin(struct thread *thread)
{
	(void)thread;
	while (now_ns() < until)
		;
}

static void act_call(struct thread *thread)
{
	(void)thread;
	while (now_ns() < until)
		for (int i = 0; i < 100; i++)
			syscall(SYS_getppid);
}

static void act_wake(struct thread *thread)
{
	(void)thread;
	while (now_ns() < until)
		sleep_ns(NAP_NS);
}

/* Works a little, naps a little: in and out of the run queue with something to show. */
static void act_mix(struct thread *thread)
{
	(void)thread;
	while (now_ns() < until) {
		spin_ns(3 * NAP_NS);
		sleep_ns(NAP_NS);
	}
}

static void act_echo(struct thread *thread)
{
	int pair[2];

	(void)thread;
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	while (now_ns() < until) {
		must("send", send(pair[0], payload, sizeof(payload), 0));
		must("recv", recv(pair[1], payload, sizeof(payload), 0));
	}
	close(pair[0]);
	close(pair[1]);
}

static void act_disk(struct thread *thread)
{
	(void)thread;
	while (now_ns() < until) {
		must("pwrite", pwrite(thread->fd, payload, sizeof(payload), 0));
		must("fsync", fsync(thread->fd));
	}
}

static const struct mode modes[] = {
	{.name = "lock", .rest = rest_lock},
	{.name = "epoll", .rest = rest_epoll},
	{.name = "poll", .rest = rest_poll},
	{.name = "select", .rest = rest_select},
	{.name = "recv", .rest = rest_recv},
	{.name = "read", .rest = rest_read},
	{.name = "send", .rest = rest_send},
	{.name = "accept", .rest = rest_accept},
	{.name = "connect", .rest = rest_connect},
	{.name = "nap", .rest = rest_nap},
	{.name = "spin", .act = act_spin},
	{.name = "call", .act = act_call},
	{.name = "wake", .act = act_wake},
	{.name = "mix", .act = act_mix},
	{.name = "echo", .act = act_echo},
	{.name = "disk", .act = act_disk},
	{.name = "born", .act = act_mix},	/* made when the signal is given; stays */
	{.name = "dead", .act = act_mix},	/* the same, and ends */
	{.name = "ends", .act = act_mix},	/* there from the beginning, and ends */
};

static bool is_mode(struct thread *thread, const char *name)
{
	return !strcmp(thread->mode->name, name);
}

static bool comes_late(struct thread *thread)
{
	return is_mode(thread, "born") || is_mode(thread, "dead");
}

static bool goes_early(struct thread *thread)
{
	return is_mode(thread, "ends") || is_mode(thread, "dead");
}

static void count(int *counter, int amount)
{
	pthread_mutex_lock(&lock);
	*counter += amount;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_for_the_signal(void)
{
	pthread_mutex_lock(&lock);
	settled++;
	pthread_cond_broadcast(&changed);
	while (!is_on)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void *run(void *argument)
{
	struct thread *thread = argument;

	thread->tid = syscall(SYS_gettid);
	if (thread->mode->rest) {
		count(&settled, 1);
		thread->mode->rest(thread);
		return NULL;
	}
	wait_for_the_signal();
	thread->mode->act(thread);
	count(&active, -1);
	if (!goes_early(thread))
		rest_lock(thread);
	return NULL;
}

/* ------------------------------------------------------------ the main thread */

static void plan(const char *wish)
{
	const char *value = strchr(wish, '=');

	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
		if (!value || strncmp(wish, modes[m].name, value - wish) ||
		    modes[m].name[value - wish])
			continue;
		for (int i = 0; i < atoi(value + 1) && thread_count < THREADS_MAX; i++)
			threads[thread_count++].mode = &modes[m];
		return;
	}
	fprintf(stderr, "threads_server: %s\n", wish);
	exit(2);
}

static void start(bool late)
{
	char path[256];

	for (int i = 0; i < thread_count; i++) {
		if (comes_late(&threads[i]) != late)
			continue;
		snprintf(path, sizeof(path), "%s/file%d", folder, i);
		if (is_mode(&threads[i], "disk"))
			threads[i].fd = must("open", open(path, O_RDWR | O_CREAT, 0600));
		if (threads[i].mode->act)
			active++;
		must("pthread_create",
		     -pthread_create(&threads[i].id, NULL, run, &threads[i]));
	}
}

static void wait_until(int *counter, int value)
{
	pthread_mutex_lock(&lock);
	while (*counter != value)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void tell(void)
{
	const char *separator = "{";

	for (int i = 0; i < thread_count; i++) {
		if (!threads[i].tid)
			continue;
		printf("%s\"%d\": \"%s\"", separator, threads[i].tid, threads[i].mode->name);
		separator = ", ";
	}
	puts("}");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int late = 0;
	char byte;

	folder = argv[1];
	for (int i = 3; i < argc; i++)
		plan(argv[i]);
	pthread_mutex_lock(&held);
	for (int i = 0; i < thread_count; i++)
		late += comes_late(&threads[i]);
	start(false);
	wait_until(&settled, thread_count - late);
	tell();
	must("go", read(0, &byte, 1));
	until = now_ns() + atol(argv[2]) * 1000000ULL;
	pthread_mutex_lock(&lock);
	start(true);
	is_on = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	wait_until(&active, 0);
	for (int i = 0; i < thread_count; i++)
		if (goes_early(&threads[i]))
			pthread_join(threads[i].id, NULL);
	tell();
	must("end", read(0, &byte, 1));
	_exit(0);
}
