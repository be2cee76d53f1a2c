/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waits whose author is known: authors CASE [ROUNDS]. It says "ready", waits for a line, lets one
 * thread wait for another one ROUNDS times, and says who waited for whom and for how long. Then it
 * stays until its stdin ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	WORK_MS = 30,
	TICK_MS = 5,
	BRIEF_NS = 100000,
	CHAIN = 3
};

static int rounds = 5;
static long waited_ns;	/* by the waiter's own clock, around its waits */
static const char *work = "cpu";
static int scratch;	/* a file on a disk */

static long now_ns(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void burn_ns(long time_ns)
{
	long until = now_ns(CLOCK_THREAD_CPUTIME_ID) + time_ns;

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

static void burn(void)
{
	burn_ns(WORK_MS * 1000000L);
}

static void rest(void)
{
	struct timespec time = {0, WORK_MS * 1000000L};

	nanosleep(&time, NULL);
}

static void write_out(void)
{
	static char block[1 << 20];
	long until = now_ns(CLOCK_MONOTONIC) + WORK_MS * 1000000L;

	do {
		if (pwrite(scratch, block, sizeof(block), 0) < 0 || fsync(scratch))
			exit(3);
	} while (now_ns(CLOCK_MONOTONIC) < until);
}

/* From a child that computes first. */
static void ask_child(void)
{
	int ends[2];
	char byte;
	pid_t child;

	if (pipe(ends))
		exit(3);
	child = fork();
	if (!child) {
		burn();
		_exit(write(ends[1], "x", 1) != 1);
	}
	if (read(ends[0], &byte, 1) != 1)
		exit(3);
	close(ends[0]);
	close(ends[1]);
	waitpid(child, NULL, 0);
}

static void do_work(void)
{
	if (!strcmp(work, "cpu"))
		burn();
	else if (!strcmp(work, "sleep"))
		rest();
	else if (!strcmp(work, "disk"))
		write_out();
	else
		ask_child();
}

/* A lock of three states: free, held, held and waited for. */
struct lock {
	_Atomic int state;
};

static void futex(_Atomic int *at, int operation, int value)
{
	syscall(SYS_futex, at, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void take(struct lock *lock)
{
	int was = 0;

	if (atomic_compare_exchange_strong(&lock->state, &was, 1))
		return;
	while (atomic_exchange(&lock->state, 2))
		futex(&lock->state, FUTEX_WAIT, 2);
}

static void give(struct lock *lock)
{
	if (atomic_exchange(&lock->state, 0) == 2)
		futex(&lock->state, FUTEX_WAKE, 1);
}

/* Until somebody waits for it. */
static void until_wanted(struct lock *lock)
{
	while (atomic_load(&lock->state) != 2)
		sched_yield();
}

static pthread_barrier_t turn;
static struct lock locks[CHAIN];
static int chain = 2;	/* threads: each waits for the next one's lock, the last one works */
static pid_t tids[CHAIN + 1];
static long switches[CHAIN + 1], blocked_ns[CHAIN + 1], elapsed_ns[CHAIN + 1];

static void *link_of_chain(void *argument)
{
	long at = (long)argument;

	tids[at] = gettid();
	for (int i = 0; i < rounds; i++) {
		if (at)
			take(&locks[at - 1]);
		pthread_barrier_wait(&turn);
		if (at < chain - 1) {
			long began = now_ns(CLOCK_MONOTONIC);

			/* Whom it waits for waits itself by then. */
			if (at + 1 < chain - 1)
				until_wanted(&locks[at + 1]);
			take(&locks[at]);
			if (!at)
				waited_ns += now_ns(CLOCK_MONOTONIC) - began;
			give(&locks[at]);
		} else {
			for (int each = 0; each < chain - 1; each++)
				until_wanted(&locks[each]);
			do_work();
		}
		if (at)
			give(&locks[at - 1]);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void run_chain(void)
{
	pthread_t threads[CHAIN];

	pthread_barrier_init(&turn, NULL, chain);
	for (long at = 0; at < chain; at++)
		pthread_create(&threads[at], NULL, link_of_chain, (void *)at);
	for (int at = 0; at < chain; at++)
		pthread_join(threads[at], NULL);
}

static _Atomic int ball;

/* Where its time went by the kernel's own account: running, and ready to run. */
static long schedstat_ns(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	long ran, waited;

	if (!file || fscanf(file, "%ld %ld", &ran, &waited) != 2)
		exit(3);
	fclose(file);
	return ran + waited;
}

/* On one CPU: who hands over goes on until it waits. */
static void stay_on_one_cpu(void)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static void *player(void *argument)
{
	long me = (long)argument;
	struct rusage before, after;
	long began, accounted, brief_ns = strcmp(work, "brief") ? 0 : BRIEF_NS;

	tids[me] = gettid();
	stay_on_one_cpu();
	getrusage(RUSAGE_THREAD, &before);
	accounted = schedstat_ns();
	began = now_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < rounds; i++) {
		while (atomic_load(&ball) != me)
			futex(&ball, FUTEX_WAIT, !me);
		burn_ns(brief_ns);
		atomic_store(&ball, !me);
		futex(&ball, FUTEX_WAKE, 1);
	}
	elapsed_ns[me] = now_ns(CLOCK_MONOTONIC) - began;
	blocked_ns[me] = elapsed_ns[me] - (schedstat_ns() - accounted);
	getrusage(RUSAGE_THREAD, &after);
	switches[me] = after.ru_nvcsw - before.ru_nvcsw;
	return NULL;
}

static void run_handover(void)
{
	pthread_t threads[2];

	for (long at = 0; at < 2; at++)
		pthread_create(&threads[at], NULL, player, (void *)at);
	for (int at = 0; at < 2; at++)
		pthread_join(threads[at], NULL);
}

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int queued;

static void *reader(void *unused)
{
	(void)unused;
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_barrier_wait(&turn);
		pthread_rwlock_rdlock(&table);
		pthread_rwlock_unlock(&table);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *writer(void *unused)
{
	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_rwlock_wrlock(&table);
		pthread_barrier_wait(&turn);
		do_work();
		pthread_rwlock_unlock(&table);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *consumer(void *unused)
{
	(void)unused;
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&guard);
		while (!queued)
			pthread_cond_wait(&filled, &guard);
		queued--;
		pthread_mutex_unlock(&guard);
	}
	return NULL;
}

static void *producer(void *unused)
{
	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++) {
		do_work();
		pthread_mutex_lock(&guard);
		queued++;
		pthread_cond_signal(&filled);
		pthread_mutex_unlock(&guard);
	}
	return NULL;
}

static struct timespec after_ms(clockid_t clock, long ms)
{
	long at_ns = now_ns(clock) + ms * 1000000L;

	return (struct timespec){at_ns / 1000000000L, at_ns % 1000000000L};
}

static long sleeps_so_far(void)
{
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	return used.ru_nvcsw;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

/* It waits for the lock for a moment, and for the same again until it has it. */
static void *impatient(void *unused)
{
	(void)unused;
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		struct timespec until;
		long before;

		pthread_barrier_wait(&turn);
		before = sleeps_so_far();
		do
			until = after_ms(CLOCK_REALTIME, TICK_MS);
		while (pthread_mutex_timedlock(&held, &until));
		switches[0] += sleeps_so_far() - before;
		pthread_mutex_unlock(&held);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *holder(void *unused)
{
	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&held);
		pthread_barrier_wait(&turn);
		do_work();
		pthread_mutex_unlock(&held);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *impatient_consumer(void *unused)
{
	struct timespec until;

	(void)unused;
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&guard);
		while (!queued) {
			until = after_ms(CLOCK_REALTIME, TICK_MS);
			pthread_cond_timedwait(&filled, &guard, &until);
		}
		queued--;
		pthread_mutex_unlock(&guard);
	}
	return NULL;
}

/* A clock that can be stopped: it writes something down each time. */
static void *ticker(void *unused)
{
	struct timespec until;

	(void)unused;
	tids[0] = gettid();
	pthread_mutex_lock(&guard);
	while (!queued) {
		until = after_ms(CLOCK_REALTIME, TICK_MS);
		if (pthread_cond_timedwait(&filled, &guard, &until) && write(scratch, "x", 1) != 1)
			exit(3);
	}
	pthread_mutex_unlock(&guard);
	return NULL;
}

static void *stopper(void *unused)
{
	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++)
		do_work();
	pthread_mutex_lock(&guard);
	queued++;
	pthread_cond_signal(&filled);
	pthread_mutex_unlock(&guard);
	return NULL;
}

/* Of the times that it waits, nobody ends one. */
static void run_alarm(void)
{
	_Atomic int never = 0;
	long before = sleeps_so_far();

	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		struct timespec time = {0, TICK_MS * 1000000L};

		syscall(SYS_futex, &never, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
	}
	switches[0] = sleeps_so_far() - before;
}

static int done = -1, told[2] = {-1, -1};

/* An event loop with a clock: at each tick it looks whether there is anything to do, or, where it
 * has somebody to tell, says a byte.
 */
static void *ticking_loop(void *unused)
{
	struct pollfd event = {done, POLLIN, 0};
	unsigned long count;

	(void)unused;
	tids[0] = gettid();
	for (int left = rounds; left; left -= (int)count) {
		while (!poll(&event, 1, TICK_MS))
			if (told[0] >= 0 && send(told[0], "x", 1, 0) != 1)
				exit(3);
		if (read(done, &count, sizeof(count)) != sizeof(count))
			exit(3);
	}
	return NULL;
}

static void *loops_worker(void *unused)
{
	const unsigned long one = 1;

	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++) {
		do_work();
		if (write(done, &one, sizeof(one)) != sizeof(one))
			exit(3);
	}
	return NULL;
}

/* As a waiter of glibc's condition, which goes on waiting at the other of two words now and then. */
static _Alignas(8) _Atomic int words[2];
static _Atomic int is_set;

static void *waiter_at_two_words(void *unused)
{
	const struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};

	(void)unused;
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_barrier_wait(&turn);
		for (int at = 0; !atomic_load(&is_set); at = !at)
			syscall(SYS_futex, &words[at], FUTEX_WAIT_PRIVATE, 0, &tick, NULL, 0);
		atomic_store(&is_set, 0);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void *waker_at_two_words(void *unused)
{
	(void)unused;
	tids[1] = gettid();
	for (int i = 0; i < rounds; i++) {
		pthread_barrier_wait(&turn);
		do_work();
		atomic_store(&is_set, 1);
		for (int at = 0; at < 2; at++)
			futex(&words[at], FUTEX_WAKE, 1);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void run_pair(void *(*first)(void *), void *(*second)(void *))
{
	pthread_t threads[2];

	pthread_barrier_init(&turn, NULL, 2);
	pthread_create(&threads[0], NULL, first, NULL);
	pthread_create(&threads[1], NULL, second, NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

static void run_ticks(bool tells)
{
	done = eventfd(0, 0);
	if (done < 0 || (tells && socketpair(AF_UNIX, SOCK_STREAM, 0, told)))
		exit(2);
	run_pair(ticking_loop, loops_worker);
}

/* Two ends of a connection; the other one is a child's. */
static void connect_pair(int ends[2], bool tcp)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(name);
	int listener;

	if (!tcp) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			exit(3);
		return;
	}
	listener = socket(AF_INET, SOCK_STREAM, 0);
	ends[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&name, size) || listen(listener, 1) ||
	    getsockname(listener, (void *)&name, &size) ||
	    connect(ends[1], (void *)&name, size))
		exit(3);
	ends[0] = accept(listener, NULL, NULL);
	close(listener);
}

static void run_socket(bool tcp, bool polls)
{
	int ends[2];
	char byte;

	connect_pair(ends, tcp);
	tids[0] = gettid();
	tids[1] = fork();
	if (!tids[1]) {
		close(ends[0]);
		for (int i = 0; i < rounds; i++) {
			do_work();
			if (send(ends[1], "x", 1, 0) != 1 || recv(ends[1], &byte, 1, 0) != 1)
				_exit(3);
		}
		pause();
	}
	close(ends[1]);
	for (int i = 0; i < rounds; i++) {
		struct pollfd readable = {.fd = ends[0], .events = POLLIN};

		if (polls && poll(&readable, 1, -1) != 1)
			exit(3);
		if (recv(ends[0], &byte, 1, 0) != 1 || send(ends[0], "x", 1, 0) != 1)
			exit(3);
	}
}

static void run_child(void)
{
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		tids[1] = fork();
		if (!tids[1]) {
			do_work();
			_exit(0);
		}
		waitpid(tids[1], NULL, 0);
	}
}

static _Atomic int is_over;

static void *child_after_child(void *unused)
{
	(void)unused;
	while (!atomic_load(&is_over)) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
	}
	return NULL;
}

static pid_t start_program(void)
{
	pid_t child = vfork();

	if (!child) {
		execl("/bin/sleep", "sleep", "0.05", NULL);
		_exit(3);
	}
	return child;
}

/* Each child wakes its parent twice: from vfork(), when it becomes a program, and at its end. */
static void run_programs(void)
{
	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		tids[1] = start_program();
		waitpid(tids[1], NULL, 0);
	}
}

