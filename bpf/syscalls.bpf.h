/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every call of the table: how often, how long, with what result, on what. */
#ifndef SYSCALLS_BPF_H
#define SYSCALLS_BPF_H

#include "calls.h"
#include "connects.bpf.h"
#include "http2.bpf.h"
#include "interrupted.bpf.h"
#include "known_sockets.bpf.h"
#include "latency.bpf.h"
#include "listeners.bpf.h"
#include "lookups.bpf.h"
#include "registers.bpf.h"
#include "replies.bpf.h"
#include "requests.bpf.h"
#include "sockets.bpf.h"
#include "streams.bpf.h"
#include "threads.bpf.h"
#include "traced.bpf.h"
#include "whole_requests.bpf.h"

/* 0 when all series are taken; the call is then counted as lost. */
static __always_inline u32 series_of(u8 call, u8 abi, u8 endpoint)
{
	u32 key = series_key(call, abi, endpoint), series, fresh;

	/* The compiler knows that it is in range; verifiers up to v6.1 do not. */
	barrier_var(key);
	series = series_of_key[key & (SERIES_KEYS - 1)];
	if (series)
		return series;
	if (series_used >= series_max - 1)
		return 0;
	fresh = take_number(&series_used) + 1;
	if (!fresh || fresh >= series_max)
		return 0;
	key_of_series[fresh & (SERIES_MAX - 1)] = key;
	/* A second winner on another CPU costs one series; user space adds up by key. */
	series_of_key[key & (SERIES_KEYS - 1)] = fresh;
	return fresh;
}

static __always_inline struct call_counts *counts_of(u32 series)
{
	u32 index = bpf_get_smp_processor_id() * series_max + series;

	return bpf_map_lookup_elem(&calls, &index);
}

/* Calls whose descriptor is not, or not always, the first argument in the registers. */
static __subprogram int resolve_other(struct task_struct *task, struct pt_regs *regs,
				      struct call_in_flight *call, struct socket_ref *ref)
{
	struct arguments arguments;

	read_arguments(regs, call, &arguments);
	if (call->traits & (TRAIT_FD | TRAIT_FD_EITHER)) {
		call->fd = arguments.first;
		resolve_fd(task, call->fd, ref);
		if (!(call->traits & TRAIT_FD_EITHER))
			return 0;
		call->traits |= ref->is_socket ? TRAIT_RECEIVES : TRAIT_SENDS;
		if (ref->is_socket)
			return 0;
	}
	if (call->traits & (TRAIT_FD_THIRD | TRAIT_FD_EITHER)) {
		call->fd = arguments.third;
		resolve_fd(task, call->fd, ref);
	} else if (call->traits & TRAIT_FAMILY) {
		ref->endpoint = endpoint_of(arguments.first, arguments.second & SOCK_TYPE_MASK,
					    arguments.third);
	}
	return 0;
}

/* Its first argument is the descriptor, and is where arguments are. */
static __always_inline bool is_about_first(struct call_in_flight *call)
{
	return call->traits & TRAIT_FD && !call->is_socketcall;
}

static __always_inline void resolve_endpoint(struct task_struct *task, struct thread_state *state,
					     struct pt_regs *regs, struct socket_ref *ref)
{
	struct call_in_flight *call = &state->now;

	if (!is_about_first(call)) {
		resolve_other(task, regs, call, ref);
		return;
	}
	call->fd = first_argument(regs, call->abi == ABI_COMPAT);
	resolve_own_fd(task, state, call->fd, ref);
}

static __subprogram int note_closing(struct task_struct *task, struct thread_state *state, u32 fd,
				     struct socket_ref *ref)
{
	ref->sk = as_number(ref->sk);
	connection_closing(task, state, fd, ref);
	return 0;
}

static __subprogram int note_shutdown(struct task_struct *task, struct thread_state *state,
				      struct socket_ref *ref)
{
	ref->sk = as_number(ref->sk);
	sends_no_more(task, state, ref);
	return 0;
}

