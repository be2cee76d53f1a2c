/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Options and maps: every bound, and why this kind of map. */
#ifndef MAPS_BPF_H
#define MAPS_BPF_H

#include "compilers.h"
#include "early.bpf.h"
#include "kernel_constants.h"
#include "kernel_types.h"
#include "udsprobe.h"
#include <bpf/bpf_helpers.h>

/* Options, set between open and load. First those that calls read. */

/* Series in use: fewer where many CPUs make each dear. */
const volatile u32 series_max = SERIES_MAX;
/* Entries of thread_states, the first of which is nobody's. */
const volatile u32 threads_max = 1;
const volatile u32 nr_rt_sigreturn = 0xffff;
const volatile u32 nr_restart_syscall = 0xffff;
const volatile u32 compat_nr_rt_sigreturn = 0xffff;
const volatile u32 compat_nr_sigreturn = 0xffff;
const volatile u32 nr_connect = 0xffff;
const volatile u32 compat_nr_connect = 0xffff;
const volatile u32 compat_nr_restart_syscall = 0xffff;
const volatile bool follow_forks = true;
const volatile u32 tick_ns = 10000000;	/* of jiffies */
/* A program stands where threads begin to wake others. */
const volatile bool wakers_told = false;
const volatile u32 nr_futex = 0xffff;
const volatile u32 compat_nr_futex = 0xffff;
/* udsprobe runs in a PID namespace that is not the host's. */
const volatile bool in_pid_namespace = false;
/* Programs can be preempted by others of their kind (7.0 and later): two
 * tasks may then add to one CPU's counters at once.
 */
const volatile bool preemptible = false;

/* Of calls, by number. */
const volatile struct call_entry native_entries[NR_MAX] = {};
const volatile struct call_entry compat_entries[NR_MAX] = {};
/* By the first argument of socketcall(), include/uapi/linux/net.h. */
const volatile struct call_entry socketcall_entries[SOCKETCALL_MAX] = {};
/* By opcode. */
const volatile struct call_entry uring_entries[URING_OPS] = {};

struct abi_types abi_types = {};

/* Shared with user space through mmap; written at rare events only. First what calls read. */

/* Raised when a thread becomes a target's, and when one that was ends. */
u32 slot_round = 0;
u32 followed_since = 0;
/* Raised when a connection is seen to speak HTTP/2, and stays so. */
u32 multiplexed_seen = 0;
u32 series_of_key[SERIES_KEYS] = {};
u32 key_of_series[SERIES_MAX] = {};
u32 series_used = 0;
u32 targets_alive = 0;
u32 targets_exited = 0;
u64 threads_turned_away = 0;
/* Entries of thread_states that were ever taken. */
u32 slots_used = 0;
/* In free_slots. */
u32 slots_free = 0;
u64 processes_turned_away = 0;
u64 connections_turned_away = 0;
u64 listeners_turned_away = 0;
u64 connects_turned_away = 0;
/* By TCP, after their SYN was sent again: mostly there is none. */
u64 clients_ever_let_in = 0;
u64 upstreams_turned_away = 0;
u64 servers_turned_away = 0;
/* Waits for processes that found no entry among the holders, summed up by kind. */
u64 holders_rest_ns = 0;
u64 target_holders_rest_ns = 0;
/* From a CPU's run queue to its preemption count: user space finds out while the programs are
 * verified.
 */
u64 preempt_count_at = 0;
/* Waits that found no entry. */
u64 waits_turned_away = 0;
u64 uring_turned_away = 0;
u64 interrupted_calls_turned_away = 0;
/* Calls that were left by handlers that never returned. */
u64 calls_left = 0;
u64 uring_untold = 0;	/* operations whose completion nobody is told of */
u32 upstreams_used = 0;
/* When the last listener was adopted: what a failed connect can have meant. */
u64 newest_listener_ns = 0;
/* While set, forks of threads in seed_tgids are adopted too. */
u32 seeding = 0;
/* User space counts its samples here: a high-water mark is kept for each. */
u32 interval = 0;
/* list_threads writes threads as well that sleep as when it told of them. */
u32 tell_all = 0;
/* Connections that list_connections found open. */
u64 connections_open = 0;
/* User space counts its listings of connections here. */
u32 listing = 0;
/* What a listing has written so far, and what a connection has to weigh to be in it. */
u32 listed = 0;
u64 listed_weight_min = 0;
/* What a walk has written, the elements that it has come to, and the first that it visits. */
u32 records_put = 0;
u64 elements_walked = 0;
u64 walk_from = 0;
/* Detail "light": no program is on system calls; since when they are again, or from the first on. */
u32 is_light = 0;
u64 full_since_ns = 0;
/* udsprobe's own PID namespace, and how deep it is below the host's. */
u64 own_pid_ns = 0;
u32 own_pid_level = 0;
/* Those that nothing happened to are looked at as well: bytes come unseen, or a target ended. */
u32 looks_at_all = 0;
/* Bytes whose arrival nobody saw were there then. */
u64 seeded_ns = 0;
/* … or came since no program is attached any more, to connections that were used before. Programs
 * are taken away one after the other: of an end of a connection that is still seen from then on, it
 * is not known whether a reply went before.
 */
