/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A call that a signal interrupts: restarted it is still one call. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "cases.h"
#include "family.h"
#include "waits.h"

enum {
	ALARM_US = 20000,
	ALARMS_BEFORE_SENDING = 3,
	LOOK_US = 100,
	NESTED = 4,
	TOO_DEEP = 12,
	STACK_BYTES = 65536,
	FULL_BYTES = 4096
};
enum waker {
	ENDS,
	RESTS,
	WAKES
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
			truth_left();
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


/* A process of its own that sends SIGALRM to one that sleeps, again and again. It sleeps until then,
 * so each signal interrupts a call and nothing else. Whom to wake is asked again after the look: the
 * one that was seen asleep may have said RESTS, and then gone to sleep in a call of another kind.
 */
static volatile int *waker;
static pid_t waker_pid;

static int sleeps(int stat_fd)
{
	char text[512] = {0};
	const char *name_end;

	CALL(OTHER, pread64, stat_fd, text, sizeof(text) - 1, 0, 0);
	name_end = strrchr(text, ')');
	return name_end && name_end[2] == 'S';
}

static int open_stat(pid_t tid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	return open(path, O_RDONLY);
}

static int is_to_be_woken(int stat_fd)
{
	return *waker == WAKES && sleeps(stat_fd) && *waker == WAKES;
}

static void start_waker(pid_t whom)
{
	int stat_fd;

	waker = mmap(NULL, sizeof(*waker), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (waker == MAP_FAILED)
		die("mmap", -1);
	*waker = RESTS;
	waker_pid = fork();
	if (waker_pid)
		return;
	stat_fd = open_stat(whom);
	for (; *waker != ENDS; usleep(LOOK_US))
		if (is_to_be_woken(stat_fd))
			kill(whom, SIGALRM);
	_exit(0);
}

static void end_waker(void)
{
	*waker = ENDS;
	must("waitpid", waitpid(waker_pid, NULL, 0), waker_pid);
}

static void handle_alarm(void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	must("sigaction", sigaction(SIGALRM, &action, NULL), 0);
	*waker = WAKES;
}

static int own_fd;

/* The pair, and handlers that know it. */
static void begin_interrupting(const struct family *family, int fds[2])
{
	connected_pair(family, fds);
	alarm_kind = family->kind;
	alarm_fd = fds[0];
	own_fd = fds[1];
	start_waker(getpid());
}

static void end_interrupting(const struct family *family, const int fds[2])
{
	end_waker();
	close_pair(family, fds);
}

/* The very call that it interrupts, on the same descriptor. */
static void receive_again(int signal)
{
	(void)signal;
	FAILS(EAGAIN, alarm_kind, recvfrom, own_fd, payload, PAYLOAD, MSG_DONTWAIT, NULL, NULL);
}

static void fail_rounds(const struct family *family)
{
	for (int i = 0; i < ROUNDS; i++)
		FAILS(EINTR, family->kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	*waker = RESTS;
}

void case_handler_same_call(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(receive_again, 0);
	fail_rounds(family);
	end_interrupting(family, fds);
}

static void receive_again_then_send(int signal)
{
	receive_again(signal);
	send_on_last_alarm(signal);
}

void case_handler_same_restarted(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(receive_again_then_send, SA_RESTART);
	for (int i = 0; i < ROUNDS; i++) {
		alarms = 0;
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	end_interrupting(family, fds);
}

/* The same call on another descriptor, and another on the same. */
static void call_others(int signal)
{
	(void)signal;
	FAILS(EAGAIN, alarm_kind, recvfrom, alarm_fd, payload, PAYLOAD, MSG_DONTWAIT, NULL, NULL);
	MUST(PAYLOAD, alarm_kind, sendto, own_fd, payload, PAYLOAD, 0, NULL, 0);
	MUST(PAYLOAD, alarm_kind, recvfrom, alarm_fd, payload, PAYLOAD, 0, NULL, NULL);
}

void case_handler_other_call(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(call_others, 0);
	fail_rounds(family);
	end_interrupting(family, fds);
}

static volatile int depth;
static int deepest = NESTED;

/* Handlers in handlers, each interrupted in the same call. */
static void receive_deeper(int signal)
{
	depth++;
	if (depth < deepest)
		FAILS(EINTR, alarm_kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	else
		receive_again(signal);
	depth--;
}

void case_handlers_nested(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(receive_deeper, SA_NODEFER);
	fail_rounds(family);
	end_interrupting(family, fds);
}

/* Once, deeper than what an observer follows. */
void case_handlers_too_deep(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	deepest = TOO_DEEP;
	handle_alarm(receive_deeper, SA_NODEFER);
	FAILS(EINTR, family->kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	end_interrupting(family, fds);
}

static void receive_deeper_then_send(int signal)
{
	depth++;
	if (depth < NESTED)
		MUST(PAYLOAD, alarm_kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	else
		receive_again(signal);
	MUST(PAYLOAD, alarm_kind, sendto, alarm_fd, payload, PAYLOAD, 0, NULL, 0);
	depth--;
}

void case_handlers_nested_restarted(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(receive_deeper_then_send, SA_NODEFER | SA_RESTART);
	for (int i = 0; i < ROUNDS; i++)
		MUST(PAYLOAD, family->kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	end_interrupting(family, fds);
}

static void fail_rounds_on(const struct family *family, void *memory)
{
	stack_t stack = {.ss_sp = memory, .ss_size = STACK_BYTES};

	must("sigaltstack", sigaltstack(&stack, NULL), 0);
	handle_alarm(receive_again, SA_ONSTACK);
	fail_rounds(family);
	stack.ss_flags = SS_DISABLE;
	must("sigaltstack", sigaltstack(&stack, NULL), 0);
}

/* Above and below the frame that is interrupted. */
void case_handler_on_own_stack(const struct family *family)
{
	static char below[STACK_BYTES];
	char above[STACK_BYTES];
	int fds[2];

	begin_interrupting(family, fds);
	fail_rounds_on(family, above);
	fail_rounds_on(family, below);
	end_interrupting(family, fds);
}

static char full[FULL_BYTES];

/* Into the socket that is full, once there is room. */
static void log_to_same(int signal)
{
	static char drained[FULL_BYTES];

	(void)signal;
	while (CALL(alarm_kind, recvfrom, own_fd, drained, FULL_BYTES, MSG_DONTWAIT, NULL, NULL) > 0)
		continue;
	MUST(PAYLOAD, alarm_kind, write, alarm_fd, payload, PAYLOAD);
}

static void fill(const struct family *family, int fd)
{
	while (CALL(family->kind, sendto, fd, full, FULL_BYTES, MSG_DONTWAIT, NULL, 0) > 0)
		continue;
	must_fail("sendto", -1, EAGAIN);
}

/* TCP finds room for a little more when acknowledgements come. */
static void write_until_interrupted(enum kind kind, int fd)
{
	while (CALL(kind, write, fd, payload, PAYLOAD) > 0)
		continue;
	must_fail("write", -1, EINTR);
}

static void write_to_full(const struct family *family, int flags)
{
	for (int i = 0; i < ROUNDS; i++) {
		fill(family, alarm_fd);
		handle_alarm(log_to_same, flags);
		if (flags)
			MUST(PAYLOAD, family->kind, write, alarm_fd, payload, PAYLOAD);
		else
			write_until_interrupted(family->kind, alarm_fd);
		*waker = RESTS;
	}
}

void case_handler_logs(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	must("setsockopt", setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){8192}, sizeof(int)), 0);
	write_to_full(family, 0);
	write_to_full(family, SA_RESTART);
	end_interrupting(family, fds);
}

static void rest_and_jump(int signal)
{
	*waker = RESTS;
	jump_out(signal);
}

/* Never returns. */
static void receive_until_jump(enum kind kind, int fd)
{
	truth_left();
	CALL(kind, recvfrom, fd, payload, PAYLOAD, 0, NULL, NULL);
	die("recvfrom", -1);
}

/* The descriptor's number goes to a socket of another kind. */
void case_jumped_to_reused(const struct family *family)
{
	const struct family *other = family_named(family->kind == UDP ? "unix-stream" : "udp4");
	int fds[2], others[2];

	for (volatile int i = 0; i < 5; i++) {
		begin_interrupting(family, fds);
		connected_pair(other, others);
		if (!sigsetjmp(out, 1)) {
			handle_alarm(rest_and_jump, i % 2 ? SA_RESTART : 0);
			receive_until_jump(family->kind, fds[1]);
		}
		end_waker();
		must("dup2", dup2(others[1], fds[1]), fds[1]);
		send_rounds(other->kind, others[0]);
		receive_rounds(other->kind, fds[1]);
		close_counted(family->kind, fds[0]);
		close_counted(other->kind, fds[1]);
		close_pair(other, others);
	}
}

static sigjmp_buf again;
static volatile int jumps;

static void send_and_jump(int signal)
{
	(void)signal;
	MUST(PAYLOAD, alarm_kind, sendto, alarm_fd, payload, PAYLOAD, 0, NULL, 0);
	truth_left();
	siglongjmp(again, 1);
}

static void jump_at_once(int signal)
{
	if (++jumps % 3 == 0)
		send_and_jump(signal);
	truth_left();
	siglongjmp(again, 1);
}

/* The frame makes the call again by itself, with all the same registers: no restart. */
void case_jumped_to_same_call(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	handle_alarm(jump_at_once, SA_RESTART | SA_NODEFER);
	for (volatile int i = 0; i < ROUNDS; i++) {
		sigsetjmp(again, 0);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	end_interrupting(family, fds);
}

static void jump_from_depth(int signal)
{
	if (++depth == NESTED)
		rest_and_jump(signal);
	receive_until_jump(alarm_kind, own_fd);
}

void case_jumped_out_of_nested(const struct family *family)
{
	int fds[2];

	begin_interrupting(family, fds);
	for (volatile int i = 0; i < 5; i++) {
		depth = 0;
		if (!sigsetjmp(out, 1)) {
			handle_alarm(jump_from_depth, SA_NODEFER);
			receive_until_jump(family->kind, fds[1]);
		}
		send_rounds(family->kind, fds[0]);
		receive_rounds(family->kind, fds[1]);
	}
	end_interrupting(family, fds);
}

static void exit_at_once(int signal)
{
	receive_again(signal);
	_exit(0);
}

void case_handler_exits(const struct family *family)
{
	struct sigaction action = {.sa_handler = exit_at_once};
	int fds[2];
	pid_t child;

	connected_pair(family, fds);
	alarm_kind = family->kind;
	own_fd = fds[1];
	child = fork();
	if (!child) {
		must("sigaction", sigaction(SIGALRM, &action, NULL), 0);
		receive_until_jump(family->kind, fds[1]);
	}
	start_waker(child);
	*waker = WAKES;
	must("waitpid", waitpid(child, NULL, 0), child);
	end_waker();
	close_pair(family, fds);
}

static pthread_barrier_t in_handlers;

/* Until all threads are in theirs. */
static void wait_for_handlers(int signal)
{
	receive_again(signal);
	pthread_barrier_wait(&in_handlers);
}

struct receiver {
	pthread_t thread;
	volatile pid_t tid;
};

static void *receive_in_thread(void *argument)
{
	((struct receiver *)argument)->tid = gettid();
	FAILS(EINTR, alarm_kind, recvfrom, own_fd, payload, PAYLOAD, 0, NULL, NULL);
	return NULL;
}

static void interrupt_asleep(struct receiver *receiver)
{
	int stat_fd;

	while (!receiver->tid)
		usleep(LOOK_US);
	stat_fd = open_stat(receiver->tid);
	while (!sleeps(stat_fd))
		usleep(LOOK_US);
	must("pthread_kill", pthread_kill(receiver->thread, SIGALRM), 0);
	close_counted(OTHER, stat_fd);
}

/* As many handlers at once as there are threads. */
void case_handlers_in_threads(const struct family *family)
{
	struct sigaction action = {.sa_handler = wait_for_handlers};
	struct receiver receivers[NESTED] = {0};
	int fds[2];

	connected_pair(family, fds);
	alarm_kind = family->kind;
	own_fd = fds[1];
	must("sigaction", sigaction(SIGALRM, &action, NULL), 0);
	must("barrier", pthread_barrier_init(&in_handlers, NULL, NESTED), 0);
	for (int i = 0; i < NESTED; i++)
		must("pthread_create",
		     pthread_create(&receivers[i].thread, NULL, receive_in_thread, &receivers[i]), 0);
	for (int i = 0; i < NESTED; i++)
		interrupt_asleep(&receivers[i]);
	for (int i = 0; i < NESTED; i++)
		must("pthread_join", pthread_join(receivers[i].thread, NULL), 0);
	close_pair(family, fds);
}
