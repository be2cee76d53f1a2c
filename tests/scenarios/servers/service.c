// A service whose costs are known, of whichever kind: service listen=ADDRESS [option=value …].
// A request is a line; a reply has so many bytes.
//
//   kind=loop      one thread with epoll: loop · threads: one for each connection · prefork: N
//                  processes, each with one connection at a time
//   seats=N        connections at a time; of prefork its processes
//   backlog=N      nofile=N      descriptors that it may open
//   spin_ms=T      computes      sleep_ms=T  sleeps; timer=1: a loop goes on meanwhile
//   lock_ms=T      holds the one lock, asleep; lock_spin_ms=T: computing
//   sync_kb=N, file=PATH  writes them through to the disk
//   one_in=N       only each Nth request does the above
//   upstream=ADDRESS, upstream_bytes=N  asks there, with pool=N connections at a time; keep=0: a
//                  new one each; relay=1: that reply is its own
//   bytes=N        of a reply
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 256 * 1024, AT_ONCE = 4 * PIECE, POOL_MAX = 256, PAUSE_MS = 100 };

static struct {
	char listen[120], upstream[120], kind[16], file[200];
	long seats, backlog, nofile, timer, sync_kb, one_in, upstream_bytes, pool, keep, relay, bytes;
	double spin_ms, sleep_ms, lock_ms, lock_spin_ms;
} options = { .kind = "loop", .seats = 4096, .backlog = 511, .one_in = 1, .pool = 64, .keep = 1, .bytes = 64 };

static pthread_mutex_t *lock; // of all processes
static atomic_long *requests;
static char piece[PIECE];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t time_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void spin(double ms)
{
	uint64_t end = time_ns(CLOCK_THREAD_CPUTIME_ID) + (uint64_t)(ms * 1e6);
	volatile unsigned sink = 0;
	while (time_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 2000; i++)
			sink += (unsigned)i;
}

static void nap(double ms)
{
	struct timespec rest = { (time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000 };
	while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
		;
}

static void write_through(void)
{
	static __thread int fd = -1;
	if (fd < 0 && (fd = open(options.file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0)
		die(options.file);
	for (long at = 0; at < options.sync_kb * 1024; at += PIECE) {
		long rest = options.sync_kb * 1024 - at;
		if (pwrite(fd, piece, (size_t)(rest < PIECE ? rest : PIECE), at) < 0)
			die("pwrite");
	}
	if (fdatasync(fd) < 0)
		die("fdatasync");
}

// Whether a wait is left over for the loop's timer.
static int cost(void)
{
	if (atomic_fetch_add(requests, 1) % options.one_in)
		return 0;
	if (options.spin_ms > 0)
		spin(options.spin_ms);
	if (options.lock_ms > 0 || options.lock_spin_ms > 0) {
		pthread_mutex_lock(lock);
		if (options.lock_spin_ms > 0)
			spin(options.lock_spin_ms);
		if (options.lock_ms > 0)
			nap(options.lock_ms);
		pthread_mutex_unlock(lock);
	}
	if (options.sync_kb)
		write_through();
	if (options.sleep_ms > 0 && options.timer)
		return 1;
	if (options.sleep_ms > 0)
		nap(options.sleep_ms);
	return 0;
}

// -- sockets ---------------------------------------------------------------------------------------

static socklen_t address_of(const char *text, struct sockaddr_storage *address)
{
	const char *colon = strrchr(text, ':');
	memset(address, 0, sizeof(*address));
	if (text[0] == '/') {
		struct sockaddr_un *to = (void *)address;
		to->sun_family = AF_UNIX;
		strncpy(to->sun_path, text, sizeof(to->sun_path) - 1);
		return sizeof(*to);
	}
	struct sockaddr_in *to = (void *)address;
	to->sin_family = AF_INET;
	to->sin_port = htons((uint16_t)atoi(colon + 1));
	to->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return sizeof(*to);
}

static void at_once(int fd)
{
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); // refused by Unix sockets
}

static int listen_now(void)
{
	struct sockaddr_storage address;
	socklen_t length = address_of(options.listen, &address);
	int on = 1, fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, (void *)&address, length) || listen(fd, (int)options.backlog))
		die(options.listen);
	return fd;
}

