/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names that a target looks up: a question for a name, to whatever port of whom a socket of UDP is
 * connected to, and the answer with its number. One that is asked again with its number is still
 * the same. What else goes by UDP often has no answer.
 */
#ifndef LOOKUPS_BPF_H
#define LOOKUPS_BPF_H

#include "call_journals.bpf.h"
#include "registers.bpf.h"
#include "upstream.bpf.h"

/* How a question begins (RFC 1035, 4.1.1), in the order of the network: one question and no answer,
 * of the usual kind. The bits left out are who asks' (RD; AD and CD of RFC 4035), and how many
 * records come with it (EDNS, a signature).
 */
struct name_header {
	u16 number;
	u16 flags;
	u16 questions;
	u16 answers;
	u16 authorities;
	u16 additional;
};
#define NOT_OF_WHO_ASKS ((u16)~0x0130)
#define ADDITIONAL_MAX 2
#define DATAGRAMS_LOOKED_AT 2	/* of one call: the C library asks for both families at once */
/* 8.6 s. Resolvers ask again, or elsewhere, after 5 s at most (resolv.conf(5), "timeout"), so a
 * question of the period before the last has no answer.
 */
#define LOOKUP_PERIOD_BITS 33

static __always_inline u16 port_of_peer(address_t at)
{
	struct sock *sk = (void *)at;
	u16 port;

	if (!direct_loads) {
		port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	} else {
		sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
		port = sk->__sk_common.skc_dport;
	}
	return __builtin_bswap16(port);
}

static __always_inline bool asks_for_a_name(struct name_header *header)
{
	return !(header->flags & __builtin_bswap16(NOT_OF_WHO_ASKS)) &&
	       header->questions == __builtin_bswap16(1) && !header->answers &&
	       !header->authorities && __builtin_bswap16(header->additional) <= ADDITIONAL_MAX;
}

/* Whether the call, of a socket of UDP, may ask for a name, or bring the answer. A socket in the
 * place of one that asked looks like one that is followed.
 */
static __always_inline bool may_be_of_lookups(struct call_in_flight *call)
{
	if (call->traits & TRAIT_SENDS)
		return call->sk && port_of_peer(call->sk);
	return is_followed(call->sk);
}

static __always_inline u32 period_of(ns_t at)
{
	return at >> LOOKUP_PERIOD_BITS;
}

static __always_inline u32 open_questions(struct connection *connection)
{
	return connection->questions[0] + connection->questions[1];
}

static __always_inline void questions_lost(struct connection *connection, u32 count, ns_t waited_ns)
{
	struct upstream *upstream = upstream_entry(connection->upstream);

	if (!upstream || !count)
		return;
	shared_add(&upstream->given_up, count);
	shared_add(&upstream->given_up_ns, count * waited_ns);
}

/* What the other questions do not account for is answered. */
static __always_inline void settle_asks(struct thread_state *state, u64 thread,
					struct connection *connection, ns_t now)
{
	u32 tgid = connection->asked_by, open = open_questions(connection);
	struct server *server;

	if (!open) {
		connection->phase = PHASE_IDLE;
		own_request_answered(state, thread, connection, now);
		return;
	}
	server = connection->asks > open ? bpf_map_lookup_elem(&servers, &tgid) : NULL;
	if (!server || connection->asked_epoch != server->epoch)
		return;
	settle_shares(server, state, thread, now);
	shared_add(&server->asking, -1);
	connection->asks--;
}

/* Whether all answers to questions that are open were seen: those of the period before, too. */
static __always_inline bool all_is_seen(struct connection *connection)
{
	ns_t asked_ns = (ns_t)(connection->question_period - 1) << LOOKUP_PERIOD_BITS;

	return connection->established_ns >= full_since_ns || asked_ns >= full_since_ns;
}

/* Those that were asked in this period, and in the one before, may be answered still. */
static __always_inline void forget_old_questions(struct thread_state *state, u64 thread,
						 struct connection *connection, ns_t now)
{
	u32 period = period_of(now), passed = period - connection->question_period;
	bool is_seen = all_is_seen(connection);
	u32 lost;

	if (!passed)
		return;
	lost = connection->questions[period & 1];
	connection->questions[period & 1] = 0;
	if (passed > 1) {
		lost += connection->questions[~period & 1];
		connection->questions[~period & 1] = 0;
	}
	connection->question_period = period;
	if (is_seen)
		questions_lost(connection, lost, 1ULL << LOOKUP_PERIOD_BITS);
	if (lost)
		settle_asks(state, thread, connection, now);
}

