/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which processes hold the CPU that a target waits for. The last stays on each CPU are
 * remembered, and a wait is divided among the stays during it. The last stay alone
 * would often be that of a kernel thread that ran for a moment.
 */
#ifndef CPU_HOLDERS_BPF_H
#define CPU_HOLDERS_BPF_H

#include "core_fixes.bpf.h"
#include "namespaces.bpf.h"

static __always_inline struct cpu_stays *stays_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpu_stays, &zero);
}

/* Time by the scheduler's clock, which costs no call: the idle task has none of its own. */
static __always_inline void remember_stay(struct task_struct *prev, struct task_struct *next,
					  bool is_target)
{
	struct cpu_stays *stays = stays_here();
	struct cpu_stay *stay;

	if (!stays)
		return;
	stay = &stays->last[stays->seen++ & (CPU_STAYS - 1)];
	stay->end_ns = next->pid ? next->se.exec_start : prev->se.exec_start;
	stay->who.tgid = tgid_of(prev);
	/* The idle tasks of all CPUs share one entry, with tgid 0. */
	stay->who.started_ns = prev->pid ? untrusted(prev)->group_leader->start_boottime : 0;
	stay->is_target = is_target;
}

/* Global functions that take numbers: the verifier checks each once, not once per loop iteration. */
__noinline u32 credit_holder(u64 number, ns_t waited_ns)
{
	struct cpu_holder *holder, fresh = {};
	struct cpu_stays *stays = stays_here();
	struct cpu_holder_key key;
	struct cpu_stay *stay;

	if (!stays)
		return 0;
	stay = &stays->last[number & (CPU_STAYS - 1)];
	key = stay->who;
	holder = bpf_map_lookup_elem(&cpu_holders, &key);
	if (!holder) {
		bpf_map_update_elem(&cpu_holders, &key, &fresh, BPF_NOEXIST);
		holder = bpf_map_lookup_elem(&cpu_holders, &key);
	}
	if (!holder) {
		/* No room, as many came and went since the last sample: counted together. */
		if (stay->is_target)
			shared_add(&target_holders_rest_ns, waited_ns);
		else
			shared_add(&holders_rest_ns, waited_ns);
		return 0;
	}
	shared_add(&holder->waited_ns, waited_ns);
	/* Never taken back: on early kernels the last stay of one that ends is told as a stranger's. */
	if (stay->is_target)
		holder->is_target = 1;
	return 0;
}

/* How much of the last `waited_ns` the stay takes that was `back` stays before the last one. */
__noinline u64 overlap_ns(u64 last, u32 back, ns_t waited_ns)
{
	struct cpu_stays *stays = stays_here();
	ns_t now, from, begin, end;

	if (!stays)
		return 0;
	now = stays->last[last & (CPU_STAYS - 1)].end_ns;
	from = now > waited_ns ? now - waited_ns : 0;
	begin = stays->last[(last - back - 1) & (CPU_STAYS - 1)].end_ns;
	end = stays->last[(last - back) & (CPU_STAYS - 1)].end_ns;
	if (begin < from)
		begin = from;
	return end > begin ? end - begin : 0;
}

/* The time before the remembered stays is divided in the same proportions. */
static __subprogram int credit_holders(ns_t waited_ns)
{
	struct cpu_stays *stays = stays_here();
	ns_t covered_ns = 0, left_ns, part_ns;
	u64 last;

	if (!stays)
		return 0;
	last = stays->seen - 1;
	for (u32 back = 0; back < CPU_STAYS - 1 && covered_ns < waited_ns; back++)
		covered_ns += overlap_ns(last, back, waited_ns);
	left_ns = covered_ns;
	if (covered_ns >> 10 == 0) {
		credit_holder(last, waited_ns);
		return 0;
	}
	for (u32 back = 0; back < CPU_STAYS - 1 && left_ns; back++) {
		part_ns = overlap_ns(last, back, waited_ns);
		if (!part_ns)
			continue;
		left_ns -= part_ns;
		/* In units of 1024 ns, so that no wait is too long to be multiplied. */
		if (covered_ns != waited_ns)
			part_ns = (((part_ns >> 10) * (waited_ns >> 10)) / (covered_ns >> 10)) << 10;
		credit_holder(last - back, part_ns);
	}
	return 0;
}

#endif
