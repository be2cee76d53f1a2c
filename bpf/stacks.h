/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the stack sampler hands over: one record for each sample. */
#ifndef STACKS_H
#define STACKS_H

#include "kernel_types.h"

enum stack_limits {
	KERNEL_FRAMES_MAX = 64,
	USER_FRAMES_MAX = 127,	/* PERF_MAX_STACK_DEPTH */
	COPY_CHUNK_BYTES = 1024,
	COPY_CHUNKS_MAX = 16,
	COPY_BYTES_MAX = COPY_CHUNK_BYTES * COPY_CHUNKS_MAX,
	RED_ZONE_BYTES = 128,	/* x86-64 ABI, 3.2.2 */
	SAMPLED_PROCESSES_MAX = 1024,
	RING_BYTES = 1 << 22,
	SLEEPERS_MAX = 8192,
	/* So often a thread's stacks are taken when it falls asleep: on average, and at once; as
	 * long as few are.
	 */
	TAKEN_EVERY_NS = 2500000,
	TAKEN_AHEAD_NS = 100 * TAKEN_EVERY_NS,
	TAKEN_BELOW_EIGHTHS = 5,	/* of the ring: ends of sleeps need some */
	/* Of all threads: as many as are held until they are named (EVENTS_MAX). */
	TAKEN_IN_SECOND = 1500,
	SECOND_NS = 1000000000,
	SEEN_FROM_NS = 20000000,
	UNTOLD_MAX = 4096,
	PYTHON_THREADS_MAX = 256,
	PYTHON_FRAMES_MAX = 128,
	V8_FRAMES_MAX = 128,
	PHP_FRAMES_MAX = 128,
	RUBY_FRAMES_MAX = 128,
	V8_SCANNED_WORDS = 256,
	X86_REGISTERS = 16,
	V8_STACK_BYTES_MAX = 1 << 20,	/* of its stack, V8 takes 984 KB unless it is told otherwise */
};

enum stack_record {
	RECORD_SAMPLE = 0,	/* it ran */
	RECORD_WAIT_BEGAN,	/* it falls asleep there */
	RECORD_WAIT_ENDED,	/* `ns` of sleep; nothing behind that is filled in */
	RECORD_WAIT_GOES_ON,	/* `ns` until now; the same */
};

/* How a frame of CPython tells that the interpreter's C function was called for it. */
enum python_mark {
	PYTHON_EACH_FRAME = 0,	/* it is called for each, until 3.10 */
	PYTHON_IS_ENTRY,	/* by a byte, 3.11 */
	PYTHON_OWNER,		/* behind it is a frame of nobody's that C owns, from 3.12 on */
};

enum python_owner {
	PYTHON_OWNED_BY_C = 3,	/* and above: Include/internal/pycore_frame.h, enum _frameowner */
};

/* Where the CPython of a process keeps what it runs. An address, and offsets in bytes. */
struct python_layout {
	u64 interpreters;	/* head of their list; 0: it is no CPython, or none that is known */
	u32 interpreter_next;
	u32 interpreter_threads;
	u32 thread_next;
	u32 thread_id;
	u32 thread_frame;
	u32 has_c_frame;	/* that leads to its newest frame: 3.11 and 3.12 */
	u32 c_frame_frame;
	u32 frame_code;
	u32 frame_previous;
	u32 frame_mark;
	u32 mark;
	u32 code_name;
};

/* `code`: address of the code object, 0 for none; its lowest bit is set where the interpreter's C
 * function was called for the frame. `name`: address of the function's name, which changes where
 * other code takes this one's place.
 */
struct python_frame {
	u64 code;
	u64 name;
};

/* How the V8 of a process keeps the functions of its frames. Offsets in bytes, and the type of a
 * function; 0: it has no V8, or none that is known.
 */
struct v8_layout {
	s32 frame_context;
	s32 frame_function;
	u32 map_type;
	u32 function_type;
	u32 function_shared;
	u32 unused;
};

/* `shared`: address of the SharedFunctionInfo of the frame at `fp`; 0: it is of no JavaScript.
 * `caller`: the address that it returns to.
 */
