/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For whom a target waits when it waits for a CPU: the last stays on each CPU are
 * remembered, and a wait is divided by who was there during it. Who was last alone
 * would often be a kernel thread that was there for a moment.
 */
#ifndef CPU_HOLDERS_BPF_H
#define CPU_HOLDERS_BPF_H

#include "core_fixes.bpf.h"
#include "namespaces.bpf.h"

/* Time by the scheduler's clock, which costs no call: the idle task has none of its own. */
static __always_inline void remember_stay(struct task_struct *prev, struct task_struct *next)
{
	struct cpu_stays *stays;
	struct cpu_stay *stay;
	u32 zero = 0;

	stays = bpf_map_lookup_elem(&cpu_stays, &zero);
	if (!stays)
		return;
	stay = &stays->last[stays->seen++ & (CPU_STAYS - 1)];
	stay->end_ns = next->pid ? next->se.exec_start : prev->se.exec_start;
	stay->who.tgid = tgid_of(prev);
	/* The idle tasks of all CPUs are one nobody. */
	stay->who.started_ns = prev->pid ? prev->group_leader->start_boottime : 0;
	stay->is_target = thread_state_of(prev) != NULL;
}

static __always_inline void credit_holder(struct cpu_stay *stay, ns_t waited_ns)
{
	struct cpu_holder *holder, fresh = {};
	struct cpu_holder_key key = stay->who;

	holder = bpf_map_lookup_elem(&cpu_holders, &key);
	if (!holder) {
		bpf_map_update_elem(&cpu_holders, &key, &fresh, BPF_NOEXIST);
		holder = bpf_map_lookup_elem(&cpu_holders, &key);
	}
	if (!holder) {
		shared_add(&holders_turned_away, 1);
		return;
	}
	shared_add(&holder->waited_ns, waited_ns);
	holder->is_target = stay->is_target;
}

/* The part of the last `waited_ns` in which the stay `back` before the last one was. */
static __always_inline ns_t overlap_ns(struct cpu_stays *stays, u64 last, u32 back, ns_t waited_ns)
{
	ns_t now = stays->last[last & (CPU_STAYS - 1)].end_ns;
	ns_t from = now > waited_ns ? now - waited_ns : 0;
	ns_t begin = stays->last[(last - back - 1) & (CPU_STAYS - 1)].end_ns;
	ns_t end = stays->last[(last - back) & (CPU_STAYS - 1)].end_ns;

	if (begin < from)
		begin = from;
	return end > begin ? end - begin : 0;
}

/* What is older than what is remembered was held by the same ones, as far as anybody knows. */
static __noinline void credit_holders(ns_t waited_ns)
{
	struct cpu_stays *stays;
	ns_t covered_ns = 0, left_ns, part_ns;
	u32 zero = 0;
	u64 last;

	stays = bpf_map_lookup_elem(&cpu_stays, &zero);
	if (!stays)
		return;
	last = stays->seen - 1;
	for (u32 back = 0; back < CPU_STAYS - 1 && covered_ns < waited_ns; back++)
		covered_ns += overlap_ns(stays, last, back, waited_ns);
	left_ns = covered_ns;
	if (covered_ns >> 10 == 0) {
		credit_holder(&stays->last[last & (CPU_STAYS - 1)], waited_ns);
		return;
	}
	for (u32 back = 0; back < CPU_STAYS - 1 && left_ns; back++) {
		part_ns = overlap_ns(stays, last, back, waited_ns);
		if (!part_ns)
			continue;
		left_ns -= part_ns;
		/* In units of 1024 ns, so that no wait is too long to be multiplied. */
		if (covered_ns != waited_ns)
			part_ns = (((part_ns >> 10) * (waited_ns >> 10)) / (covered_ns >> 10)) << 10;
		credit_holder(&stays->last[(last - back) & (CPU_STAYS - 1)], part_ns);
	}
}

#endif
