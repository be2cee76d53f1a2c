/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a reply says of itself: an HTTP status (HTTP/1, FastCGI), or that a database has all the connections that it
 * allows. Its first bytes are compared in the caller's memory, and none is kept.
 */
#ifndef REPLIES_BPF_H
#define REPLIES_BPF_H

#include "database_replies.bpf.h"
#include "http2.bpf.h"
#include "listeners.bpf.h"
#include "requests.bpf.h"

/* RFC 9112, 4: "HTTP/1.1 503", and what follows. */
#define STATUS_LINE WORD('H', 'T', 'T', 'P', '/', '1', '.', 0)
#define STATUS_OK 200
#define STATUS_FINAL 200	/* below it another reply follows */
#define STATUS_SWITCHING 101	/* what follows is another protocol */
#define STATUS_FAILED 500

/* FastCGI, 3.3 and 5.3; RFC 3875, 6.3.3: "Status: 503", which PHP sends first, or 200. */
#define FASTCGI_VERSION 1
#define FASTCGI_STDOUT 6
#define FASTCGI_STDERR 7
#define FASTCGI_RECORDS 3	/* warnings, then the reply */
#define CGI_STATUS WORD('S', 't', 'a', 't', 'u', 's', ':', ' ')

/* RFC 9112, 7.1: the chunk of no bytes, without trailers. */
#define LAST_CHUNK WORD('0', '\r', '\n', '\r', '\n', 0, 0, 0)
#define LAST_CHUNK_BYTES 5
#define CHUNK_DIGITS 5
#define EVENT_NOTE WORD(':', ' ', 0, 0, 0, 0, 0, 0)
#define EVENT_NOTE_MASK 0xffffULL
#define EVENT_ID WORD('i', 'd', ':', 0, 0, 0, 0, 0)
#define EVENT_ID_MASK 0xffffffULL
#define EVENT_DATA WORD('d', 'a', 't', 'a', ':', 0, 0, 0)
#define EVENT_DATA_MASK 0xffffffffffULL
#define EVENT_NAME WORD('e', 'v', 'e', 'n', 't', ':', 0, 0)
#define EVENT_RETRY WORD('r', 'e', 't', 'r', 'y', ':', 0, 0)
#define EVENT_NAME_MASK 0xffffffffffffULL

struct fastcgi_head {
	u8 version;
	u8 type;
	u8 id[2];
	u8 length[2];
	u8 padding;
	u8 reserved;
};

#define LINE_LOOKED_AT 12
#define LINE_PIECES 6
union line {
	u64 words[2];
	u8 bytes[16];
};

static __always_inline bool is_digit(u8 byte)
{
	return byte >= '0' && byte <= '9';
}

