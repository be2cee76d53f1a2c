/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Clients that sleep in connect() because the queue of a Unix listener is full. The kernel keeps
 * them in a list of the listener's (net/unix/af_unix.c, unix_wait_for_peer), so clients
 * that waited before attach are found as well.
 */
#ifndef WAITERS_BPF_H
#define WAITERS_BPF_H

#include "connects.bpf.h"

#define WAITER_STEPS 1024	/* of one walk on kernels without bpf_loop() */
#define WAITER_WALKS 64

/* Where a walk is. Iterators run one at a time. */
struct waiter_walk {
	struct list_head *head;
	struct list_head *at;
	u32 found;
	u32 is_over;
	u32 adopts;
};

struct waiter_walk waiter_walk = {};

/* The connect() began before attach, so its wait is counted from now. The rest is read when it
 * returns. False: it was known already, or there is no room.
 */
static __always_inline bool adopt_connecting(u32 tid)
{
	struct connecting connecting = { .sleeps = SLEPT_BEFORE };
	long refused;

	connecting.newest_listener_ns = newest_listener_ns;
	connecting.start_ns = bpf_ktime_get_ns();
	refused = bpf_map_update_elem(&connectings, &tid, &connecting, BPF_NOEXIST);
	if (refused && !bpf_map_lookup_elem(&connectings, &tid))
		shared_add(&connects_turned_away, 1);
	return !refused;
}

/* It is entered first and then seen in the list, so its connect() returns after the entry. */
static __always_inline void adopt_waiter(struct list_head *at, struct list_head *next)
{
	struct wait_queue_entry *waiter =
		(void *)at - bpf_core_field_offset(struct wait_queue_entry, entry);
	struct task_struct *task = BPF_CORE_READ(waiter, private);
	u32 tid = BPF_CORE_READ(task, pid);

	if (tid && adopt_connecting(tid) && BPF_CORE_READ(next, prev) != at)
		bpf_map_delete_elem(&connectings, &tid);
}

/* The list is not locked. A client that is removed during the walk points to itself or to nothing;
 * then the walk starts again.
 */
static long next_waiter(u32 index, void *unused)
{
	struct waiter_walk *walk = &waiter_walk;
	struct list_head *at = walk->at, *next = BPF_CORE_READ(at, next);

	walk->is_over = next == walk->head;
	if (!next || BPF_CORE_READ(next, prev) != at || (next == at && !walk->is_over)) {
		walk->at = walk->head;
		walk->found = 0;
		return 0;
	}
	if (at != walk->head) {
		walk->found++;
		if (walk->adopts)
			adopt_waiter(at, next);
	}
	walk->at = next;
	return walk->is_over ? 1 : 0;
}

__noinline int walk_on(void)
{
	repeat(WAITER_STEPS, WAITER_STEPS, next_waiter, NULL);
	return 0;
}

static __always_inline u32 walk_waiters(struct sock *sk, bool adopts)
{
	struct list_head *head = &((struct unix_sock *)sk)->peer_wq.wait.head;

	waiter_walk.head = head;
	waiter_walk.at = head;
	waiter_walk.found = 0;
	waiter_walk.adopts = adopts;
	waiter_walk.is_over = BPF_CORE_READ(head, next) == head;
	/* As in repeat_here(). */
	for (u32 i = 0; i < WAITER_WALKS && !waiter_walk.is_over; i++) {
		walk_on();
		barrier_var(i);
	}
	return waiter_walk.found;
}

#endif
