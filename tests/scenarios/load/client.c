// A load generator with bounded time and bounded connections, for loopback and Unix sockets.
// One blocking thread a connection: it sends a request, reads the reply, and waits its turn.
//
//   client ADDRESS REQUEST_FILE FRAME [option=value …]
//
// ADDRESS is a path or HOST:PORT. FRAME says where a reply ends: `http`, `resp` (Redis),
// `bytes:N`, or `until:TEXT` (\r \n are understood). Options:
//   connections=8 seconds=60 warm=20    replies before "warm" is printed
//   rate=R        requests a second, all connections together, evenly spread; 0: as fast as may be
//   poisson=1     the same rate, irregularly
//   burst_ms=T    every connection sends at the same moment, each T ms
//   think_ms=T    after each reply
//   reconnect=N   a new connection after N requests; 1: one for each
//   refuse_wait=1 connect() does not wait for a full Unix queue, as event loops do
//   read_rate=B   bytes a second that a connection reads; 0: as fast as may be
//   receive_buffer=B  SO_RCVBUF
//   repeat=N      the request is the file's content N times
//   idle=N        connections that are opened and say nothing
//   retry_ms=T    after a connect that failed, 10 otherwise
//   timeout_ms=T  a reply that stops coming for so long is given up, with its connection
//   slice=B, slice_ms=T  sleeps for T ms after each B bytes that it reads
//   stop_after=B  reads no more than B bytes of a connection, and keeps it
//   from_due=1    with rate: latency counts from when a request was due, and none is left out
//   quickack=1    acknowledges each packet at once (TCP)
// Ends at SIGTERM, SIGINT or after `seconds`, with one line of JSON; SIGUSR1 asks for such a line
// of the time since the last one. `waited_us`: of replies, and of requests that have none yet
// (`unanswered`). `paced`: whether it pauses between requests.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../workloads/older_libc.h"

enum frame { HTTP, RESP, BYTES, UNTIL };
enum { BUFFER = 64 * 1024, SLOTS = 64 * 16, ERRNOS = 134 };

static struct {
	long connections, seconds, warm, poisson, burst_ms, reconnect, refuse_wait, receive_buffer, idle, repeat;
	long timeout_ms, slice, stop_after, from_due, quickack;
	double rate, think_ms, read_rate, retry_ms, slice_ms;
} options = { .connections = 8, .seconds = 60, .warm = 20, .repeat = 1, .retry_ms = 10 };

static struct sockaddr_storage address;
static socklen_t address_length;
static char request[1 << 20];
static size_t request_length;
static enum frame frame;
static size_t frame_bytes;
static char frame_text[64];

static atomic_long replies, broken, unhappy, latencies[SLOTS], connect_errors[ERRNOS];
static atomic_ullong latency_sum_us;
static uint64_t start_ns, counted_from_ns;
static atomic_long warm_replies;
// When each connection's request in flight began; 0 between two requests.
static _Atomic uint64_t *in_flight;
static int warm_pipe[2];

struct connection {
	int fd;
	long number, requests;
	unsigned seed;
	size_t have, read, slice;
	char buffer[BUFFER];
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t when_ns)
{
	struct timespec when = { (time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

// 16 slots for each power of two of microseconds.
static int slot_of(uint64_t us)
{
	if (us < 16)
		return (int)us;
	int power = 63 - __builtin_clzll(us);
	return (power - 3) * 16 + (int)((us >> (power - 4)) & 15);
}

static double middle_of(int slot)
{
	if (slot < 16)
		return slot;
	return (double)((16ULL + (slot & 15)) << (slot / 16 - 1)) * 1.03;
}

static void read_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	if (text[0] == '/' || !colon) {
		struct sockaddr_un *to = (void *)&address;
		to->sun_family = AF_UNIX;
		strncpy(to->sun_path, text, sizeof(to->sun_path) - 1);
		address_length = sizeof(*to);
		return;
	}
	struct sockaddr_in *to = (void *)&address;
	char host[64] = { 0 };
	memcpy(host, text, (size_t)(colon - text));
	to->sin_family = AF_INET;
	to->sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, host, &to->sin_addr) != 1)
		die(text);
	address_length = sizeof(*to);
}

