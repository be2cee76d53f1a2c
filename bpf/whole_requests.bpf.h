/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The slowest requests of an interval, and some others by chance, each with its stages and the last
 * calls of the thread that replied. They are copied when the reply has begun, if they take longer
 * than the least of those kept so far: of n requests that come in no order, 20 * (1 + ln(n / 20)).
 */
#ifndef WHOLE_REQUESTS_BPF_H
#define WHOLE_REQUESTS_BPF_H

#include "call_journals.bpf.h"
#include "servers.bpf.h"
#include "socket_names.bpf.h"

#define PLACE_BITS 5	/* of REQUESTS_KEPT */
#define BUSY_SHIFT 62
#define ATTEMPTS 4	/* at a place that another CPU takes at the same moment */
#define CHANCE_SHIFT 8

_Static_assert(1 << PLACE_BITS == REQUESTS_KEPT && SLOWEST_KEPT + SAMPLED_KEPT <= REQUESTS_KEPT,
	       "a place has a number in its bank");

/* The least key of so many places, with its number in the lowest bits; of `skip_busy`, those that
 * are being written are above all others. Without branches, and a global function, which the verifier
 * walks once.
 */
__noinline u64 least_kept(u32 first, u32 count, u32 skip_busy)
{
	u64 least = (1ULL << (BUSY_SHIFT + 1)) - 1;

	for (u32 i = 0; i < SLOWEST_KEPT && i < count; i++) {
		u32 at = (first + i) & (2 * REQUESTS_KEPT - 1);
		u64 key, lower;

		barrier_var(at);
		key = kept_keys[at & (2 * REQUESTS_KEPT - 1)] << PLACE_BITS | i;
		key |= (kept_busy[at & (2 * REQUESTS_KEPT - 1)] & skip_busy) << BUSY_SHIFT;
		lower = (u64)((s64)(key - least) >> 63);
		barrier_var(lower);
		least ^= (least ^ key) & lower;
	}
	return least;
}

static __always_inline void note_unkept(u32 bank, u32 is_sampled, u64 key)
{
	if (is_sampled)
		return;
	shared_add(&unkept_requests, 1);
	if (key > unkept_slowest_ns[bank & 1])
		unkept_slowest_ns[bank & 1] = key;
}

/* Index + 1 of a place that is ours until `kept_busy` is 0 again; 0: none for this key. */
__noinline u32 take_place(u32 bank, u32 is_sampled, u64 key)
{
	u32 count = is_sampled ? SAMPLED_KEPT : SLOWEST_KEPT;
	u32 first = (bank & 1) * REQUESTS_KEPT + (is_sampled ? SLOWEST_KEPT : 0);

	for (u32 i = 0; i < ATTEMPTS; i++) {
		u64 least = least_kept(first, count, 1), floor;
		u32 at = (first + (least & (REQUESTS_KEPT - 1))) & (2 * REQUESTS_KEPT - 1);

		barrier_var(at);
		at &= 2 * REQUESTS_KEPT - 1;
		if (least >> PLACE_BITS >= key)
			break;
		if (exchange(&kept_busy[at], 1))
			continue;
		if (kept_keys[at] < key) {
			kept_keys[at] = key;
			floor = least_kept(first, count, 0) >> PLACE_BITS;
			if (is_sampled)
				sampled_floor[bank & 1] = floor;
			else
				slowest_floor_ns[bank & 1] = floor;
			return at + 1;
		}
		*(volatile u64 *)&kept_busy[at] = 0;
	}
	if (least_kept(first, count, 0) >> PLACE_BITS < key)
		note_unkept(bank, is_sampled, key);
	return 0;
}

/* What the thread did of one activity between its last receive call and this send call. */
static __always_inline ns_t spent_before_send(struct thread_state *state,
					      struct connection *connection,
					      struct call_in_flight *call, u32 activity,
					      ns_t on_cpu)
{
	ns_t spent = state->activity_ns[activity] - connection->app_activity_ns[activity];

	if (activity == ACTIVITY_SYS_SOCKET)
		return elapsed(on_cpu, spent);
	if (activity == ACTIVITY_RUNQ)
		return elapsed(call->runq_ns, spent);
	if (activity == ACTIVITY_BLOCKED_SEND)
		return elapsed(call->off_cpu_ns - call->runq_ns, spent);
	return spent;
}

static __subprogram int write_stages(struct whole_request *whole, struct connection *connection)
{
	bool is_first = connection->turns == 0 && connection->accepted_ns;

	whole->arrived_ns = elapsed(connection->replied_after_ns, whole->replied_ns);
	whole->established_ns = is_first ? connection->established_ns : 0;
	whole->accepted_ns = is_first ? connection->accepted_ns : 0;
	whole->recv_wait_ns = connection->recv_wait_ns;
	whole->recv_ns = connection->recv_ns;
	whole->app_ns = connection->app_ns;
	whole->received_ns = connection->received_ns;
	whole->inode = connection->inode;
	whole->calls_before = connection->calls_before;
	whole->tgid = connection->tgid;
	whole->peer_tgid = connection->peer_tgid;
	whole->endpoint = connection->endpoint;
	whole->turns = connection->turns;
	return 0;
}

