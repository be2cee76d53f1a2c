/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which functions of PHP the process is in, by PHP's own chain of calls in its memory. User space
 * tells where that is (udsprobe/symbols/php), and reads the functions' names. A PHP that is built
 * without threads has one chain, its main thread's.
 */
#ifndef PHP_FRAMES_BPF_H
#define PHP_FRAMES_BPF_H

#include "python_frames.bpf.h"

/* Zend/zend_compile.h and zend_types.h, 7.4 to 8.5. */
enum php_offsets {
	PHP_CALL_FUNCTION = 24,	/* struct _zend_execute_data: func, This.u1.type_info, ... */
	PHP_CALL_INFO = 40,
	PHP_CALL_PREVIOUS = 48,
	PHP_STRING_HASH = 8,	/* struct _zend_string: h, len, val */
	PHP_STRING_LETTERS = 24,
	PHP_CLASS_NAME = 8,	/* struct _zend_class_entry: name */
	PHP_INTERNAL = 1,	/* zend_function.type: ZEND_INTERNAL_FUNCTION */
	PHP_IS_TOP = 1 << 17,	/* ZEND_CALL_TOP */
	PHP_MARK_FACTOR = 31,
};

struct php_call {
	u64 function;
	u64 value;
	u64 info;
	u64 previous;
};

/* The beginning of a zend_function, and where its text is. */
struct php_function_head {
	u64 type;		/* its lowest byte */
	u64 name;
	u64 scope;		/* the class that it is of, or 0 */
};

struct php_text {
	u64 file;
	u64 lines;
};

struct php_string {
	u64 hash;
	u64 length;
};

/* PHP's hash of it; where PHP has not needed that so far, its length and how it ends. 0: it is not
 * there.
 */
static __always_inline u64 php_print(u64 string)
{
	struct php_string found = {};
	u64 letters = string + PHP_STRING_LETTERS;

	if (!string)
		return 0;
	bpf_probe_read_user(&found, sizeof(found), (void *)(string + PHP_STRING_HASH));
	if (found.hash || found.length < sizeof(u64))
		return found.hash ?: found.length;
	return found.length * PHP_MARK_FACTOR + word_at(letters + found.length - sizeof(u64));
}

/* Of its name, class, file and lines: other code may be in its place before user space could look. */
static __always_inline u64 php_mark(struct php_layout *layout, u64 function)
{
	struct php_function_head head = {};
	struct php_text text = {};
	u64 mark;

	bpf_probe_read_user(&head, sizeof(head), (void *)function);
	mark = php_print(head.name) * PHP_MARK_FACTOR;
	if (head.scope)
		mark += php_print(word_at(head.scope + PHP_CLASS_NAME));
	if ((head.type & 0xff) != PHP_INTERNAL)
		bpf_probe_read_user(&text, sizeof(text),
				    (void *)(function + layout->function_file));
	mark = mark * PHP_MARK_FACTOR + php_print(text.file);
	return mark * PHP_MARK_FACTOR + text.lines;
}

static __always_inline void copy_php_frame(struct php_layout *layout, struct php_call *call,
					   struct php_frame *to)
{
	u64 function = call->function & ~7ULL;

	to->mark = function ? php_mark(layout, function) : 0;
	to->function = function | !!(call->info & PHP_IS_TOP);
}

static __always_inline void copy_php_frames(struct php_layout *layout, struct stack_sample *sample)
{
	struct php_call call;
	u64 at;
	u32 count;

	sample->php_count = 0;
	if (!layout->current_call || sample->tid != sample->tgid)
		return;
	at = word_at(layout->current_call);
	for (count = 0; count < PHP_FRAMES_MAX; count++) {
		if (!at)
			break;
		if (bpf_probe_read_user(&call, sizeof(call), (void *)(at + PHP_CALL_FUNCTION)))
			break;
		copy_php_frame(layout, &call, &sample->php_frames[count]);
		at = call.previous;
		sample->php_count = count + 1;
	}
}

#endif