/* 0 where there are none. */
static __always_inline u32 three_digits(const u8 *digits)
{
	if (!is_digit(digits[0]) || !is_digit(digits[1]) || !is_digit(digits[2]))
		return 0;
	return (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + digits[2] - '0';
}

/* `length` bytes, 8 at most, behind the `filled` ones that the line has. */
static __always_inline bool add_piece(union line *line, u32 filled, u64 at, u32 length)
{
	u64 piece = 0;
	u32 bit = filled % sizeof(piece) * 8;

	if (length > sizeof(piece) || bpf_probe_read_user(&piece, length, (void *)at))
		return false;
	if (filled >= sizeof(piece)) {
		line->words[1] |= piece << bit;
		return true;
	}
	line->words[0] |= piece << bit;
	if (bit)
		line->words[1] |= piece >> (64 - bit);
	return true;
}

/* From several buffers: Varnish and others send each word of the line from one of its own. A function
 * of its own: with more values than registers, clang 13 keeps `i` where the verifier loses its bound.
 */
static __noinline bool gather_line(union line *line, const struct user_buffer *first, u64 next)
{
	struct user_buffer buffer = *first;
	u32 filled = 0;

	for (u32 i = 0; i < LINE_PIECES && filled < LINE_LOOKED_AT; i++) {
		u32 length = buffer.length < sizeof(u64) ? buffer.length : sizeof(u64);

		if (!add_piece(line, filled, buffer.at, length))
			return false;
		filled += length;
		buffer.at += length;
		buffer.length -= length;
		if (buffer.length)
			continue;
		if (bpf_probe_read_user(&buffer, sizeof(buffer), (void *)next))
			return false;
		next += sizeof(buffer);
	}
	return filled >= LINE_LOOKED_AT;
}

/* The first bytes of `bytes`, of which `buffer` has some, and those described at `next` the others. */
static __always_inline bool read_line(union line *line, struct user_buffer *buffer, u64 next,
				      u64 bytes)
{
	if (bytes < LINE_LOOKED_AT)
		return false;
	if (buffer->length >= LINE_LOOKED_AT)
		return !bpf_probe_read_user(line, LINE_LOOKED_AT, (void *)buffer->at);
	return next && gather_line(line, buffer, next);
}

/* 0: it is not that of an HTTP/1 reply. */
static __always_inline u32 http_status(const union line *line)
{
	if ((line->words[0] & WORD_ALL_BUT_LAST) != STATUS_LINE || line->bytes[8] != ' ')
		return 0;
	return three_digits(line->bytes + 9);
}

/* The reply's first header is its status, or it has the usual one. */
static __always_inline u32 cgi_status(u64 at, u64 bytes)
{
	union line line = {};

	if (bytes < LINE_LOOKED_AT || bpf_probe_read_user(&line, LINE_LOOKED_AT, (void *)at))
		return 0;
	if (line.words[0] == CGI_STATUS)
		return three_digits(line.bytes + 8);
	return line.bytes[0] >= 'A' && line.bytes[0] <= 'Z' ? STATUS_OK : 0;
}

/* 0: no FastCGI reply begins there. */
static __always_inline u32 fastcgi_status(u64 at, u64 bytes)
{
	for (u32 i = 0; i < FASTCGI_RECORDS; i++) {
		struct fastcgi_head head = {};
		u32 length;

		if (bytes < sizeof(head) || bpf_probe_read_user(&head, sizeof(head), (void *)at))
			return 0;
		if (head.version != FASTCGI_VERSION || head.reserved || head.id[0] || !head.id[1])
			return 0;
		at += sizeof(head);
		bytes -= sizeof(head);
		if (head.type == FASTCGI_STDOUT)
			return cgi_status(at, bytes);
		length = (head.length[0] << 8 | head.length[1]) + head.padding;
		if (head.type != FASTCGI_STDERR || length > bytes)
			return 0;
		at += length;
		bytes -= length;
	}
	return 0;
}

static __always_inline void count_status(struct replies *replies, u32 status, ns_t after)
{
	u32 slot = status - STATUS_FAILED;

	shared_add(&replies->http, 1);
	if (status < STATUS_FAILED)
		return;
	shared_add(&replies->failed, 1);
	shared_add(&replies->failed_ns, after);
	if (slot >= STATUSES)
		slot = STATUSES - 1;
	shared_add(&replies->statuses[slot & (STATUSES - 1)], 1);
}

static __always_inline void status_seen(struct connection *connection, address_t sk, u32 status)
{
	u32 tgid = connection->tgid;
	struct upstream *upstream;
	struct server *server;

	connection->reply_looks = SPEAKS_HTTP;
	if (status == STATUS_SWITCHING)
		connection->is_endless = 1;
	if (status < STATUS_FINAL)
		return;
	follow_pieces(connection, sk);
	if (connection->role == ROLE_UPSTREAM) {
		upstream = upstream_entry(connection->upstream);
		if (upstream)
			count_status(&upstream->replies, status, connection->replied_after_ns);
		return;
	}
	server = bpf_map_lookup_elem(&servers, &tgid);
	if (server)
		count_status(&server->replies, status, connection->replied_after_ns);
}

static __always_inline void no_seat_seen(struct connection *connection, enum database database)
{
	struct upstream *upstream;
	struct listener *listener;

	if (connection->role == ROLE_UPSTREAM) {
		upstream = upstream_entry(connection->upstream);
		if (!upstream)
			return;
		shared_add(&upstream->no_seat, 1);
		upstream->no_seat_by = database;
		return;
	}
	listener = accepted_from(connection);
	if (listener)
		shared_add(&listener->no_seat, 1);
}

static __always_inline bool is_login(struct connection *connection,
				     const struct user_buffer *buffer, u64 bytes)
{
	/* Other protocols answer with one letter too: to other questions. */
	if (connection->bytes_out == ENCRYPT_BYTES * connection->turns &&
	    is_answer_to_encrypt(buffer->at, bytes))
		return true;
	return is_postgres_login(buffer->at, bytes) || is_mysql_login(buffer->at, bytes);
}

/* The first answers of a connection. */
static __always_inline void note_login(struct connection *connection,
				       const struct user_buffer *buffer, u64 bytes)
{
	struct upstream *upstream;

	if (connection->role != ROLE_UPSTREAM || !connection->turns ||
	    connection->turns > LOGIN_TURNS_MAX)
		return;
	if (!is_login(connection, buffer, bytes))
		return;
	upstream = upstream_entry(connection->upstream);
	if (!upstream)
		return;
	shared_add(&upstream->logins, 1);
	shared_add(&upstream->login_ns, connection->replied_after_ns);
}

/* What a database replies, from its first piece on. */
static __always_inline void look_at_database(struct connection *connection, address_t sk,
					     const struct user_buffer *buffer, u64 bytes)
{
	enum database database;

	note_login(connection, buffer, bytes);
	if (is_ready(buffer, bytes)) {
		connection->reply_looks = SPEAKS_POSTGRES;
		return;
	}
	if (connection->reply_looks == SPEAKS_POSTGRES) {
		follow_pieces(connection, sk);
		return;
	}
	if (begins_mysql_rows(buffer->at, buffer->length)) {
		connection->reply_looks = SPEAKS_MYSQL;
		if (!ends_mysql_rows(buffer, bytes))
			follow_pieces(connection, sk);
		return;
	}
	if (connection->reply_looks == SPEAKS_MYSQL)
		return;
	database = full_database(buffer->at, buffer->length);
	if (database) {
		no_seat_seen(connection, database);
	} else if (are_postgres_messages(buffer->at, buffer->length)) {
		connection->reply_looks = SPEAKS_POSTGRES;
		follow_pieces(connection, sk);
	} else if (is_mysql_outcome(buffer->at, bytes)) {
		connection->reply_looks = SPEAKS_MYSQL;
	}
}

/* A reply of `bytes` began, or the beginning of one was received, by a call that is returning: the
 * first `length` of them lie at `at`, and `next` describes where others lie, if it is known. A global
 * function, as look_at_piece().
 */
__noinline u64 look_at_reply(address_t sk, u64 at, u64 length, u64 next, bytes_t bytes)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct user_buffer buffer = { .at = at, .length = length };
	union line line = {};
	u32 status = 0;

	if (!connection)
		return 0;
	if (read_line(&line, &buffer, next, bytes))
		status = http_status(&line);
	if (!status)
		status = fastcgi_status(buffer.at, buffer.length);
	if (status) {
		status_seen(connection, sk, status);
		return 0;
	}
	if (connection->reply_looks == SPEAKS_HTTP)
		return 0;
	look_at_database(connection, sk, &buffer, bytes);
	return 0;
}

