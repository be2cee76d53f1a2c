// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stacks of chosen processes: by a clock where they run, and where they fall asleep. An object of
 * its own: what it costs is paid only while its events are enabled.
 *
 * A clock's samples go through a ring, 99 a second and CPU. A thread that falls asleep hands over
 * its stack, and when it next leaves a CPU, how long it had slept: the time since, less what it
 * ran and what it waited for a CPU. So no event is needed when it wakes. A thread hands over 400
 * stacks a second, and only while half of the ring is free. Of its other sleeps those that last
 * are seen by the iterator, which user space reads 20 times a second, and of the short ones the
 * time is added up by the program's innermost address.
 */
#include "compilers.h"
#include "core_fixes.bpf.h"
#include "php_frames.bpf.h"
#include "ruby_frames.bpf.h"
#include "stacks.h"
#include "udsprobe.h"
#include "v8_frames.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_AVAIL_DATA 0

/* include/linux/sched.h: it is ending. */
#define TASK_DEAD 0x80

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* udsprobe runs in a PID namespace that is not the host's: device and inode of its file. */
const volatile u64 own_pid_ns_device = 0;
const volatile u64 own_pid_ns_inode = 0;

/* In the object's types for user space. */
const volatile enum stack_record first_record = RECORD_SAMPLE;

u64 samples_lost = 0;
u64 waits_lost = 0;
u64 second_began_ns = 0;
u64 taken_in_second = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLED_PROCESSES_MAX);
	__type(key, u32);
	__type(value, struct sampled_process);
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

