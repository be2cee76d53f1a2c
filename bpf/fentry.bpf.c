// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Strategy "fentry": the same bodies at the functions of system calls, so other calls cost nothing.
 * Each function has a program of its own of a few instructions, which user space writes: it jumps to
 * one of the programs here. Otherwise the kernel would verify a whole body for each function.
 */
#define BY_FUNCTIONS
#include "tracepoint.bpf.c"

#define JUMP(name)                                   \
	struct {                                     \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, 1);              \
		__type(key, u32);                    \
		__type(value, u32);                  \
	} name SEC(".maps")

/* arm64 makes 32-bit calls in the same functions; the tracepoints tell of them. */
#if defined(__TARGET_ARCH_arm64)
#define counts_here() (!stopped && !is_compat(current_task()))
#else
#define counts_here() (!stopped)
#endif

/* Programs can jump to those of functions of the same prototype alone: Linux kernel commit
 * 28ead3eaabc1 "bpf: Prevent tail call between progs attached to different hooks" (in v6.12). To
 * BTF, prototypes differ when parameters have other names.
 */
#define PROTOTYPE(n)                                              \
	JUMP(enters_##n);                                         \
	JUMP(returns_##n);                                        \
                                                                  \
	SEC("fentry")                                             \
	int BPF_PROG(call_enters_##n, struct pt_regs *regs)       \
	{                                                         \
		if (counts_here())                                \
			call_entered(regs, syscall_nr(regs));     \
		return 0;                                         \
	}                                                         \
                                                                  \
	SEC("fexit")                                              \
	int BPF_PROG(call_returns_##n, struct pt_regs *regs, long ret) \
	{                                                         \
		if (counts_here())                                \
			call_returned(regs, ret);                 \
		return 0;                                         \
	}

PROTOTYPE(0)
PROTOTYPE(1)

static __always_inline bool is_traced(struct pt_regs *regs)
{
	struct cpu_counts *cpu = cpu_counts();
	struct thread_state *state = cpu ? caller_state(cpu, regs) : NULL;

	return state && state->flags & THREAD_TRACED;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	if (!stopped && is_compat(current_task()) && is_traced(regs))
		call_entered(regs, nr);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	if (!stopped && is_traced(regs))
		call_returned(regs, ret);
	return 0;
}
