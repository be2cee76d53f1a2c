/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The last calls of each thread, so that of a request that turns out to be slow they are known. Each
 * call costs one line of memory. Only the thread itself writes its journal.
 */
#ifndef CALL_JOURNALS_BPF_H
#define CALL_JOURNALS_BPF_H

#include "latency.bpf.h"

#define SHORT_MAX_NS 0xffffffffU

/* Of the connection whose bytes the call moved, or that it opened. */
static __always_inline void note_whose(struct call_in_flight *call, struct connection *connection,
				       bytes_t bytes)
{
	call->role = connection->role;
	call->upstream = connection->upstream;
	call->moved_bytes = bytes;
}

/* Its wait for a CPU between the call before and this one. */
static __always_inline u32 waited_before(struct thread_state *state, struct call_in_flight *call)
{
	ns_t waited = elapsed(state->runq_told_ns + call->runq_ns,
			      state->activity_ns[ACTIVITY_RUNQ]);

	state->runq_told_ns = state->activity_ns[ACTIVITY_RUNQ];
	return waited < SHORT_MAX_NS ? waited : SHORT_MAX_NS;
}

static __always_inline void write_call(struct kept_call *kept, struct call_in_flight *call,
				       u32 runq_before_ns, long ret, ns_t now)
{
	bool is_known = call->call != CALL_NONE;

	kept->start_ns = call->start_ns;
	kept->end_ns = now;
	kept->off_cpu_ns = call->off_cpu_ns;
	kept->runq_ns = call->runq_ns;
	kept->inode = is_known && call->sk ? call->inode : 0;
	kept->result = ret;
	kept->runq_before_ns = runq_before_ns;
	kept->fd = call->fd;
	kept->upstream = call->upstream;
	kept->nr = call->nr;
	kept->abi = call->abi;
	kept->call = call->call;
	kept->endpoint = call->endpoint;
	kept->role = call->role;
	kept->early = call->early;
}

static __subprogram int keep_long_call(struct thread_state *state, struct call_journal *journal,
				       struct kept_call *call)
{
	u32 place = state->long_calls_ended++ & (LONG_CALLS_KEPT - 1);

	journal->long_calls[place] = *call;
	return 0;
}

/* The thread's call has its result; in the table or not. */
static __always_inline void keep_call(struct thread_state *state, struct call_in_flight *call,
				      long ret, ns_t now)
{
	u32 slot = state->slot, waited = waited_before(state, call);
	u64 place = state->calls_ended++ & (CALLS_KEPT - 1);
	struct call_journal *journal = bpf_map_lookup_elem(&call_journals, &slot);

	if (!journal)
		return;
	write_call(&journal->calls[place], call, waited, ret, now);
	if (elapsed(call->start_ns, now) >= SLOW_CALL_NS)
		keep_long_call(state, journal, &journal->calls[place]);
}

#endif
