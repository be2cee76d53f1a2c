/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* io_uring_enter is one call, whatever the ring then does; what it does has its own row. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "cases.h"
#include "family.h"

enum {
	ENTRIES = 8
};

struct ring {
	int fd;
	struct io_uring_params params;
	char *rings;
	struct io_uring_sqe *entries;
};

static char payload[PAYLOAD];

static void *map_ring(int fd, size_t size, long offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);

	if (at == MAP_FAILED)
		die("mmap", -1);
	return at;
}

static void open_ring(struct ring *ring)
{
	const struct io_uring_params *params = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &ring->params);
	if (ring->fd < 0)
		die("io_uring_setup", ring->fd);
	size_t size = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
	ring->rings = map_ring(ring->fd, size, IORING_OFF_SQ_RING);
	ring->entries = map_ring(ring->fd, ENTRIES * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
}

static _Atomic unsigned int *ring_word(const struct ring *ring, unsigned int offset)
{
	return (_Atomic unsigned int *)(ring->rings + offset);
}

static void submit(struct ring *ring, const struct io_uring_sqe *entry)
{
	_Atomic unsigned int *tail = ring_word(ring, ring->params.sq_off.tail);
	unsigned int slot = *tail % ENTRIES;

	ring->entries[slot] = *entry;
	*ring_word(ring, ring->params.sq_off.array + 4 * slot) = slot;
	++*tail;
	MUST(1, OTHER, io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	++*ring_word(ring, ring->params.cq_off.head);
}

void case_uring(const struct family *family)
{
	struct io_uring_sqe nothing = {.opcode = IORING_OP_NOP};
	struct io_uring_sqe send = {.opcode = IORING_OP_SEND};
	struct ring ring;
	int fds[2];

	connected_pair(family, fds);
	open_ring(&ring);
	send.fd = fds[0];
	send.addr = (unsigned long)payload;
	send.len = PAYLOAD;
	for (int i = 0; i < ROUNDS; i++) {
		submit(&ring, &nothing);
		submit(&ring, &send);
		truth_operation(family->kind, "io_uring:send", PAYLOAD);
		MUST(PAYLOAD, family->kind, recvfrom, fds[1], payload, PAYLOAD, 0, NULL, NULL);
	}
	FAILS(EBADF, OTHER, io_uring_enter, -1, 0, 0, 0, NULL, 0);
	close_counted(OTHER, ring.fd);
	close_pair(family, fds);
}