/* As run_child, while other children come and go all the time. */
static void run_children(void)
{
	pthread_t other;

	pthread_create(&other, NULL, child_after_child, NULL);
	run_child();
	atomic_store(&is_over, 1);
	pthread_join(other, NULL);
}

static void run_pipe(void)
{
	int there[2], back[2];
	char byte;

	if (pipe(there) || pipe(back))
		exit(3);
	tids[0] = gettid();
	tids[1] = fork();
	if (!tids[1]) {
		for (int i = 0; i < rounds; i++) {
			do_work();
			if (write(there[1], "x", 1) != 1 || read(back[0], &byte, 1) != 1)
				_exit(3);
		}
		pause();
	}
	for (int i = 0; i < rounds; i++)
		if (read(there[0], &byte, 1) != 1 || write(back[1], "x", 1) != 1)
			exit(3);
}

static void run_timer(void)
{
	struct rusage before, after;

	tids[0] = gettid();
	getrusage(RUSAGE_THREAD, &before);
	for (int i = 0; i < rounds; i++)
		rest();
	getrusage(RUSAGE_THREAD, &after);
	switches[0] = after.ru_nvcsw - before.ru_nvcsw;
}

/* An open file of its own in each process; the pipe says that the lock is held. */
static void run_file_lock(const char *path)
{
	int ends[2], file;
	char byte;

	tids[0] = gettid();
	for (int i = 0; i < rounds; i++) {
		if (pipe(ends))
			exit(3);
		tids[1] = fork();
		file = open(path, O_RDWR);
		if (!tids[1]) {
			if (flock(file, LOCK_EX) || write(ends[1], "x", 1) != 1)
				_exit(3);
			do_work();
			flock(file, LOCK_UN);
			_exit(0);
		}
		if (read(ends[0], &byte, 1) != 1 || flock(file, LOCK_EX))
			exit(3);
		close(file);
		close(ends[0]);
		close(ends[1]);
		waitpid(tids[1], NULL, 0);
	}
}