// A connection that may be in progress; -1 where it is refused.
static int connect_upstream(int flags)
{
	struct sockaddr_storage address;
	socklen_t length = address_of(options.upstream, &address);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (fd < 0)
		return -1;
	at_once(fd);
	if (connect(fd, (void *)&address, length) && errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

// -- threads and processes: one connection at a time, blocking calls ----------------------------

static sem_t free_lines, free_seats;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static int kept[POOL_MAX], kept_count;

static int send_all(int fd, const char *bytes, size_t count)
{
	while (count) {
		ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
		if (n <= 0)
			return -1;
		bytes += n;
		count -= (size_t)n;
	}
	return 0;
}

static int take_line(void)
{
	sem_wait(&free_lines);
	int fd = -1;
	pthread_mutex_lock(&kept_lock);
	if (kept_count)
		fd = kept[--kept_count];
	pthread_mutex_unlock(&kept_lock);
	return fd >= 0 ? fd : connect_upstream(0);
}

static void give_line_back(int fd, int usable)
{
	pthread_mutex_lock(&kept_lock);
	if (fd >= 0 && usable && options.keep)
		kept[kept_count++] = fd;
	else if (fd >= 0)
		close(fd);
	pthread_mutex_unlock(&kept_lock);
	sem_post(&free_lines);
}

static int ask_upstream(int client)
{
	char *have = malloc(PIECE);
	int line = take_line(), result = line < 0 ? -1 : send_all(line, "request\n", 8);
	for (long left = options.upstream_bytes; left && !result;) {
		ssize_t n = recv(line, have, (size_t)(left < PIECE ? left : PIECE), 0);
		if (n <= 0 || (options.relay && send_all(client, have, (size_t)n) < 0))
			result = -1;
		else
			left -= n;
	}
	give_line_back(line, !result);
	free(have);
	return result;
}

static int reply(int fd)
{
	if (cost())
		nap(options.sleep_ms);
	if (options.upstream[0] && ask_upstream(fd) < 0)
		return -1;
	for (long left = options.relay ? 0 : options.bytes; left; left -= left < PIECE ? left : PIECE)
		if (send_all(fd, piece, (size_t)(left < PIECE ? left : PIECE)) < 0)
			return -1;
	return 0;
}

static void serve(int fd)
{
	char have[4096];
	at_once(fd);
	for (;;) {
		ssize_t n = recv(fd, have, sizeof(have), 0);
		if (n <= 0 || (have[n - 1] == '\n' && reply(fd) < 0))
			break;
	}
	close(fd);
}

static void *serve_in_thread(void *fd)
{
	serve((int)(intptr_t)fd);
	sem_post(&free_seats);
	return NULL;
}

static int accept_now(int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno == EMFILE || errno == ENFILE)
			nap(PAUSE_MS);
	}
}

static void run_threads(int listener)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 * 1024);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (;;) {
		sem_wait(&free_seats);
		pthread_t thread;
		intptr_t fd = accept_now(listener);
		if (pthread_create(&thread, &attributes, serve_in_thread, (void *)fd))
			die("pthread_create");
	}
}

static void run_prefork(int listener)
{
	for (long worker = 0; worker < options.seats; worker++)
		if (fork() == 0)
			for (;;)
				serve(accept_now(listener));
	while (wait(NULL) > 0)
		;
}

// -- the event loop --------------------------------------------------------------------------------

enum state { READING, TIMER, QUEUED, CONNECTING, ASKING, WRITING };

// One end of the loop: a client's connection, or the line upstream of one.
struct end {
	int fd, is_line, armed;
	struct connection *of;
};

struct connection {
	struct end client, line;
	enum state state;
	long left, have, at; // bytes of the reply that are missing; in the buffer, and sent of those
	uint64_t due_ns;
	struct connection *next;
	char *buffer;
};

static int poller;
static long open_connections, lines;
static struct connection *timers, *ended, *queue_head, **queue_tail = &queue_head;
static struct end listening = { .armed = 0 };
static uint64_t accept_again_ns;

static void arm(struct end *end, int events)
{
	struct epoll_event event = { .events = (uint32_t)events, .data.ptr = end };
	int how = end->armed ? (events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL) : EPOLL_CTL_ADD;
	if (end->fd >= 0 && (events || end->armed))
		epoll_ctl(poller, how, end->fd, &event);
	end->armed = events != 0;
}

static void ask(struct connection *c);

