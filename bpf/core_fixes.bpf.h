/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every field that moved or was renamed, each with its kernel commit. */
#ifndef CORE_FIXES_BPF_H
#define CORE_FIXES_BPF_H

#include "kernel_types.h"
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Linux kernel commit 90ee6ed776c0 "fs: port files to file_ref" (in v6.13):
 * struct file.f_count (the number of references) became f_ref (that number - 1).
 */
typedef struct {
	long counter;
} atomic64_t___long;

typedef struct {
	atomic64_t___long refcnt;
} file_ref_t___ref;

struct file___ref {
	file_ref_t___ref f_ref;
};

struct file___count {
	atomic64_t___long f_count;
};

/* Linux kernel commit 2f064a59a11f "sched: Change task_struct::state"
 * (in v5.14): the state of a task is __state, 32 bits.
 */
struct task_struct___state {
	long state;
};

struct task_struct___state32 {
	unsigned int __state;
};

struct io_uring_cqe;
struct io_ring_ctx;

/* The tracepoint io_uring_complete has the completion itself for an argument, or (on Debian's
 * 6.1 and 6.12) its fields: the number of arguments tells.
 */
typedef void (*btf_trace_io_uring_complete___cqe)(void *, struct io_ring_ctx *, void *,
						  struct io_uring_cqe *);

#pragma clang attribute pop

static __always_inline long state_of_task(struct task_struct *task)
{
	struct task_struct___state32 *now = (void *)task;
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(now->__state))
		return BPF_CORE_READ(now, __state);
	return BPF_CORE_READ(old, state);
}

/* True when closing this descriptor closes the open file itself. */
static __always_inline bool is_last_reference(struct file *file)
{
	struct file___ref *now = (void *)file;
	struct file___count *old = (void *)file;

	if (bpf_core_field_exists(now->f_ref))
		return BPF_CORE_READ(now, f_ref.refcnt.counter) == 0;
	return BPF_CORE_READ(old, f_count.counter) == 1;
}

#endif
