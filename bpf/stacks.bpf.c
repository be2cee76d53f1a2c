// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stacks of chosen processes, by a clock. An object of its own: what it costs is paid only while
 * its events are enabled. Every sample goes through a ring: 99 a second and CPU.
 */
#include "compilers.h"
#include "stacks.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP 1

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* udsprobe runs in a PID namespace that is not the host's: device and inode of its file. */
const volatile u64 own_pid_ns_device = 0;
const volatile u64 own_pid_ns_inode = 0;

u64 samples_lost = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLED_PROCESSES_MAX);
	__type(key, u32);
	__type(value, u8);
} sampled_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_sample);
} scratch SEC(".maps");

struct bpf_pidns_info {
	u32 pid;
	u32 tgid;
};

static __always_inline bool learn_who(struct stack_sample *sample)
{
	struct bpf_pidns_info inside = {};
	u64 on_host;

	if (own_pid_ns_inode) {
		if (bpf_get_ns_current_pid_tgid(own_pid_ns_device, own_pid_ns_inode,
						(void *)&inside, sizeof(inside)))
			return false;
		sample->tgid = inside.tgid;
		sample->tid = inside.pid;
	} else {
		on_host = bpf_get_current_pid_tgid();
		sample->tgid = on_host >> 32;
		sample->tid = on_host;
	}
	return bpf_map_lookup_elem(&sampled_processes, &sample->tgid) != NULL;
}

static __always_inline void copy_registers(struct stack_sample *sample)
{
	struct pt_regs *regs;

	sample->ip = sample->sp = sample->fp = sample->link = 0;
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
#if defined(__TARGET_ARCH_x86)
	sample->ip = BPF_CORE_READ(regs, ip);
	sample->sp = BPF_CORE_READ(regs, sp);
	sample->fp = BPF_CORE_READ(regs, bp);
#else
	sample->ip = BPF_CORE_READ(regs, pc);
	sample->sp = BPF_CORE_READ(regs, sp);
	sample->fp = BPF_CORE_READ(regs, regs[29]);
	sample->link = BPF_CORE_READ(regs, regs[30]);
#endif
}

/* By pieces: of a piece that is not there in whole, the kernel copies nothing. */
static __always_inline void copy_stack(struct stack_sample *sample)
{
	u64 from = sample->sp - RED_ZONE_BYTES;
	u32 chunk;

	sample->copy_bytes = 0;
	if (!sample->sp)
		return;
	for (chunk = 0; chunk < COPY_CHUNKS_MAX; chunk++) {
		if (bpf_probe_read_user(sample->copy + chunk * COPY_CHUNK_BYTES, COPY_CHUNK_BYTES,
					(void *)(from + chunk * COPY_CHUNK_BYTES)))
			break;
		sample->copy_bytes += COPY_CHUNK_BYTES;
	}
}

static __always_inline void copy_frames(void *ctx, struct stack_sample *sample)
{
	long found = bpf_get_stack(ctx, sample->kernel_frames, sizeof(sample->kernel_frames), 0);

	sample->kernel_frames_bytes = found > 0 ? found : 0;
	found = bpf_get_stack(ctx, sample->user_frames, sizeof(sample->user_frames),
			      BPF_F_USER_STACK);
	sample->user_frames_bytes = found > 0 ? found : 0;
}

SEC("perf_event")
int sample_cpu(void *ctx)
{
	struct stack_sample *sample;
	u32 zero = 0;
	u64 bytes;

	sample = bpf_map_lookup_elem(&scratch, &zero);
	if (!sample || !learn_who(sample))
		return 0;
	copy_registers(sample);
	copy_frames(ctx, sample);
	copy_stack(sample);
	bytes = at_most(sample->copy_bytes, COPY_BYTES_MAX);
	bytes += __builtin_offsetof(struct stack_sample, copy);
	if (bpf_ringbuf_output(&ring, sample, bytes, BPF_RB_NO_WAKEUP))
		atomic_add(&samples_lost, 1);
	return 0;
}