static void leave_line(struct connection *c, int usable)
{
	struct end *line = &c->line;
	if (line->fd < 0)
		return;
	arm(line, 0);
	if (usable && options.keep)
		kept[kept_count++] = line->fd;
	else
		close(line->fd);
	line->fd = -1;
	lines--;
	struct connection *next = queue_head;
	if (next) {
		queue_head = next->next;
		if (!queue_head)
			queue_tail = &queue_head;
		ask(next);
	}
}

static void hang_up(struct connection *c)
{
	arm(&c->client, 0);
	close(c->client.fd);
	c->client.fd = -1;
	leave_line(c, 0);
	open_connections--;
	free(c->buffer);
	c->next = ended; // it may be among the events of this round
	ended = c;
	if (!listening.armed && !accept_again_ns)
		arm(&listening, EPOLLIN);
}

static void read_next(struct connection *c)
{
	c->state = READING;
	arm(&c->client, EPOLLIN);
}

static void write_on(struct connection *c)
{
	for (long sent = 0; c->left && sent < AT_ONCE;) {
		ssize_t n = send(c->client.fd, piece, (size_t)(c->left < PIECE ? c->left : PIECE),
				 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN) {
			hang_up(c);
			return;
		}
		if (n < 0)
			break;
		c->left -= n;
		sent += n;
	}
	if (c->left)
		arm(&c->client, EPOLLOUT);
	else
		read_next(c);
}

static void answer(struct connection *c)
{
	leave_line(c, 1);
	c->state = WRITING;
	c->left = options.relay ? 0 : options.bytes;
	write_on(c);
}

// What came from upstream goes on to the client; while that does not read, neither do we.
static void relay_on(struct connection *c)
{
	while (c->at < c->have) {
		ssize_t n = send(c->client.fd, c->buffer + c->at, (size_t)(c->have - c->at),
				 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			arm(&c->line, 0);
			arm(&c->client, EPOLLOUT);
			return;
		}
		if (n <= 0) {
			hang_up(c);
			return;
		}
		c->at += n;
	}
	if (!c->left) {
		answer(c);
		return;
	}
	arm(&c->client, 0);
	arm(&c->line, EPOLLIN);
}

static void take_in(struct connection *c)
{
	ssize_t n = recv(c->line.fd, c->buffer, (size_t)(c->left < PIECE ? c->left : PIECE), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		hang_up(c);
		return;
	}
	c->left -= n;
	c->have = options.relay ? n : 0;
	c->at = 0;
	relay_on(c);
}

static void send_request(struct connection *c)
{
	int error = 0;
	socklen_t length = sizeof(error);
	getsockopt(c->line.fd, SOL_SOCKET, SO_ERROR, &error, &length);
	if (error || send_all(c->line.fd, "request\n", 8) < 0) {
		hang_up(c);
		return;
	}
	c->state = ASKING;
	c->left = options.upstream_bytes;
	c->have = c->at = 0;
	arm(&c->line, EPOLLIN);
}

static void ask(struct connection *c)
{
	c->next = NULL;
	if (lines >= options.pool) {
		c->state = QUEUED;
		*queue_tail = c;
		queue_tail = &c->next;
		return;
	}
	lines++;
	int is_kept = kept_count > 0;
	c->line.fd = is_kept ? kept[--kept_count] : connect_upstream(SOCK_NONBLOCK);
	if (c->line.fd < 0) {
		lines--;
		hang_up(c);
		return;
	}
	if (!c->buffer)
		c->buffer = malloc(PIECE);
	if (is_kept) {
		send_request(c);
		return;
	}
	c->state = CONNECTING;
	arm(&c->line, EPOLLOUT);
}

static void go_on(struct connection *c)
{
	if (options.upstream[0])
		ask(c);
	else
		answer(c);
}

static void begin(struct connection *c)
{
	arm(&c->client, 0);
	if (!cost()) {
		go_on(c);
		return;
	}
	c->state = TIMER;
	c->due_ns = time_ns(CLOCK_MONOTONIC) + (uint64_t)(options.sleep_ms * 1e6);
	struct connection **at = &timers; // all sleep as long: the last is due last
	while (*at)
		at = &(*at)->next;
	c->next = NULL;
	*at = c;
}

