/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who ends the waits of targets' threads, and what they did while the waits lasted. The last
 * times that each thread was off its CPU are remembered, and a wait is divided among those of its
 * author. A wake proves who woke, not who held anything.
 */
#ifndef WAKERS_BPF_H
#define WAKERS_BPF_H

#include "queues.bpf.h"
#include "registers.bpf.h"
#include "thread_slots.bpf.h"

#define S_IFIFO 0010000
#define US_SHIFT 10
/* Younger ones go on when the thread sleeps for the same again, or loses its CPU again. */
#define SLEEPS_JOINED_NS 4000000
#define AWAKE_JOINED_NS 64000000
/* From the arrival of bytes to the wake of who waits for them, on the same CPU. */
#define ARRIVAL_WAKES_NS 10000
/* On a CPU between two waits for one futex, on average: to look at what it waits for, in an
 * interpreter too. Who works longer does something else. On average, because a sleep whose end
 * was not told looks like time on a CPU.
 */
#define LOOKS_NS 1000000
#define SHARE_SHIFT 20
#define FUTEX_BYTES 4
/* What a thread in a poller waits for, in the place of a futex's address. */
#define EVENTS 1

/* include/linux/preempt.h */
#define SOFTIRQ_SERVED 0x100
#define HARDIRQ_MASK 0xf0000
#define NMI_MASK 0xf00000

#if defined(__TARGET_ARCH_x86)

/* Of this CPU: as far from its run queue as the one variable is from the other in the section of
 * such variables (preempt_count.py). Their symbols are not in all kernels' tables.
 */
static __always_inline u32 preempt_count(struct task_struct *task)
{
	u64 at = as_number((u64)run_queue_of(task)) + preempt_count_at;
	u32 count = 0;

	if (bpf_probe_read_kernel(&count, sizeof(count), (void *)at))
		return HARDIRQ_MASK;
	return count;
}

#else

static __always_inline u32 preempt_count(struct task_struct *task)
{
	return task_read(task, thread_info.preempt_count);
}

#endif

/* Threads serve interrupts with CONFIG_PREEMPT_RT, and so do all that enable them again. */
static __always_inline bool serves_softirqs(struct task_struct *task, u32 count)
{
	if (count & SOFTIRQ_SERVED)
		return true;
	return bpf_core_field_exists(task->softirq_disable_cnt) &&
	       task_read(task, softirq_disable_cnt) & SOFTIRQ_SERVED;
}

/* The current task is the author only where it runs itself; the idle task never does. */
static __always_inline u32 author_here(struct task_struct *task)
{
	u32 count = preempt_count(task);

	if (count & (HARDIRQ_MASK | NMI_MASK))
		return AUTHOR_INTERRUPT;
	if (serves_softirqs(task, count))
		return AUTHOR_SOFTIRQ;
	return task_read(task, pid) ? AUTHOR_THREAD : AUTHOR_INTERRUPT;
}

static __always_inline bool is_pipe(struct task_struct *task, u32 fd)
{
	struct file *file = file_of_fd(task, fd);
	struct inode *inode;

	if (!file)
		return false;
	inode = BPF_CORE_READ(file, f_inode);
	return inode && (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFIFO;
}

static __always_inline u8 doing_elsewhere(struct task_struct *task, struct thread_state *state,
					  u8 waits)
{
	switch (waits) {
	case WAITS_CHILD:
		return DOING_CHILD;
	case WAITS_SLEEP:
		return DOING_SLEEP;
	case WAITS_RECV:
	case WAITS_SEND:
		if (state->now.call != CALL_NONE && is_pipe(task, state->now.fd))
			return DOING_PIPE;
	}
	return DOING_OTHER;
}

static __always_inline u8 doing_asleep(struct task_struct *task, struct thread_state *state,
				       u8 activity, u8 waits)
{
	switch (activity) {
	case ACTIVITY_BLOCKED_POLL:
		return DOING_POLL;
	case ACTIVITY_BLOCKED_RECV:
		return DOING_RECV;
	case ACTIVITY_BLOCKED_SEND:
		return DOING_SEND;
	case ACTIVITY_BLOCKED_ACCEPT:
		return DOING_ACCEPT;
	case ACTIVITY_BLOCKED_CONNECT:
		return DOING_CONNECT;
	case ACTIVITY_BLOCKED_DISK:
		return DOING_DISK;
	case ACTIVITY_BLOCKED_LOCK:
		return waits == WAITS_FILE_LOCK ? DOING_FILE_LOCK : DOING_LOCK;
	}
	return doing_elsewhere(task, state, waits);
}

/* The futex that it sleeps for is told by its registers. */
static __always_inline void find_futex(struct task_struct *task, struct thread_past *past)
{
	struct pt_regs *regs;
	bool compat;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs)
		return;
	compat = is_compat(task);
	if (syscall_nr(regs) == (compat ? compat_nr_futex : nr_futex))
		past->object = first_argument(regs, compat);
}

