/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A workload's own account of the system calls it made: what udsprobe must
 * report, exactly. Every call of udsprobe's table goes through CALL(), so the
 * account is complete; the binary is static, so nothing else makes any.
 */
#ifndef TRUTH_H
#define TRUTH_H

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "older_libc.h"

enum {
	ROUNDS = 23,
	PAYLOAD = 64
};

/* What a descriptor refers to; the order is that of the table's columns. */
enum kind {
	OTHER,
	UNIX_STREAM,
	UNIX_SEQPACKET,
	UNIX_DGRAM,
	TCP,
	UDP,
	KINDS
};

/* A table in shared memory, which forked and exec'ed processes add to. */
void truth_create(void);
void truth_inherit(int fd);
int truth_fd(void);

/* Served requests the workload is about to make; unstated, the document says null. */
void truth_requests(long count);

/* A call that began and never returned: its handler jumped out of it, or ended the process. */
void truth_left(void);

/* Makes one system call and counts it. Returns as syscall(2), errno included. */
long counted_call(enum kind kind, const char *name, long number, const long arguments[6]);

/* Adds bytes that the return value does not tell: sendmmsg and recvmmsg. */
void truth_bytes(enum kind kind, const char *name, long bytes);

/* Counts an operation that a ring made instead of a call, io_uring's. */
void truth_operation(enum kind kind, const char *name, long result);

/* Writes the document, a file of a fixed size, in one write() which it counts too. */
void truth_write(const char *workload, const char *path);

void die(const char *what, long result) __attribute__((noreturn));
long must(const char *what, long result, long wanted);
void must_fail(const char *what, long result, int wanted);

#define CALL(kind, name, ...) CALL_PADDED(kind, #name, SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_PADDED(kind, name, number, a, b, c, d, e, f, ...) \
	counted_call(                                          \
		kind, name, number,                            \
		(const long[6]){(long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)})
#define MUST(wanted, kind, name, ...) must(#name, CALL(kind, name, __VA_ARGS__), wanted)
#define FAILS(wanted, kind, name, ...) must_fail(#name, CALL(kind, name, __VA_ARGS__), wanted)

#endif