/* The one of the probes, where this kernel lets these programs read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLEEPERS_MAX);
	__type(key, u32);
	__type(value, struct sleeper);
} sleepers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNTOLD_MAX);
	__type(key, struct untold_key);
	__type(value, struct untold);
} untold SEC(".maps");

/* The iterator's, which an event can interrupt. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_sample);
} seen SEC(".maps");

struct bpf_pidns_info {
	u32 pid;
	u32 tgid;
};

static __always_inline struct sampled_process *learn_who(struct stack_sample *sample)
{
	struct bpf_pidns_info inside = {};
	u64 on_host;

	if (own_pid_ns_inode) {
		if (bpf_get_ns_current_pid_tgid(own_pid_ns_device, own_pid_ns_inode,
						(void *)&inside, sizeof(inside)))
			return NULL;
		sample->tgid = inside.tgid;
		sample->tid = inside.pid;
	} else {
		on_host = bpf_get_current_pid_tgid();
		sample->tgid = on_host >> 32;
		sample->tid = on_host;
	}
	return bpf_map_lookup_elem(&sampled_processes, &sample->tgid);
}

#if defined(__TARGET_ARCH_x86)
static __always_inline void copy_x86_registers(u64 *to, struct pt_regs *regs)
{
	to[0] = BPF_CORE_READ(regs, ax);
	to[1] = BPF_CORE_READ(regs, dx);
	to[2] = BPF_CORE_READ(regs, cx);
	to[3] = BPF_CORE_READ(regs, bx);
	to[4] = BPF_CORE_READ(regs, si);
	to[5] = BPF_CORE_READ(regs, di);
	to[6] = BPF_CORE_READ(regs, bp);
	to[7] = BPF_CORE_READ(regs, sp);
	to[8] = BPF_CORE_READ(regs, r8);
	to[9] = BPF_CORE_READ(regs, r9);
	to[10] = BPF_CORE_READ(regs, r10);
	to[11] = BPF_CORE_READ(regs, r11);
	to[12] = BPF_CORE_READ(regs, r12);
	to[13] = BPF_CORE_READ(regs, r13);
	to[14] = BPF_CORE_READ(regs, r14);
	to[15] = BPF_CORE_READ(regs, r15);
}
#endif

static __always_inline void copy_registers_from(struct stack_sample *sample, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	sample->ip = BPF_CORE_READ(regs, ip);
	sample->sp = BPF_CORE_READ(regs, sp);
	sample->fp = BPF_CORE_READ(regs, bp);
	copy_x86_registers(sample->x86, regs);
	sample->call = BPF_CORE_READ(regs, orig_ax);
#else
	sample->ip = BPF_CORE_READ(regs, pc);
	sample->sp = BPF_CORE_READ(regs, sp);
	sample->fp = BPF_CORE_READ(regs, regs[29]);
	sample->link = BPF_CORE_READ(regs, regs[30]);
	sample->call = BPF_CORE_READ(regs, syscallno);
#endif
}

static __always_inline void forget_registers(struct stack_sample *sample)
{
	sample->ip = sample->sp = sample->fp = sample->link = 0;
	__builtin_memset(sample->x86, 0, sizeof(sample->x86));
	sample->call = -1;
}

static __always_inline void copy_registers(struct stack_sample *sample)
{
	forget_registers(sample);
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return;
	copy_registers_from(sample,
			    (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()));
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

static __always_inline void copy_stacks(void *ctx, struct sampled_process *process,
					struct stack_sample *sample)
{
	long found;

	sample->pthread = pthread_of((void *)bpf_get_current_task());
	copy_python_frames(&process->python, sample, sample->pthread);
	copy_php_frames(&process->php, sample);
	copy_ruby_frames(&process->ruby, sample, sample->pthread);
	found = bpf_get_stack(ctx, sample->kernel_frames, sizeof(sample->kernel_frames), 0);

	sample->kernel_frames_bytes = found > 0 ? found : 0;
	found = bpf_get_stack(ctx, sample->user_frames, sizeof(sample->user_frames),
			      BPF_F_USER_STACK);
	sample->user_frames_bytes = found > 0 ? found : 0;
	copy_stack(sample);
	copy_v8_frames(&process->v8, sample);
}

static __always_inline long hand_over(struct stack_sample *sample)
{
	u64 bytes = at_most(sample->copy_bytes, COPY_BYTES_MAX);

	bytes += __builtin_offsetof(struct stack_sample, copy);
	return bpf_ringbuf_output(&ring, sample, bytes, BPF_RB_NO_WAKEUP);
}

static __always_inline bool owes(u32 tgid)
{
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	return server && server->in_progress > 0;
}

SEC("perf_event")
int sample_cpu(void *ctx)
{
	struct sampled_process *process;
	struct stack_sample *sample;
	u32 zero = 0;

	sample = bpf_map_lookup_elem(&scratch, &zero);
	if (!sample)
		return 0;
	process = learn_who(sample);
	if (!process)
		return 0;
	sample->record = RECORD_SAMPLE;
	sample->is_owing = owes(sample->tgid);
	copy_registers(sample);
	copy_stacks(ctx, process, sample);
	if (hand_over(sample))
		atomic_add(&samples_lost, 1);
	return 0;
}

/* ------------------------------------------------------------ asleep */

static __always_inline u64 ran_ns(struct task_struct *task)
{
	return BPF_CORE_READ(task, se.sum_exec_runtime);
}

/* Without CONFIG_SCHED_INFO what it waited for a CPU counts as sleep. */
static __always_inline u64 delayed_ns(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return BPF_CORE_READ(task, sched_info.run_delay);
}

static __always_inline u64 slept_ns(struct sleeper *sleeper, struct task_struct *task, u64 now)
{
	s64 slept = now - sleeper->began_ns;

	slept -= ran_ns(task) - sleeper->exec_ns;
	slept -= delayed_ns(task) - sleeper->delay_ns;
	return slept > 0 ? slept : 0;
}

static __always_inline void add_untold(struct sleeper *sleeper, u64 ns)
{
	struct untold_key key = { .tgid = sleeper->tgid, .call = sleeper->call, .ip = sleeper->ip };
	struct untold *sum, none = {};

	sum = bpf_map_lookup_elem(&untold, &key);
	if (!sum) {
		bpf_map_update_elem(&untold, &key, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&untold, &key);
	}
	if (!sum) {
		atomic_add(&waits_lost, 1);
		return;
	}
	atomic_add(&sum->waits, 1);
	atomic_add(&sum->ns, ns);
	if (sleeper->is_owing)
		atomic_add(&sum->owing_ns, ns);
}

static __always_inline void sleep_ended(struct sleeper *sleeper, struct stack_sample *sample,
					struct task_struct *task, u64 now)
{
	u64 ns = slept_ns(sleeper, task, now);