/* What it waits for, where that can be begun anew when a timer has ended it. */
static __always_inline void note_object(struct task_struct *task, struct thread_state *state,
					u32 slot)
{
	struct thread_past *past;

	if (state->doing != DOING_LOCK && state->doing != DOING_POLL)
		return;
	past = past_in_slot(slot);
	if (!past)
		return;
	past->object = state->doing == DOING_POLL ? EVENTS : 0;
	if (state->doing == DOING_LOCK)
		find_futex(task, past);
}

/* A condition of glibc has two futexes side by side, and waiters of both
 * (nptl/pthread_cond_wait.c, g_signals).
 */
static __always_inline bool is_same_object(u64 one, u64 other)
{
	return one && (one ^ other) < 2 * FUTEX_BYTES;
}

static __always_inline ns_t *slept_for(struct ongoing_wait *ongoing, u64 object)
{
	return &ongoing->slept_ns[object & FUTEX_BYTES ? 1 : 0];
}

/* It waits for the same again that it waited for until a timer ended that, and did nothing else. */
static __always_inline bool begins_anew(struct thread_state *state, struct thread_past *past)
{
	struct ongoing_wait *ongoing = &past->ongoing;
	ns_t runq_ns = state->activity_ns[ACTIVITY_RUNQ] - ongoing->runq_before_ns;
	ns_t slept_ns = ongoing->slept_ns[0] + ongoing->slept_ns[1];
	ns_t cpu_ns = state->since_ns - ongoing->since_ns - slept_ns - runq_ns;

	return is_same_object(past->object, ongoing->object) &&
	       cpu_ns < (ns_t)ongoing->sleeps * LOOKS_NS;
}

/* Any sleep but one for the same futex, or in a poller again, is something else. */
static __always_inline void goes_on_waiting(struct thread_state *state, u32 slot)
{
	struct thread_past *past;

	if (!state->waits_anew)
		return;
	past = state->doing == state->waits_anew ? past_in_slot(slot) : NULL;
	if (!past || !begins_anew(state, past))
		state->waits_anew = 0;
}

/* A timer ended this sleep, and the one before. */
static __always_inline bool went_on(struct thread_state *state, struct thread_past *past)
{
	return state->waits_anew && state->doing == DOING_LOCK &&
	       past->ongoing.since_ns < state->left_cpu_ns;
}

/* The last episode goes on: true when this was no more than that. */
static __always_inline bool joined(struct thread_past *past, struct episode *episode,
				   struct thread_state *state, ns_t now)
{
	ns_t left = state->left_cpu_ns, asleep = state->since_ns - left;

	if (state->doing == DOING_CPU && left - episode->left_ns < AWAKE_JOINED_NS)
		asleep = 0;
	else if (state->doing != episode->doing ||
		 (left - episode->left_ns >= SLEEPS_JOINED_NS && !went_on(state, past)))
		return false;
	episode->woken_ns += asleep;
	episode->runq_us += (now - state->since_ns) >> US_SHIFT;
	return true;
}

