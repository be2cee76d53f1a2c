/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which functions of Python the current thread is in, by CPython's own lists in the memory of its
 * process: interpreters, their threads, the frames of one. User space tells where those are
 * (udsprobe/symbols/cpython), and reads the functions' names.
 */
#ifndef PYTHON_FRAMES_BPF_H
#define PYTHON_FRAMES_BPF_H

#include "compilers.h"
#include "stacks.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

static __always_inline u64 word_at(u64 address)
{
	u64 found = 0;

	bpf_probe_read_user(&found, sizeof(found), (void *)address);
	return found;
}

static __always_inline u32 byte_at(u64 address)
{
	u8 found = 0;

	bpf_probe_read_user(&found, sizeof(found), (void *)address);
	return found;
}

/* What pthread_self() returns there, in glibc and in musl; on arm64 that differs between versions
 * of glibc.
 */
static __always_inline u64 pthread_of(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return 0;
#endif
}

/* Of a thread that has none, and of the 256th and further ones: 0. */
static __always_inline u64 python_thread(struct python_layout *layout, u64 pthread)
{
	u64 interpreter = word_at(layout->interpreters), thread = 0;
	u32 step;

	for (step = 0; step < PYTHON_THREADS_MAX; step++) {
		if (thread) {
			if (word_at(thread + layout->thread_id) == pthread)
				return thread;
			thread = word_at(thread + layout->thread_next);
		} else if (interpreter) {
			thread = word_at(interpreter + layout->interpreter_threads);
			interpreter = word_at(interpreter + layout->interpreter_next);
		} else {
			break;
		}
	}
	return 0;
}

static __always_inline u64 newest_frame(struct python_layout *layout, u64 thread)
{
	u64 found = word_at(thread + layout->thread_frame);

	if (found && layout->has_c_frame)
		found = word_at(found + layout->c_frame_frame);
	return found;
}

/* Whether the interpreter's C function was called for this frame: the next one is its caller's. */
static __always_inline u64 ends_call(struct python_layout *layout, u64 frame)
{
	u32 mark;

	if (layout->mark == PYTHON_EACH_FRAME)
		return 1;
	mark = byte_at(frame + layout->frame_mark);
	return layout->mark == PYTHON_IS_ENTRY ? !!mark : mark >= PYTHON_OWNED_BY_C;
}

static __always_inline void copy_python_frame(struct python_layout *layout, u64 frame,
					      struct python_frame *to)
{
	u64 ends = ends_call(layout, frame), code = 0;

	/* Its references have marks in their lowest bits (Linux does not map the first page). */
	if (layout->mark != PYTHON_OWNER || !ends)
		code = word_at(frame + layout->frame_code) & ~7ULL;
	to->name = code ? word_at(code + layout->code_name) : 0;
	to->code = code | ends;
}

static __always_inline void copy_python_frames(struct python_layout *layout,
					       struct stack_sample *sample, u64 pthread)
{
	u64 thread, frame;
	u32 count;

	sample->python_count = 0;
	if (!layout->interpreters || !pthread)
		return;
	thread = python_thread(layout, pthread);
	if (!thread)
		return;
	frame = newest_frame(layout, thread);
	for (count = 0; count < PYTHON_FRAMES_MAX; count++) {
		if (!frame)
			break;
		copy_python_frame(layout, frame, &sample->python_frames[count]);
		frame = word_at(frame + layout->frame_previous);
		sample->python_count = count + 1;
	}
}

#endif