static void read_request(struct connection *c)
{
	char have[4096];
	ssize_t n = recv(c->client.fd, have, sizeof(have), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		hang_up(c);
	else if (have[n - 1] == '\n')
		begin(c);
}

static void take_connections(void)
{
	while (open_connections < options.seats) {
		int fd = accept4(listening.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno != EAGAIN) {
				accept_again_ns = time_ns(CLOCK_MONOTONIC) + PAUSE_MS * 1000000ULL;
				arm(&listening, 0);
			}
			return;
		}
		at_once(fd);
		struct connection *c = calloc(1, sizeof(*c));
		c->client = (struct end){ .fd = fd, .of = c };
		c->line = (struct end){ .fd = -1, .is_line = 1, .of = c };
		open_connections++;
		read_next(c);
	}
	arm(&listening, 0);
}

static void handle(struct end *end)
{
	if (!end->of) {
		take_connections();
		return;
	}
	struct connection *c = end->of;
	if (end->fd < 0 || !end->armed)
		return; // ended, or has gone on, earlier in this round
	if (end->is_line)
		(c->state == CONNECTING ? send_request : take_in)(c);
	else if (c->state == READING)
		read_request(c);
	else if (c->state == WRITING)
		write_on(c);
	else if (c->state == ASKING)
		relay_on(c);
}

static int run_timers(void)
{
	uint64_t now = time_ns(CLOCK_MONOTONIC);
	while (timers && timers->due_ns <= now) {
		struct connection *c = timers;
		timers = c->next;
		go_on(c);
	}
	if (accept_again_ns && accept_again_ns <= now) {
		accept_again_ns = 0;
		arm(&listening, EPOLLIN);
	}
	uint64_t next = timers ? timers->due_ns : 0;
	if (accept_again_ns && (!next || accept_again_ns < next))
		next = accept_again_ns;
	return next ? (int)((next > now ? next - now : 0) / 1000000) + 1 : -1;
}

static void run_loop(int listener)
{
	struct epoll_event events[64];
	poller = epoll_create1(EPOLL_CLOEXEC);
	fcntl(listener, F_SETFL, O_NONBLOCK);
	listening.fd = listener;
	arm(&listening, EPOLLIN);
	for (;;) {
		int count = epoll_wait(poller, events, 64, run_timers());
		for (int i = 0; i < count; i++)
			handle(events[i].data.ptr);
		while (ended) {
			struct connection *next = ended->next;
			free(ended);
			ended = next;
		}
	}
}

// -- set-up ----------------------------------------------------------------------------------------

static void parse(const char *text)
{
#define TEXT(name) if (!strncmp(text, #name "=", sizeof(#name))) { snprintf(options.name, sizeof(options.name), "%s", text + sizeof(#name)); return; }
#define LONG(name) if (!strncmp(text, #name "=", sizeof(#name))) { options.name = atol(text + sizeof(#name)); return; }
#define REAL(name) if (!strncmp(text, #name "=", sizeof(#name))) { options.name = atof(text + sizeof(#name)); return; }
	TEXT(listen) TEXT(upstream) TEXT(kind) TEXT(file)
	LONG(seats) LONG(backlog) LONG(nofile) LONG(timer) LONG(sync_kb) LONG(one_in)
	LONG(upstream_bytes) LONG(pool) LONG(keep) LONG(relay) LONG(bytes)
	REAL(spin_ms) REAL(sleep_ms) REAL(lock_ms) REAL(lock_spin_ms)
	fprintf(stderr, "service: unknown option %s\n", text);
	exit(2);
}

static void share_lock(void)
{
	struct { pthread_mutex_t lock; atomic_long requests; } *shared;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &attributes);
	lock = &shared->lock;
	requests = &shared->requests;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		parse(argv[i]);
	if (!options.listen[0] || options.pool > POOL_MAX)
		return fprintf(stderr, "service: listen=ADDRESS is needed, and pool is at most %d\n", POOL_MAX), 2;
	signal(SIGPIPE, SIG_IGN);
	share_lock();
	sem_init(&free_lines, 0, (unsigned)options.pool);
	sem_init(&free_seats, 0, (unsigned)options.seats);
	if (options.nofile) {
		struct rlimit limit = { (rlim_t)options.nofile, (rlim_t)options.nofile };
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	int listener = listen_now();
	if (!strcmp(options.kind, "loop"))
		run_loop(listener);
	else if (!strcmp(options.kind, "threads"))
		run_threads(listener);
	else
		run_prefork(listener);
	return 0;
}
