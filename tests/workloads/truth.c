/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#define _GNU_SOURCE
#include "truth.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	NAMES = 40,
	ERRNOS = 134,
	ABIS = 2,
	DOCUMENT_BYTES = 32768
};
enum moves {
	NOTHING,
	BYTES
};

#ifdef __LP64__
enum {
	ABI = 0
};
#else
enum {
	ABI = 1
};
#endif

/* Calls of the table; the return value of those marked BYTES counts bytes. */
static const struct {
	const char *name;
	enum moves moves;
} NAMED[NAMES] = {
	{"read", BYTES},	 {"write", BYTES},	   {"readv", BYTES},
	{"writev", BYTES},	 {"pread64", BYTES},	   {"pwrite64", BYTES},
	{"preadv", BYTES},	 {"pwritev", BYTES},	   {"preadv2", BYTES},
	{"pwritev2", BYTES},	 {"sendto", BYTES},	   {"recvfrom", BYTES},
	{"sendmsg", BYTES},	 {"recvmsg", BYTES},	   {"sendmmsg", NOTHING},
	{"recvmmsg", NOTHING},	 {"sendfile", BYTES},	   {"splice", BYTES},
	{"accept", NOTHING},	 {"accept4", NOTHING},	   {"connect", NOTHING},
	{"bind", NOTHING},	 {"listen", NOTHING},	   {"socket", NOTHING},
	{"socketpair", NOTHING}, {"shutdown", NOTHING},	   {"close", NOTHING},
	{"epoll_wait", NOTHING}, {"epoll_pwait", NOTHING}, {"epoll_pwait2", NOTHING},
	{"epoll_ctl", NOTHING},	 {"poll", NOTHING},	   {"ppoll", NOTHING},
	{"select", NOTHING},	 {"pselect6", NOTHING},	   {"io_uring_enter", NOTHING},
	{"io_uring:send", BYTES},
};

/* The JSON of each enum kind. */
static const char *const KIND_JSON[KINDS] = {
	"\"transport\": \"other\", \"socket_type\": null",
	"\"transport\": \"unix\", \"socket_type\": \"stream\"",
	"\"transport\": \"unix\", \"socket_type\": \"seqpacket\"",
	"\"transport\": \"unix\", \"socket_type\": \"dgram\"",
	"\"transport\": \"tcp\", \"socket_type\": \"stream\"",
	"\"transport\": \"udp\", \"socket_type\": \"dgram\"",
};
static const char *const ABI_JSON[ABIS] = {"native", "compat"};

/* Nothing but 64-bit counters: a 32-bit and a 64-bit process share it. */
struct row {
	_Atomic uint64_t calls;
	_Atomic uint64_t bytes;
	_Atomic uint64_t errors[ERRNOS];
};

struct table {
	_Atomic uint64_t requests_plus_one; /* 0: not stated */
	_Atomic uint64_t left;
	struct row rows[ABIS][NAMES][KINDS];
};

static struct table *table;
static int table_fd = -1;

void die(const char *what, long result)
{
	dprintf(STDERR_FILENO, "workload: %s returned %ld, errno %d (%s)\n", what, result, errno,
		strerror(errno));
	_exit(1);
}

long must(const char *what, long result, long wanted)
{
	if (result != wanted)
		die(what, result);
	return result;
}

void must_fail(const char *what, long result, int wanted)
{
	if (result != -1 || errno != wanted)
		die(what, result);
}

void truth_inherit(int fd)
{
	table_fd = fd;
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (table == MAP_FAILED)
		die("mmap", -1);
}

void truth_create(void)
{
	int fd = memfd_create("truth", 0);

	if (fd < 0 || ftruncate(fd, sizeof(struct table)))
		die("memfd_create", fd);
	truth_inherit(fd);
}

int truth_fd(void)
{
	return table_fd;
}

void truth_requests(long count)
{
	table->requests_plus_one = count + 1;
}

void truth_left(void)
{
	table->left++;
}

static int name_index(const char *name)
{
	for (int i = 0; i < NAMES && NAMED[i].name; i++)
		if (!strcmp(NAMED[i].name, name))
			return i;
	die(name, -1);
}

static void record(enum kind kind, int name, long result, int error)
{
	struct row *row = &table->rows[ABI][name][kind];

	row->calls++;
	if (result < 0)
		row->errors[error]++;
	else if (NAMED[name].moves == BYTES)
		row->bytes += result;
}

long counted_call(enum kind kind, const char *name, long number, const long a[6])
{
	int index = name_index(name);
	long result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	int error = errno;

	record(kind, index, result, error);
	errno = error;
	return result;
}

void truth_bytes(enum kind kind, const char *name, long bytes)
{
	table->rows[ABI][name_index(name)][kind].bytes += bytes;
}

void truth_operation(enum kind kind, const char *name, long result)
{
	record(kind, name_index(name), result, 0);
}

/* The kernel's name; glibc prefers the alias ENOTSUP. */
static const char *errno_name(int error)
{
	return error == EOPNOTSUPP ? "EOPNOTSUPP" : strerrorname_np(error);
}

static void print_row(FILE *out, int abi, int name, int kind, const char **separator)
{
	const struct row *row = &table->rows[abi][name][kind];
	const char *comma = "";

	if (!row->calls)
		return;
	fprintf(out, "%s\n  {\"name\": \"%s\", %s, \"abi\": \"%s\", \"calls\": %llu, \"errors\": {",
		*separator, NAMED[name].name, KIND_JSON[kind], ABI_JSON[abi],
		(unsigned long long)row->calls);
	for (int error = 0; error < ERRNOS; error++) {
		if (!row->errors[error])
			continue;
		fprintf(out, "%s\"%s\": %llu", comma, errno_name(error),
			(unsigned long long)row->errors[error]);
		comma = ", ";
	}
	fprintf(out, "}, \"bytes\": %llu}", (unsigned long long)row->bytes);
	*separator = ",";
}

static void print_document(FILE *out, const char *workload)
{
	const char *separator = "";

	fprintf(out, "{\"workload\": \"%s\", \"requests\": ", workload);
	if (table->requests_plus_one)
		fprintf(out, "%llu", (unsigned long long)table->requests_plus_one - 1);
	else
		fputs("null", out);
	fprintf(out, ", \"left\": %llu, \"calls\": [", (unsigned long long)table->left);
	for (int abi = 0; abi < ABIS; abi++)
		for (int name = 0; name < NAMES; name++)
			for (int kind = 0; kind < KINDS; kind++)
				print_row(out, abi, name, kind, &separator);
	fputs("]}\n", out);
}

void truth_write(const char *workload, const char *path)
{
	static char document[DOCUMENT_BYTES];
	FILE *out = fmemopen(document, sizeof(document), "w");
	int write_call = name_index("write");
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (!out || fd < 0)
		die(path, fd);
	memset(document, ' ', sizeof(document));
	record(OTHER, write_call, DOCUMENT_BYTES, 0);
	print_document(out, workload);
	fflush(out);
	if (ferror(out))
		die("fmemopen", -1);
	document[ftell(out)] = ' '; /* fmemopen ends what it wrote with a NUL */
	must("write", syscall(SYS_write, fd, document, DOCUMENT_BYTES), DOCUMENT_BYTES);
}