static __subprogram int write_app_parts(struct whole_request *whole, struct thread_state *state,
					struct connection *connection, struct call_in_flight *call)
{
	ns_t on_cpu = elapsed(call->off_cpu_ns, whole->replied_ns - call->start_ns);
	u32 tgid = connection->tgid;
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	for (u32 i = 0; i < ACTIVITY_MAX; i++)
		whole->app_activity_ns[i] = spent_before_send(state, connection, call, i, on_cpu);
	whole->upstream_ns = 0;
	if (server && connection->in_progress_at == tgid)
		whole->upstream_ns = elapsed(connection->share_before_ns, server->share_ns);
	return 0;
}

static __subprogram int write_names(struct whole_request *whole, address_t sk)
{
	whole->peer_inode = 0;
	if (is_unix_with_queue(whole->endpoint))
		whole->peer_inode =
			inode_of_socket(BPF_CORE_READ((struct unix_sock *)sk, peer));
	__builtin_memset(&whole->local, 0, sizeof(whole->local));
	__builtin_memset(&whole->peer, 0, sizeof(whole->peer));
	name_of_socket((struct sock *)sk, &whole->local);
	name_of_peer((struct sock *)sk, &whole->peer);
	bpf_get_current_comm(whole->comm, sizeof(whole->comm));
	return 0;
}

static __subprogram int write_calls(struct whole_request *whole, struct thread_state *state,
				    struct call_in_flight *call)
{
	u32 slot = state->slot;
	struct call_journal *journal = bpf_map_lookup_elem(&call_journals, &slot);
	ns_t waited = elapsed(state->runq_told_ns + call->runq_ns,
			      state->activity_ns[ACTIVITY_RUNQ]);

	whole->calls_ended = state->calls_ended;
	whole->long_calls_ended = state->long_calls_ended;
	write_call(&whole->reply, call, waited < SHORT_MAX_NS ? waited : SHORT_MAX_NS,
		   call->moved_bytes, whole->replied_ns);
	if (!journal)
		return 0;
	whole->flags |= WHOLE_HAS_CALLS;
	bpf_probe_read_kernel(&whole->journal, sizeof(whole->journal), journal);
	return 0;
}

/* No other of its connection was in progress when it had its reply. */
static __always_inline bool is_only_stream(address_t sk)
{
	struct streams *streams = bpf_map_lookup_elem(&shared_connections, &sk);

	return streams && streams->open == 1;
}

static __subprogram int write_request(struct whole_request *whole, struct task_struct *task,
				      struct thread_state *state, struct connection *connection,
				      struct call_in_flight *call)
{
	whole->flags = 0;
	if (connection->receiver != (u64)task)
		whole->flags |= WHOLE_HANDED_OVER;
	if (connection->leftover)
		whole->flags |= WHOLE_PIPELINED;
	if (connection->is_multiplexed && !is_only_stream(call->sk))
		whole->flags |= WHOLE_MULTIPLEXED;
	whole->tid = tid_of(task);
	write_stages(whole, connection);
	write_app_parts(whole, state, connection, call);
	write_names(whole, call->sk);
	return 0;
}

static __always_inline void keep_in(u32 place, struct task_struct *task, struct thread_state *state,
				    struct connection *connection, struct call_in_flight *call,
				    ns_t now)
{
	u32 at = (place - 1) & (2 * REQUESTS_KEPT - 1);
	struct whole_request *whole;

	if (!place)
		return;
	whole = bpf_map_lookup_elem(&whole_requests, &at);
	if (!whole)
		return;
	whole->replied_ns = now;
	write_request(whole, task, state, connection, call);
	write_calls(whole, state, call);
	*(volatile u64 *)&kept_busy[at & (2 * REQUESTS_KEPT - 1)] = 0;
}

static __always_inline u64 chance_of(ns_t now)
{
	return (now * FOLLOWED_HASH) >> CHANCE_SHIFT | 1;
}

static __subprogram int keep_request(struct task_struct *task, struct thread_state *state,
				     struct connection *connection, struct call_in_flight *call,
				     ns_t now)
{
	u32 bank = *(volatile u32 *)&requests_bank & 1;

	keep_in(take_place(bank, 0, connection->replied_after_ns), task, state, connection, call,
		now);
	keep_in(take_place(bank, 1, chance_of(now)), task, state, connection, call, now);
	return 0;
}

/* The reply has begun; its stages are known. */
static __always_inline void keep_if_slow(struct task_struct *task, struct thread_state *state,
					 struct connection *connection, struct call_in_flight *call,
					 ns_t now)
{
	u32 bank = *(volatile u32 *)&requests_bank & 1;

	if (connection->replied_after_ns > slowest_floor_ns[bank] ||
	    chance_of(now) > sampled_floor[bank])
		keep_request(task, state, connection, call, now);
}

#endif
