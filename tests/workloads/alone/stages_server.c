/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A server that knows where its requests' time went: it stamps both sides of
 * every call and prints the sums as JSON. Its client is a child that stamps
 * each request before it sends it, in memory both see.
 *
 *   stages_server ADDRESS option=value ...
 *
 * ADDRESS: a path, or tcp4 / tcp6. Prints a line when it listens, begins at the
 * first byte on stdin, prints the truth, ends at the end of stdin.
 */
#define _GNU_SOURCE
#include "clock.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS_MAX 4096
#define REPLY 64
#define REQUEST_MAX (1 << 20)
#define PUSH_MAX (1 << 24)

/* What happens; times in ns. */
static struct {
	long turns, connections, pieces, sends, request, receive_max;
	long think, gap, before_accept, before_read, sleeps, spins, between_sends;
	long banner, half_close, read_to_end, peek, empty_read, ahead, hand_over, polled, push;
} plan = {.turns = 1, .connections = 1, .pieces = 1, .sends = 1, .request = 64};

static const struct option {
	const char *name;
	long *value;
} options[] = {
	{"turns", &plan.turns},
	{"connections", &plan.connections},
	{"pieces", &plan.pieces},
	{"sends", &plan.sends},
	{"request", &plan.request},
	{"receive_max", &plan.receive_max},	/* of one receive call; 0: all */
	{"think", &plan.think},			/* the client, before a request */
	{"gap", &plan.gap},			/* between its pieces or requests */
	{"before_accept", &plan.before_accept},
	{"before_read", &plan.before_read},
	{"sleeps", &plan.sleeps},		/* between request and reply */
	{"spins", &plan.spins},
	{"between_sends", &plan.between_sends},
	{"banner", &plan.banner},
	{"half_close", &plan.half_close},
	{"read_to_end", &plan.read_to_end},	/* before the reply */
	{"peek", &plan.peek},
	{"empty_read", &plan.empty_read},
	{"ahead", &plan.ahead},			/* requests the client sends at once */
	{"hand_over", &plan.hand_over},		/* another thread answers */
	{"push", &plan.push},			/* bytes nobody asked for, with each turn */
	{"polled", &plan.polled},		/* receives without blocking, in a loop */
};

static struct {
	ns_t asked_ns[TURNS_MAX];
	volatile ns_t sent_ns[TURNS_MAX];	/* of its first piece */
	ns_t connecting_ns[TURNS_MAX];
} *shared;

static struct {
	ns_t accept_wait, recv_wait, recv, app, send, latency;
	ns_t recv_wait_least, recv_least, latency_least;	/* if it arrived late in send() */
	long count, accepted, bytes_in;
} truth;

static struct {
	struct sockaddr_storage name;
	socklen_t length;
} address;

static char request[REQUEST_MAX], reply[REPLY], payload[PUSH_MAX];
static int listener;

static void parse(int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		bool known = false;

		for (size_t o = 0; value && o < sizeof(options) / sizeof(*options); o++) {
			if (strncmp(argv[i], options[o].name, value - argv[i]) ||
			    options[o].name[value - argv[i]])
				continue;
			*options[o].value = atol(value + 1);
			known = true;
		}
		if (!known || plan.turns * plan.connections > TURNS_MAX) {
			fprintf(stderr, "stages_server: %s\n", argv[i]);
			exit(2);
		}
	}
}