static __always_inline bool ends_sending(struct pt_regs *regs, struct call_in_flight *call)
{
	return call->call == CALL_SHUTDOWN && is_about_first(call) &&
	       second_argument(regs, call->abi == ABI_COMPAT) != SHUT_RD;
}

/* Who polls one connection, and has asked there, waits for the answer: as libraries with a time
 * limit do before they receive (libpq, CPython's sockets).
 */
static __subprogram int find_polled(struct task_struct *task, struct thread_state *state,
				    struct pt_regs *regs)
{
	struct call_in_flight *call = &state->now;
	bool compat = call->abi == ABI_COMPAT;
	struct connection *connection;
	struct polled polled = {};
	struct socket_ref ref = {};

	if (second_argument(regs, compat) != 1 ||
	    bpf_probe_read_user(&polled, sizeof(polled), (void *)first_argument(regs, compat)) ||
	    !(polled.events & POLLIN))
		return 0;
	resolve_own_fd(task, state, polled.fd, &ref);
	if (!ref.is_socket)
		return 0;
	ref.sk = as_number(ref.sk);
	connection = connection_of(ref.sk, ref.inode);
	if (!connection || connection->role != ROLE_UPSTREAM || connection->phase != PHASE_ASKING)
		return 0;
	call->sk = ref.sk;
	call->inode = ref.inode;
	call->fd = polled.fd;
	call->waits = WAITS_ANSWER;
	return 0;
}

static __always_inline bool looks_at_list(struct call_in_flight *call)
{
	return call->call == CALL_POLL || call->call == CALL_PPOLL;
}

/* What a call is about; it must be asked at entry, when a close has not happened yet. */
static __always_inline void describe_call(struct task_struct *task, struct thread_state *state,
					  struct pt_regs *regs)
{
	struct call_in_flight *call = &state->now;
	struct socket_ref ref = {};

	resolve_endpoint(task, state, regs, &ref);
	call->sk = ref.sk;
	call->inode = ref.inode;
	call->endpoint = ref.endpoint;
	call->series = series_of(call->call, call->abi, ref.endpoint);
	if (looks_at_list(call))
		find_polled(task, state, regs);
	if (!ref.is_socket)
		return;
	if (call->call == CALL_CLOSE)
		note_closing(task, state, call->fd, &ref);
	else if (is_about_first(call))
		remember_kind(state);
	if (ends_sending(regs, call))
		note_shutdown(task, state, &ref);
}

static __always_inline void identify_call(struct task_struct *task, struct pt_regs *regs, int nr,
					  struct call_in_flight *call)
{
	const volatile struct call_entry *entry;

	call->nr = nr & (NR_MAX - 1);
	call->abi = is_compat(task) ? ABI_COMPAT : ABI_NATIVE;
	entry = call->abi == ABI_COMPAT ? &compat_entries[call->nr & (NR_MAX - 1)] :
					  &native_entries[call->nr & (NR_MAX - 1)];
	call->endpoint = ENDPOINT_OTHER;
	call->is_socketcall = 0;
	if ((u32)nr >= NR_MAX) {
		call->nr = NR_MAX - 1;
		call->call = CALL_NONE;
		call->waits = WAITS_OTHER;
		return;
	}
	call->is_socketcall = entry->call == CALL_SOCKETCALL;
	if (call->is_socketcall)
		entry = &socketcall_entries[first_argument(regs, true) & (SOCKETCALL_MAX - 1)];
	call->call = entry->call;
	call->traits = entry->traits;
	call->waits = entry->waits;
}

/* In either ABI, by any task: a client that a listener refuses need not be a target. */
static __always_inline bool may_be_connect(int nr)
{
	return nr == nr_connect || nr == compat_nr_connect;
}

static __always_inline bool is_connect(struct task_struct *task, int nr)
{
	return nr == (is_compat(task) ? compat_nr_connect : nr_connect);
}