static int connect_now(void)
{
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	if (fd < 0)
		return -1;
	if (address.ss_family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (options.receive_buffer) {
		int bytes = (int)options.receive_buffer;
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	}
	if (options.timeout_ms) {
		struct timeval patience = { options.timeout_ms / 1000, options.timeout_ms % 1000 * 1000 };
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	}
	int local = address.ss_family == AF_UNIX;
	if (options.refuse_wait && local)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	if (connect(fd, (void *)&address, address_length) == 0) {
		if (options.refuse_wait && local)
			fcntl(fd, F_SETFL, 0);
		return fd;
	}
	connect_errors[errno < ERRNOS ? errno : 0]++;
	close(fd);
	return -1;
}

static int send_all(int fd)
{
	for (long copy = 0; copy < options.repeat; copy++)
		for (size_t sent = 0; sent < request_length;) {
			ssize_t n = send(fd, request + sent, request_length - sent, MSG_NOSIGNAL);
			if (n <= 0)
				return -1;
			sent += (size_t)n;
		}
	return 0;
}

static ssize_t receive(struct connection *c, char *into, size_t room)
{
	if (options.stop_after && c->read >= (size_t)options.stop_after)
		for (;;)
			pause();
	if (options.slice && c->slice >= (size_t)options.slice) {
		sleep_until(now_ns() + (uint64_t)(options.slice_ms * 1e6));
		c->slice = 0;
	}
	if (options.read_rate) {
		size_t piece = options.read_rate / 10 < 4096 ? (size_t)(options.read_rate / 10) + 1 : 4096;
		if (room > piece)
			room = piece;
		sleep_until(now_ns() + (uint64_t)(1e9 * (double)room / options.read_rate));
	}
	// The kernel forgets it when both ends talk in turns.
	if (options.quickack)
		setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){ 1 }, sizeof(int));
	ssize_t n = recv(c->fd, into, room, 0);
	if (n > 0) {
		c->read += (size_t)n;
		c->slice += (size_t)n;
	}
	return n;
}

static int skip(struct connection *c, size_t bytes)
{
	size_t taken = bytes < c->have ? bytes : c->have;
	memmove(c->buffer, c->buffer + taken, c->have - taken);
	c->have -= taken;
	bytes -= taken;
	while (bytes) {
		ssize_t n = receive(c, c->buffer, bytes < BUFFER ? bytes : BUFFER);
		if (n <= 0)
			return -1;
		bytes -= (size_t)n;
	}
	return 0;
}

// Reads on until `text` is there; where it ends, or -1.
static ssize_t find(struct connection *c, const char *text)
{
	for (;;) {
		char *found = memmem(c->buffer, c->have, text, strlen(text));
		if (found)
			return found - c->buffer + (ssize_t)strlen(text);
		if (c->have == BUFFER) { // only the end can still hold a part of it
			memmove(c->buffer, c->buffer + BUFFER - 64, 64);
			c->have = 64;
		}
		ssize_t n = receive(c, c->buffer + c->have, BUFFER - c->have);
		if (n <= 0)
			return -1;
		c->have += (size_t)n;
	}
}

static int read_http(struct connection *c)
{
	ssize_t head = find(c, "\r\n\r\n");
	if (head < 0)
		return -1;
	char saved = c->buffer[head - 1];
	c->buffer[head - 1] = 0;
	int status = atoi(c->buffer + 9);
	char *length = strcasestr(c->buffer, "\r\ncontent-length:");
	int chunked = strcasestr(c->buffer, "transfer-encoding: chunked") != NULL;
	int closes = strcasestr(c->buffer, "\r\nconnection: close") != NULL;
	size_t bytes = length ? strtoull(length + 17, NULL, 10) : 0;
	c->buffer[head - 1] = saved;
	if (status < 200 || status >= 400)
		unhappy++;
	if (skip(c, (size_t)head) < 0)
		return -1;
	if (chunked) {
		ssize_t end = find(c, "0\r\n\r\n");
		if (end < 0 || skip(c, (size_t)end) < 0)
			return -1;
	} else if (skip(c, bytes) < 0) {
		return -1;
	}
	return closes;
}