u64 ended_ns = 0;
/* The round after that in which each slot of sockets' addresses was last marked. */
u32 followed[FOLLOWED_SLOTS] = {};
u32 followed_round = 0;

/* Which bank requests are kept in; user space reads the other one. Of each bank what its places
 * hold by, the least that is kept of either kind, and the most that found no place.
 */
u32 requests_bank = 0;
u64 kept_keys[2 * REQUESTS_KEPT] = {};
u64 kept_busy[2 * REQUESTS_KEPT] = {};
u64 slowest_floor_ns[2] = {};
u64 sampled_floor[2] = {};
u64 unkept_requests = 0;
u64 unkept_slowest_ns[2] = {};

/* [cpu * series_max + series]: an index where a hash would do, and readable
 * without a system call. Sized at load by the number of possible CPUs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SERIES_MAX);
	__type(key, u32);
	__type(value, struct call_counts);
} calls SEC(".maps");

/* [cpu] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_counts);
} cpus SEC(".maps");

/* An index where a lookup by task would be a call, at each call of each target. Sized at load by
 * the threads of the host.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread_state);
} thread_states SEC(".maps");

/* By the same index; of use only while `task` is the thread's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread_past);
} thread_pasts SEC(".maps");

/* Allocated beforehand: nothing can be while the scheduler wakes. User space takes away those of
 * threads that are gone.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct wait_key);
	__type(value, struct wait_counts);
} waits SEC(".maps");

/* By index in thread_states; 4.6 KB each, so there are fewer. Sized at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct call_journal);
} call_journals SEC(".maps");

/* [bank * REQUESTS_KEPT + place] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * REQUESTS_KEPT);
	__type(key, u32);
	__type(value, struct whole_request);
} whole_requests SEC(".maps");

/* What a walk writes for user space to read. One entry unless walks are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct connection_record);	/* the largest of them */
} records SEC(".maps");

/* Of the next one; NULL: there is no room for it. */
static __always_inline void *next_record(void)
{
	u32 at = records_put;

	return bpf_map_lookup_elem(&records, &at);
}

/* Those of threads that are gone, the longest gone first: a process that ends wakes who waits for
 * it after it was counted as gone, and what it did is still wanted then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_slots SEC(".maps");

/* The processes to begin with: filled before and emptied after seeding, so
 * that a PID used again by a stranger means nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct seed);
} seed_tgids SEC(".maps");

/* By task: of threads that are in a signal's handler. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, struct interrupted_calls);
} interrupted_calls SEC(".maps");

/* Every process that is or was a target; user space takes away the dead. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct process_state);
} processes SEC(".maps");

/* By address of struct sock: the only key both ends of a call know. Its bound is set at load
 * from the host's limits; where the kernel has an allocator for programs, room is taken when
 * a connection comes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, address_t);
	__type(value, struct connection);
} connections SEC(".maps");

/* What a connection speaks of HTTP/2 (http2.bpf.h). */
enum multiplexed {
	TAKES_TURNS = 0,	/* nothing, as far as is known */
	SHARED_BY_STREAMS = 1,	/* HTTP/2, but frames are not followed: its turns are no requests */
	STREAMS_FOLLOWED = 2,	/* each stream is a request */
};