static __always_inline bool is_poller(struct call_in_flight *call)
{
	return call->waits == WAITS_POLL && call->call != CALL_IO_URING_ENTER;
}

/* From the return of its poller until it calls one again: what was ready then had to wait. */
static __subprogram int loop_ended(struct thread_state *state, ns_t now)
{
	struct cpu_counts *counts = cpu_counts();
	ns_t busy_ns = elapsed(state->polled_ns, now);

	state->polled_ns = 0;
	state->loops++;
	state->busy_ns += busy_ns;
	if (busy_ns > state->busy_max_ns)
		state->busy_max_ns = busy_ns;
	if (counts)
		latency_add(&counts->loop_busy, busy_ns);
	return 0;
}

/* What is found out of a call while it lasts or when it ends. */
static __always_inline void forget_findings(struct call_in_flight *call)
{
	__builtin_memset(&call->early, 0,
			 sizeof(*call) - __builtin_offsetof(struct call_in_flight, early));
}

/* A loop that ticks polls again and again. Whatever it does at a socket may be what it ticked for. */
static __always_inline bool is_more_than_waiting(struct thread_state *state,
						 struct call_in_flight *call)
{
	if (state->waits_anew == DOING_POLL)
		return call->endpoint != ENDPOINT_OTHER;
	return call->call != CALL_NONE;
}

/* The clock is read last, so the program's own work does not count for the call. */
static __always_inline void begin_call(struct thread_state *state, struct task_struct *task,
				       struct pt_regs *regs, int nr)
{
	struct call_in_flight *call = &state->now;
	ns_t now;

	first_event_seen(state, task);
	state->flags = (state->flags | THREAD_IN_CALL) & ~THREAD_NEWBORN;
	state->left_cpu_ns = 0;
	if (!direct_loads || !recall_call(task, state, regs, nr)) {
		identify_call(task, regs, nr, call);
		if (call->call != CALL_NONE)
			describe_call(task, state, regs);
	}
	if (state->waits_anew && is_more_than_waiting(state, call))
		state->waits_anew = 0;
	now = bpf_ktime_get_ns();
	change_activity(state, now, activity_on_cpu(state));
	if (state->flags & (THREAD_INTERRUPTED | THREAD_SET_ASIDE) &&
	    resume_interrupted(state, regs, now))
		return;
	if (state->polled_ns && is_poller(call))
		loop_ended(state, now);
	forget_findings(call);
	call->off_cpu_ns = 0;
	if (call->traits & TRAIT_SENDS)
		call->send_blocked_before_ns = state->activity_ns[ACTIVITY_BLOCKED_SEND];
	call->runq_ns = 0;
	call->start_ns = now;
}

static __always_inline void call_entered(struct pt_regs *regs, int nr)
{
	struct cpu_counts *cpu = cpu_counts();
	struct thread_state *state = cpu ? caller_state(cpu, regs) : NULL;
	struct task_struct *task;

	if (may_be_connect(nr)) {
		task = current_task();
		if (is_connect(task, nr))
			connect_entered(task, regs);
	}
	if (state && !(state->flags & THREAD_DORMANT))
		begin_call(state, caller_of(state), regs, nr);
}

struct messages {
	bytes_t bytes;
	u64 length_at;
	u32 stride;
	u32 unread;
};

static long add_message(u32 index, struct messages *messages)
{
	u32 length = 0;
	long error;

	/* Without branches: each would double the verifier's ways through a loop. */
	error = bpf_probe_read_user(&length, sizeof(length), (void *)messages->length_at);
	messages->unread += (u64)error >> 63;
	messages->bytes += length;
	messages->length_at += messages->stride;
	return 0;
}

__noinline u64 bytes_of_messages(u64 length_at, u32 stride, u32 count)
{
	struct messages messages = { .length_at = length_at, .stride = stride };
	struct cpu_counts *counts;

	if (count > MESSAGES_MAX)
		count = MESSAGES_MAX;
	repeat(count, MESSAGES_MAX, add_message, &messages);
	counts = messages.unread ? cpu_counts() : NULL;
	if (counts)
		count_add(&counts->unread_messages, messages.unread);
	return messages.bytes;
}

