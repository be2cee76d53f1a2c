/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Operations that a target submits through io_uring: the same counters and the same bodies as
 * for system calls. One is timed from its submission to its completion, and one that completes
 * again and again (multishot) from each completion to the next. They complete in the context of
 * the thread that submitted, of a worker or of the ring's own polling thread, which all belong
 * to the target's process. What they are about is known at the completion: the file of a request
 * is looked up only after its submission was told of.
 */
#ifndef URING_BPF_H
#define URING_BPF_H

#include "syscalls.bpf.h"

#define POINTER_MIN 4096	/* below, and among the errors, is no struct */
#define ERRORS_FROM (-4095UL)
#define SPLICE_F_FD_IN_FIXED (1U << 31)	/* include/uapi/linux/splice.h and io_uring.h */
/* enum io_uring_sqe_flags_bit, IOSQE_CQE_SKIP_SUCCESS_BIT: since v5.17, before what is read here */
#define CQE_SKIP_SUCCESS (1U << 6)
#define CQE_MORE (1U << 1)	/* include/uapi/linux/io_uring.h, IORING_CQE_F_MORE */
#define ARMED_MAX 64		/* of one bucket */
#define GOLDEN_RATIO 0x61C8864680B583EBULL	/* include/linux/hash.h */

/* Workers and polling threads are threads of the process, but no fork event reports them. */
static __always_inline struct thread_state *uring_thread(struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);

	if (!state && task_read(task, flags) & PF_IO_WORKER)
		state = thread_state_of(task->group_leader);
	return state && !(state->flags & THREAD_DORMANT) ? state : NULL;
}

/* The end it reads from, when that is a socket; the other end is the request's own file. */
static __always_inline void describe_splice(struct task_struct *task, struct io_kiocb *req,
					    struct call_in_flight *call)
{
	struct io_splice *splice = (void *)req;
	struct socket_ref ref = {};

	call->traits = TRAIT_SENDS;
	if (!bpf_core_type_exists(struct io_splice) ||
	    !bpf_core_field_exists(splice->splice_fd_in) ||
	    BPF_CORE_READ(splice, flags) & SPLICE_F_FD_IN_FIXED)
		return;
	resolve_fd(task, BPF_CORE_READ(splice, splice_fd_in), &ref);
	if (!ref.is_socket)
		return;
	call->traits = TRAIT_RECEIVES;
	call->sk = ref.sk;
	call->inode = ref.inode;
	call->endpoint = ref.endpoint;
}

/* Arguments that are gone, or taken apart, when it completes. */
static __always_inline void describe_operation(struct task_struct *task, struct io_kiocb *req,
					       struct uring_request *request)
{
	struct io_connect *connect = (void *)req;
	struct io_listen *listen = (void *)req;
	struct io_sr_msg *message = (void *)req;

	switch (request->call.call) {
	case CALL_URING_CONNECT:
		request->is_named = name_given((u64)BPF_CORE_READ(connect, addr),
					       BPF_CORE_READ(connect, addr_len), &request->name);
		break;
	case CALL_URING_LISTEN:
		if (bpf_core_type_exists(struct io_listen))
			request->backlog = BPF_CORE_READ(listen, backlog);
		break;
	case CALL_URING_RECV:
	case CALL_URING_RECVMSG:
		request->is_peek = !!(BPF_CORE_READ(message, msg_flags) & MSG_PEEK);
		break;
	case CALL_URING_SPLICE:
		describe_splice(task, req, &request->call);
		break;
	}
}

/* Only these can complete more than once: their completions do not name the request. */
static __always_inline bool can_repeat(u8 call)
{
	return call == CALL_URING_ACCEPT || call == CALL_URING_RECV ||
	       call == CALL_URING_RECVMSG || call == CALL_URING_READ_MULTISHOT;
}

/* NULL when it is none of the table's operations, or when there is no room. */
static __always_inline struct uring_request *
new_request(struct task_struct *task, struct thread_state *state, struct io_kiocb *req)
{
	const volatile struct call_entry *entry;
	struct uring_request *request;
	struct uring_key key = {};
	address_t address = (u64)req;

	entry = &uring_entries[BPF_CORE_READ(req, opcode) & (URING_OPS - 1)];
	if (entry->call == CALL_NONE)
		return NULL;
	bpf_map_update_elem(&uring_requests, &address, &no_uring_request, BPF_ANY);
	request = bpf_map_lookup_elem(&uring_requests, &address);
	if (!request) {
		shared_add(&uring_turned_away, 1);
		return NULL;
	}
	request->call.call = entry->call;
	request->call.traits = entry->traits;
	request->call.send_blocked_before_ns = state->activity_ns[ACTIVITY_BLOCKED_SEND];
	request->ring = (u64)BPF_CORE_READ(req, ctx);
	request->user_data = BPF_CORE_READ(req, cqe.user_data);
	describe_operation(task, req, request);
	if (can_repeat(request->call.call)) {
		key.ring = request->ring;
		key.user_data = request->user_data;
		bpf_map_update_elem(&uring_repeating, &key, &address, BPF_ANY);
	}
	return request;
}