/* Of connections of HTTP/2, by the address of their struct sock. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, struct streams);
} shared_connections SEC(".maps");

/* Where one is made that is then added to `connections` whole: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct connection);
} connection_to_add SEC(".maps");

/* Allocated when a listener appears: 11 KB each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, struct listener);
} listeners SEC(".maps");

/* A server that listens anew often gets the memory of the socket it closed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct closed_listener);
	__type(value, struct listener);
} closed_listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct acceptor);
	__type(value, count_t);
} acceptors SEC(".maps");

/* By thread: bounded by the threads that are inside connect() at one moment. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct connecting);
} connectings SEC(".maps");

/* Sockets between SYN and SYN-ACK, anybody's, and since when: of this host bounded by its files. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, ns_t);
} handshakes SEC(".maps");

/* Whose SYN had to be sent again, and how long it took, until the listener's end is there; those
 * of listeners that nobody follows go when there is no room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tcp_client);
	__type(value, ns_t);
} clients_let_in SEC(".maps");

/* When it was asked. The oldest of those that nobody answers go. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct question);
	__type(value, ns_t);
} questions_asked SEC(".maps");

/* Emptied by user space at every sample. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct failed_connect);
	__type(value, count_t);
} failed_connects SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct destination);
	__type(value, struct destination_counts);
} destinations SEC(".maps");

/* Destination -> its index in upstreams. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UPSTREAMS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct upstream_key);
	__type(value, u32);
} upstream_indices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UPSTREAMS_MAX);
	__type(key, u32);
	__type(value, struct upstream);
} upstreams SEC(".maps");

/* By process that served or made a request. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct server_upstream_key);
	__type(value, struct server_upstream);
} server_upstreams SEC(".maps");

/* Allocated beforehand: nothing can be while the scheduler switches. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct cpu_holder_key);
	__type(value, struct cpu_holder);
} cpu_holders SEC(".maps");

/* Processes at the other end of connections, who started them, children of targets; dead or alive,
 * the last so many.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u8);
} partners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_stays);
} cpu_stays SEC(".maps");

/* Bounded by what targets have submitted and is not complete; one that is cancelled without a
 * completion leaves its entry to the next request in its memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, struct uring_request);
} uring_requests SEC(".maps");

/* Of those that can complete again: that completion names only ring and user_data. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct uring_key);
	__type(value, address_t);
} uring_repeating SEC(".maps");

/* The program of completions, for that of those that found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} completes SEC(".maps");

struct ended_layout {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
};

struct ended_layout programs_ended_entry SEC(".maps");

/* No program looks at it. When user space writes its entry, the kernel waits until all programs have
 * ended that run at that moment: Linux kernel commit 1ae80cf31938 "bpf: wait for running BPF
 * programs when updating map-in-map" (in v5.0).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ended_layout);
} programs_ended SEC(".maps");

#ifdef BY_FUNCTIONS

/* Threads whose calls come by tracepoints; at 0 the tracepoints can be removed. */
u32 traced_threads = 0;
/* User space sets it while the tracepoints are attached. */
u32 tracepoints_are_on = 0;
/* 32-bit programs that started while the tracepoints were not attached. */
u64 programs_unseen = 0;
/* The end: the functions' programs go one by one, and count no more from the first on. */
u32 stopped = 0;

#endif

/* New entries are made from these: a value is larger than the stack. */
static const struct thread_state no_thread_state = {};
static const struct interrupted_calls no_interrupted_calls = {};
static const struct listener no_listener = {};
static const struct destination_counts no_destination_counts = {};
static const struct server no_server = {};
static const struct connection no_connection = {};
static const struct streams no_streams = {};
static const struct uring_request no_uring_request = {};

/* By Fibonacci hashing: the high bits of a product depend on all of the address. */
#define FOLLOWED_HASH 0x9e3779b97f4a7c15ULL
#define FOLLOWED_SHIFT 48

static __always_inline u32 *followed_slot(address_t sk)
{
	u32 slot = (sk * FOLLOWED_HASH) >> FOLLOWED_SHIFT;

	barrier_var(slot);
	return &followed[slot & (FOLLOWED_SLOTS - 1)];
}

/* False: certainly neither in `connections` nor in `listeners`. Most sockets that receive bytes
 * belong to no target. This check is one load, where a lookup would be a call.
 */
static __always_inline bool is_followed(address_t sk)
{
	return *followed_slot(sk) > followed_since;
}

/* Before it is put into a map. What lives is marked anew in each round, by sweep_connections,
 * and marks of the round before count too: one can be late by a round and is still seen.
 */
static __always_inline void follow(address_t sk)
{
	*followed_slot(sk) = followed_round + 1;
}

/* For what CPUs share and rarely touch. */
#define shared_add(counter, amount) atomic_add(counter, amount)

static __always_inline void count_add(count_t *counter, u64 amount)
{
	if (preemptible)
		atomic_add(counter, amount);
	else
		*counter += amount;
}

static __always_inline struct cpu_counts *cpu_counts(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

#endif