static __noinline bytes_t message_bytes(struct pt_regs *regs, struct call_in_flight *call,
					     u32 count)
{
	struct arguments arguments;

	read_arguments(regs, call, &arguments);
	if (call->abi == ABI_COMPAT)
		return bytes_of_messages(arguments.second + COMPAT_MESSAGE_LENGTH_AT,
					 COMPAT_MESSAGE_SIZE, count);
	return bytes_of_messages(arguments.second + MESSAGE_LENGTH_AT, MESSAGE_SIZE, count);
}

static __subprogram int record_error(struct call_counts *counts, long ret)
{
	count_add(&counts->errors[error_slot(ret)], 1);
	return 0;
}

/* What is only looked at stays in the queue. */
static __noinline bool is_peek(struct pt_regs *regs, struct call_in_flight *call)
{
	struct arguments arguments;

	if (!can_peek(call->call))
		return false;
	read_arguments(regs, call, &arguments);
	return has_peek_flag(call->call, &arguments);
}

#define BUFFERS_ADDED_UP 8

/* More than `bytes` in the buffers described at `at`, or in more than are looked at. */
static __noinline bool is_more_in(u64 at, u64 count, bytes_t bytes)
{
	struct user_buffer buffer;
	bytes_t whole = 0;

	for (u32 i = 0; i < BUFFERS_ADDED_UP; i++) {
		if (i >= count)
			return whole > bytes;
		if (bpf_probe_read_user(&buffer, sizeof(buffer),
					(void *)(at + i * sizeof(buffer))))
			return true;
		whole += buffer.length;
	}
	return count > BUFFERS_ADDED_UP || whole > bytes;
}

/* A send call sent `bytes`, and was to send more; true where that is not known. */
static __noinline bool is_short(struct pt_regs *regs, struct call_in_flight *call, bytes_t bytes)
{
	struct user_buffer vector = {};
	struct arguments arguments;

	if (call->abi == ABI_COMPAT)
		return true;
	read_arguments(regs, call, &arguments);
	switch (call->call) {
	case CALL_WRITE:
	case CALL_SENDTO:
		return arguments.third > bytes;
	case CALL_SENDFILE:
		return arguments.fourth > bytes;
	case CALL_WRITEV:
		return is_more_in(arguments.second, arguments.third, bytes);
	case CALL_SENDMSG:
		/* `msg_iov` and `msg_iovlen` */
		if (bpf_probe_read_user(&vector, sizeof(vector),
					(void *)(arguments.second + MSG_IOV_AT)))
			return true;
		return is_more_in(vector.at, vector.length, bytes);
	}
	return true;
}

/* Returns what is to be looked for in the bytes. */
static __subprogram int follow_bytes(struct task_struct *task, struct thread_state *state,
				     struct call_in_flight *call, bytes_t bytes, ns_t now)
{
	if (call->traits & TRAIT_RECEIVES)
		return bytes_received(task, state, call, bytes, now);
	if (call->traits & TRAIT_SENDS)
		return bytes_sent(task, state, call, bytes, now);
	return 0;
}

static __subprogram int sender_found_full(struct task_struct *task, struct thread_state *state,
					  struct call_in_flight *call, ns_t now)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	if (connection)
		sender_stopped(connection, (u64)task, state, now);
	return 0;
}

