// Threads that wait for each other: handover ADDRESS [option=MICROSECONDS …]. Each connection has a
// thread, which receives a message, works, and sends it back.
//
//   compute_us=T        it computes, of its own
//   locked_us=T         it computes while it holds the one lock
//   asleep_us=T         it sleeps while it holds the one lock
//   worker_us=T         another thread, the only one, computes for it
//   worker_asleep_us=T  the same thread sleeps for it
//   hog=1               one more thread computes for nobody
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "listening.h"

static long compute_us, locked_us, asleep_us, worker_us, worker_asleep_us, hog;

struct option {
	const char *name;
	long *value;
};

static const struct option options[] = {
	{ "compute_us", &compute_us },	     { "locked_us", &locked_us },
	{ "asleep_us", &asleep_us },	     { "worker_us", &worker_us },
	{ "worker_asleep_us", &worker_asleep_us }, { "hog", &hog },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static unsigned long asked, answered;

static void compute(long us)
{
	struct timespec now, start;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < us);
}

static void sleep_us(long us)
{
	struct timespec span = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&span, NULL);
}

static void have_it_done(void)
{
	pthread_mutex_lock(&queue_lock);
	unsigned long mine = ++asked;
	pthread_cond_signal(&queued);
	while (answered < mine)
		pthread_cond_wait(&done, &queue_lock);
	pthread_mutex_unlock(&queue_lock);
}

static void *worker(void *unused)
{
	pthread_mutex_lock(&queue_lock);
	for (;;) {
		while (answered == asked)
			pthread_cond_wait(&queued, &queue_lock);
		pthread_mutex_unlock(&queue_lock);
		compute(worker_us);
		if (worker_asleep_us)
			sleep_us(worker_asleep_us);
		pthread_mutex_lock(&queue_lock);
		answered++;
		pthread_cond_broadcast(&done);
	}
	return unused;
}

static void *waste(void *unused)
{
	for (;;)
		compute(1000000);
	return unused;
}

static void work(void)
{
	compute(compute_us);
	if (locked_us || asleep_us) {
		pthread_mutex_lock(&lock);
		compute(locked_us);
		if (asleep_us)
			sleep_us(asleep_us);
		pthread_mutex_unlock(&lock);
	}
	if (worker_us || worker_asleep_us)
		have_it_done();
}

static void *serve(void *argument)
{
	int fd = (int)(long)argument;
	char message[4096];
	for (;;) {
		ssize_t n = recv(fd, message, sizeof(message), 0);
		if (n <= 0)
			break;
		work();
		if (send(fd, message, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	}
	close(fd);
	return NULL;
}

static void set(const char *text)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		size_t length = strlen(options[i].name);
		if (!strncmp(text, options[i].name, length) && text[length] == '=')
			*options[i].value = atol(text + length + 1);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int listener = argc > 1 ? listen_at(argv[1]) : -1;
	for (int i = 2; i < argc; i++)
		set(argv[i]);
	if (listener < 0) {
		perror("handover");
		return 1;
	}
	pthread_create(&thread, NULL, worker, NULL);
	if (hog)
		pthread_create(&thread, NULL, waste, NULL);
	for (;;) {
		long fd = accept(listener, NULL, NULL);
		if (fd >= 0 && !pthread_create(&thread, NULL, serve, (void *)fd))
			pthread_detach(thread);
	}
}