	if (!sleeper->is_told) {
		add_untold(sleeper, ns);
	} else {
		sample->record = RECORD_WAIT_ENDED;
		sample->began_ns = sleeper->began_ns;
		sample->ns = ns;
		if (bpf_ringbuf_output(&ring, sample, __builtin_offsetof(struct stack_sample, ip),
				       BPF_RB_NO_WAKEUP))
			atomic_add(&waits_lost, 1);
	}
	sleeper->began_ns = 0;
}

/* Of the ring, or of what is taken in a second, whichever is nearer to its end. */
static __always_inline u32 taken_eighths(u64 ring_eighths, u64 now)
{
	u64 eighths;

	/* On two CPUs at once: a few more are taken. */
	if (now - second_began_ns > SECOND_NS) {
		second_began_ns = now;
		taken_in_second = 0;
	}
	eighths = taken_in_second / (TAKEN_IN_SECOND / 8);
	if (ring_eighths > eighths)
		eighths = ring_eighths;
	return eighths < 7 ? eighths : 7;
}

/* When it falls asleep too often for all of them, one of the next four is: the first would be, of
 * sleeps in turn, the one behind the longest more often than others. The more is taken, the more
 * who sleeps often leaves to who sleeps seldom.
 */
static __always_inline bool is_due(struct sleeper *sleeper, u64 now)
{
	u64 due = sleeper->due_ns > now ? sleeper->due_ns : now;
	u64 ring_eighths;

	if (due - now > TAKEN_AHEAD_NS / 2) {
		sleeper->left_out = bpf_get_prandom_u32() & 3;
		return false;
	}
	if (sleeper->left_out) {
		sleeper->left_out--;
		return false;
	}
	ring_eighths = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) / (RING_BYTES / 8);
	if (ring_eighths > TAKEN_BELOW_EIGHTHS)
		return false;
	sleeper->due_ns = due + ((u64)TAKEN_EVERY_NS << taken_eighths(ring_eighths, now));
	atomic_add(&taken_in_second, 1);
	return true;
}

static __always_inline void note_sleep(struct sleeper *sleeper, struct stack_sample *sample,
				       struct task_struct *task, u64 now)
{
	sleeper->exec_ns = ran_ns(task);
	sleeper->delay_ns = delayed_ns(task);
	sleeper->ip = sample->ip;
	sleeper->call = sample->call;
	sleeper->tgid = sample->tgid;
	sleeper->tid = sample->tid;
	sleeper->is_owing = owes(sample->tgid);
	sleeper->began_ns = now;
	sample->record = RECORD_WAIT_BEGAN;
	sample->is_owing = sleeper->is_owing;
	sample->began_ns = now;
	sample->ns = 0;
}

static __always_inline struct sleeper *sleeper_of(u32 thread)
{
	struct sleeper none = {};

	bpf_map_update_elem(&sleepers, &thread, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sleepers, &thread);
}

/* Whether its stack is to be handed over. */
static __always_inline bool fell_asleep(struct sleeper *sleeper, struct stack_sample *sample,
					struct task_struct *task, u64 now)
{
	copy_registers(sample);
	note_sleep(sleeper, sample, task, now);
	sleeper->is_told = is_due(sleeper, now);
	return sleeper->is_told;
}

/* The thread on this CPU leaves it. */
SEC("perf_event")
int leave_cpu(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct sampled_process *process;
	struct stack_sample *sample;
	struct sleeper *sleeper;
	u32 zero = 0, thread;
	u64 now;
	long state;

	sample = bpf_map_lookup_elem(&scratch, &zero);
	if (!sample)
		return 0;
	process = learn_who(sample);
	if (!process)
		return 0;
	thread = bpf_get_current_pid_tgid();
	sample->thread = thread;
	now = bpf_ktime_get_ns();
	state = state_of_task(task);
	sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	if (sleeper && sleeper->began_ns)
		sleep_ended(sleeper, sample, task, now);
	if (state & TASK_DEAD)
		bpf_map_delete_elem(&sleepers, &thread);
	if (!state || state & TASK_DEAD)
		return 0;
	if (!sleeper)
		sleeper = sleeper_of(thread);
	if (!sleeper) {
		atomic_add(&waits_lost, 1);
		return 0;
	}
	if (!fell_asleep(sleeper, sample, task, now))
		return 0;
	copy_stacks(ctx, process, sample);
	if (hand_over(sample))
		sleeper->is_told = 0;
	return 0;
}