static __subprogram int look_at_bytes(struct pt_regs *regs, struct call_in_flight *call,
				      bytes_t bytes, int looks)
{
	struct user_buffer buffer;
	u64 next;

	if (call->abi == ABI_COMPAT)
		return 0;
	next = first_buffer(regs, call, bytes, &buffer);
	if (looks & LOOK_PROTOCOL && look_for_protocol(call->sk, buffer.at, buffer.length, bytes))
		looks = LOOK_STREAMS;
	if (looks & LOOK_HELLO && look_for_hello(call->sk, buffer.at, buffer.length))
		looks = LOOK_STREAMS;
	if (looks & LOOK_STREAMS && call->traits & TRAIT_SENDS)
		frames_sent(call->sk, buffer.at, buffer.length, next, bytes);
	else if (looks & LOOK_STREAMS)
		frames_received(call->sk, buffer.at, buffer.length, next, bytes);
	if (looks & LOOK_REPLY)
		look_at_reply(call->sk, buffer.at, buffer.length, next, bytes);
	if (looks & LOOK_PIECE)
		look_at_piece(call->sk, buffer.at, buffer.length, next, bytes);
	return 0;
}

static __noinline bool says_goodbye(struct pt_regs *regs, struct call_in_flight *call)
{
	struct user_buffer buffer;

	if (call->abi == ABI_COMPAT)
		return false;
	first_buffer(regs, call, GOODBYE_BYTES, &buffer);
	return is_goodbye(&buffer);
}

static __always_inline void look_at(struct task_struct *task, struct thread_state *state,
				    struct pt_regs *regs, struct call_in_flight *call,
				    bytes_t bytes, int looks, ns_t now)
{
	if (looks & LOOK_SHORT && is_short(regs, call, bytes))
		sender_found_full(task, state, call, now);
	if (looks & LOOK_GOODBYE && says_goodbye(regs, call))
		goodbye_said(call);
	if (looks & ~(LOOK_SHORT | LOOK_GOODBYE))
		look_at_bytes(regs, call, bytes, looks);
}

static __always_inline void look_and_follow(struct task_struct *task, struct thread_state *state,
					    struct pt_regs *regs, struct call_in_flight *call,
					    bytes_t bytes, ns_t now)
{
	look_for_no_reply(regs, call, bytes);
	look_at(task, state, regs, call, bytes, follow_bytes(task, state, call, bytes, now), now);
}

/* How the datagram at this place in its call begins. */
static __noinline int header_of_datagram(struct pt_regs *regs, struct call_in_flight *call, u32 at,
					 struct name_header *header)
{
	struct user_buffer buffer = {};
	struct arguments arguments;
	u64 vector = 0;

	if (!header)
		return 0;
	__builtin_memset(header, 0, sizeof(*header));
	if (call->abi == ABI_COMPAT)
		return 0;
	if (call->traits & TRAIT_MESSAGES) {
		read_arguments(regs, call, &arguments);
		bpf_probe_read_user(&vector, sizeof(vector),
				    (void *)(arguments.second + at * MESSAGE_SIZE + MSG_IOV_AT));
		bpf_probe_read_user(&buffer, sizeof(buffer), (void *)vector);
	} else {
		first_buffer(regs, call, sizeof(*header), &buffer);
	}
	bpf_probe_read_user(header, sizeof(*header), (void *)buffer.at);
	return 0;
}

static __always_inline void follow_datagrams(struct task_struct *task, struct thread_state *state,
					     struct pt_regs *regs, struct call_in_flight *call,
					     long ret, ns_t now)
{
	struct name_header header;

	if (!may_be_of_lookups(call) || is_peek(regs, call))
		return;
	for (u32 at = 0; at < DATAGRAMS_LOOKED_AT; at++) {
		if (at && (!(call->traits & TRAIT_MESSAGES) || at >= (u32)ret))
			return;
		header_of_datagram(regs, call, at, &header);
		if (call->traits & TRAIT_SENDS && !asks_for_a_name(&header))
			continue;
		follow_question(task, state, call, header.number, now);
	}
}

/* Of a call that moved nothing. */
static __subprogram int follow_end(struct call_in_flight *call, long ret, ns_t now)
{
	bool sends = call->traits & TRAIT_SENDS;

	if (call->endpoint != ENDPOINT_UDP && is_followed(call->sk) &&
	    (ret == -ECONNRESET || (sends ? ret == -EPIPE : !ret)))
		peer_gone(call, sends, now);
	return 0;
}