static void listen_at(const char *where)
{
	struct sockaddr_un *path = (void *)&address.name;
	struct sockaddr_in *four = (void *)&address.name;
	struct sockaddr_in6 *six = (void *)&address.name;

	if (!strcmp(where, "tcp4")) {
		*four = (struct sockaddr_in){.sin_family = AF_INET,
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		address.length = sizeof(*four);
	} else if (!strcmp(where, "tcp6")) {
		*six = (struct sockaddr_in6){.sin6_family = AF_INET6,
					     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
		address.length = sizeof(*six);
	} else {
		path->sun_family = AF_UNIX;
		strncpy(path->sun_path, where, sizeof(path->sun_path) - 1);
		address.length = sizeof(*path);
	}
	listener = must("socket", socket(address.name.ss_family, SOCK_STREAM, 0));
	must("bind", bind(listener, (void *)&address.name, address.length));
	must("listen", listen(listener, 128));
	must("getsockname", getsockname(listener, (void *)&address.name, &address.length));
}

/* A call returns before its thread may be preempted, a stamp is taken after it: nobody
 * should preempt us then. Where this is refused, means are less exact.
 */
static void run_ahead_of_others(int priority)
{
	struct sched_param param = {.sched_priority = priority};

	sched_setscheduler(0, SCHED_FIFO, &param);
}

static void send_at_once(int fd)
{
	int on = 1;

	if (address.name.ss_family != AF_UNIX)
		must("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

static void send_all(int fd, long length)
{
	for (long sent = 0; sent < length;)
		sent += must("send", send(fd, request, length - sent, 0));
}

/* ------------------------------------------------------------ the client */

static void receive_reply(int fd, long length)
{
	static char buffer[REQUEST_MAX];

	for (long got = 0; got < length;) {
		long wanted = length - got < REQUEST_MAX ? length - got : REQUEST_MAX;
		long more = must("reply", recv(fd, buffer, wanted, 0));

		if (!more) {
			fprintf(stderr, "stages_server: the reply ended early\n");
			exit(1);
		}
		got += more;
	}
}

static void ask(int fd, long turn)
{
	shared->asked_ns[turn] = now_ns();
	for (long piece = 0; piece < plan.pieces; piece++) {
		if (piece)
			sleep_ns(plan.gap);
		send_all(fd, plan.request / plan.pieces);
		if (!piece)
			shared->sent_ns[turn] = now_ns();
	}
	if (plan.half_close)
		must("shutdown", shutdown(fd, SHUT_WR));
}

static void talk(int fd, long first)
{
	long step = plan.ahead ? plan.ahead : 1;

	for (long turn = first; turn < first + plan.turns; turn += step) {
		sleep_ns(plan.think);
		if (plan.push)
			receive_reply(fd, 1);
		for (long i = 0; i < step; i++) {
			if (i)
				sleep_ns(plan.gap);
			ask(fd, turn + i);
		}
		if (plan.push) {
			sleep_ns(plan.gap);
			receive_reply(fd, plan.push - 1);
		}
		receive_reply(fd, step * plan.sends * REPLY);
	}
}

static void be_the_client(void)
{
	run_ahead_of_others(1);
	for (long i = 0; i < plan.connections; i++) {
		int fd = must("socket", socket(address.name.ss_family, SOCK_STREAM, 0));

		shared->connecting_ns[i] = now_ns();
		must("connect", connect(fd, (void *)&address.name, address.length));
		send_at_once(fd);
		if (plan.banner)
			receive_reply(fd, REPLY);
		talk(fd, i * plan.turns);
		close(fd);
	}
	exit(0);
}

/* ------------------------------------------------------------ the server */

struct turn {
	int fd;
	ns_t accepted_ns;	/* of this connection */
	ns_t arrived_ns;	/* at the earliest, and at the latest */
	ns_t there_ns;
	ns_t received_ns;
	ns_t app;
};

static ns_t later(ns_t one, ns_t other)
{
	return one > other ? one : other;
}

static ns_t since(ns_t from, ns_t to)
{
	return to > from ? to - from : 0;
}

/* Returns the bytes of one receive call that had any. */
static long receive_some(struct turn *turn, long wanted, bool is_first, long number)
{
	ns_t before, after;
	long got;

	if (plan.receive_max && wanted > plan.receive_max)
		wanted = plan.receive_max;
	do {
		before = now_ns();
		got = recv(turn->fd, request, wanted, plan.polled ? MSG_DONTWAIT : 0);
		after = now_ns();
	} while (got < 0 && errno == EAGAIN && plan.polled);
	if (must("recv", got) == 0) {
		fprintf(stderr, "stages_server: the request ended early\n");
		exit(1);
	}
	if (is_first) {
		turn->arrived_ns = shared->asked_ns[number];
		turn->there_ns = shared->sent_ns[number];
		if (!turn->there_ns || turn->there_ns > after)
			turn->there_ns = after;
		truth.recv_wait += since(later(turn->arrived_ns, turn->accepted_ns), before);
		truth.recv_wait_least += since(later(turn->there_ns, turn->accepted_ns), before);
		truth.recv += after - later(before, turn->arrived_ns);
		truth.recv_least += after - later(before, turn->there_ns);
	} else {
		truth.recv += after - before;
		truth.recv_least += after - before;
		turn->app += before - turn->received_ns;
	}
	turn->received_ns = after;
	truth.bytes_in += got;
	return got;
}

static void receive_request(struct turn *turn, long number)
{
	char byte;

	sleep_ns(plan.before_read);
	if (plan.empty_read)
		must("empty recv", recv(turn->fd, &byte, 0, 0));
	if (plan.peek) {
		must("peek", recv(turn->fd, &byte, 1, MSG_PEEK));
		sleep_ns(plan.peek);
	}
	for (long got = 0; got < plan.request;)
		got += receive_some(turn, plan.request - got, got == 0, number);
	if (plan.read_to_end && must("end", recv(turn->fd, &byte, 1, 0)) != 0)
		exit(1);
}

static void send_reply(struct turn *turn)
{
	ns_t before, after;

	sleep_ns(plan.sleeps);
	spin_ns(plan.spins);
	before = now_ns();
	must("send", send(turn->fd, reply, REPLY, 0));
	after = now_ns();
	truth.app += turn->app + before - turn->received_ns;
	truth.send += after - before;
	truth.latency += after - turn->arrived_ns;
	truth.latency_least += after - turn->there_ns;
	truth.count++;
	for (long i = 1; i < plan.sends; i++) {
		sleep_ns(plan.between_sends);
		must("send", send(turn->fd, reply, REPLY, 0));
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct turn *handed;

static void *answer(void *nothing)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!handed)
			pthread_cond_wait(&changed, &lock);
		send_reply(handed);
		handed = NULL;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return nothing;
}

static void hand_over(struct turn *turn)
{
	pthread_mutex_lock(&lock);
	handed = turn;
	pthread_cond_broadcast(&changed);
	while (handed)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* Longer than any buffer: it blocks until the client reads it, after it has asked. */
static void *push(void *argument)
{
	struct turn *turn = argument;

	must("push", send(turn->fd, payload, plan.push, 0));
	return NULL;
}

static void receive_beside_a_push(struct turn *turn, long number)
{
	pthread_t pushing;

	pthread_create(&pushing, NULL, push, turn);
	receive_request(turn, number);
	pthread_join(pushing, NULL);
}

static void serve(long connection)
{
	struct turn turn = {};

	sleep_ns(plan.before_accept);
	turn.fd = must("accept", accept(listener, NULL, NULL));
	turn.accepted_ns = now_ns();
	truth.accept_wait += turn.accepted_ns - shared->connecting_ns[connection];
	truth.accepted++;
	send_at_once(turn.fd);
	if (plan.banner)
		must("banner", send(turn.fd, reply, REPLY, 0));
	for (long i = 0; i < plan.turns; i++) {
		turn.app = 0;
		if (plan.push)
			receive_beside_a_push(&turn, connection * plan.turns + i);
		else
			receive_request(&turn, connection * plan.turns + i);
		if (plan.hand_over)
			hand_over(&turn);
		else
			send_reply(&turn);
	}
	close(turn.fd);
}

static void tell(void)
{
	printf("{\"count\": %ld, \"accepted\": %ld, \"bytes_in\": %ld, \"latency\": %llu, "
	       "\"accept_wait\": %llu, \"recv_wait\": %llu, \"recv\": %llu, \"app\": %llu, "
	       "\"send\": %llu, \"recv_wait_least\": %llu, \"recv_least\": %llu, "
	       "\"latency_least\": %llu}\n",
	       truth.count, truth.accepted, truth.bytes_in, truth.latency, truth.accept_wait,
	       truth.recv_wait, truth.recv, truth.app, truth.send, truth.recv_wait_least,
	       truth.recv_least, truth.latency_least);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t second;
	char byte;

	parse(argc, argv);
	run_ahead_of_others(2);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	listen_at(argv[1]);
	if (plan.hand_over)
		pthread_create(&second, NULL, answer, NULL);
	puts("listening");
	fflush(stdout);
	must("go", read(0, &byte, 1));
	if (!must("fork", fork()))
		be_the_client();
	for (long i = 0; i < plan.connections; i++)
		serve(i);
	must("wait", wait(NULL));
	tell();
	must("end", read(0, &byte, 1));
	return 0;
}
