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

/* Whether three frames follow each other from there. Not static: then it is verified once, and not
 * for each word that is tried.
 */
__noinline int is_chain(u64 fp, u64 sp)
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

/* The next word in the copy of its stack, where it is a frame pointer that a caller has saved: the C
 * library, and assembly, keep none. Above the frames that are known: what is in no use any more
 * may look like a few of them, but ends.
 */
static __always_inline u64 saved_frame(struct stack_sample *sample, u64 known)
{
	u32 at = RED_ZONE_BYTES + sample->v8_scanned * sizeof(u64);
	u64 found;

	if (at > RED_ZONE_BYTES + (V8_SCANNED_WORDS - 1) * sizeof(u64) || at >= sample->copy_bytes) {
		sample->v8_scanned = V8_SCANNED_WORDS;
		return 0;
	}
	sample->v8_scanned++;
	found = *(u64 *)(sample->copy + at);
	return found > known && is_chain(found, sample->sp) ? found : 0;
}

static __always_inline u64 follow_v8_frame(struct v8_layout *layout, struct stack_sample *sample,
					   u64 fp)
{
	u32 count = sample->v8_count;
	u64 next;

	if (count >= V8_FRAMES_MAX)
		return 0;
	sample->v8_frames[count].fp = fp;
	sample->v8_frames[count].caller = word_at(fp + sizeof(u64));
	sample->v8_frames[count].shared = v8_shared_function(layout, fp);
	sample->v8_count = count + 1;
	next = word_at(fp);
	return next > fp ? next : 0;
}

/* After the copy of its stack. What only looks like a frame names nothing: user space takes the
 * function of a frame only where it finds that frame itself.
 */
static __always_inline void copy_v8_frames(struct v8_layout *layout, struct stack_sample *sample)
{
	u64 fp = sample->fp, known = sample->sp;
	u32 step;

	sample->v8_count = sample->v8_scanned = 0;
	if (!layout->function_type)
		return;
	if (is_chain(fp, sample->sp))
		sample->v8_scanned = V8_SCANNED_WORDS;
	else
		fp = 0;
	for (step = 0; step < V8_SCANNED_WORDS + V8_FRAMES_MAX; step++) {
		if (fp) {
			known = fp;
			fp = follow_v8_frame(layout, sample, fp);
		} else if (sample->v8_scanned < V8_SCANNED_WORDS) {
			fp = saved_frame(sample, known);
		} else {
			break;
		}
	}
}

#endif