static __always_inline void remember_upstream(struct task_struct *task, struct call_in_flight *call,
					      ns_t now)
{
	struct socket_ref ref = {
		.sk = call->sk,
		.inode = call->inode,
		.endpoint = call->endpoint,
	};

	struct connection *opened;

	if (!is_unix_with_queue(call->endpoint) && call->endpoint != ENDPOINT_TCP)
		return;
	connection_opened(task, &ref, now);
	opened = connection_of(call->sk, call->inode);
	if (opened)
		note_whose(call, opened, 0);
}

/* Calls after which a socket is something else, failed ones too. */
static __subprogram int follow_sockets(struct task_struct *task, struct pt_regs *regs,
				       struct call_in_flight *call, long ret, ns_t now)
{
	struct arguments arguments;
	struct socket_ref ref;

	read_arguments(regs, call, &arguments);
	if (call->call == CALL_CONNECT) {
		destination_reached(&arguments, call->endpoint, ret, now - call->start_ns);
		if (ret == -EINPROGRESS && call->endpoint == ENDPOINT_TCP &&
		    is_over_already(call->sk))
			failed_in_background((struct sock *)call->sk, call->start_ns, 0);
		else if (call->sk && (!ret || ret == -EINPROGRESS))
			remember_upstream(task, call, now);
	} else if (ret < 0) {
		return 0;
	} else if (call->call == CALL_LISTEN) {
		listen_returned(call->sk, call->inode, call->endpoint, tgid_of(task),
				arguments.second);
	} else {
		resolve_fd(task, ret, &ref);
		if (!ref.is_socket)
			return 0;
		ref.sk = as_number(ref.sk);
		connection_accepted(task, call->sk, call->inode, &ref, now);
	}
	return 0;
}

/* The call has its result: one row of the table grows by exactly one call. */
static __always_inline void record_call(struct task_struct *task, struct pt_regs *regs,
					struct cpu_counts *cpu, struct thread_state *state,
					struct call_in_flight *call, long ret, ns_t now)
{
	struct call_counts *counts;
	bytes_t bytes = 0;

	count_add(&cpu->events_seen, 1);
	counts = call->series ? counts_of(call->series) : NULL;
	if (!counts) {
		count_add(&cpu->lost_map_full, 1);
		return;
	}
	count_add(&cpu->events_counted, 1);
	record_time(counts, call, now);
	if (call->traits & TRAIT_CONNECTS)
		follow_sockets(task, regs, call, ret, now);
	if (ret < 0) {
		record_error(counts, ret);
		if (ret == -EAGAIN && call->traits & TRAIT_SENDS && call->sk)
			send_refused(task, state, call, now);
		else if (ret == -ECONNREFUSED && call->endpoint == ENDPOINT_UDP)
			lookups_refused(task, state, call, now);
		else if (call->traits & (TRAIT_SENDS | TRAIT_RECEIVES))
			follow_end(call, ret, now);
		return;
	}
	if (call->traits & TRAIT_MESSAGES)
		bytes = message_bytes(regs, call, ret);
	else if (call->traits & (TRAIT_SENDS | TRAIT_RECEIVES))
		bytes = ret;
	if (bytes) {
		count_add(&counts->bytes, bytes);
		if (call->endpoint == ENDPOINT_UDP)
			follow_datagrams(task, state, regs, call, ret, now);
		else if (is_followed(call->sk) && !is_peek(regs, call))
			look_and_follow(task, state, regs, call, bytes, now);
	} else if (call->traits & TRAIT_RECEIVES) {
		follow_end(call, ret, now);
	}
}

static __always_inline void count_number(struct cpu_counts *cpu, struct call_in_flight *call)
{
	u32 nr = call->nr & (NR_MAX - 1);

	count_add(call->abi == ABI_COMPAT ? &cpu->compat_calls[nr] : &cpu->native_calls[nr], 1);
}

