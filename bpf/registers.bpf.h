/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Numbers and arguments of a system call, native and 32-bit. */
#ifndef REGISTERS_BPF_H
#define REGISTERS_BPF_H

#include "calls.h"
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#if defined(__TARGET_ARCH_x86)

#define TS_COMPAT 2	/* arch/x86/include/asm/thread_info.h */
#define X32_BIT 0x40000000

static __always_inline bool is_compat(struct task_struct *task)
{
	return task_read(task, thread_info.status) & TS_COMPAT;
}

static __always_inline int syscall_nr(struct pt_regs *regs)
{
	return regs->orig_ax;
}

/* Where a fault interrupted a program, its error code stands where a call's number would: bit 2
 * says that it was the program's own (arch/x86/include/asm/trap_pf.h).
 */
static __always_inline bool may_be_fault(int nr)
{
	return (nr & ~0x13) == 4;
}

/* Of the program, behind the instruction that made the call. */
static __always_inline u64 return_address(struct pt_regs *regs)
{
	return regs->ip;
}

static __always_inline u64 stack_pointer(struct pt_regs *regs, bool compat)
{
	return regs->sp;
}

/* Of the instruction that makes a call: syscall, sysenter, int 0x80. */
static __always_inline u64 call_bytes(struct pt_regs *regs)
{
	return 2;
}

static __always_inline u64 first_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->bx : regs->di;
}

static __always_inline u64 second_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->cx : regs->si;
}

static __always_inline u64 third_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->dx : regs->dx;
}

static __always_inline u64 fourth_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->si : regs->r10;
}

#elif defined(__TARGET_ARCH_arm64)

#define X32_BIT 0
#define TIF_32BIT 22	/* arch/arm64/include/asm/thread_info.h */
#define THUMB 0x30	/* in pstate: a 32-bit mode, and its bit T */

static __always_inline bool is_compat(struct task_struct *task)
{
	return task_read(task, thread_info.flags) & (1UL << TIF_32BIT);
}

static __always_inline int syscall_nr(struct pt_regs *regs)
{
	return regs->syscallno;
}

static __always_inline bool may_be_fault(int nr)
{
	return false;
}

static __always_inline u64 return_address(struct pt_regs *regs)
{
	return regs->pc;
}

/* That of 32-bit programs is r13 (arch/arm64/include/asm/ptrace.h, compat_sp). */
static __always_inline u64 stack_pointer(struct pt_regs *regs, bool compat)
{
	return compat ? regs->regs[13] : regs->sp;
}

/* 32-bit and Thumb (arch/arm64/include/asm/ptrace.h, compat_thumb_mode). */
static __always_inline u64 call_bytes(struct pt_regs *regs)
{
	return (regs->pstate & THUMB) == THUMB ? 2 : 4;
}

static __always_inline u64 first_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->orig_x0 : regs->orig_x0;
}

static __always_inline u64 second_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->regs[1] : regs->regs[1];
}

static __always_inline u64 third_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->regs[2] : regs->regs[2];
}

static __always_inline u64 fourth_argument(struct pt_regs *regs, bool compat)
{
	return compat ? (u32)regs->regs[3] : regs->regs[3];
}

#endif

/* socketcall() keeps the arguments of the call it stands for in user memory. */
static __always_inline void read_arguments(struct pt_regs *regs, const struct call_in_flight *call,
					   struct arguments *arguments)
{
	bool compat = call->abi == ABI_COMPAT;
	u32 words[4] = {};

	if (call->is_socketcall) {
		bpf_probe_read_user(words, sizeof(words), (void *)second_argument(regs, true));
		arguments->first = words[0];
		arguments->second = words[1];
		arguments->third = words[2];
		arguments->fourth = words[3];
		return;
	}
	arguments->first = first_argument(regs, compat);
	arguments->second = second_argument(regs, compat);
	arguments->third = third_argument(regs, compat);
	arguments->fourth = fourth_argument(regs, compat);
}

#endif
