/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads and processes: born, replaced and gone while they are observed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cases.h"
#include "family.h"

enum {
	THREADS = 16,
	CHILDREN = 100,
	GENERATIONS = 5,
	LAST_STAGE = 2
};

extern char **environ;
static char payload[PAYLOAD];

static void *pair_rounds(void *argument)
{
	const struct family *family = argument;
	int fds[2];

	connected_pair(family, fds);
	send_rounds(family->kind, fds[0]);
	receive_rounds(family->kind, fds[1]);
	close_pair(family, fds);
	return NULL;
}

void case_threads(const struct family *family)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		must("pthread_create",
		     pthread_create(&threads[i], NULL, pair_rounds, (void *)family), 0);
	for (int i = 0; i < THREADS; i++)
		must("pthread_join", pthread_join(threads[i], NULL), 0);
}

static void wait_for(pid_t child)
{
	int status;

	must("waitpid", waitpid(child, &status, 0), child);
	must("child", status, 0);
}

static pid_t fork_or_die(void)
{
	pid_t child = fork();

	if (child < 0)
		die("fork", child);
	return child;
}

/* The child's end is closed by the parent; its death closes the other copy. */
static pid_t sending_child(const struct family *family, int *receiver)
{
	int fds[2];

	connected_pair(family, fds);
	*receiver = fds[1];
	pid_t child = fork_or_die();
	if (!child) {
		close_counted(family->kind, fds[1]);
		send_rounds(family->kind, fds[0]);
		_exit(0);
	}
	close_counted(family->kind, fds[0]);
	return child;
}

void case_forks(const struct family *family)
{
	int receivers[CHILDREN];
	pid_t children[CHILDREN];

	for (int i = 0; i < CHILDREN; i++)
		children[i] = sending_child(family, &receivers[i]);
	for (int i = 0; i < CHILDREN; i++) {
		wait_for(children[i]);
		receive_rounds(family->kind, receivers[i]);
		close_counted(family->kind, receivers[i]);
	}
}

static void descend(const struct family *family, int generations)
{
	if (!generations)
		return;
	pid_t child = fork_or_die();
	if (!child) {
		pair_rounds((void *)family);
		descend(family, generations - 1);
		_exit(0);
	}
	wait_for(child);
}

void case_grandchildren(const struct family *family)
{
	descend(family, GENERATIONS);
}

/* Arguments of an exec'ed copy; it goes on in continue_after_exec(). */
struct arguments {
	char texts[4][16];
	char *list[9];
};

static void set_arguments(struct arguments *to, const struct family *family, int stage,
			  const int fds[2])
{
	const int numbers[4] = {stage, truth_fd(), fds[0], fds[1]};
	char *fixed[4] = {"workload", "continue", (char *)family->name, "-"};

	for (int i = 0; i < 4; i++) {
		snprintf(to->texts[i], sizeof(to->texts[i]), "%d", numbers[i]);
		to->list[i] = fixed[i];
		to->list[4 + i] = to->texts[i];
	}
	to->list[8] = NULL;
}

static const char *program_of_stage(int stage)
{
	const char *given = getenv(stage == 1 ? "WORKLOAD_EXEC_1" : "WORKLOAD_EXEC_2");

	return given ? given : "/proc/self/exe";
}

static void exec_stage(const struct family *family, int stage, const int fds[2])
{
	struct arguments arguments;

	set_arguments(&arguments, family, stage, fds);
	execv(program_of_stage(stage), arguments.list);
	die("execv", -1);
}

static void rounds_on(const struct family *family, const int fds[2])
{
	send_rounds(family->kind, fds[0]);
	receive_rounds(family->kind, fds[1]);
}

void continue_after_exec(const struct family *family, int stage, const int fds[2])
{
	rounds_on(family, fds);
	if (stage < LAST_STAGE)
		exec_stage(family, stage + 1, fds);
}

static void inheritable_pair(const struct family *family, int fds[2])
{
	connected_pair(family, fds);
	must("fcntl", fcntl(fds[0], F_SETFD, 0), 0);
	must("fcntl", fcntl(fds[1], F_SETFD, 0), 0);
	must("fcntl", fcntl(truth_fd(), F_SETFD, 0), 0);
}

/* A child execs itself twice, so that this process is left to tell the truth. */
void case_exec(const struct family *family)
{
	int fds[2];

	inheritable_pair(family, fds);
	pid_t child = fork_or_die();
	if (!child) {
		rounds_on(family, fds);
		exec_stage(family, 1, fds);
	}
	wait_for(child);
	close_pair(family, fds);
}

struct exec_request {
	const struct family *family;
	int fds[2];
};

static void *exec_in_thread(void *argument)
{
	struct exec_request *request = argument;

	exec_stage(request->family, LAST_STAGE, request->fds);
	return NULL;
}

/* The leader dies inside recvfrom; the other thread takes its PID. */
void case_exec_from_thread(const struct family *family)
{
	struct exec_request request = {.family = family};
	int unused[2];
	pthread_t thread;

	connected_pair(family, unused);
	inheritable_pair(family, request.fds);
	pid_t child = fork_or_die();
	if (!child) {
		pthread_create(&thread, NULL, exec_in_thread, &request);
		syscall(SYS_recvfrom, unused[0], payload, PAYLOAD, 0, NULL, NULL);
		die("recvfrom", -1);
	}
	wait_for(child);
}

void case_spawn(const struct family *family)
{
	struct arguments arguments;
	pid_t child;
	int fds[2];

	inheritable_pair(family, fds);
	set_arguments(&arguments, family, LAST_STAGE, fds);
	for (int i = 0; i < ROUNDS; i++) {
		must("posix_spawn",
		     posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments.list, environ), 0);
		wait_for(child);
	}
	close_pair(family, fds);
}

/* The child borrows its parent's memory until it ends. */
void case_vfork(const struct family *family)
{
	static int fds[2];

	connected_pair(family, fds);
	for (int i = 0; i < ROUNDS; i++) {
		pid_t child = vfork();
		if (!child) {
			MUST(PAYLOAD, family->kind, sendto, fds[0], payload, PAYLOAD, 0, NULL, 0);
			_exit(0);
		}
		wait_for(child);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	close_pair(family, fds);
}

static void *receive_forever(void *argument)
{
	syscall(SYS_recvfrom, *(int *)argument, payload, PAYLOAD, 0, NULL, NULL);
	die("recvfrom", -1);
}

/* Threads inside a call when the process ends: those calls never return. */
void case_abandoned(const struct family *family)
{
	static int idle[2];
	pthread_t thread;

	connected_pair(family, idle);
	for (int i = 0; i < THREADS; i++)
		must("pthread_create", pthread_create(&thread, NULL, receive_forever, idle), 0);
	pair_rounds((void *)family);
}