static __always_inline void uring_submitted(struct io_kiocb *req)
{
	struct task_struct *task = current_task();
	struct thread_state *state = uring_thread(task);
	struct uring_request *request;

	if (!state)
		return;
	request = new_request(task, state, req);
	if (!request)
		return;
	/* Only a failure completes such an operation; then it is no longer counted here. */
	if (BPF_CORE_READ(req, flags) & CQE_SKIP_SUCCESS) {
		request->is_untold = 1;
		shared_add(&uring_untold, 1);
	}
	request->call.start_ns = bpf_ktime_get_ns();
}

/* Up to v6.12 all frames of a chain of calls together have 512 bytes: each of these has its own,
 * and io_uring_complete's is the only one above it.
 */
static __subprogram int count_uring_destination(struct uring_request *request, long ret, ns_t now)
{
	struct call_in_flight *call = &request->call;
	struct destination destination = { .error = ret < 0 ? -ret : 0, .endpoint = call->endpoint };

	if (!request->is_named)
		return 0;
	__builtin_memcpy(&destination.name, &request->name, sizeof(destination.name));
	count_destination(&destination, now - call->start_ns);
	return 0;
}

static __subprogram int uring_connected(struct task_struct *task, struct call_in_flight *call,
					ns_t now)
{
	remember_upstream(task, call, now);
	return 0;
}

/* The accept's result is a descriptor, unless it was to go to the ring's own table. */
static __subprogram int uring_accepted(struct task_struct *task, struct io_kiocb *req,
				       struct call_in_flight *call, long ret, ns_t now)
{
	struct io_accept *accept = (void *)req;
	struct socket_ref ref;

	if (bpf_core_field_exists(accept->file_slot) && BPF_CORE_READ(accept, file_slot)) {
		connection_left_queue(task, call->sk, call->inode, NULL, now);
		return 0;
	}
	resolve_fd(task, ret, &ref);
	if (!ref.is_socket)
		return 0;
	ref.sk = as_number(ref.sk);
	connection_accepted(task, call->sk, call->inode, &ref, now);
	return 0;
}

static __subprogram int uring_listened(struct task_struct *task, struct uring_request *request)
{
	struct call_in_flight *call = &request->call;

	listen_returned(call->sk, call->inode, call->endpoint, tgid_of(task), request->backlog);
	return 0;
}

static __always_inline void uring_follow_sockets(struct task_struct *task, struct io_kiocb *req,
						 struct uring_request *request, long ret,
						 ns_t now)
{
	struct call_in_flight *call = &request->call;

	if (call->call == CALL_URING_CONNECT) {
		count_uring_destination(request, ret, now);
		if (!ret && call->sk)
			uring_connected(task, call, now);
		return;
	}
	if (ret < 0)
		return;
	if (call->call == CALL_URING_LISTEN)
		uring_listened(task, request);
	else
		uring_accepted(task, req, call, ret, now);
}

/* The file may be one of the ring's own table: no descriptor says so. */
static __always_inline void resolve_request(struct io_kiocb *req, struct call_in_flight *call)
{
	struct file *file = BPF_CORE_READ(req, file);
	struct socket_ref ref = {};

	if (call->sk || (u64)file < POINTER_MIN || (u64)file >= ERRORS_FROM)
		return;
	if (!read_socket_probed(file, &ref))
		return;
	call->sk = ref.sk;
	call->inode = ref.inode;
	call->endpoint = ref.endpoint;
}

/* As record_call() for system calls; what it costs of a CPU is in other calls' time. */
static __always_inline void record_operation(struct task_struct *task, struct thread_state *state,
					     struct io_kiocb *req, struct uring_request *request,
					     long ret, ns_t now)
{
	struct call_in_flight *call = &request->call;
	struct cpu_counts *cpu = cpu_counts();
	struct call_counts *counts;

	if (!cpu)
		return;
	resolve_request(req, call);
	call->series = series_of(call->call, ABI_NATIVE, call->endpoint);
	call->off_cpu_ns = elapsed(call->start_ns, now);
	count_add(&cpu->events_seen, 1);
	counts = call->series ? counts_of(call->series) : NULL;
	if (!counts) {
		count_add(&cpu->lost_map_full, 1);
		return;
	}
	count_add(&cpu->events_counted, 1);
	record_time(counts, call, now);
	if (call->traits & TRAIT_CONNECTS)
		uring_follow_sockets(task, req, request, ret, now);
	if (ret < 0) {
		record_error(counts, ret);
		if (ret == -EMFILE || ret == -ENFILE)
			count_exhausted(task, call, ret);
	}
	if (!(call->traits & (TRAIT_SENDS | TRAIT_RECEIVES)))
		return;
	if (ret <= 0) {
		follow_end(call, ret, now);
		return;
	}
	count_add(&counts->bytes, ret);
	if (!request->is_peek && follow_bytes(task, state, call, ret, now) & LOOK_SHORT)
		sender_found_full(task, state, call, now);
}