static __always_inline void remember_episode(u32 slot, struct thread_state *state, u16 call,
					     ns_t now)
{
	struct thread_past *past = past_in_slot(slot);
	struct episode *episode;

	if (!past)
		return;
	if (past->seen && joined(past, &past->last[(past->seen - 1) & (EPISODES - 1)], state, now))
		return;
	episode = &past->last[past->seen & (EPISODES - 1)];
	episode->left_ns = state->left_cpu_ns;
	episode->woken_ns = state->since_ns;
	episode->runq_us = (now - state->since_ns) >> US_SHIFT;
	episode->call = call;
	episode->doing = state->doing;
	past->seen++;
}

static __always_inline ns_t between(ns_t begin, ns_t end, ns_t from, ns_t until)
{
	if (begin < from)
		begin = from;
	if (end > until)
		end = until;
	return end > begin ? end - begin : 0;
}

/* The part of a time awake that the thread was ready to run and had no CPU. */
static __always_inline ns_t runq_part(struct episode *episode, ns_t awake_ns, ns_t end)
{
	u64 awake_us = (end - episode->woken_ns) >> US_SHIFT;
	ns_t part;

	if (end <= episode->woken_ns || !awake_us)
		return 0;
	part = ((awake_ns >> US_SHIFT) * episode->runq_us / awake_us) << US_SHIFT;
	return part < awake_ns ? part : awake_ns;
}

/* A global function that takes numbers: the verifier checks it once, not once per loop iteration.
 * What the author did in the episode that was `back` before its last one, after a moment; the next
 * one began at `end`. Returns when this one began.
 */
__noinline u64 account_episode(u32 slot, u32 author_slot, u32 back, ns_t from, ns_t end)
{
	struct thread_past *past = past_in_slot(slot), *author = past_in_slot(author_slot);
	ns_t awake_ns, runq_ns, asleep_ns;
	struct episode *episode;
	u32 doing;

	if (!past || !author)
		return 0;
	episode = &author->last[(author->seen - 1 - back) & (EPISODES - 1)];
	awake_ns = between(episode->woken_ns, end, from, end);
	runq_ns = runq_part(episode, awake_ns, end);
	past->wake.was_ns[DOING_RUNQ] += runq_ns;
	past->wake.was_ns[DOING_CPU] += awake_ns - runq_ns;
	asleep_ns = between(episode->left_ns, episode->woken_ns, from, end);
	doing = episode->doing;
	if (asleep_ns && doing < DOING_MAX) {
		past->wake.was_ns[doing] += asleep_ns;
		past->wake.calls[doing] = episode->call;
	}
	return episode->left_ns;
}

/* What the author did since `from`, as far as it is remembered. */
static __subprogram int account_author(u32 slot, u32 author_slot, ns_t from, ns_t now)
{
	struct thread_past *past = past_in_slot(slot), *author = past_in_slot(author_slot);
	ns_t until = now;
	u64 seen;

	if (!past || !author)
		return 0;
	seen = author->seen;
	for (u32 back = 0; back < EPISODES && back < seen && until > from; back++)
		until = account_episode(slot, author_slot, back, from, until);
	if (until > from)
		past->wake.was_ns[DOING_UNKNOWN] += until - from;
	return 0;
}

/* 0 where another thread has the entry by now. */
static __always_inline u32 slot_with_past(struct task_struct *task, u32 slot)
{
	struct thread_past *past = past_in_slot(slot & ~SLOT_GONE);

	if (!past || past->task != (u64)task ||
	    past->started_ns != task_read(task, start_boottime))
		return 0;
	return slot & ~SLOT_GONE;
}

/* A thread that is inside a call on a TCP or UDP socket also receives what came for it meanwhile,
 * and wakes those that wait for that (net/core/sock.c, release_sock).
 */
static __always_inline bool may_deliver(u32 waker_slot)
{
	struct thread_state *state = state_in_slot(waker_slot);
	u8 endpoint;

	if (!state || !(state->flags & THREAD_IN_CALL))
		return false;
	endpoint = state->now.endpoint;
	return endpoint == ENDPOINT_TCP || endpoint == ENDPOINT_UDP;
}

