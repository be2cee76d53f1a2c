/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Calls that a signal interrupts. Without a handler the kernel restarts the call at once. With a
 * handler the call is set aside until the handler returns to the frame that made it. There the call
 * fails with EINTR or is restarted. Calls that the handler makes meanwhile have frames of their own.
 * If a handler never returns (siglongjmp), the call never returns either.
 */
#ifndef INTERRUPTED_BPF_H
#define INTERRUPTED_BPF_H

#include "maps.bpf.h"
#include "registers.bpf.h"
#include "thread_slots.bpf.h"

static __always_inline bool is_nr(struct call_in_flight *call, u32 native, u32 compat)
{
	return call->nr == (call->abi == ABI_COMPAT ? compat : native);
}

static __always_inline bool is_sigreturn(struct call_in_flight *call)
{
	return is_nr(call, nr_rt_sigreturn, compat_nr_rt_sigreturn) ||
	       (call->abi == ABI_COMPAT && call->nr == compat_nr_sigreturn);
}

/* The call `now` will be restarted: it is the thread's next call, unless a handler runs before. */
static __subprogram int keep_interrupted(struct thread_state *state, struct pt_regs *regs,
					 long ret, ns_t now)
{
	struct interrupted_call *kept = &state->interrupted;

	kept->call = state->now;
	kept->call.send_blocked_before_ns =
		state->activity_ns[ACTIVITY_BLOCKED_SEND] - kept->call.send_blocked_before_ns;
	kept->at_ns = now;
	kept->stack = stack_pointer(regs, kept->call.abi == ABI_COMPAT);
	kept->return_address = return_address(regs);
	kept->result = ret;
	kept->fails = ret != -ERESTARTNOINTR;
	state->flags |= THREAD_INTERRUPTED;
	return 0;
}

/* The call goes on with the time it had spent so far; the time in between is not counted. */
static __always_inline void go_on(struct thread_state *state, struct call_in_flight *call,
				  ns_t apart_ns)
{
	call->start_ns += apart_ns;
	call->send_blocked_before_ns =
		state->activity_ns[ACTIVITY_BLOCKED_SEND] - call->send_blocked_before_ns;
}

static __always_inline struct interrupted_calls *set_aside_by(struct thread_state *state)
{
	address_t task = state->task;

	return bpf_map_lookup_elem(&interrupted_calls, &task);
}

/* The handler of this call did not return, and never will. */
static __always_inline void count_left(struct interrupted_call *call)
{
	if (call->call.call != CALL_NONE)
		shared_add(&calls_left, 1);
}

/* No room to set the call aside: one that will fail is lost, one that restarts is counted. */
static __always_inline void count_unfollowed(struct interrupted_call *call)
{
	struct cpu_counts *cpu = cpu_counts();

	if (call->call.call == CALL_NONE || !call->fails || !cpu)
		return;
	count_add(&cpu->events_seen, 1);
	count_add(&cpu->lost_map_full, 1);
	shared_add(&interrupted_calls_turned_away, 1);
}

/* The place for a call: that of the same frame, which makes one call at a time, or else that of the
 * call that was interrupted first.
 */
static __always_inline u32 place_for(struct interrupted_calls *all, u64 stack)
{
	ns_t oldest_ns = ~0ULL;
	u32 place = 0;

	for (u32 i = 0; i < INTERRUPTED_MAX; i++) {
		if (all->calls[i].stack == stack)
			return i;
		if (all->calls[i].at_ns < oldest_ns) {
			oldest_ns = all->calls[i].at_ns;
			place = i;
		}
	}
	return place;
}

/* A handler runs, and the call that it interrupted waits for its return. */
static __subprogram int set_aside(struct thread_state *state)
{
	struct interrupted_call *call = &state->interrupted, *place;
	struct interrupted_calls *all = set_aside_by(state);
	address_t task = state->task;

	state->flags &= ~THREAD_INTERRUPTED;
	if (!all) {
		bpf_map_update_elem(&interrupted_calls, &task, &no_interrupted_calls, BPF_ANY);
		all = bpf_map_lookup_elem(&interrupted_calls, &task);
	}
	if (!all) {
		count_unfollowed(call);
		return 0;
	}
	state->flags |= THREAD_SET_ASIDE;
	place = &all->calls[place_for(all, call->stack) & (INTERRUPTED_MAX - 1)];
	if (!place->stack)
		all->used++;
	else if (place->stack == call->stack)
		count_left(place);
	else
		count_unfollowed(place);
	*place = *call;
	return 0;
}