/* The first event of a thread that was inside a call when we came. */
static __subprogram int adopt_call(struct task_struct *task, struct pt_regs *regs,
				   struct thread_state *state, ns_t now)
{
	struct call_in_flight *call = &state->now;

	identify_call(task, regs, syscall_nr(regs), call);
	if (call->call == CALL_NONE)
		return 0;
	describe_call(task, state, regs);
	forget_findings(call);
	call->early = 1;
	call->off_cpu_ns = 0;
	call->runq_ns = 0;
	call->start_ns = now;
	return 0;
}

static __always_inline u8 limits_of(struct call_in_flight *call)
{
	u32 nr = call->nr & (NR_MAX - 1);

	return call->abi == ABI_COMPAT ? compat_entries[nr].limits : native_entries[nr].limits;
}

/* A call of a target, in the table or not, got no descriptor. Some calls return the same errno for
 * another limit, and rt_sigreturn returns a register of the program.
 */
static __subprogram int count_exhausted(struct task_struct *task, struct call_in_flight *call,
					long ret)
{
	u32 tgid = tgid_of(task);
	struct process_state *process;

	if (limits_of(call) & LIMIT_OTHER)
		return 0;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process)
		shared_add(ret == -EMFILE ? &process->emfile : &process->enfile, 1);
	return 0;
}

/* The call of a target may be one that started no thread and no process (copy_process()). */
static __subprogram int count_unstarted(struct task_struct *task, struct call_in_flight *call,
					long ret)
{
	u32 tgid = tgid_of(task);
	struct process_state *process;

	if (!(limits_of(call) & LIMIT_STARTS))
		return 0;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process)
		shared_add(ret == -EAGAIN ? &process->start_eagain : &process->start_enomem, 1);
	return 0;
}

static __always_inline void end_call(struct cpu_counts *cpu, struct thread_state *state,
				     struct pt_regs *regs, long ret, ns_t now)
{
	struct task_struct *task = caller_of(state);

	if (!(state->flags & THREAD_IN_CALL))
		adopt_call(task, regs, state, now);
	state->flags &= ~THREAD_IN_CALL;
	if (is_restart(ret) && !is_sigreturn(&state->now)) {
		keep_interrupted(state, regs, ret, now);
		return;
	}
	if (state->flags & THREAD_SET_ASIDE && is_sigreturn(&state->now)) {
		count_number(cpu, &state->now);
		if (!handler_returned(state, regs))
			return;
		state->now = state->interrupted.call;
		now = state->interrupted.at_ns;
		ret = -EINTR;
	}
	count_number(cpu, &state->now);
	if (ret == -EMFILE || ret == -ENFILE)
		count_exhausted(task, &state->now, ret);
	if (state->now.call == CALL_NONE && (ret == -EAGAIN || ret == -ENOMEM))
		count_unstarted(task, &state->now, ret);
	if (is_poller(&state->now))
		state->polled_ns = now;
	if (state->now.call != CALL_NONE)
		record_call(task, regs, cpu, state, &state->now, ret, now);
	keep_call(state, &state->now, ret, now);
}

static __always_inline void call_returned(struct pt_regs *regs, long ret)
{
	struct cpu_counts *cpu = cpu_counts();
	struct thread_state *state = cpu ? caller_state(cpu, regs) : NULL;
	struct task_struct *task;
	ns_t now;

	if (may_be_connect(syscall_nr(regs))) {
		task = current_task();
		if (is_connect(task, syscall_nr(regs)))
			connect_returned(task, regs, apart(ret));
	}
	if (!state || state->flags & THREAD_DORMANT)
		return;
	now = bpf_ktime_get_ns();
	change_activity(state, now, ACTIVITY_USER);
	first_event_seen(state, caller_of(state));
	if (state->flags & THREAD_NEWBORN)
		state->flags &= ~THREAD_NEWBORN;
	else
		end_call(cpu, state, regs, ret, now);
}

#endif