/* Its name is read each time: who wakes a parent that waits in vfork() and then runs another program
 * has the name of that from then on.
 */
static __always_inline void name_waker(struct wake *wake, struct task_struct *waker, u32 slot)
{
	wake->is_target = slot != 0;
	wake->tid = tid_of(waker);
	wake->tgid = tgid_of(waker);
	wake->started_ns = task_read(waker, start_boottime);
	bpf_get_current_comm(wake->comm, sizeof(wake->comm));
}

static __always_inline void forget_wake(u32 slot)
{
	struct thread_past *past = past_in_slot(slot);

	if (past)
		past->wake.author = AUTHOR_UNKNOWN;
}

/* A packet woke a poller: of the connection that bytes came for just now, if that is its process's.
 * Each arrival wakes one thread at the most that is told so.
 */
static __always_inline void find_arrival(struct task_struct *task, struct thread_state *state,
					 struct wake *wake, ns_t now)
{
	struct cpu_counts *cpu = cpu_counts();

	if (!cpu || state->doing != DOING_POLL || !cpu->arrival_ns)
		return;
	if (now - cpu->arrival_ns < ARRIVAL_WAKES_NS && cpu->arrival_tgid == tgid_of(task)) {
		wake->author = AUTHOR_PEER;
		wake->tgid = cpu->arrival_peer;
		wake->tid = 0;
	}
	cpu->arrival_ns = 0;
}

/* A loop that ticks waits for its own threads all the time. Of clients and upstreams each wait is
 * one by itself: the loop may have had others.
 */
static __always_inline void goes_on_for(struct thread_state *state, bool is_own)
{
	if (state->waits_anew == DOING_POLL && !is_own)
		state->waits_anew = 0;
}

static __always_inline ns_t wait_began(struct thread_state *state, struct thread_past *past)
{
	return state->waits_anew ? past->ongoing.since_ns : state->since_ns;
}

/* It can be on its CPU still, about to leave it: then nobody made it wait. */
static __subprogram int note_waker(u32 slot, struct task_struct *task, struct thread_state *state)
{
	struct thread_past *past = past_in_slot(slot);
	struct task_struct *waker = current_task();
	u32 author, waker_slot, author_slot;
	ns_t now, from;

	if (!past)
		return 0;
	author = author_here(waker);
	waker_slot = author == AUTHOR_THREAD ? slot_of(waker) : 0;
	if (may_deliver(waker_slot))
		author = AUTHOR_SOFTIRQ;
	past->wake.author = author;
	if (author == AUTHOR_SOFTIRQ)
		find_arrival(task, state, &past->wake, bpf_ktime_get_ns());
	if (author != AUTHOR_THREAD)
		return 0;
	__builtin_memset(past->wake.was_ns, 0, sizeof(past->wake.was_ns));
	past->wake.all_ns = 0;
	name_waker(&past->wake, waker, waker_slot);
	goes_on_for(state, past->wake.tgid == tgid_of(task));
	now = bpf_ktime_get_ns();
	from = state->activity > ACTIVITY_RUNQ ? wait_began(state, past) : now;
	if (from >= now)
		return 0;
	past->wake.all_ns = now - from;
	author_slot = slot_with_past(waker, waker_slot);
	if (author_slot)
		account_author(slot, author_slot, from, now);
	else
		past->wake.was_ns[DOING_UNKNOWN] = now - from;
	return 0;
}

static __always_inline void is_being_woken(struct task_struct *task)
{
	u32 slot = slot_of(task);
	struct thread_state *state = state_in_slot(slot);

	if (state && !(state->flags & THREAD_DORMANT))
		note_waker(slot, task, state);
}

