/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which functions of JavaScript the current thread is in: V8 keeps the function of each frame beside
 * its frame pointer, and Node's own C++ is built with frame pointers. Here its shared part is read,
 * which stays where it is: the function itself may have moved before user space could look.
 */
#ifndef V8_FRAMES_BPF_H
#define V8_FRAMES_BPF_H

#include "python_frames.bpf.h"

/* A pointer to an object has this in its lowest bits, src/common/globals.h. */
#define V8_IS_OBJECT(word) (((word) & 3) == 1)

static __always_inline u64 v8_shared_function(struct v8_layout *layout, u64 fp)
{
	u64 function, map, found;
	u16 type = 0;

	/* Frames of other kinds have a number in the place of the context. */
	if (!V8_IS_OBJECT(word_at(fp + layout->frame_context)))
		return 0;
	function = word_at(fp + layout->frame_function);
	if (!V8_IS_OBJECT(function))
		return 0;
	map = word_at(function - 1);
	bpf_probe_read_user(&type, sizeof(type), (void *)(map - 1 + layout->map_type));
	if (type != layout->function_type)
		return 0;
	found = word_at(function - 1 + layout->function_shared);
	return V8_IS_OBJECT(found) ? found - 1 : 0;
}

/* Whether three frames follow each other from there. */
static __always_inline bool is_chain(u64 fp, u64 sp)
{
	u64 next, last;

	if (fp <= sp || fp - sp > V8_STACK_BYTES_MAX || fp & 15)
		return false;
	next = word_at(fp);
	if (next <= fp || next - sp > V8_STACK_BYTES_MAX)
		return false;
	last = word_at(next);
	return last > next && last - sp <= V8_STACK_BYTES_MAX;
}

/* The C library, and assembly, keep no frame pointer: then the first one that a caller has saved,
 * in the copy of the stack. What only looks like one names nothing: user space takes the function
 * of a frame only where it finds that frame itself.
 */
static __always_inline u64 first_frame(struct stack_sample *sample)
{
	u32 word, at;
	u64 found;

	if (is_chain(sample->fp, sample->sp))
		return sample->fp;
	for (word = 0; word < V8_SCANNED_WORDS; word++) {
		at = RED_ZONE_BYTES + word * sizeof(u64);
		if (at >= sample->copy_bytes)
			break;
		found = *(u64 *)(sample->copy + at);
		if (is_chain(found, sample->sp))
			return found;
	}
	return 0;
}

/* After the copy of its stack. */
static __always_inline void copy_v8_frames(struct v8_layout *layout, struct stack_sample *sample)
{
	u64 fp, next;
	u32 step;

	sample->v8_count = 0;
	if (!layout->function_type)
		return;
	fp = first_frame(sample);
	for (step = 0; step < V8_FRAMES_MAX; step++) {
		if (!fp)
			break;
		sample->v8_frames[step].fp = fp;
		sample->v8_frames[step].shared = v8_shared_function(layout, fp);
		sample->v8_count = step + 1;
		next = word_at(fp);
		if (next <= fp)
			break;
		fp = next;
	}
}

#endif