static __always_inline bool ends_rows(struct connection *connection,
				      const struct user_buffer *buffer, u64 bytes)
{
	if (connection->reply_looks == SPEAKS_MYSQL)
		return ends_mysql_rows(buffer, bytes);
	return connection->reply_looks == SPEAKS_POSTGRES && is_ready(buffer, bytes);
}

static __always_inline bool is_hex(u8 byte)
{
	return is_digit(byte) || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f');
}

/* Where the first chunk of `line` begins, which its length precedes (RFC 9112, 7.1); or 0. */
static __always_inline u32 chunk_at(const union line *line)
{
	for (u32 i = 1; i <= CHUNK_DIGITS; i++) {
		if (!is_hex(line->bytes[i - 1]))
			return 0;
		if (line->bytes[i] == '\r' && line->bytes[i + 1] == '\n')
			return i + 2;
	}
	return 0;
}

/* A line of an event stream (WHATWG HTML, 9.2.5). */
static __always_inline bool is_event(const union line *line)
{
	u32 bits = 8 * chunk_at(line);
	u64 word = line->words[0];

	if (bits)
		word = word >> bits | line->words[1] << (64 - bits);
	return (word & EVENT_NOTE_MASK) == EVENT_NOTE || (word & EVENT_ID_MASK) == EVENT_ID ||
	       (word & EVENT_DATA_MASK) == EVENT_DATA || (word & EVENT_NAME_MASK) == EVENT_NAME ||
	       (word & EVENT_NAME_MASK) == EVENT_RETRY;
}

/* Of HTTP: its last piece, or none: of a stream of events, or of another reply (some servers say 408
 * when a connection was idle for long).
 */
static __always_inline void look_at_http_piece(struct connection *connection,
					       struct user_buffer *buffer, u64 next, u64 bytes)
{
	union line line = {};

	if (last_bytes(buffer, bytes, LAST_CHUNK_BYTES) == LAST_CHUNK) {
		last_piece(connection);
		return;
	}
	if (!read_line(&line, buffer, next, bytes))
		return;
	if (http_status(&line) || (!connection->is_piece_known && is_event(&line)))
		connection->last_piece_ns = 0;
	connection->is_piece_known = 1;
}

/* A later piece of a reply, of `bytes`, was sent or received by a call that is returning. */
__noinline u64 look_at_piece(address_t sk, u64 at, u64 length, u64 next, bytes_t bytes)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	struct user_buffer buffer = { .at = at, .length = length };

	if (!connection)
		return 0;
	if (connection->reply_looks == SPEAKS_HTTP)
		look_at_http_piece(connection, &buffer, next, bytes);
	else if (ends_rows(connection, &buffer, bytes))
		last_piece(connection);
	return 0;
}

#endif
