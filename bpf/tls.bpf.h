/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which turns of a connection are TLS handshakes: their flights are no requests. Of a target's client
 * the records are followed from the first on, by their heads; of what a target asks, the first flights
 * are told by their type. A handshake of TLS 1.3 ends with a record of the type of data, after a
 * change of cipher (RFC 8446, D.4); one of TLS 1.2 with a short one of its own type (RFC 5246, 7.4.9).
 */
#ifndef TLS_BPF_H
#define TLS_BPF_H

#include "servers.bpf.h"

/* RFC 8446, 5.1: types of records, and the version that all have. */
#define TLS_CHANGE 20
#define TLS_HANDSHAKE 22
#define TLS_DATA 23
#define TLS_MAJOR 3
#define TLS_MINOR_MAX 4
#define TLS_LENGTH_MAX (16384 + 2048)
#define TLS_FINISHED_MAX 128	/* 16 bytes, with the longest code and padding; a hello is longer */
#define RECORDS_LOOKED_AT 6

struct tls_head {
	u8 type;
	u8 major;
	u8 minor;
	u8 length[2];
};

static __always_inline bool is_tls_record(u64 at, u64 bytes)
{
	u8 head[2] = {};

	return bytes >= sizeof(head) && !bpf_probe_read_user(head, sizeof(head), (void *)at) &&
	       head[0] >= TLS_CHANGE && head[0] <= TLS_DATA && head[1] == TLS_MAJOR;
}

static __always_inline bool is_in_handshake(struct connection *connection)
{
	return connection->tls && connection->tls < TLS_OPEN;
}

/* What it is after a record of that type. */
static __always_inline enum tls_state tls_after(enum tls_state tls, u8 type, u32 length)
{
	switch (type) {
	case TLS_CHANGE:
		return TLS_CHANGED;
	case TLS_HANDSHAKE:
		return tls == TLS_CHANGED && length <= TLS_FINISHED_MAX ? TLS_FINISHED : TLS_BEGUN;
	case TLS_DATA:
		return tls && tls != TLS_FINISHED ? TLS_FINISHED : TLS_OPEN;
	}
	return tls ? tls : TLS_OPEN;
}

/* 0: no record begins there. Its length is that of all of it. */
static __always_inline u32 read_tls_head(struct tls_head *head, u64 at)
{
	u32 length;

	if (bpf_probe_read_user(head, sizeof(*head), (void *)at))
		return 0;
	length = head->length[0] << 8 | head->length[1];
	if (head->type < TLS_CHANGE || head->type > TLS_DATA || head->major != TLS_MAJOR ||
	    head->minor > TLS_MINOR_MAX || !length || length > TLS_LENGTH_MAX)
		return 0;
	return sizeof(*head) + length;
}

/* Records that were received, `length` bytes at `at`, of which the first may belong to the one before.
 * OpenSSL receives a record's head, then the rest of it; others all that there is. Returns whether the
 * last record of a handshake was among them.
 */
static __always_inline bool follow_records(struct connection *connection, u64 at, u64 length)
{
	u64 skipped = connection->tls_left;
	bool is_finished = false;

	for (u32 i = 0; i < RECORDS_LOOKED_AT && skipped < length; i++) {
		struct tls_head head;
		u32 size = length - skipped >= sizeof(head) ? read_tls_head(&head, at + skipped) : 0;

		if (!size && !connection->tls)
			return false;
		connection->tls = size ? tls_after(connection->tls, head.type, size - sizeof(head)) :
					 TLS_OPEN;
		if (connection->tls == TLS_OPEN)
			return is_finished;
		is_finished |= connection->tls == TLS_FINISHED;
		skipped += size;
	}
	connection->tls_left = skipped > length ? skipped - length : 0;
	return is_finished;
}

/* The turn has no part in a request: what is sent next is no reply, and what comes next may be one. */
static __always_inline void no_request_came(struct connection *connection)
{
	request_gone(connection);
	connection->phase = PHASE_IDLE;
	connection->leftover = LEFTOVER_NONE;
}

static __always_inline void count_tls_handshake(struct connection *connection)
{
	struct server *server = server_of(connection->tgid);
	struct cpu_counts *counts = cpu_counts();

	if (counts)
		count_add(&counts->tls_handshakes, 1);
	if (server)
		shared_add(&server->tls_handshakes, 1);
}

/* A client's bytes, of which the first `length` lie at `at`. */
static __always_inline void look_for_handshake(struct connection *connection, u64 at, u64 length,
					       bytes_t bytes)
{
	if (connection->tls == TLS_OPEN)
		return;
	if (length != bytes)
		connection->tls = TLS_OPEN;
	else if (follow_records(connection, at, length))
		count_tls_handshake(connection);
	if (connection->tls != TLS_FINISHED || connection->tls_left)
		return;
	connection->tls = TLS_OPEN;
	no_request_came(connection);
}

/* A target asks: with a flight of its handshake, or with more after one. */
static __always_inline void look_for_own_handshake(struct connection *connection, u64 at,
						   u64 length)
{
	struct tls_head head;

	if (length < sizeof(head) || !read_tls_head(&head, at))
		connection->tls = TLS_OPEN;
	else
		connection->tls = head.type == TLS_HANDSHAKE ? TLS_BEGUN : TLS_UNKNOWN;
}

#endif