/* Not of a socket that had this one's memory, nor one that has got no answer for long. */
static __always_inline bool is_open_since(struct connection *connection, ns_t asked_ns)
{
	return asked_ns >= connection->established_ns &&
	       connection->question_period - period_of(asked_ns) <= 1;
}

static __always_inline void question_sent(struct thread_state *state, u64 thread,
					  struct connection *connection, struct question *question,
					  ns_t asked_ns, ns_t now)
{
	u8 *questions = &connection->questions[period_of(asked_ns) & 1];
	ns_t *before = bpf_map_lookup_elem(&questions_asked, question);

	if (*questions == QUESTIONS_MAX || (before && is_open_since(connection, *before)) ||
	    bpf_map_update_elem(&questions_asked, question, &asked_ns, BPF_ANY))
		return;
	*questions += 1;
	own_request_sent(connection->tgid, state, thread, connection, now);
	if (connection->phase != PHASE_ASKING)
		connection->turn_ns = asked_ns;
	connection->phase = PHASE_ASKING;
}

static __always_inline void question_answered(struct thread_state *state, u64 thread,
					      struct connection *connection,
					      struct question *question, ns_t now)
{
	ns_t *asked = bpf_map_lookup_elem(&questions_asked, question);
	ns_t asked_ns = asked ? *asked : 0, turn_ns = connection->turn_ns;
	u32 period = period_of(asked_ns);

	if (!asked_ns)
		return;
	bpf_map_delete_elem(&questions_asked, question);
	if (!is_open_since(connection, asked_ns) || !connection->questions[period & 1])
		return;
	connection->questions[period & 1]--;
	connection->turns++;
	connection->turn_ns = asked_ns;
	connection->replied_after_ns = elapsed(asked_ns, now);
	count_answer(connection->tgid, connection, 0, now);
	/* How old the oldest is that is open nobody knows: not older than this one was. */
	if (turn_ns > asked_ns)
		connection->turn_ns = turn_ns;
	settle_asks(state, thread, connection, now);
}

/* Also of a socket that is older than the observation. */
static __always_inline struct connection *lookups_of(struct task_struct *task,
						     struct call_in_flight *call, ns_t now)
{
	struct connection *known = connection_of(call->sk, call->inode);
	struct socket_ref ref = {
		.sk = call->sk,
		.inode = call->inode,
		.endpoint = call->endpoint,
	};

	if (known || !(call->traits & TRAIT_SENDS))
		return known;
	connection_opened(task, &ref, now);
	known = connection_of(call->sk, call->inode);
	if (known)
		known->established_ns = call->start_ns;
	return known;
}

/* A datagram with this number was sent or received. */
static __subprogram int follow_question(struct task_struct *task, struct thread_state *state,
					struct call_in_flight *call, u32 number, ns_t now)
{
	struct connection *connection = lookups_of(task, call, now);
	struct question question = { .sk = call->sk, .number = number };

	if (!connection)
		return 0;
	note_whose(call, connection, 1);
	connection->tgid = tgid_of(task);
	forget_old_questions(state, (u64)task, connection, now);
	if (call->traits & TRAIT_SENDS)
		question_sent(state, (u64)task, connection, &question, call->start_ns, now);
	else
		question_answered(state, (u64)task, connection, &question, now);
	return 0;
}

/* This end closes the socket. */
static __always_inline void lookups_closed(struct connection *connection)
{
	if (all_is_seen(connection))
		questions_lost(connection, open_questions(connection),
			       elapsed(connection->turn_ns, bpf_ktime_get_ns()));
}

/* Some may be answered still, for all that was seen. */
static __always_inline bool awaits_answers(struct connection *connection)
{
	u32 passed = period_of(bpf_ktime_get_ns()) - connection->question_period;

	return connection->phase == PHASE_ASKING && passed < 2 &&
	       connection->turn_ns >= full_since_ns;
}

/* ECONNREFUSED: nobody has the port (ICMP). */
static __subprogram int lookups_refused(struct task_struct *task, struct thread_state *state,
					struct call_in_flight *call, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);
	struct upstream *upstream;
	u32 open;

	if (!connection)
		return 0;
	open = open_questions(connection);
	upstream = upstream_entry(connection->upstream);
	if (upstream && open) {
		shared_add(&upstream->dropped, open);
		shared_add(&upstream->dropped_ns, open * elapsed(connection->turn_ns, now));
	}
	connection->questions[0] = 0;
	connection->questions[1] = 0;
	settle_asks(state, (u64)task, connection, now);
	return 0;
}

#endif
