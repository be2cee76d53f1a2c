/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which functions of Ruby the current thread is in, by the control frames of what it executes in: a
 * thread of its own, or a fiber. That is a thread-local word of Ruby's, and points to a thread of
 * Ruby which points back, and to the virtual machine. User space tells how these are laid out (udsprobe/symbols/ruby), and
 * reads the functions' names.
 */
#ifndef RUBY_FRAMES_BPF_H
#define RUBY_FRAMES_BPF_H

#include "python_frames.bpf.h"

/* vm_core.h, internal/imemo.h, method.h and iseq.h of Ruby 3.0 to 4.0. */
enum ruby_offsets {
	/* Thread-local ones that are looked at. Ruby 3.1 has 2, 3.3 has 3, Rust's library in YJIT
	 * has more.
	 */
	RUBY_THREAD_WORDS = 64,
	RUBY_DTV_ENTRY_BYTES = 16,	/* glibc's, sysdeps/generic/dl-dtv.h */
	RUBY_DTV = 8,		/* tcbhead_t.dtv, sysdeps/x86_64/nptl/tls.h */
	RUBY_THREAD_MACHINE = 32,	/* struct rb_thread_struct: vm */
	RUBY_SCOPES_MAX = 16,	/* blocks, each in another one */
	RUBY_SEQUENCE_BODY = 16,	/* struct rb_iseq_struct: body */
	RUBY_METHOD_DEFINITION = 16,	/* struct rb_method_entry_struct: def */
	RUBY_OUTER = 8,		/* struct vm_svar: cref_or_me */
	RUBY_TYPE_MASK = 0x1f,	/* RUBY_T_MASK; T_IMEMO, and its kinds */
	RUBY_IMEMO = 0x1a,
	RUBY_IMEMO_SHIFT = 12,
	RUBY_IMEMO_MASK = 0xf,
	RUBY_SPECIAL_VARIABLES = 2,
	RUBY_METHOD_ENTRY = 6,
	RUBY_IS_LOCAL = 2,	/* VM_ENV_FLAG_LOCAL: the frame's environment is in no other one */
	RUBY_ENDS_CALL = 0x20,	/* VM_FRAME_FLAG_FINISH */
	RUBY_KIND_SHIFT = 16,	/* of VM_FRAME_MAGIC_... */
	RUBY_CFUNC = 0x5555,
	RUBY_DUMMY = 0x7999,	/* below the first one */
	RUBY_IS_C = 2,		/* in ruby_frame.function */
};

/* What it executes in begins so; words. */
struct ruby_context {
	u64 stack;
	u64 stack_words;
	u64 frame;
};

struct ruby_control_frame {
	u64 instruction;
	u64 top;
	u64 sequence;
	u64 self;
	u64 environment;
};

/* What is below an environment pointer. */
struct ruby_environment {
	u64 method;		/* or the special variables with it, or what is none */
	u64 outer;
	u64 flags;
};

/* `found` where it is a method entry, or leads to one. */
static __always_inline u64 ruby_method_entry(u64 found)
{
	u64 flags;
	u32 step;

	for (step = 0; step < 2; step++) {
		flags = found ? word_at(found) : 0;
		if ((flags & RUBY_TYPE_MASK) != RUBY_IMEMO)
			return 0;
		flags = flags >> RUBY_IMEMO_SHIFT & RUBY_IMEMO_MASK;
		if (flags == RUBY_METHOD_ENTRY)
			return found;
		if (flags != RUBY_SPECIAL_VARIABLES)
			return 0;
		found = word_at(found + RUBY_OUTER);
	}
	return 0;
}

/* As rb_vm_frame_method_entry of vm_insnhelper.c does. Not static: verified once. */
__noinline u64 ruby_method(u64 environment)
{
	struct ruby_environment scope = {};
	u64 found;
	u32 depth;

	for (depth = 0; depth < RUBY_SCOPES_MAX; depth++) {
		if (bpf_probe_read_user(&scope, sizeof(scope), (void *)(environment - 16)))
			return 0;
		found = ruby_method_entry(scope.method);
		if (found || scope.flags & RUBY_IS_LOCAL)
			return found;
		environment = scope.outer & ~3ULL;
	}
	return 0;
}

/* 0: the thread is none of Ruby's. */
static __always_inline u64 ruby_context(struct ruby_layout *layout, u64 pthread)
{
	u64 entry = word_at(pthread + RUBY_DTV) + (u64)layout->module * RUBY_DTV_ENTRY_BYTES;
	u64 words = word_at(entry), context, thread;
	u32 at;

	for (at = 0; at < RUBY_THREAD_WORDS && words; at++) {
		context = word_at(words + at * sizeof(u64));
		thread = context ? word_at(context + layout->context_thread) : 0;
		if (thread && word_at(thread + layout->thread_context) == context &&
		    word_at(thread + RUBY_THREAD_MACHINE) == layout->machine)
			return context;
	}
	return 0;
}

static __always_inline void copy_ruby_frame(struct ruby_control_frame *frame, struct ruby_frame *to)
{
	u64 flags = word_at(frame->environment), kind = flags >> RUBY_KIND_SHIFT;

	to->function = to->mark = to->method = 0;
	if (kind == RUBY_DUMMY)
		return;
	if (kind == RUBY_CFUNC) {
		to->function = ruby_method(frame->environment);
		to->mark = word_at(to->function + RUBY_METHOD_DEFINITION);
		to->function |= RUBY_IS_C;
	} else if (frame->sequence && frame->instruction) {
		to->method = ruby_method(frame->environment);
		to->mark = word_at(frame->sequence + RUBY_SEQUENCE_BODY);
		to->function = frame->sequence | !!(flags & RUBY_ENDS_CALL);
	}
}

static __always_inline void copy_ruby_frames(struct ruby_layout *layout,
					     struct stack_sample *sample, u64 pthread)
{
	struct ruby_control_frame frame = {};
	struct ruby_context context = {};
	u64 at, end;
	u32 count;

	sample->ruby_count = 0;
	if (!layout->machine || !pthread)
		return;
	at = ruby_context(layout, pthread);
	if (!at || bpf_probe_read_user(&context, sizeof(context), (void *)at))
		return;
	at = context.frame;
	end = context.stack + context.stack_words * sizeof(u64);
	for (count = 0; count < RUBY_FRAMES_MAX; count++) {
		if (at < context.stack || at >= end)
			break;
		if (bpf_probe_read_user(&frame, sizeof(frame), (void *)at))
			break;
		copy_ruby_frame(&frame, &sample->ruby_frames[count]);
		at += layout->frame_bytes;
		sample->ruby_count = count + 1;
	}
}

#endif