static int read_resp(struct connection *c)
{
	ssize_t line = find(c, "\r\n");
	if (line < 0)
		return -1;
	long bytes = c->buffer[0] == '$' ? strtol(c->buffer + 1, NULL, 10) : -1;
	if (c->buffer[0] == '-')
		unhappy++;
	return skip(c, (size_t)line + (bytes >= 0 ? (size_t)bytes + 2 : 0));
}

// 0: read; 1: read, and the server closes; -1: the connection broke.
static int read_reply(struct connection *c)
{
	ssize_t end;
	switch (frame) {
	case HTTP:
		return read_http(c);
	case RESP:
		return read_resp(c);
	case BYTES:
		return skip(c, frame_bytes);
	default:
		end = find(c, frame_text);
		return end < 0 ? -1 : skip(c, (size_t)end);
	}
}

static void account(uint64_t took_ns)
{
	int slot = slot_of(took_ns / 1000);
	latencies[slot < SLOTS ? slot : SLOTS - 1]++;
	latency_sum_us += took_ns / 1000;
	replies++;
	if (++warm_replies == options.warm && write(warm_pipe[1], "w", 1) < 0)
		die("write");
}

static void hang_up(struct connection *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->have = 0;
	c->requests = 0;
	c->read = 0;
}

static void one_request(struct connection *c, uint64_t due)
{
	uint64_t began = options.from_due && due ? due : now_ns();
	in_flight[c->number] = began;
	if (c->fd < 0 && (c->fd = connect_now()) < 0) {
		in_flight[c->number] = 0;
		sleep_until(now_ns() + (uint64_t)(options.retry_ms * 1e6));
		return;
	}
	int result = send_all(c->fd) < 0 ? -1 : read_reply(c);
	in_flight[c->number] = 0;
	if (result < 0) {
		// A server may end a kept connection between two requests; the first one is its fault.
		if (c->requests == 0 || options.timeout_ms)
			broken++;
		hang_up(c);
		return;
	}
	account(now_ns() - began);
	c->requests++;
	if (result == 1 || (options.reconnect && c->requests >= options.reconnect))
		hang_up(c);
}

static uint64_t next_turn(struct connection *c, uint64_t due)
{
	uint64_t now = now_ns();
	if (options.burst_ms) {
		uint64_t period = (uint64_t)options.burst_ms * 1000000;
		return start_ns + ((now - start_ns) / period + 1) * period;
	}
	if (options.rate > 0) {
		double gap = 1e9 * (double)options.connections / options.rate;
		if (options.poisson) {
			double u = (rand_r(&c->seed) + 1.0) / (RAND_MAX + 2.0);
			gap *= -__builtin_log(u);
		}
		due += (uint64_t)gap;
		if (options.from_due)
			return due;
		return due > now ? due : now;
	}
	return now + (uint64_t)(options.think_ms * 1e6);
}

static void *connection_thread(void *number)
{
	struct connection *c = calloc(1, sizeof(*c));
	c->number = (long)number;
	c->fd = -1;
	c->seed = (unsigned)c->number + 1;
	uint64_t due = start_ns;
	if (options.rate > 0)
		due += (uint64_t)(1e9 * (double)c->number / options.rate);
	for (;;) {
		if (due > now_ns())
			sleep_until(due);
		one_request(c, due);
		due = next_turn(c, due);
	}
	return NULL;
}

static void parse(const char *text)
{
#define LONG(name) if (!strncmp(text, #name "=", sizeof(#name))) { options.name = atol(text + sizeof(#name)); return; }
#define REAL(name) if (!strncmp(text, #name "=", sizeof(#name))) { options.name = atof(text + sizeof(#name)); return; }
	LONG(connections) LONG(seconds) LONG(warm) LONG(poisson) LONG(burst_ms) LONG(reconnect)
	LONG(refuse_wait) LONG(receive_buffer) LONG(idle) LONG(repeat)
	LONG(timeout_ms) LONG(slice) LONG(stop_after) LONG(from_due) LONG(quickack)
	REAL(rate) REAL(think_ms) REAL(read_rate) REAL(retry_ms) REAL(slice_ms)
	fprintf(stderr, "client: unknown option %s\n", text);
	exit(2);
}

