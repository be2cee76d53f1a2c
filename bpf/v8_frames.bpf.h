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

static __always_inline void copy_v8_frames(struct v8_layout *layout, struct stack_sample *sample)
{
	u64 fp = sample->fp, next;
	u32 step;

	sample->v8_count = 0;
	if (!layout->function_type)
		return;
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