/* As udsprobe's own PID namespace numbers it; 0: not at all. */
static __always_inline u32 number_for_reader(struct task_struct *task)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	u32 level = BPF_CORE_READ(reader, thread_pid, level);
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid number = {};

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&number, sizeof(number),
			      (void *)&pid->numbers + level * sizeof(number));
	return number.nr;
}

static __always_inline void see_stack(struct task_struct *task, struct stack_sample *sample)
{
	long found;

	forget_registers(sample);
	sample->copy_bytes = sample->user_frames_bytes = sample->python_count = 0;
	sample->v8_count = sample->php_count = sample->ruby_count = 0;
	sample->pthread = pthread_of(task);
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		copy_registers_from(sample, (struct pt_regs *)bpf_task_pt_regs(task));
	found = bpf_get_task_stack(task, sample->kernel_frames, sizeof(sample->kernel_frames), 0);
	sample->kernel_frames_bytes = found > 0 ? found : 0;
}

static __always_inline void look_at_sleeper(struct task_struct *task, struct stack_sample *sample)
{
	u32 thread = BPF_CORE_READ(task, pid);
	struct sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	struct sleeper fresh = {};
	u64 now = bpf_ktime_get_ns();

	sample->tid = number_for_reader(task);
	sample->thread = thread;
	sample->switches = BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw);
	sample->record = RECORD_SAMPLE;
	if (!sleeper) {
		see_stack(task, sample);
		note_sleep(&fresh, sample, task, now);
		fresh.is_told = 1;
		/* It may have woken, and fallen asleep again, meanwhile. */
		if (bpf_map_update_elem(&sleepers, &thread, &fresh, BPF_NOEXIST))
			sample->record = RECORD_SAMPLE;
		return;
	}
	sample->began_ns = *(volatile u64 *)&sleeper->began_ns;
	if (!sample->began_ns)
		return;
	sample->ns = slept_ns(sleeper, task, now);
	if (sleeper->is_told) {
		sample->record = RECORD_WAIT_GOES_ON;
	} else if (sample->ns > SEEN_FROM_NS) {
		see_stack(task, sample);
		sample->is_owing = sleeper->is_owing;
		sleeper->is_told = 1;
		sample->record = RECORD_WAIT_BEGAN;
	}
	if (*(volatile u64 *)&sleeper->began_ns == sample->began_ns)
		return;
	/* The same: this is another sleep. */
	sleeper->is_told = 0;
	sample->record = RECORD_SAMPLE;
}

static __always_inline void is_not_told(u32 thread)
{
	struct sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &thread);

	if (sleeper)
		sleeper->is_told = 0;
}

/* Threads that sleep: those that did when this began, or have slept for a while and were not told
 * of, and how long the others have slept so far.
 * A record that is RECORD_SAMPLE says nothing.
 */
SEC("iter/task")
int tell_sleepers(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct stack_sample *sample;
	u32 zero = 0;
	long state;

	sample = bpf_map_lookup_elem(&seen, &zero);
	if (!task || !sample)
		return 0;
	sample->tgid = number_for_reader(BPF_CORE_READ(task, group_leader));
	if (!bpf_map_lookup_elem(&sampled_processes, &sample->tgid))
		return 0;
	state = state_of_task(task);
	if (!state || state & TASK_DEAD || BPF_CORE_READ(task, on_cpu))
		return 0;
	look_at_sleeper(task, sample);
	if (sample->record == RECORD_SAMPLE)
		return 0;
	/* Where the reader's buffer is full, it comes again: for this one too, of which all is lost. */
	if (bpf_seq_write(ctx->meta->seq, sample, __builtin_offsetof(struct stack_sample, copy)) &&
	    sample->record == RECORD_WAIT_BEGAN)
		is_not_told(sample->thread);
	return 0;
}