static void parse_frame(const char *text)
{
	if (!strcmp(text, "http")) {
		frame = HTTP;
	} else if (!strcmp(text, "resp")) {
		frame = RESP;
	} else if (!strncmp(text, "bytes:", 6)) {
		frame = BYTES;
		frame_bytes = strtoull(text + 6, NULL, 10);
	} else {
		frame = UNTIL;
		char *to = frame_text;
		for (const char *from = text + 6; *from && to < frame_text + 63; from++)
			if (*from == '\\' && from[1])
				*to++ = *++from == 'r' ? '\r' : '\n';
			else
				*to++ = *from;
	}
}

static double percentile(long total, double part)
{
	long seen = 0;
	for (int slot = 0; slot < SLOTS; slot++)
		if ((seen += latencies[slot]) >= (long)((double)total * part) && seen)
			return middle_of(slot);
	return 0;
}

static long waiting(uint64_t now, uint64_t *sum_us)
{
	long count = 0;
	for (long number = 0; number < options.connections; number++) {
		uint64_t began = in_flight[number];
		if (!began || began >= now)
			continue;
		count++;
		*sum_us += (now - began) / 1000;
	}
	return count;
}

static void print_result(void)
{
	uint64_t now = now_ns(), waited_us = latency_sum_us;
	long total = replies, unanswered = waiting(now, &waited_us);
	printf("{\"replies\": %ld, \"broken\": %ld, \"unhappy\": %ld, \"seconds\": %.3f, \"connect_errors\": {",
	       total, (long)broken, (long)unhappy, (double)(now - counted_from_ns) / 1e9);
	const char *comma = "";
	for (int number = 0; number < ERRNOS; number++)
		if (connect_errors[number]) {
			printf("%s\"%s\": %ld", comma, strerrorname_np(number), (long)connect_errors[number]);
			comma = ", ";
		}
	int paced = options.rate > 0 || options.think_ms > 0 || options.burst_ms;
	printf("}, \"paced\": %s", paced ? "true" : "false");
	printf(", \"unanswered\": %ld, \"waited_us\": %llu", unanswered, (unsigned long long)waited_us);
	printf(", \"mean_us\": %.1f, \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f}\n",
	       total ? (double)latency_sum_us / (double)total : 0, percentile(total, 0.5),
	       percentile(total, 0.99), percentile(total, 0.999));
	fflush(stdout);
}

static void count_from_now(void)
{
	counted_from_ns = now_ns();
	replies = broken = unhappy = 0;
	latency_sum_us = 0;
	for (int slot = 0; slot < SLOTS; slot++)
		latencies[slot] = 0;
	for (int number = 0; number < ERRNOS; number++)
		connect_errors[number] = 0;
}

static void start_threads(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	start_ns = counted_from_ns = now_ns();
	in_flight = calloc((size_t)options.connections, sizeof(*in_flight));
	for (long number = 0; number < options.connections; number++) {
		pthread_t thread;
		if (pthread_create(&thread, &attributes, connection_thread, (void *)number))
			die("pthread_create");
	}
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: client ADDRESS REQUEST_FILE FRAME [option=value …]\n");
		return 2;
	}
	read_address(argv[1]);
	FILE *file = fopen(argv[2], "rb");
	if (!file)
		die(argv[2]);
	request_length = fread(request, 1, sizeof(request), file);
	parse_frame(argv[3]);
	for (int i = 4; i < argc; i++)
		parse(argv[i]);
	sigset_t ending;
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &ending, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (pipe(warm_pipe) < 0)
		die("pipe");
	for (long i = 0; i < options.idle; i++)
		connect_now();
	start_threads();
	uint64_t end_ns = start_ns + (uint64_t)options.seconds * 1000000000;
	int announced = options.warm <= 0;
	if (announced) {
		printf("warm\n");
		fflush(stdout);
	}
	while (now_ns() < end_ns) {
		struct pollfd ready = { warm_pipe[0], POLLIN, 0 };
		if (!announced && poll(&ready, 1, 10) == 1) {
			announced = 1;
			printf("warm\n");
			fflush(stdout);
		}
		struct timespec moment = { 0, 50000000 };
		int asked = sigtimedwait(&ending, NULL, &moment);
		if (asked == SIGUSR1) {
			print_result();
			count_from_now();
		} else if (asked > 0) {
			break;
		}
	}
	print_result();
	_exit(0);
}
