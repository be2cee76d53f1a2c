/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A call that a signal interrupts: restarted it is still one call. */
#define _GNU_SOURCE
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "cases.h"
#include "family.h"
#include "waits.h"

enum {
	ALARM_US = 20000,
	ALARMS_BEFORE_SENDING = 3
};

static char payload[PAYLOAD];
static enum kind alarm_kind;
static int alarm_fd;
static int alarms;

static void set_alarm(void (*handler)(int), int flags, long period_us)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	struct itimerval period = {{0, period_us}, {0, period_us}};

	must("sigaction", sigaction(SIGALRM, &action, NULL), 0);
	must("setitimer", setitimer(ITIMER_REAL, &period, NULL), 0);
}

/* Runs between the interrupted call and its restart. */
static void send_on_last_alarm(int signal)
{
	(void)signal;
	if (++alarms == ALARMS_BEFORE_SENDING)
		MUST(PAYLOAD, alarm_kind, sendto, alarm_fd, payload, PAYLOAD, 0, NULL, 0);
}

void case_restarted(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	alarm_kind = family->kind;
	alarm_fd = fds[0];
	for (int i = 0; i < 5; i++) {
		alarms = 0;
		set_alarm(send_on_last_alarm, SA_RESTART, ALARM_US);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
		set_alarm(SIG_IGN, 0, 0);
	}
	close_pair(family, fds);
}

static void ignore_alarm(int signal)
{
	(void)signal;
}

void case_interrupted(const struct family *family)
{
	int poller = epoll_create1(0);
	int fds[2];

	connected_pair(family, fds);
	struct pollfd watched = {.fd = fds[1], .events = POLLIN};
	set_alarm(ignore_alarm, 0, ALARM_US);
	FAILS(EINTR, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	FAILS(EINTR, family->kind, read, fds[1], payload, PAYLOAD);
	set_alarm(ignore_alarm, SA_RESTART, ALARM_US);
	must_fail("epoll_wait", wait_epoll(poller, &(struct epoll_event){0}, 1, -1), EINTR);
	must_fail("poll", wait_poll(&watched, 1, -1), EINTR);
	set_alarm(SIG_IGN, 0, 0);
	close_pair(family, fds);
	close_counted(OTHER, poller);
}

/* The program itself calls again, with the same arguments: two calls, not a restart. */
void case_retried(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	set_alarm(ignore_alarm, 0, ALARM_US);
	for (int i = 0; i < 5; i++)
		FAILS(EINTR, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	set_alarm(SIG_IGN, 0, 0);
	MUST(PAYLOAD, family->kind, sendto, fds[0], payload, PAYLOAD, 0, NULL, 0);
	MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	close_pair(family, fds);
}

static int inner_fds[2];

static void send_to_inner(int signal)
{
	(void)signal;
	set_alarm(SIG_IGN, 0, 0);
	MUST(PAYLOAD, alarm_kind, sendto, inner_fds[0], payload, PAYLOAD, 0, NULL, 0);
}

/* Interrupts recvfrom, and is itself interrupted in a read of its own. */
static void receive_from_inner(int signal)
{
	(void)signal;
	set_alarm(send_to_inner, SA_RESTART | SA_NODEFER, ALARM_US);
	MUST(PAYLOAD, alarm_kind, read, inner_fds[1], payload, PAYLOAD);
	MUST(PAYLOAD, alarm_kind, sendto, alarm_fd, payload, PAYLOAD, 0, NULL, 0);
}

/* A restart inside a restart. */
void case_restarted_twice(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	connected_pair(family, inner_fds);
	alarm_kind = family->kind;
	alarm_fd = fds[0];
	for (int i = 0; i < 5; i++) {
		set_alarm(receive_from_inner, SA_RESTART | SA_NODEFER, ALARM_US);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	close_pair(family, fds);
	close_pair(family, inner_fds);
}

static sigjmp_buf out;

static void jump_out(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

/* The handler never returns, nor does the call: only what follows is counted. */
void case_jumped_out(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	for (volatile int i = 0; i < 5; i++) {
		if (!sigsetjmp(out, 1)) {
			set_alarm(jump_out, SA_RESTART, ALARM_US);
			syscall(SYS_readv, fds[1], &(struct iovec){payload, PAYLOAD}, 1);
			die("readv", -1);
		}
		set_alarm(SIG_IGN, 0, 0);
		send_rounds(family->kind, fds[0]);
		receive_rounds(family->kind, fds[1]);
	}
	close_pair(family, fds);
}

static void stop_and_continue(pid_t child)
{
	for (int i = 0; i < ROUNDS; i++) {
		must("kill", kill(child, SIGSTOP), 0);
		must("waitpid", waitpid(child, NULL, WUNTRACED), child);
		must("kill", kill(child, SIGCONT), 0);
		must("waitpid", waitpid(child, NULL, WCONTINUED), child);
	}
}

static void wait_and_answer(const struct family *family, int fd)
{
	struct pollfd watched = {.fd = fd, .events = POLLIN};

	must("poll", wait_poll(&watched, 1, 600000), 1);
	MUST(PAYLOAD, family->kind, recvfrom, fd, payload, PAYLOAD, 0, NULL, NULL);
	MUST(PAYLOAD, family->kind, sendto, fd, payload, PAYLOAD, 0, NULL, 0);
	MUST(PAYLOAD, family->kind, recvfrom, fd, payload, PAYLOAD, 0, NULL, NULL);
	MUST(PAYLOAD, family->kind, sendto, fd, payload, PAYLOAD, 0, NULL, 0);
}

/* Stopped while it polls (resumed by restart_syscall) and while it receives. */
void case_stopped(const struct family *family)
{
	int fds[2];

	connected_pair(family, fds);
	pid_t child = fork();
	if (!child) {
		wait_and_answer(family, fds[1]);
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		stop_and_continue(child);
		MUST(PAYLOAD, family->kind, sendto, fds[0], payload, PAYLOAD, 0, NULL, 0);
		MUST(PAYLOAD, family->kind, recvfrom, fds[0], payload, PAYLOAD, 0, NULL, NULL);
	}
	must("waitpid", waitpid(child, NULL, 0), child);
	close_pair(family, fds);
}