/* Reads nothing for a while, of a buffer that is full. */
static void run_slow_reader(void)
{
	static char block[1 << 16];
	int ends[2];

	connect_pair(ends, false);
	tids[0] = gettid();
	tids[1] = fork();
	if (!tids[1]) {
		close(ends[0]);
		do
			do_work();
		while (recv(ends[1], block, sizeof(block), 0) > 0);
		_exit(0);
	}
	close(ends[1]);
	for (int i = 0; i < rounds; i++)
		if (send(ends[0], block, sizeof(block), 0) != (ssize_t)sizeof(block))
			exit(3);
	close(ends[0]);
	waitpid(tids[1], NULL, 0);
}

/* Three threads, and two connections to a process that answers one after the other. */
static int pool[2], pooled;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;

static int take_connection(void)
{
	int taken;

	pthread_mutex_lock(&guard);
	while (!pooled)
		pthread_cond_wait(&returned, &guard);
	taken = pool[--pooled];
	pthread_mutex_unlock(&guard);
	return taken;
}

static void give_connection(int given)
{
	pthread_mutex_lock(&guard);
	pool[pooled++] = given;
	pthread_cond_signal(&returned);
	pthread_mutex_unlock(&guard);
}

static void ask(int connection)
{
	char byte = 0;

	if (send(connection, &byte, 1, 0) != 1 || recv(connection, &byte, 1, 0) != 1)
		exit(3);
}