/* Armed before we came: a request that waits for its socket hangs in the ring's table, by the
 * hash of its user_data (io_uring/poll.c, io_poll_req_insert).
 */
static __noinline u64 find_armed(u64 ring, u64 user_data)
{
	struct io_ring_ctx *ctx = (void *)ring;
	struct io_hash_bucket *buckets;
	struct hlist_node *node;
	u32 bits;

	if (!bpf_core_type_exists(struct io_hash_table) ||
	    !bpf_core_field_exists(ctx->cancel_table))
		return 0;
	buckets = BPF_CORE_READ(ctx, cancel_table.hbs);
	bits = BPF_CORE_READ(ctx, cancel_table.hash_bits);
	if (!bits || bits > 31)
		return 0;
	buckets = (void *)buckets + ((user_data * GOLDEN_RATIO) >> (64 - bits)) *
					    bpf_core_type_size(struct io_hash_bucket);
	node = BPF_CORE_READ(buckets, list.first);
	for (u32 i = 0; i < ARMED_MAX && node; i++) {
		struct io_kiocb *req = (void *)node - bpf_core_field_offset(struct io_kiocb, hash_node);

		if (BPF_CORE_READ(req, cqe.user_data) == user_data)
			return (u64)req;
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static __always_inline u64 repeating_request(u64 ring, u64 user_data)
{
	struct uring_key key = { .ring = ring, .user_data = user_data };
	address_t *req = bpf_map_lookup_elem(&uring_repeating, &key);

	return req ? *req : find_armed(ring, user_data);
}

static __always_inline void forget_request(address_t address, struct uring_request *request)
{
	struct uring_key key = { .ring = request->ring, .user_data = request->user_data };

	if (can_repeat(request->call.call))
		bpf_map_delete_elem(&uring_repeating, &key);
	bpf_map_delete_elem(&uring_requests, &address);
}

/* What a completion says; `req` is 0 where it does not name its request. */
struct completion {
	u64 ring;
	u64 req;
	u64 user_data;
	int ret;
	bool is_over;		/* the request will not complete again */
	bool is_overflow;	/* and then it is known, or nothing is counted */
};

static __always_inline void uring_completed(const struct completion *completion)
{
	struct task_struct *task = current_task();
	struct thread_state *state = uring_thread(task);
	address_t address = completion->req;
	struct uring_request *request;
	int ret = completion->ret;
	ns_t now;

	if (!state)
		return;
	if (!address)
		address = repeating_request(completion->ring, completion->user_data);
	request = address ? bpf_map_lookup_elem(&uring_requests, &address) : NULL;
	if (!request && completion->is_overflow) {
		shared_add(&uring_untold, 1);
		return;
	}
	if (!address)
		return;
	now = bpf_ktime_get_ns();
	if (!request) {
		/* Submitted before we came, or refused before it was submitted. */
		request = new_request(task, state, (void *)address);
		if (!request)
			return;
		request->call.early = 1;
		request->call.start_ns = now;
	}
	if (request->is_untold) {
		request->is_untold = 0;
		shared_add(&uring_untold, -1);
	}
	record_operation(task, state, (void *)address, request, ret, now);
	/* Others may be putting down theirs. */
	if (state->task == (u64)task)
		keep_call(state, &request->call, ret, now);
	forget_findings(&request->call);
	request->call.start_ns = now;
	if (completion->is_over)
		forget_request(address, request);
}

/* The completion found no room in its ring and waits for some: this alone tells of it, not of
 * which request (io_uring/io_uring.c, io_cqring_add_overflow). What counts it is the program of
 * completions, which is jumped to: the kernel would verify it twice.
 */
static __always_inline bool overflow_began(u64 flags)
{
	struct task_struct *task = current_task();
	struct cpu_counts *cpu = uring_thread(task) ? cpu_counts() : NULL;

	if (!cpu)
		return false;
	cpu->overflowing = (u64)task;
	cpu->overflow_flags = flags;
	return true;
}

/* True: that program was jumped to. */
static __always_inline bool overflow_ended(u64 *flags)
{
	struct cpu_counts *cpu = cpu_counts();

	if (!cpu || !cpu->overflowing || cpu->overflowing != (u64)current_task())
		return false;
	cpu->overflowing = 0;
	*flags = cpu->overflow_flags;
	return true;
}

#endif