/* The other end of a connection over the network stack, whose packets anybody's interrupt delivers. */
static __always_inline void find_peer(struct thread_state *state, struct wait_key *key)
{
	struct call_in_flight *call = &state->now;
	struct connection *connection;

	connection = connection_of(call->sk, call->inode);
	if (!connection || !connection->peer_tgid)
		return;
	key->author = AUTHOR_PEER;
	key->author_tgid = connection->peer_tgid;
}

static __always_inline bool is_by_network(struct thread_state *state)
{
	struct sock *sk = (void *)state->now.sk;
	u8 endpoint = state->now.endpoint;

	if (!(state->flags & THREAD_IN_CALL) || state->now.call == CALL_NONE)
		return false;
	if (state->now.waits == WAITS_ANSWER)
		return BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX;
	return endpoint == ENDPOINT_TCP || endpoint == ENDPOINT_UDP;
}

static __always_inline void name_author(struct thread_state *state, struct wake *wake,
					struct wait_key *key)
{
	bool is_of_socket = key->doing >= DOING_RECV && key->doing <= DOING_CONNECT;

	key->author = wake->author;
	if (is_of_socket && is_by_network(state)) {
		if (key->author == AUTHOR_THREAD)
			key->author = AUTHOR_SOFTIRQ;
		if (key->author == AUTHOR_SOFTIRQ &&
		    (key->doing == DOING_RECV || key->doing == DOING_SEND))
			find_peer(state, key);
	}
	if (key->author == AUTHOR_PEER && !key->author_tgid)
		key->author_tgid = wake->tgid;
	if (key->author != AUTHOR_THREAD)
		return;
	key->author_tid = wake->tid;
	key->author_tgid = wake->tgid;
	key->author_started_ns = wake->started_ns;
}

static __always_inline struct wait_counts *wait_entry(struct wait_key *key)
{
	struct wait_counts *counts = bpf_map_lookup_elem(&waits, key), fresh = {};

	if (counts)
		return counts;
	bpf_map_update_elem(&waits, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&waits, key);
}

/* One more wait of this author; only one CPU at a time wakes a thread. */
static __always_inline void add_wait(struct wait_counts *counts, struct wake *wake, u32 author,
				     ns_t waited_ns, ns_t now)
{
	ns_t known_ns = 0;

	counts->count++;
	counts->last_ns = now;
	if (author != AUTHOR_THREAD) {
		counts->was_ns[DOING_UNKNOWN] += waited_ns;
		return;
	}
	for (u32 i = 0; i < DOING_MAX; i++) {
		known_ns += wake->was_ns[i];
		counts->was_ns[i] += wake->was_ns[i];
		if (wake->was_ns[i])
			counts->calls[i] = wake->calls[i];
	}
	/* From when it began to wake: it did that. */
	counts->was_ns[DOING_CPU] += waited_ns - known_ns;
	counts->is_target = wake->is_target;
	__builtin_memcpy(counts->comm, wake->comm, sizeof(counts->comm));
}

/* A timer ended it: the thread may begin it anew. */
static __always_inline void may_go_on(struct thread_state *state, struct thread_past *past,
				      u32 author, ns_t now)
{
	struct ongoing_wait *ongoing = &past->ongoing;

	if (!state->waits_anew || ongoing->author != author) {
		ongoing->since_ns = state->since_ns;
		ongoing->slept_ns[0] = 0;
		ongoing->slept_ns[1] = 0;
		ongoing->runq_before_ns = state->activity_ns[ACTIVITY_RUNQ];
		ongoing->sleeps = 0;
		ongoing->author = author;
	}
	ongoing->object = past->object;
	*slept_for(ongoing, past->object) += now - state->since_ns;
	ongoing->sleeps++;
	state->waits_anew = state->doing;
}

/* What the author did from when the first one began, less the moments between them. */
static __always_inline void leave_out_moments(struct wake *wake, ns_t slept_ns, ns_t lasted_ns)
{
	u64 lasted_us = lasted_ns >> US_SHIFT, share;

	if (!lasted_us)
		return;
	share = ((slept_ns >> US_SHIFT) << SHARE_SHIFT) / lasted_us;
	for (u32 i = 0; i < DOING_MAX; i++)
		wake->was_ns[i] = ((wake->was_ns[i] >> US_SHIFT) * share >> SHARE_SHIFT)
				  << US_SHIFT;
}

