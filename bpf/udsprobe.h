/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The ABI between the kernel half and the Python half: the only place where a
 * layout is written. Python reads it from the .BTF of the built object, so
 * constants are enums (a #define leaves no trace) and a typedef is a unit.
 */
#ifndef UDSPROBE_H
#define UDSPROBE_H

typedef unsigned long long u64_t;
typedef u64_t ns_t;
typedef u64_t bytes_t;
typedef u64_t count_t;
typedef u64_t address_t;

enum limits {
	NR_MAX = 512,		/* system-call numbers per ABI */
	SOCKETCALL_MAX = 32,
	UPSTREAMS_MAX = 256,	/* destinations; requests to more are counted as turned away */
	CALL_MAX = 128,		/* a power of two, as ENDPOINT_MAX is */
	URING_OPS = 128,	/* opcodes of io_uring */
	ENDPOINT_MAX = 8,
	SERIES_KEYS = 2048,	/* 2 ABIs x CALL_MAX x ENDPOINT_MAX */
	SERIES_MAX = 256,	/* (call, endpoint) pairs of one observation */
	ERRNO_MAX = 134,	/* slot 0 holds anything above the last errno */
	FDS_WORDS_MAX = 1024,	/* of 64 descriptors, which are counted here */
	NS_PER_TICK = 10000000,	/* USER_HZ is 100 everywhere we run */
	LATENCY_SUB_BITS = 4,	/* 16 slots per power of two: 3.125 % */
	LATENCY_LINEAR_BITS = 6,
	LATENCY_TOP_BITS = 38,	/* 275 s; longer ones share the last slot */
	LATENCY_SLOTS = 528,
	SLOW_CALL_NS = 1000000,
	PROTOTYPES_MAX = 2,	/* of the functions that make system calls */
	COMM_LEN = 16,
	NAME_LEN = 112,		/* 108 bytes of sun_path, padded */
	DEPTH_EXACT = 32,	/* depths below have a slot each; above, 16 per power of two */
	DEPTH_SLOTS = 224,	/* up to 131,071 */
	KNOWN_SOCKETS = 4,	/* of each thread, a power of two */
	CPU_STAYS = 32,		/* remembered of each CPU, a power of two */
	EPISODES = 16,		/* remembered of each thread, a power of two */
	SPEAKS_HTTP = 255,	/* in place of a number of looks, */
	SPEAKS_POSTGRES = 254,	/* or one of these */
	SPEAKS_MYSQL = 253,
	LOOKS_MAX = 8,		/* at what a connection receives first, or first before us */
	REPLY_LOOKS_MAX = 4,	/* at first replies that are not HTTP: two offers of encryption, a login */
	STATUSES = 16,		/* 500 to 514, and all others */
	MESSAGES_MAX = 1024,	/* UIO_MAXIOV bounds sendmmsg and recvmmsg */
	RECORDS_MAX = 4096,	/* that one walk over a map writes */
	LISTED_MAX = 1024,	/* connections in a listing, but for those that outweigh or hold bytes */
	FOLLOWED_SLOTS = 65536,	/* a power of two; an address has one by its hash */
	TRAFFIC_ROWS = 16,	/* ENDPOINT_MAX x TRAFFIC_DIRECTIONS */
	INTERRUPTED_MAX = 8,	/* calls of one thread that are interrupted at once */
	CALLS_KEPT = 64,	/* of each thread, a power of two: its last calls, */
	LONG_CALLS_KEPT = 8,	/* and its last ones of SLOW_CALL_NS or longer */
	SLOWEST_KEPT = 20,	/* requests of one interval, */
	SAMPLED_KEPT = 4,	/* and of all others, taken by chance */
	REQUESTS_KEPT = 32,	/* places for them, a power of two, in each of two banks */
	QUESTIONS_MAX = 255,	/* open at once at one name server, by one socket */
	GOODBYE_NS = 10000000,	/* bytes that a connection's end follows sooner ask for no reply */
	GOODBYE_BYTES = 5,	/* Terminate of PostgreSQL, COM_QUIT of MySQL: neither does that */
	ONE_WAY_NS = 100000000,	/* who goes on to send for longer waits for no answer */
	AT_ONCE_NS = 1000000000,	/* who closes a connection sooner did not wait for its client */
	PID_OUTSIDE = 1 << 30,	/* beside the host's number of who is not in our PID namespace */
};

enum abi {
	ABI_NATIVE = 0,
	ABI_COMPAT = 1,
};

/* What a file descriptor refers to. */
enum endpoint {
	ENDPOINT_OTHER = 0,
	ENDPOINT_UNIX_STREAM = 1,
	ENDPOINT_UNIX_SEQPACKET = 2,
	ENDPOINT_UNIX_DGRAM = 3,
	ENDPOINT_TCP = 4,
	ENDPOINT_UDP = 5,
};

/* The system calls of the table; the name is the kernel's. */
enum call {
	CALL_NONE = 0,
	CALL_READ,
	CALL_WRITE,
	CALL_READV,
	CALL_WRITEV,
	CALL_PREAD64,
	CALL_PWRITE64,
	CALL_PREADV,
	CALL_PWRITEV,
	CALL_PREADV2,
	CALL_PWRITEV2,
	CALL_SENDTO,
	CALL_RECVFROM,
	CALL_SENDMSG,
	CALL_RECVMSG,
	CALL_SENDMMSG,
	CALL_RECVMMSG,
	CALL_SENDFILE,
	CALL_SPLICE,
	CALL_ACCEPT,
	CALL_ACCEPT4,
	CALL_CONNECT,
	CALL_BIND,
	CALL_LISTEN,
	CALL_SOCKET,
	CALL_SOCKETPAIR,
	CALL_SHUTDOWN,
	CALL_CLOSE,
	CALL_EPOLL_WAIT,
	CALL_EPOLL_PWAIT,
	CALL_EPOLL_PWAIT2,
	CALL_EPOLL_CTL,
	CALL_POLL,
	CALL_PPOLL,
	CALL_SELECT,
	CALL_PSELECT6,
	CALL_IO_URING_ENTER,
	CALL_SOCKETCALL,	/* never a row: read as the call it stands for */
	/* Operations of io_uring, shown as io_uring:READ and so on. */
	CALL_URING_READ,
	CALL_URING_WRITE,
	CALL_URING_READV,
	CALL_URING_WRITEV,
	CALL_URING_READ_FIXED,
	CALL_URING_WRITE_FIXED,
	CALL_URING_READ_MULTISHOT,
	CALL_URING_SEND,
	CALL_URING_RECV,
	CALL_URING_SENDMSG,
	CALL_URING_RECVMSG,
	CALL_URING_SEND_ZC,
	CALL_URING_SENDMSG_ZC,
	CALL_URING_SPLICE,
	CALL_URING_ACCEPT,
	CALL_URING_CONNECT,
	CALL_URING_BIND,
	CALL_URING_LISTEN,
	CALL_URING_SHUTDOWN,
};

/* Where a thread's time goes; exactly one at any moment. */
enum activity {
	ACTIVITY_USER = 0,
	ACTIVITY_SYS_SOCKET,
	ACTIVITY_SYS_POLL,
	ACTIVITY_SYS_OTHER,
	ACTIVITY_RUNQ,
	ACTIVITY_BLOCKED_POLL,
	ACTIVITY_BLOCKED_RECV,
	ACTIVITY_BLOCKED_SEND,
	ACTIVITY_BLOCKED_ACCEPT,
	ACTIVITY_BLOCKED_CONNECT,
	ACTIVITY_BLOCKED_LOCK,
	ACTIVITY_BLOCKED_DISK,
	ACTIVITY_BLOCKED_OTHER,
	ACTIVITY_MAX,
};

/* What a thread did, as the author of another one's wait or asleep itself. */
enum doing {
	DOING_CPU = 0,
	DOING_RUNQ,
	DOING_POLL,
	DOING_RECV,
	DOING_SEND,
	DOING_ACCEPT,
	DOING_CONNECT,
	DOING_LOCK,
	DOING_FILE_LOCK,
	DOING_DISK,
	DOING_CHILD,
	DOING_SLEEP,
	DOING_PIPE,
	DOING_OTHER,
	DOING_UNKNOWN,
	DOING_MAX,
};

/* Who ended a wait. */
enum author {
	AUTHOR_UNKNOWN = 0,
	AUTHOR_THREAD,		/* in its own context */
	AUTHOR_INTERRUPT,	/* a timer or a device; whom it interrupted has nothing to do with it */
	AUTHOR_SOFTIRQ,		/* work that interrupts leave behind: packets, timers */
	AUTHOR_PEER,		/* the process at the other end of the connection */
};

/* What a thread waits for when it sleeps in a call, before the socket is known. */
enum waits {
	WAITS_OTHER = 0,
	WAITS_POLL,
	WAITS_RECV,
	WAITS_SEND,
	WAITS_ACCEPT,
	WAITS_CONNECT,
	WAITS_LOCK,
	WAITS_DISK,
	WAITS_FILE_LOCK,
	WAITS_CHILD,
	WAITS_SLEEP,
	WAITS_ANSWER,	/* a poller, for the answer on one connection */
};

/* How a call is to be read; bits. */
enum trait {
	TRAIT_FD = 1,		/* first argument is the descriptor */
	TRAIT_FD_THIRD = 2,	/* epoll_ctl: the third is */
	TRAIT_FD_EITHER = 4,	/* splice: the first or, if no socket, the third */
	TRAIT_FAMILY = 8,	/* socket, socketpair: the arguments say it */
	TRAIT_SENDS = 16,	/* returns bytes sent */
	TRAIT_RECEIVES = 32,	/* returns bytes received */
	TRAIT_MESSAGES = 64,	/* returns messages; bytes are in user memory */
	TRAIT_CONNECTS = 128,	/* accept, listen, close ...: changes what a socket is */
};

/* Which limits the errors of a call tell of. */
enum call_limit {
	LIMIT_OTHER = 1,	/* its EMFILE can mean something else than descriptors */
	LIMIT_STARTS = 2,	/* it starts a thread or a process: its EAGAIN and ENOMEM */
};

/* One entry per system-call number, made in user space from the names. */
struct call_entry {
	unsigned char call;
	unsigned char traits;
	unsigned char waits;
	unsigned char limits;	/* a set of enum call_limit */
};

struct latency {
	count_t count;
	ns_t total_ns;
	ns_t max_ns;
	count_t slots[LATENCY_SLOTS];
};

/* One (call, ABI, endpoint) on one CPU. "early" calls began before we looked. */
struct call_counts {
	bytes_t bytes;
	ns_t cpu_ns;
	struct latency latency;
	ns_t slow_ns;
	count_t early_calls;
	ns_t early_wall_ns;
	count_t errors[ERRNO_MAX];
	u64_t pad[2];		/* whole lines of a processor's cache */
};

/* The parts of a served request, in order. */
enum stage {
	STAGE_ACCEPT_WAIT = 0,	/* first request of a connection only */
	STAGE_RECV_WAIT,
	STAGE_RECV,
	STAGE_APP,
	STAGE_SEND,
	STAGE_MAX,
};

enum direction {
	TRAFFIC_SENT = 0,
	TRAFFIC_RECEIVED = 1,
	TRAFFIC_DIRECTIONS = 2,
};

/* What sockets of one kind moved in one direction, with detail "light" (light.bpf.h). */
struct traffic {
	count_t messages;
	bytes_t bytes;
};

/* Everything else that is counted, on one CPU. */
struct cpu_counts {
	/* Who made a call here last: its stack's number, and in the lower half its entry of
	 * thread_states or 0. It holds while slot_round is what it was then.
	 */
	u64_t caller;
	u64_t registers;	/* of a call, in passing */
	unsigned int caller_round;
	unsigned int pad;
	count_t events_seen;
	count_t events_counted;
	count_t lost_map_full;
	count_t native_calls[NR_MAX];
	count_t compat_calls[NR_MAX];
	count_t unread_messages;
	/* The TCP connection that was established last on this CPU: its
	 * listener is told in the same breath (tcp_child_process).
	 */
	address_t established_child;
	/* The TCP connection that bytes came for last on this CPU: whose it is, who is at its other
	 * end, and when; 0: that woke somebody, or nobody is known there.
	 */
	ns_t arrival_ns;
	unsigned int arrival_tgid;
	unsigned int arrival_peer;
	ns_t exited_activity_ns[ACTIVITY_MAX];
	count_t handed_over;	/* requests answered by another thread than received them */
	count_t pipelined;	/* its bytes came before the reply to the one before began */
	count_t multiplexed;	/* turns of connections that speak HTTP/2, whose streams are not followed */
	count_t streams;	/* requests that were streams */
	count_t tls_handshakes;	/* of clients, to their end; they are no turns */
	ns_t app_activity_ns[ACTIVITY_MAX];
	struct latency served;
	struct latency stages[STAGE_MAX];
	struct latency loop_busy;	/* of all threads that poll */
	struct traffic traffic[TRAFFIC_ROWS];	/* by endpoint, sent and received */
	/* A task whose completion found no room in its ring, and the completion's flags, between the
	 * two programs that count it.
	 */
	address_t overflowing;
	u64_t overflow_flags;
	u64_t pad_to_line[1];
};

struct call_in_flight {
	ns_t start_ns;
	ns_t off_cpu_ns;
	ns_t send_blocked_before_ns;	/* of the thread, when a send call began */
	ns_t runq_ns;		/* of these, ready to run */
	address_t sk;
	u64_t inode;
	unsigned int fd;
	unsigned short nr;
	unsigned char abi;
	unsigned char is_socketcall;
	unsigned char call;	/* from here to series one word, which known_socket keeps */
	unsigned char traits;
	unsigned char waits;
	unsigned char endpoint;
	unsigned int series;	/* 0: not in the table */
	unsigned char early;	/* it began before we looked; from here on 0 when it begins */
	unsigned char role;	/* of the connection whose bytes it moved, */
	unsigned short upstream;	/* index of its destination + 1, */
	unsigned int moved_bytes;	/* and how many */
};

struct uring_key {
	address_t ring;
	u64_t user_data;
};

enum thread_flag {
	THREAD_IN_CALL = 1,
	THREAD_NEWBORN = 2,	/* its first event is the return of its parent's clone */
	THREAD_DORMANT = 4,	/* counts from its next exec */
	THREAD_INTERRUPTED = 8,	/* its next call is a restart, unless a handler runs before */
	THREAD_EXITED = 16,	/* the first of a process, whose other threads go on */
	THREAD_TRACED = 32,	/* strategy "fentry": its calls come by tracepoints so far */
	THREAD_SET_ASIDE = 64,	/* calls wait for handlers to return */
};

/* A call that a signal interrupted, and the frame that made it, which goes on with it. */
struct interrupted_call {
	struct call_in_flight call;
	ns_t at_ns;
	u64_t stack;		/* 0: nothing */
	u64_t return_address;
	int result;		/* the kernel's: how it is to be restarted */
	unsigned int fails;	/* with EINTR when the handler returns */
};

/* Those of one thread whose handlers run. */
struct interrupted_calls {
	unsigned int used;
	unsigned int pad;
	struct interrupted_call calls[INTERRUPTED_MAX];
};

/* What a descriptor was when its thread last used it, and of the last call of an even and of an odd
 * number its number and descriptor, and what is said of it. One line of a processor's cache.
 */
struct known_socket {
	address_t socket;	/* the struct socket; 0: nothing */
	address_t inode_at;
	address_t sk;
	unsigned int inode;
	unsigned int endpoint;
	u64_t numbers[2];
	u64_t kinds[2];
};

/* A thread has one if and only if it is a target's. The fields that every call uses come first, in
 * as few cache lines as possible.
 */
struct thread_state {
	address_t task;		/* whose it is */
	unsigned int flags;
	unsigned char activity;
	unsigned char doing;	/* since it left its CPU last */
	unsigned char waits_anew;	/* what for, where its past has an ongoing wait; nothing else since */
	unsigned char pad;
	ns_t left_cpu_ns;	/* read when it is given one again; 0: in a call that began on one */
	ns_t since_ns;		/* of the activity now */
	ns_t polled_ns;		/* its poller returned; 0: it is in there, or never was */
	struct call_in_flight now;
	ns_t activity_ns[ACTIVITY_MAX];
	count_t calls_ended;	/* put down in its journal, if it has one, */
	ns_t runq_told_ns;	/* and how long it had waited for a CPU by then */
	unsigned int long_calls_ended;
	unsigned int slot;	/* this entry's */
	u64_t pad_to_line[2];
	struct known_socket known[KNOWN_SOCKETS];	/* by the last bits of the descriptor */
	count_t loops;		/* from a poller's return to the next call of one, */
	ns_t busy_ns;		/* all together and the longest */
	ns_t busy_max_ns;
	ns_t told_ns;		/* list_threads told this sleep, which began then, under this name */
	u64_t told_comm[2];
	struct interrupted_call interrupted;
};

/* A call that ended. One line of a processor's cache. */
struct kept_call {
	ns_t start_ns;
	ns_t end_ns;
	ns_t off_cpu_ns;
	ns_t runq_ns;		/* of these, ready to run */
	u64_t inode;		/* of its socket; 0: not about one */
	int result;
	unsigned int runq_before_ns;	/* since its thread's last call, up to 4 s */
	unsigned int fd;
	unsigned int upstream;	/* index of its destination + 1 */
	unsigned short nr;
	unsigned char abi;
	unsigned char call;
	unsigned char endpoint;
	unsigned char role;
	unsigned char early;	/* it began before we looked */
	unsigned char pad;
};

/* The last calls of one thread: the one that ended as number n is in place n % CALLS_KEPT. */
struct call_journal {
	struct kept_call calls[CALLS_KEPT];
	struct kept_call long_calls[LONG_CALLS_KEPT];
};

/* A process that was on a CPU while a target's thread waited for it. Another process with the same
 * PID has another start time.
 */
struct cpu_holder_key {
	ns_t started_ns;	/* since boot */
	unsigned int tgid;	/* 0: nobody, the CPU was idle */
	unsigned int pad;
};

struct cpu_holder {
	ns_t waited_ns;
	unsigned int is_target;
	unsigned int pad;
};

/* One stay of anybody's on this CPU, until the next one began. */
struct cpu_stay {
	ns_t end_ns;		/* by the scheduler's clock of this CPU */
	struct cpu_holder_key who;
	unsigned int is_target;
	unsigned int pad;
};

struct cpu_stays {
	count_t seen;
	struct cpu_stay last[CPU_STAYS];
};

/* A thread slept, and was awake until the next one begins. Short ones of one kind are one. */
struct episode {
	ns_t left_ns;
	ns_t woken_ns;		/* as left_ns when it did not sleep */
	unsigned int runq_us;	/* of the time awake, ready to run, in units of 1024 ns */
	unsigned short call;	/* NO_CALL, or its number, with COMPAT_CALL of a 32-bit caller */
	unsigned short doing;
};

enum call_number {
	NO_CALL = 0xffff,
	COMPAT_CALL = 0x8000,
};

/* Who is about to end the wait of a thread, and what they did while it lasted. */
struct wake {
	unsigned int author;	/* AUTHOR_UNKNOWN: nobody has begun to */
	unsigned int tid;
	unsigned int tgid;
	unsigned int is_target;
	ns_t started_ns;
	ns_t all_ns;		/* the sum of `was_ns` */
	ns_t was_ns[DOING_MAX];
	unsigned short calls[DOING_MAX];
	unsigned short pad;
	char comm[COMM_LEN];
};

/* Waits for one futex, or in a poller, that timers ended, each begun anew when the last one was
 * over. They are in the timer's counts until somebody ends the last one.
 */
struct ongoing_wait {
	u64_t object;		/* of the last one */
	ns_t since_ns;		/* the first one began */
	ns_t slept_ns[2];	/* in all of them, by which of two futexes side by side */
	ns_t runq_before_ns;	/* how long the thread had been ready to run by then */
	unsigned int sleeps;
	unsigned int author;	/* how timers are counted here */
};

/* What is remembered of a thread; the entry has the same index as its state. */
struct thread_past {
	address_t task;		/* whose it is, */
	ns_t started_ns;	/* which tells another in the same memory */
	count_t seen;
	u64_t object;		/* that it sleeps for: the address of a futex */
	struct ongoing_wait ongoing;
	struct wake wake;
	struct episode last[EPISODES];
};

/* Waits of one thread of one kind, that one author ended. */
struct wait_key {
	ns_t started_ns;	/* the thread, since boot */
	ns_t author_started_ns;
	u64_t object;		/* of locks, the futex's address; 0: not known, or no room to tell apart */
	unsigned int tid;
	unsigned int author_tid;
	unsigned int author_tgid;
	unsigned short doing;	/* what for */
	unsigned short author;
};

struct wait_counts {
	count_t count;
	ns_t max_ns;
	ns_t last_ns;		/* when the last one ended */
	ns_t was_ns[DOING_MAX];	/* all waits together, by what the author did meanwhile */
	unsigned short calls[DOING_MAX];	/* in which the author slept last */
	unsigned short pad;
	unsigned int tgid;
	unsigned int is_target;	/* the author */
	char comm[COMM_LEN];	/* the author's; "" when it was not read */
	unsigned int pad_at_end;
};

/* Names one process for good: a PID used again began at another tick. */
struct seed {
	u64_t start_ticks;	/* as in /proc/PID/stat */
	unsigned int flags;
	unsigned int pad;
};

enum via {
	VIA_SELECTOR = 0,
	VIA_FORK = 1,
};

struct process_state {
	ns_t started_ns;
	ns_t exited_ns;		/* 0: alive */
	unsigned int parent;
	unsigned int via;
	char comm[COMM_LEN];
	count_t emfile;		/* calls that got no descriptor: its own limit, */
	count_t enfile;		/* and the host's */
	count_t started;	/* threads and processes */
	count_t start_eagain;	/* calls that started none: a limit, */
	count_t start_enomem;	/* and for want of memory, or of a PID namespace that lives */
	unsigned int exit_code;	/* as wait4() tells it */
	unsigned int unanswered; /* requests that it had received when it exited */
	unsigned char served;	/* it had received one ever */
	unsigned char out_of_memory; /* the kernel chose it to get memory back */
	unsigned char pad[6];
};

enum role {
	ROLE_UNKNOWN = 0,
	ROLE_SERVED = 1,
	ROLE_UPSTREAM = 2,
};

enum phase {
	PHASE_IDLE = 0,
	PHASE_RECEIVING = 1,
	PHASE_REPLYING = 2,
	PHASE_QUEUED = 3,	/* established and not accepted */
	PHASE_ASKING = 4,	/* upstream: sent, nothing received yet */
	PHASE_ASKED_BEFORE = 5,	/* when we came: who asks there had spoken last */
	PHASE_ENDED = 6,	/* upstream: the other end is gone, and a request was not answered */
	PHASE_ONE_WAY = 7,	/* upstream: of messages that nobody answers, as those of a log */
	PHASE_SHARED = 8,	/* its streams are the requests (streams.bpf.h) */
};

/* Where a socket is: a Unix name, or an address and a port. */
struct socket_name {
	unsigned char family;	/* AF_UNIX 1, AF_INET 2, AF_INET6 10 */
	unsigned char length;	/* of the Unix name; an abstract one begins with NUL */
	unsigned short port;	/* host order */
	char bytes[NAME_LEN];	/* sun_path, or the address in network order */
};

/* An operation between its submission and its completion, keyed by its struct io_kiocb. */
struct uring_request {
	struct call_in_flight call;
	address_t ring;
	u64_t user_data;
	struct socket_name name;	/* where it connects to */
	int backlog;
	unsigned char is_named;
	unsigned char is_peek;
	unsigned char is_untold;
	unsigned char pad[1];
};

struct recent_depth {
	unsigned int interval;
	unsigned int depth_max;
};

/* A socket in LISTEN that belongs to a target, keyed by its address. */
struct listener {
	u64_t inode;
	ns_t seen_ns;		/* since when its events are counted */
	u64_t file_inode;	/* of the path's socket file */
	unsigned int file_device;
	unsigned int netns;
	unsigned int tgid;	/* who called listen(), or the first owner found */
	unsigned int somaxconn;
	unsigned int backlog;	/* in force when it was described */
	int requested;		/* listen()'s argument */
	unsigned int is_requested;	/* it was seen */
	unsigned int drops_before;	/* sk_drops when we came */
	unsigned int queued_before;	/* connections that were queued already */
	unsigned char endpoint;
	unsigned char pad[3];
	struct socket_name name;
	count_t established;
	count_t accepted;
	count_t accepted_early;	/* of these, queued before attach */
	count_t no_room;	/* queued, and the map of connections was full */
	count_t accepted_no_room;	/* of these, accepted */
	count_t read_from;	/* accepted, and their first byte was received */
	/* Accepted, and closed at once by the program itself: nothing was received from them. */
	count_t closed_unread;
	count_t closed_unread_sent;	/* of these, their client had sent something by then */
	count_t no_seat;	/* accepted, and told that the program has all connections that it allows */
	count_t depth_max;
	struct recent_depth recent[2];	/* of this interval and the one before */
	count_t depth[DEPTH_SLOTS];
	struct latency wait;
	struct latency blocked;
};

/* The counts of a listener whose memory another one uses by now. */
struct closed_listener {
	address_t sk;
	u64_t inode;
};

/* What an iterator reads of a listener beside its counts. */
struct listener_record {
	address_t sk;
	unsigned int depth;
	unsigned int backlog;
	unsigned int drops;
	unsigned int syn_queue;
	unsigned int syn_young;
	unsigned int somaxconn;
	unsigned int is_alive;
	unsigned int waiting;	/* in connect(), for room */
};

/* A TCP client, as both ends know it. */
struct tcp_client {
	unsigned char address[16];	/* of IPv4 the mapped one */
	unsigned short port;
	unsigned short listener_port;
	unsigned int pad;
};

/* A client that waits for its handshake to end, in the network namespace that it is for. */
struct handshake_record {
	struct socket_name peer;
	unsigned int netns;
};

struct acceptor {
	address_t listener;
	u64_t inode;
	unsigned int tgid;
	unsigned int tid;
};

/* A connect() in progress, anybody's, keyed by its thread. */
struct connecting {
	ns_t start_ns;
	u64_t sleeps;		/* voluntary switches of the thread so far */
	address_t sk;		/* 0: the call began before us */
	ns_t newest_listener_ns;	/* a listener that came later is not meant */
	u64_t is_counted;	/* among the blocked, when it got into the queue */
};

/* Why connects to a Unix socket fail, counted by who and whereto. */
struct failed_connect {
	unsigned int tgid;
	unsigned int mount_ns;
	unsigned int net_ns;
	int error;
	ns_t newest_listener_ns;
	struct socket_name name;
};

/* connect() calls of the targets by destination and result. */
struct destination {
	int error;		/* 0: connected */
	unsigned short endpoint;
	unsigned short in_background;	/* the call was over before it connected or failed */
	struct socket_name name;
};

struct destination_counts {
	struct latency latency;
};

/* The fullest that the queues of a connection were in one interval. */
struct recent_queues {
	unsigned int interval;
	unsigned int recv_bytes;
	unsigned int send_bytes;
};

/* Bytes that were there before the reply began, and were not read until then: a request sent
 * ahead, or, as FastCGI ends one, the rest of the request that was answered.
 */
enum leftover {
	LEFTOVER_NONE = 0,
	LEFTOVER_UNREAD,
	LEFTOVER_READ,		/* to its last byte and no further */
	LEFTOVER_JOINED,	/* read together with newer bytes */
};

/* A datagram to a name server: the number that its answer has, too (RFC 1035, 4.1.1). */
struct question {
	address_t sk;
	u64_t number;
};

/* The turn in progress before its last receive call. */
struct turn_before {
	ns_t received_ns;	/* 0: that call was its first */
	ns_t recv_ns;
	ns_t app_ns;
	ns_t rest_ns;
	ns_t came_ns;		/* what that call received */
};

/* A request on a connection that others share (streams.bpf.h). */
struct stream {
	unsigned int id;	/* 0: this place is free */
	unsigned int in_progress_at;	/* whose request in progress this is, or whose own; 0: not counted */
	unsigned int received_by;	/* a thread */
	unsigned int recv_ns;	/* 4.3 s at most */
	ns_t arrived_ns;	/* its first byte; of an own request, when it was sent */
	ns_t recv_wait_ns;
	ns_t app_ns;
	ns_t received_ns;
	u64_t before;		/* `share_ns` of that process when it began; of an own request, its `epoch` */
};

#define FRAME_HEAD_BYTES 9	/* RFC 9113, 4.1 */

/* How far the frames of one direction are followed. */
struct frames {
	bytes_t moved;		/* of the connection, when the last call was followed to its end; 0: it was not */
	u64_t at;		/* in the memory of the caller: the bytes to come, in a buffer of `length` */
	u64_t length;
	u64_t next;		/* where the buffer after that is described; 0: there is none */
	u64_t rest;		/* bytes of the call that are to come */
	unsigned int left;	/* bytes to come of the frame in progress */
	unsigned int have;	/* bytes of a head, of which the others come with the next call */
	unsigned char head[32];
};

#define STREAMS_MAX 256	/* without a reply at once, of one connection; all in 16 KB, as it is allocated */

/* Of a connection whose streams are followed. */
struct streams {
	struct frames received;
	struct frames sent;
	unsigned int last_id;	/* of the stream that began last */
	int open;		/* have no reply */
	unsigned int asks_by_sending;	/* it is a target's own */
	unsigned int displaced;	/* one is so many places behind its own, and none is more */
	struct stream streams[STREAMS_MAX];
};

/* One connection, keyed by the address of its struct sock; inode tells reuse. */
struct connection {
	u64_t inode;		/* 0 until it is accepted */
	/* What a listing asks of one that is idle, together: of a hundred thousand, each line of
	 * memory is a miss.
	 */
	ns_t arrived_ns;	/* first byte not yet received; 0: none */
	unsigned int active;	/* interval in which it was used last */
	unsigned char was_empty;	/* when it was looked at last */
	unsigned char role;
	unsigned char phase;
	unsigned char endpoint;
	count_t turns;
	ns_t turn_ns;		/* when the turn in progress began; when the leftover arrived */
	unsigned int tgid;	/* who used it last */
	unsigned int peer_tgid;	/* who sent to it last */
	bytes_t bytes_in;
	bytes_t bytes_out;
	address_t listener;	/* 0: it was open already when we came */
	u64_t listener_inode;
	ns_t established_ns;
	ns_t accepted_ns;	/* 0: it was open already when we came */
	ns_t recv_wait_ns;	/* of the turn */
	ns_t recv_ns;
	ns_t app_ns;
	ns_t rest_ns;		/* of these, nothing was there to receive, and more came */
	ns_t received_ns;	/* the last receive call of the turn returned */
	ns_t app_activity_ns[ACTIVITY_MAX];	/* of the thread that received, then */
	ns_t share_before_ns;	/* of its process, when the request began */
	u64_t receiver;		/* its task, to know it again; 0: received where no call is seen */
	ns_t send_blocked_ns;	/* asleep in send calls, all together and the longest */
	ns_t send_blocked_max_ns;
	count_t send_blocked;
	count_t send_eagain;
	unsigned int upstream;	/* index of its destination + 1 */
	unsigned int peer_seen;	/* TCP: somebody else sent, once so far */
	unsigned int in_progress_at;	/* whose request in progress this is; 0: not counted */
	unsigned int asked_by;	/* upstream: whose request, */
	unsigned int asked_epoch;	/* `epoch` and `began` of that process then */
	unsigned int asked_after;
	unsigned char asks;	/* 0: not counted */
	unsigned char receives;	/* receive calls of the turn in progress, or as many as count */
	unsigned char looks;	/* receive calls that were looked at, or LOOKS_MAX */
	unsigned char is_multiplexed;	/* enum multiplexed (maps.bpf.h) */
	unsigned char leftover;
	unsigned char window_known;	/* what follows is told from a beginning on */
	unsigned char is_websocket;	/* its messages need no reply */
	unsigned char tls;	/* enum tls_state */
	unsigned char is_tls;	/* ends with bytes that need no reply */
	unsigned char is_held;	/* bytes wait because of Nagle's algorithm, since `held_since` */
	unsigned char reply_looks;	/* replies that were looked at, or what it speaks */
	unsigned char is_endless;	/* it has switched to another protocol */
	unsigned char is_piece_known;	/* a later piece of this reply was looked at */
	unsigned char came_asks;	/* of `asks`, those whose answer has come and is not received */
	unsigned short tls_left;	/* bytes to come of the record that was received last */
	/* UDP: asked of a name server in this period and the one before, and not answered so far. */
	unsigned char questions[2];
	unsigned char sends_no_reply;	/* the send call that returns: of HTTP/2, and no reply */
	unsigned char is_pushed_to;	/* enum pushed_to (pushed_to.bpf.h) */
	unsigned int question_period;
	/* In the queue when the last receive call returned; of a leftover, what is still there; while
	 * it is in the accept queue, how many had entered that.
	 */
	unsigned int unread;
	struct recent_queues queues[2];	/* of this interval and the one before */
	unsigned int send_sleeps;	/* send calls went to sleep so often */
	unsigned int sends_held;	/* TCP: they left bytes to Nagle's algorithm so often, */
	unsigned int held;	/* which kept those for so long, ticks; */
	unsigned int held_since;	/* the tick, and the first byte, of the one that goes on */
	unsigned int held_from;
	unsigned int window_full_before;	/* `window_full` when we came (queues.bpf.h) */
	ns_t stopped_ns;	/* between send calls for want of room (stops.bpf.h), */
	ns_t stopped_since_ns;	/* 0: it is not */
	ns_t stopped_asleep_ns;	/* what that thread had slept for events then */
	u64_t stopped_thread;	/* 0: seen where no call is */
	ns_t asleep_in_call_ns;	/* of the send call in progress, until it fell asleep last */
	unsigned int frame_left;	/* to come after what may be the head of a frame of HTTP/2, */
	unsigned int frame_stream;	/* and whose it is, if it begins one */
	unsigned int stops;
	unsigned int calls_before;	/* `calls_ended` of the thread that received it last, as it began */
	ns_t replied_after_ns;	/* the last reply, since its request */
	struct turn_before before;
	ns_t first_piece_ns;	/* of the last reply, */
	ns_t last_piece_ns;	/* so far; 0: it is not followed */
	ns_t quiet_since_ns;	/* 0: there is more to be received */
	ns_t paused_ns;
	ns_t oldest_stream_ns;	/* PHASE_SHARED: began, and had no reply when connections were listed */
	unsigned int piece_activity[ACTIVITY_MAX];	/* in pauses, of the thread that sent the first */
};

/* How far the handshake of a connection is (tls.bpf.h). */
enum tls_state {
	TLS_UNKNOWN = 0,	/* or it speaks no TLS */
	TLS_BEGUN = 1,
	TLS_CHANGED = 2,	/* the cipher is */
	TLS_FINISHED = 3,	/* its last record began */
	TLS_OPEN = 4,
};

enum queue_flag {
	SEND_BUFFER_FIXED = 1,	/* by SO_SNDBUF */
	RECV_BUFFER_FIXED = 2,	/* by SO_RCVBUF */
	RECV_MAX_KNOWN = 4,	/* this kernel tells how full the receive queue is */
	TAKEN_KNOWN = 8,
};

/* Replies that a process owes, or waits for, when connections are listed. */
enum pending_kind {
	PENDING_IN_PROGRESS = 0,	/* received, reply not begun */
	PENDING_UNREAD = 1,	/* not begun to receive */
	PENDING_ASKING = 2,	/* its own, not answered */
	PENDING_ABANDONED = 3,	/* in progress, and its client has closed its end */
	PENDING_ASKED_BEFORE = 4,
	PENDING_MAX = 5,
};

struct pending {
	count_t count;
	ns_t oldest_ns;		/* since when */
};

/* By the protocol in which it says that it has all the connections that it allows. */
enum database {
	DATABASE_NONE,
	DATABASE_POSTGRESQL,
	DATABASE_MYSQL,
	DATABASE_REDIS,
	DATABASE_MEMCACHED,
	DATABASE_MAX,
};

/* What replies say of themselves (replies.bpf.h). */
struct replies {
	count_t http;		/* HTTP/1 replies that were looked at */
	count_t failed;		/* of these, with a status of 500 and above; */
	ns_t failed_ns;		/* since their requests */
	count_t statuses[STATUSES];
};

/* Replies that came in pieces, and are over (reply_pieces.bpf.h). */
struct pieces {
	count_t count;
	ns_t transfer_ns;	/* from the first piece to the last; */
	ns_t paused_ns;		/* of that nothing was sent, though there was room */
};

/* The requests of one process (servers.bpf.h). */
struct server {
	ns_t stages_ns[STAGE_MAX];
	count_t accept_waits;
	ns_t app_activity_ns[ACTIVITY_MAX];
	ns_t upstream_ns;	/* of these, asleep with an own request outstanding */
	ns_t rest_ns;		/* before these, between receive calls: the client had not sent more */
	count_t handed_over;
	count_t pipelined;
	count_t multiplexed;
	count_t tls_handshakes;
	count_t leftovers_dropped;	/* bytes left over that were no request */
	count_t began;
	count_t given_up;	/* requests without a reply whose client was gone when it was closed: */
	ns_t given_up_ns;	/* since they were received, */
	ns_t given_up_upstream_ns;	/* of that asleep with an own request outstanding */
	count_t dropped;	/* requests without a reply whose connection the program ended first: */
	ns_t dropped_ns;	/* since they were received */
	count_t at_once;	/* requests in progress at each reply, that one too, added up */
	ns_t share_ns;
	ns_t event_ns;
	ns_t came_ns;		/* answers to own requests lay unread, added up over them, */
	ns_t came_until_ns;	/* until then; */
	ns_t event_came_ns;	/* at the last event */
	u64_t event_thread;
	ns_t event_asleep_ns;	/* of that thread, all its waits so far */
	ns_t exited_ns;		/* 0: it has not */
	int in_progress;
	int asking;
	int came;		/* of these, answers that have come and are not received */
	unsigned int pad;
	unsigned int epoch;	/* how often it was without a request in progress */
	unsigned int listing;	/* in which `pending` was counted */
	struct pending pending[PENDING_MAX];
	struct latency latency;
	struct replies replies;
	struct pieces pieces;
	ns_t paused_activity_ns[ACTIVITY_MAX];	/* in pauses between pieces, of who sent the first */
};

enum whole_flag {
	WHOLE_HANDED_OVER = 1,	/* another thread received it */
	WHOLE_PIPELINED = 2,	/* its bytes came before the reply to the one before began */
	WHOLE_MULTIPLEXED = 4,	/* its connection speaks HTTP/2 */
	WHOLE_HAS_CALLS = 8,	/* there was room for a journal of its thread */
};

/* One request with all that is known of it (whole_requests.bpf.h). */
struct whole_request {
	ns_t arrived_ns;
	ns_t replied_ns;
	ns_t established_ns;	/* of the connection; both 0 but for its first request */
	ns_t accepted_ns;
	ns_t recv_wait_ns;
	ns_t recv_ns;
	ns_t app_ns;
	ns_t received_ns;	/* the last receive call returned */
	ns_t app_activity_ns[ACTIVITY_MAX];	/* from then until the reply, of that thread */
	ns_t upstream_ns;	/* of these, asleep with an own request outstanding */
	u64_t inode;
	u64_t peer_inode;	/* of the Unix socket at the other end */
	count_t calls_ended;	/* of the thread that replied: until now, */
	unsigned int calls_before;	/* and until it began to receive */
	unsigned int long_calls_ended;
	unsigned int tgid;
	unsigned int tid;
	unsigned int peer_tgid;
	unsigned int flags;	/* enum whole_flag */
	unsigned int endpoint;
	unsigned int turns;	/* of the connection before this one */
	char comm[COMM_LEN];
	struct socket_name local;
	struct socket_name peer;
	struct kept_call reply;	/* the call that starts it, which is not in the journal yet */
	struct call_journal journal;
};

struct server_upstream_key {
	unsigned int tgid;
	unsigned int upstream;	/* index of the destination */
};

struct server_upstream {
	count_t count;
	ns_t total_ns;
	ns_t recv_wait_ns;	/* of that, answers that had come waited for the receive call */
	unsigned int peer_tgid;
	unsigned int pad;
};

/* Requests of the targets to one destination. */
struct upstream {
	struct socket_name name;
	count_t opened;
	unsigned int endpoint;
	unsigned int peer_tgid;	/* who answered last */
	struct latency latency;	/* first byte sent to first byte received */
	count_t dropped;	/* requests without a byte of answer: the other end closed first; */
	ns_t dropped_ns;	/* since they were sent; */
	count_t dropped_kept;	/* of these, on connections that had answered before */
	count_t given_up;	/* this end did not wait any longer */
	ns_t given_up_ns;
	struct replies replies;
	struct pieces pieces;
	count_t no_seat;	/* as of a listener */
	unsigned int no_seat_by;	/* enum database: who said so last */
	unsigned int pad;
	ns_t recv_wait_ns;	/* of its latency, as of struct server_upstream */
	count_t logins;		/* of its answers, those to a login; one takes several */
	ns_t login_ns;		/* of its latency */
};

struct upstream_key {
	unsigned int endpoint;
	unsigned int netns;
	struct socket_name name;
};

/* A connection as it is now, beside what was counted of it. */
struct connection_record {
	address_t sk;
	u64_t inode;
	bytes_t bytes_in;
	bytes_t bytes_out;
	count_t turns;
	ns_t send_blocked_ns;
	ns_t send_blocked_max_ns;
	count_t send_blocked;
	count_t send_eagain;
	bytes_t recv_queue_bytes;
	bytes_t send_queue_bytes;
	/* As the kernel has them; a record is made on the stack. */
	unsigned int send_buffer_bytes;
	unsigned int recv_buffer_bytes;
	unsigned int recv_max_bytes;	/* of the interval that ended, right after bytes came */
	unsigned int send_max_bytes;	/* the same, when a send call returned or went to sleep */
	ns_t stopped_ns;	/* in send calls and between them, */
	ns_t stopped_since_ns;	/* and now, between them; 0: it is not */
	ns_t asking_since_ns;	/* a target's own request has no answer; 0: none is open */
	u64_t taken;		/* grows with what the other end takes; wraps */
	unsigned int send_sleeps;
	unsigned int sends_held;
	unsigned char queue_flags;
	unsigned char role;
	unsigned char endpoint;
	unsigned char is_multiplexed;
	unsigned int stops;
	u64_t peer_inode;	/* of the Unix socket at the other end; 0: not accepted, or gone */
	unsigned int tgid;
	unsigned int peer_tgid;
	unsigned int window_full;	/* TCP: the other end had no room for its bytes, ticks */
	unsigned int held;	/* by Nagle's algorithm, ticks */
	struct socket_name local;
	struct socket_name peer;
};

/* Records of the iterators. A thread that sleeps as when it was told last: these two alone. */
struct thread_mark {
	unsigned int tid;
	unsigned int is_whole;	/* it is a thread_record's */
};

struct thread_record {
	struct thread_mark mark;
	ns_t since_ns;
	ns_t activity_ns[ACTIVITY_MAX];	/* up to now, or to when it fell asleep */
	ns_t asleep_since_ns;
	count_t loops;
	ns_t busy_ns;
	ns_t busy_max_ns;
	unsigned int tgid;
	unsigned char call;
	unsigned char abi;
	unsigned char endpoint;
	unsigned char in_call;
	unsigned int asleep;	/* the activity it sleeps in; ACTIVITY_MAX: awake */
	unsigned short nr;	/* the call it sleeps in, as in struct episode */
	unsigned char doing;	/* the same sleep in the words of waits; DOING_CPU: not told */
	unsigned char pad;
	u64_t object;		/* that it sleeps for: the address of a futex; 0: not known */
	u64_t inode;		/* of the socket that the call is about; 0: none */
	char comm[COMM_LEN];
};

/* Why no thread of a process may run. */
enum stopped_by {
	STOPPED_BY_NOBODY,
	STOPPED_BY_SIGNAL,	/* SIGSTOP and its like, until SIGCONT */
	STOPPED_BY_TRACER,	/* ptrace: a debugger, strace */
	STOPPED_BY_FREEZER,	/* of its cgroup: docker pause, systemctl freeze */
};

/* A living target; equal bytes are an equal answer. */
struct process_record {
	ns_t started_ns;	/* since boot */
	address_t cgroups;	/* the same for processes in the same cgroups of all hierarchies */
	count_t fds_limit;	/* soft RLIMIT_NOFILE; all ones: none */
	count_t emfile;
	count_t enfile;
	count_t started;
	count_t start_eagain;
	count_t start_enomem;
	unsigned int tgid;
	unsigned int parent;
	unsigned int threads;
	unsigned int fds_open;	/* all ones: not counted here */
	unsigned int netns;	/* 0: not known */
	unsigned int via;
	unsigned int stopped;	/* enum stopped_by, of its first thread */
	unsigned int tracer;	/* of its first thread; 0: nobody */
	char comm[COMM_LEN];	/* its first thread's */
	char program[COMM_LEN];	/* that it runs since its last exec, by the name it had then */
};

struct socket_record {
	address_t sk;
	u64_t inode;
	address_t unix_address;	/* shared by a listener and what it accepted */
	unsigned int tgid;
	unsigned int fd;
	unsigned int netns;
	unsigned int asked_ticks;	/* ago the other end spoke last, and may ask; 0: it did not */
	unsigned short local_port;
	unsigned char endpoint;
	unsigned char state;	/* TCP_ESTABLISHED 1, TCP_LISTEN 10; Unix sockets too */
	unsigned int pad;
};

/* Strategy "bcc", where tasks have no storage for state (bcc_syscalls.c). */
struct bcc_thread {
	struct call_in_flight now;
	struct interrupted_call interrupted;
	ns_t left_cpu_ns;	/* in a call; 0: on a CPU */
	bytes_t message_bytes;	/* of a call that returns messages, */
	unsigned int messages_read;	/* so many of them so far */
	unsigned int tgid;
	unsigned int tid;
	unsigned int flags;	/* enum thread_flag */
	unsigned int set_aside;	/* calls that wait for handlers to return, */
	unsigned int set_aside_in_table;	/* those of them that have a row */
	unsigned int pad;
};

/* The thread that made a call, and the frame it called from. */
struct bcc_frame {
	u64_t task;
	u64_t stack;
};

struct bcc_process {
	struct process_state state;
	unsigned int flags;	/* THREAD_DORMANT, or 0 */
	unsigned int pad;
};

/* Of one CPU. */
struct bcc_account {
	count_t events_seen;
	count_t events_counted;
	count_t lost_map_full;
	count_t unread_messages;
	count_t handed_over;
};

/* Of one CPU and ABI. */
struct bcc_numbers {
	count_t calls[NR_MAX];
};

/* One that a target accepted, keyed by the address of its struct sock. */
struct bcc_connection {
	u64_t inode;
	ns_t turn_ns;		/* when the turn in progress began */
	ns_t recv_ns;
	ns_t app_ns;
	ns_t received_ns;	/* the last receive call of the turn returned */
	u64_t receiver;		/* its task, to know it again */
	unsigned int tgid;	/* who used it last */
	unsigned int phase;
};

/* Called by another program, and never back. */
enum bcc_program {
	BCC_MESSAGES = 0,
	BCC_SYS_EXIT,
	BCC_PROGRAMS,
};

/* Of all CPUs. */
enum bcc_gauge {
	BCC_TARGETS_EXITED = 0,
	BCC_THREADS_TURNED_AWAY,
	BCC_PROCESSES_TURNED_AWAY,
	BCC_CONNECTIONS_TURNED_AWAY,
	BCC_INTERRUPTED_CALLS_TURNED_AWAY,
	BCC_CALLS_LEFT,
	BCC_GAUGES,
};

/* Held by a global of every object: BTF keeps a type only if something has it. */
struct abi_types {
	enum limits limits;
	enum abi abi;
	enum endpoint endpoint;
	enum call call;
	enum trait trait;
	enum activity activity;
	enum waits waits;
	enum call_limit call_limit;
	enum doing doing;
	enum author author;
	enum call_number call_number;
	enum stage stage;
	enum thread_flag thread_flag;
	enum via via;
	enum stopped_by stopped_by;
	enum role role;
	enum direction direction;
	enum phase phase;
	enum queue_flag queue_flag;
	enum tls_state tls_state;
	enum pending_kind pending_kind;
	enum database database;
	enum leftover leftover;
	enum whole_flag whole_flag;
	enum bcc_program bcc_program;
	enum bcc_gauge bcc_gauge;
	struct bcc_thread bcc_thread;
	struct bcc_frame bcc_frame;
	struct bcc_process bcc_process;
	struct bcc_account bcc_account;
	struct bcc_numbers bcc_numbers;
	struct bcc_connection bcc_connection;
	struct thread_mark thread_mark;
	struct thread_record thread_record;
	struct process_record process_record;
	struct socket_record socket_record;
	struct listener_record listener_record;
	struct handshake_record handshake_record;
	struct connection_record connection_record;
	struct whole_request whole_request;
};

#endif
