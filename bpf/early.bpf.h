/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Features that tracing programs got after v5.10, and substitutes for kernels without them. */
#ifndef EARLY_BPF_H
#define EARLY_BPF_H

#include "kernel_types.h"
#include "udsprobe.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Loads through it need no helper call and cannot fault (v6.2 and later). */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* The kernel has it: set between open and load. */
const volatile bool direct_loads = false;

/* Marks a thread that has ended but stays on its CPU for a while; the other bits are the entry that
 * it had. On early kernels there is no mark: the entry is removed before the task is.
 */
#define SLOT_GONE 0x80000000

/* Calls `step` (its number, `context`) until it returns 1, at most `count` times, which is at most
 * `limit`. In a global function: the verifier then walks it once, or with bpf_loop() only `step`.
 * Early kernels reject a callback even where it is not reached; and up to v5.10 no loop may begin
 * right behind a call (visit_insn): something comes between.
 */
#ifndef EARLY_KERNEL
#define has_loops() bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)
#define repeat(count, limit, step, context)                     \
	({                                                      \
		if (has_loops())                                \
			bpf_loop(count, step, context, 0);      \
		else                                            \
			repeat_here(count, limit, step, context); \
	})
#else
#define repeat(count, limit, step, context) repeat_here(count, limit, step, context)
#endif

#define repeat_here(count, limit, step, context)                            \
	({                                                                  \
		for (u32 __i = 0; __i < (limit) && __i < (count); __i++) { \
			if (step(__i, context))                             \
				break;                                      \
			barrier_var(__i);                                   \
		}                                                           \
	})

/* Which observation these maps are used for, one after the other (udsprobe/kernel/programs/fresh.py). */
u32 observation = 0;

#ifndef EARLY_KERNEL

/* Linux kernel commit 3ca1032ab7ab "bpf: Implement get_current_task_btf and
 * RET_PTR_TO_BTF_ID" (in v5.11): the current task's fields are loaded directly.
 */
#define current_task() bpf_get_current_task_btf()
#define task_read(task, field) ((task)->field)

/* The same task, to load a pointer from: of one in a task that it trusts, the verifier asks
 * whether it is to be trusted too, and up to v6.18 looks through all the kernel's types for
 * each of four answers (kernel/bpf/btf.c, btf_nested_type_is_trusted). That was a third of
 * the time that loading the programs took.
 */
static __always_inline struct task_struct *untrusted(struct task_struct *task)
{
	if (!direct_loads)
		return task;
	return bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
}

static __always_inline u32 mount_ns_of(struct task_struct *task)
{
	return untrusted(task)->nsproxy->mnt_ns->ns.inum;
}

static __always_inline u32 net_ns_of(struct task_struct *task)
{
	return untrusted(task)->nsproxy->net_ns->ns.inum;
}

/* Of the CPU that it is on. */
static __always_inline struct rq *run_queue_of(struct task_struct *task)
{
	return untrusted(task)->se.cfs_rq->rq;
}

/* The index of a task's entry in thread_states, and above it the observation that it is of; it is
 * freed with the task. Linux kernel commit a10787e6d58c "bpf: Enable task local storage for tracing
 * programs" (in v5.12). No list has all tasks that were given one: those that ended unseen and are
 * in no list any more leave their CPU once more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} thread_slots SEC(".maps");

#define OBSERVATION_SHIFT 32

/* 0: not a target's. For all other tasks on this host this is one comparison. */
static __always_inline u32 slot_of(struct task_struct *task)
{
	u64 *kept;

	if (!untrusted(task)->bpf_storage)
		return 0;
	kept = bpf_task_storage_get(&thread_slots, task, NULL, 0);
	return kept && *kept >> OBSERVATION_SHIFT == observation ? (u32)*kept : 0;
}

/* False: there is no memory for it. */
static __always_inline bool keep_slot(struct task_struct *task, u32 slot)
{
	u64 number = (u64)observation << OBSERVATION_SHIFT | slot, *kept;

	kept = bpf_task_storage_get(&thread_slots, task, &number, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!kept)
		return false;
	/* It has one of an earlier observation, and both parts change at once. */
	*(volatile u64 *)kept = number;
	return true;
}

static __always_inline void forget_slot(struct task_struct *task)
{
	u64 *kept = bpf_task_storage_get(&thread_slots, task, NULL, 0);

	if (kept)
		*kept |= SLOT_GONE;
}

/* Takes the next number. */
static __always_inline u32 take_number(u32 *used)
{
	return __sync_fetch_and_add(used, 1);
}

static __always_inline int add_and_get(int *number, int amount)
{
	return __sync_fetch_and_add(number, amount) + amount;
}

static __always_inline u64 exchange(u64 *place, u64 value)
{
	return __sync_lock_test_and_set(place, value);
}

/* True for exactly one of all callers. */
static __always_inline bool set_once(u64 *time_ns, ns_t now)
{
	return !__sync_val_compare_and_swap(time_ns, 0, now);
}

#else

#define current_task() ((struct task_struct *)bpf_get_current_task())
#define task_read(task, field) BPF_CORE_READ(task, field)
#define untrusted(task) (task)

static __always_inline u32 mount_ns_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
}

static __always_inline u32 net_ns_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
}

static __always_inline struct rq *run_queue_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, se.cfs_rq, rq);
}

/* Keyed by the address of the task; the entry is removed before the task is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, address_t);
	__type(value, u32);
} thread_slots SEC(".maps");

/* An insertion tells the first from the others, as atomic operations do since Linux kernel
 * commit 5ffa25502b5a "bpf: Add instructions for atomic_[cmp]xchg" (in v5.12).
 */
struct claim {
	u64 what;
	u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct claim);
	__type(value, u32);
} claims SEC(".maps");

#define CLAIM_ATTEMPTS 16	/* others that take numbers at the same moment */

static __always_inline u32 slot_of(struct task_struct *task)
{
	address_t address = (address_t)task;
	u32 *slot = bpf_map_lookup_elem(&thread_slots, &address);

	return slot ? *slot : 0;
}

static __always_inline bool keep_slot(struct task_struct *task, u32 slot)
{
	address_t address = (address_t)task;

	return !bpf_map_update_elem(&thread_slots, &address, &slot, BPF_ANY);
}

static __always_inline void forget_slot(struct task_struct *task)
{
	address_t address = (address_t)task;

	bpf_map_delete_elem(&thread_slots, &address);
}

static __always_inline bool claimed(u64 what, u64 number)
{
	struct claim claim = { .what = what, .number = number };
	u32 one = 1;

	return !bpf_map_update_elem(&claims, &claim, &one, BPF_NOEXIST);
}

/* Out of every bound when too many ask at once: then none is given. */
static __always_inline u32 take_number(u32 *used)
{
	u32 first = *used;

	for (u32 i = 0; i < CLAIM_ATTEMPTS; i++) {
		if (claimed((u64)used, first + i)) {
			atomic_add(used, 1);
			return first + i;
		}
	}
	return -1;
}

/* Of two callers at the same moment one or both get the sum. */
static __always_inline int add_and_get(int *number, int amount)
{
	atomic_add(number, amount);
	return *(volatile int *)number;
}

/* Of two callers at the same moment both may get the old value. */
static __always_inline u64 exchange(u64 *place, u64 value)
{
	u64 before = *(volatile u64 *)place;

	*(volatile u64 *)place = value;
	return before;
}

static __always_inline bool set_once(u64 *time_ns, ns_t now)
{
	if (*time_ns || !claimed((u64)time_ns, 0))
		return false;
	*time_ns = now;
	return true;
}

#endif

#endif