/* The third finds the pool empty. */
static void *asker(void *argument)
{
	long me = (long)argument;
	int connection = -1;

	tids[me] = gettid();
	for (int i = 0; i < rounds; i++) {
		if (me)
			connection = take_connection();
		pthread_barrier_wait(&turn);
		if (!me)
			connection = take_connection();
		ask(connection);
		give_connection(connection);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void answer(const int ends[2])
{
	char byte;

	for (int i = 0;; i = !i) {
		if (recv(ends[i], &byte, 1, MSG_DONTWAIT) != 1) {
			sched_yield();
			continue;
		}
		do_work();
		if (send(ends[i], &byte, 1, 0) != 1)
			_exit(0);
	}
}

static void run_pool(void)
{
	pthread_t threads[3];
	int first[2], second[2];

	connect_pair(first, false);
	connect_pair(second, false);
	tids[3] = fork();
	if (!tids[3])
		answer((int[]){first[1], second[1]});
	pool[pooled++] = first[0];
	pool[pooled++] = second[0];
	pthread_barrier_init(&turn, NULL, 3);
	for (long at = 0; at < 3; at++)
		pthread_create(&threads[at], NULL, asker, (void *)at);
	for (int at = 0; at < 3; at++)
		pthread_join(threads[at], NULL);
}

static void lock_record(int file, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};

	if (fcntl(file, F_SETLKW, &lock))
		exit(3);
}

/* As run_file_lock, with a record lock, which a process has. */
static void run_record_lock(const char *path)
{
	int ends[2], file = open(path, O_RDWR);
	char byte;

	tids[0] = gettid();
	if (pipe(ends))
		exit(3);
	tids[1] = fork();
	if (!tids[1]) {
		lock_record(file, F_WRLCK);
		if (write(ends[1], "x", 1) != 1)
			_exit(3);
		do_work();
		lock_record(file, F_UNLCK);
		_exit(0);
	}
	if (read(ends[0], &byte, 1) != 1)
		exit(3);
	lock_record(file, F_WRLCK);
	waitpid(tids[1], NULL, 0);
}

static void change(int semaphore, short by)
{
	struct sembuf operation = {.sem_op = by, .sem_flg = SEM_UNDO};

	if (semop(semaphore, &operation, 1))
		exit(3);
}

/* As run_record_lock, with a semaphore of System V. */
static void run_semaphore(void)
{
	int ends[2], semaphore = semget(IPC_PRIVATE, 1, 0600);
	char byte;

	if (semaphore < 0 || pipe(ends))
		exit(3);
	change(semaphore, 1);
	tids[0] = gettid();
	tids[1] = fork();
	if (!tids[1]) {
		change(semaphore, -1);
		if (write(ends[1], "x", 1) != 1)
			_exit(3);
		do_work();
		change(semaphore, 1);
		_exit(0);
	}
	if (read(ends[0], &byte, 1) != 1)
		exit(3);
	change(semaphore, -1);
	waitpid(tids[1], NULL, 0);
	semctl(semaphore, 0, IPC_RMID);
}

static void wait_for_event(void)
{
	unsigned long count;

	if (read(done, &count, sizeof(count)) != sizeof(count))
		exit(3);
}

/* It holds the lock and waits for a process that does the work. */
static void *holder_with_helper(void *unused)
{
	const unsigned long one = 1;

	(void)unused;
	tids[1] = gettid();
	pthread_mutex_lock(&held);
	tids[2] = fork();
	if (!tids[2]) {
		do_work();
		_exit(write(done, &one, sizeof(one)) != sizeof(one));
	}
	pthread_barrier_wait(&turn);
	wait_for_event();
	pthread_mutex_unlock(&held);
	waitpid(tids[2], NULL, 0);
	return NULL;
}

static void *waiter_for_holder(void *unused)
{
	(void)unused;
	tids[0] = gettid();
	pthread_barrier_wait(&turn);
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return NULL;
}

static void run_event(void)
{
	done = eventfd(0, 0);
	if (done < 0)
		exit(2);
	run_pair(waiter_for_holder, holder_with_helper);
}

static void run(const char *name, const char *path)
{
	if (!strcmp(name, "chain")) {
		chain = 3;
		run_chain();
	} else if (!strcmp(name, "mutex")) {
		run_chain();
	} else if (!strcmp(name, "handover")) {
		run_handover();
	} else if (!strcmp(name, "rwlock")) {
		run_pair(reader, writer);
	} else if (!strcmp(name, "queue")) {
		run_pair(consumer, producer);
	} else if (!strcmp(name, "timedlock")) {
		run_pair(impatient, holder);
	} else if (!strcmp(name, "timedqueue")) {
		run_pair(impatient_consumer, producer);
	} else if (!strcmp(name, "ticks") || !strcmp(name, "ticksandtells")) {
		run_ticks(!strcmp(name, "ticksandtells"));
	} else if (!strcmp(name, "ticker")) {
		run_pair(ticker, stopper);
	} else if (!strcmp(name, "alarm")) {
		run_alarm();
	} else if (!strcmp(name, "unix") || !strcmp(name, "tcp")) {
		run_socket(!strcmp(name, "tcp"), false);
	} else if (!strcmp(name, "polled")) {
		run_socket(true, true);
	} else if (!strcmp(name, "child")) {
		run_child();
	} else if (!strcmp(name, "programs")) {
		run_programs();
	} else if (!strcmp(name, "children")) {
		run_children();
	} else if (!strcmp(name, "pipe")) {
		run_pipe();
	} else if (!strcmp(name, "reader")) {
		run_slow_reader();
	} else if (!strcmp(name, "pool")) {
		run_pool();
	} else if (!strcmp(name, "record")) {
		run_record_lock(path);
	} else if (!strcmp(name, "semaphore")) {
		run_semaphore();
	} else if (!strcmp(name, "event")) {
		run_event();
	} else if (!strcmp(name, "twowords")) {
		run_pair(waiter_at_two_words, waker_at_two_words);
	} else if (!strcmp(name, "filelock")) {
		run_file_lock(path);
	} else {
		run_timer();
	}
}

int main(int argc, char **argv)
{
	char path[4096];

	if (argc < 4)
		return 2;
	work = argv[2];
	rounds = atoi(argv[3]);
	snprintf(path, sizeof(path), "%s", argc > 4 ? argv[4] : "/dev/null");
	scratch = open(path, O_RDWR | O_CREAT, 0600);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	run(argv[1], path);
	printf("{\"pid\": %d, \"lock\": \"%p\", \"waited\": %ld, \"tids\": [%d, %d, %d, %d], "
	       "\"switches\": [%ld, %ld], \"blocked\": [%ld, %ld], \"elapsed\": [%ld, %ld]}\n",
	       getpid(), (void *)&locks[0], waited_ns, tids[0], tids[1], tids[2], tids[3], switches[0], switches[1],
	       blocked_ns[0], blocked_ns[1], elapsed_ns[0], elapsed_ns[1]);
	fflush(stdout);
	getchar();
	if (!strcmp(argv[1], "polled") || !strcmp(argv[1], "unix") || !strcmp(argv[1], "tcp") || !strcmp(argv[1], "pipe"))
		kill(tids[1], 9);
	if (tids[3])
		kill(tids[3], 9);
	return 0;
}