/* Of those that a timer ended, the ones for this futex. Uses up the key. */
static __always_inline ns_t take_those_for(struct ongoing_wait *ongoing, u64 object,
					   struct wait_key *key)
{
	ns_t slept_ns = *slept_for(ongoing, object);
	struct wait_counts *counts;

	if (!slept_ns)
		return 0;
	key->object = key->doing == DOING_LOCK ? object : 0;
	counts = bpf_map_lookup_elem(&waits, key);
	if (!counts || counts->was_ns[DOING_UNKNOWN] < slept_ns)
		return 0;
	counts->was_ns[DOING_UNKNOWN] -= slept_ns;
	return slept_ns;
}

/* Somebody ended the last one: the others are no timer's any more. Returns how long they took. */
static __always_inline ns_t take_from_timer(struct thread_past *past, struct wait_key *key)
{
	struct ongoing_wait *ongoing = &past->ongoing;

	key->author = ongoing->author;
	key->author_tid = 0;
	key->author_tgid = 0;
	key->author_started_ns = 0;
	return take_those_for(ongoing, ongoing->object, key) +
	       take_those_for(ongoing, ongoing->object ^ FUTEX_BYTES, key);
}

/* Woken while it was leaving its CPU: the waker could see the wait before that one still. */
static __always_inline void forget_other_wait(struct wake *wake, ns_t waited_ns)
{
	if (wake->all_ns > waited_ns)
		__builtin_memset(wake->was_ns, 0, sizeof(wake->was_ns));
}

/* How long the thread waited for who woke it. Uses up the key. */
static __always_inline ns_t ended_by_thread(struct thread_state *state, struct thread_past *past,
					    struct wait_key *key, ns_t now)
{
	ns_t waited_ns = now - state->since_ns;

	if (!state->waits_anew) {
		forget_other_wait(&past->wake, waited_ns);
		return waited_ns;
	}
	waited_ns += take_from_timer(past, key);
	leave_out_moments(&past->wake, waited_ns, now - past->ongoing.since_ns);
	return waited_ns;
}

static __always_inline void add_wait_of(struct thread_state *state, struct thread_past *past,
					struct wait_counts *counts, struct wait_key *key, ns_t now)
{
	u32 author = key->author;
	ns_t waited_ns = now - state->since_ns;

	if ((author == AUTHOR_INTERRUPT || author == AUTHOR_SOFTIRQ) &&
	    (key->object || key->doing == DOING_POLL)) {
		may_go_on(state, past, author, now);
	} else {
		if (author == AUTHOR_THREAD)
			waited_ns = ended_by_thread(state, past, key, now);
		state->waits_anew = 0;
	}
	add_wait(counts, &past->wake, author, waited_ns, now);
}

static __subprogram int wait_ended(struct task_struct *task, struct thread_state *state, u32 slot,
				   ns_t now)
{
	struct thread_past *past = past_in_slot(slot);
	struct wait_counts *counts;
	struct wait_key key = {};

	if (!past || state->flags & THREAD_DORMANT || now <= state->since_ns)
		return 0;
	key.started_ns = past->started_ns;
	key.tid = tid_of(task);
	key.doing = state->doing;
	key.object = key.doing == DOING_LOCK ? past->object : 0;
	name_author(state, &past->wake, &key);
	counts = wait_entry(&key);
	if (!counts && key.object) {
		key.object = 0;
		counts = wait_entry(&key);
	}
	if (counts) {
		counts->tgid = tgid_of(task);
		if (now - state->since_ns > counts->max_ns)
			counts->max_ns = now - state->since_ns;
		add_wait_of(state, past, counts, &key, now);
	} else {
		state->waits_anew = 0;
		shared_add(&waits_turned_away, 1);
	}
	past->wake.author = AUTHOR_UNKNOWN;
	return 0;
}

#endif