struct v8_frame {
	u64 fp;
	u64 shared;
	u64 caller;
};

/* Where the PHP of a process keeps what it runs: an address, and an offset in bytes. */
struct php_layout {
	u64 current_call;	/* of the pointer to its newest call; 0: it has no PHP, or none that
				 * is known
				 */
	u32 function_file;	/* in a function: its file, behind that its lines */
	u32 unused;
};

/* `function`: address of the zend_function, 0 for none; its lowest bit is set where C called it.
 * `mark`: says which function was there.
 */
struct php_frame {
	u64 function;
	u64 mark;
};

/* Where the Ruby of a process keeps what its threads run. An address, and offsets in bytes. */
struct ruby_layout {
	u64 machine;		/* its virtual machine; 0: it is no Ruby, or none that is known */
	u32 module;		/* number of the file with its thread-local words */
	u32 thread_context;	/* in a thread of Ruby: what it executes in */
	u32 context_thread;	/* there: the thread */
	u32 frame_bytes;
};

/* `function`: address of the instruction sequence, in its lowest bit whether a function of C was
 * called for the frame; or of the method entry of a method in C, with RUBY_IS_C. 0: it is of none.
 * `mark`: what it points to, which changes where another takes its place. `method`: address of
 * the method entry; 0: the code is of no method.
 */
struct ruby_frame {
	u64 function;
	u64 mark;
	u64 method;
};

struct sampled_process {
	struct python_layout python;
	struct v8_layout v8;
	struct php_layout php;
	struct ruby_layout ruby;
};

/* Registers of the program are 0 where this kernel does not give them; all that an expression of
 * DWARF may name are in `x86`, in its order (x86-64 ABI, 3.6.2). `frames` are return
 * addresses, the innermost first; those of the program were found by frame pointers. `copy` is
 * the memory from the red zone below `sp` on, as far as it was there: its last chunk ends with the stack.
 */
struct stack_sample {
	u32 tgid;
	u32 tid;
	u32 record;
	u32 is_owing;		/* its process has requests that it did not answer */
	u64 thread;		/* id on the host, and when it fell asleep: names one wait */
	u64 began_ns;
	u64 ns;
	u64 switches;		/* of the thread so far; by the iterator only */
	u64 ip;
	u64 sp;
	u64 fp;
	u64 link;
	u64 x86[X86_REGISTERS];
	u32 kernel_frames_bytes;
	u32 user_frames_bytes;
	u32 copy_bytes;
	s32 call;		/* number of its system call; below 0: it is in none */
	u64 pthread;		/* what pthread_self() returns in the thread; 0: not known */
	u32 python_count;
	u32 v8_count;
	u32 v8_scanned;		/* words of the copy in which frames were looked for */
	u32 php_count;
	u32 ruby_count;
	u32 unused;
	struct v8_frame v8_frames[V8_FRAMES_MAX];
	struct python_frame python_frames[PYTHON_FRAMES_MAX];
	struct php_frame php_frames[PHP_FRAMES_MAX];
	struct ruby_frame ruby_frames[RUBY_FRAMES_MAX];
	u64 kernel_frames[KERNEL_FRAMES_MAX];
	u64 user_frames[USER_FRAMES_MAX];
	u8 copy[COPY_BYTES_MAX];
};

/* A thread's sleep, or its last one. */
struct sleeper {
	u64 began_ns;		/* 0: it does not sleep */
	u64 exec_ns;		/* what it had run, and had waited for a CPU, by then */
	u64 delay_ns;
	u64 ip;
	u32 tgid;
	u32 tid;
	u32 is_told;		/* its stack was handed over */
	u32 is_owing;
	s32 call;
	u32 left_out;		/* so many more of its stacks, before the next one is taken */
	u64 due_ns;		/* when its next stack would come, were they evenly spread */
};

struct untold_key {
	u32 tgid;
	s32 call;
	u64 ip;
};

/* Sleeps whose stacks were not taken. */
struct untold {
	u64 waits;
	u64 ns;
	u64 owing_ns;
};

#endif