/* signal_deliver tells of each signal, right before the program goes on with the handler. */
static __always_inline void handler_begins(struct k_sigaction *action)
{
	struct thread_state *state;
	int result;

	if ((u64)action->sa.sa_handler <= SIG_IGN)
		return;
	state = thread_state_of(current_task());
	if (!state || !(state->flags & THREAD_INTERRUPTED))
		return;
	result = state->interrupted.result;
	if (result == -ERESTARTSYS && action->sa.sa_flags & SA_RESTART)
		state->interrupted.fails = 0;
	set_aside(state);
}

static __always_inline void take_out(struct thread_state *state, struct interrupted_calls *all,
				     struct interrupted_call *call)
{
	address_t task = state->task;

	call->stack = 0;
	call->at_ns = 0;
	all->used--;
	if (all->used)
		return;
	state->flags &= ~THREAD_SET_ASIDE;
	bpf_map_delete_elem(&interrupted_calls, &task);
}

/* INTERRUPTED_MAX if that frame has no interrupted call. */
static __always_inline u32 place_of(struct interrupted_calls *all, u64 stack)
{
	for (u32 i = 0; i < INTERRUPTED_MAX; i++)
		if (stack && all->calls[i].stack == stack)
			return i;
	return INTERRUPTED_MAX;
}

/* rt_sigreturn has put back the registers of the frame that was interrupted. True: it goes on behind
 * its call, now `interrupted`, which has failed with EINTR.
 */
static __noinline bool handler_returned(struct thread_state *state, struct pt_regs *regs)
{
	u64 stack = stack_pointer(regs, state->now.abi == ABI_COMPAT);
	struct interrupted_calls *all = set_aside_by(state);
	u32 place = all ? place_of(all, stack) : INTERRUPTED_MAX;
	u64 behind, address = return_address(regs);
	struct interrupted_call *call;

	if (!all || place >= INTERRUPTED_MAX)
		return false;
	call = &all->calls[place & (INTERRUPTED_MAX - 1)];
	behind = call->return_address;
	if (address != behind && address + call_bytes(regs) != behind)
		return false;
	state->interrupted = *call;
	take_out(state, all, call);
	if (address != behind) {
		state->flags |= THREAD_INTERRUPTED;
		return false;
	}
	go_on(state, &state->interrupted.call, 0);
	return true;
}

/* The frame makes a new call, so its interrupted call has ended. */
static __subprogram int leave_call_of(struct thread_state *state, u64 stack)
{
	struct interrupted_calls *all = set_aside_by(state);
	u32 place = all ? place_of(all, stack) : INTERRUPTED_MAX;
	struct interrupted_call *call;

	if (!all || place >= INTERRUPTED_MAX)
		return 0;
	call = &all->calls[place & (INTERRUPTED_MAX - 1)];
	count_left(call);
	take_out(state, all, call);
	return 0;
}

/* The thread ends, or its program does, inside a handler. */
static __subprogram int leave_all(struct thread_state *state)
{
	struct interrupted_calls *all = set_aside_by(state);
	address_t task = state->task;

	state->flags &= ~THREAD_SET_ASIDE;
	if (!all)
		return 0;
	for (u32 i = 0; i < INTERRUPTED_MAX; i++)
		if (all->calls[i].stack)
			count_left(&all->calls[i]);
	bpf_map_delete_elem(&interrupted_calls, &task);
	return 0;
}

static __always_inline bool is_made_again(struct thread_state *state, u64 stack, u64 address)
{
	struct interrupted_call *kept = &state->interrupted;
	struct call_in_flight *call = &state->now;

	if (stack != kept->stack || address != kept->return_address)
		return false;
	return (call->nr == kept->call.nr && call->abi == kept->call.abi) ||
	       is_nr(call, nr_restart_syscall, compat_nr_restart_syscall);
}

/* True: the call `now` is one that began before. On another socket than before, if the program
 * gave the descriptor's number away meanwhile.
 */
static __noinline bool resume_interrupted(struct thread_state *state, struct pt_regs *regs,
					  ns_t now)
{
	struct call_in_flight *call = &state->now, *old = &state->interrupted.call;
	u64 stack = stack_pointer(regs, call->abi == ABI_COMPAT);
	bool was_interrupted = state->flags & THREAD_INTERRUPTED;

	if (was_interrupted && is_made_again(state, stack, return_address(regs))) {
		state->flags &= ~THREAD_INTERRUPTED;
		go_on(state, old, now - state->interrupted.at_ns);
		if (call->nr != old->nr) {
			*call = *old;
			return true;
		}
		call->early = old->early;
		call->start_ns = old->start_ns;
		call->off_cpu_ns = old->off_cpu_ns;
		call->runq_ns = old->runq_ns;
		call->send_blocked_before_ns = old->send_blocked_before_ns;
		return true;
	}
	/* A handler began, and signal_deliver was missed. */
	if (was_interrupted)
		set_aside(state);
	leave_call_of(state, stack);
	return false;
}

#endif
