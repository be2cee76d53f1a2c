/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replies of databases, by their bytes in the caller's memory: whether they are some of PostgreSQL, of
 * MySQL, and where these end; whether the database says that it has all the connections that it allows.
 * Whether they are of a login. And what their clients say last, which no reply follows.
 */
#ifndef DATABASE_REPLIES_BPF_H
#define DATABASE_REPLIES_BPF_H

#include "http2.bpf.h"
#include "words.bpf.h"

/* PostgreSQL, "Message Formats": a type, a length that counts itself, and fields that end with 0. */
#define MESSAGES_LOOKED_AT 4	/* the end of authentication, then the error */
#define MESSAGE_MAX (1 << 24)
#define LETTER(letter) (1ULL << ((letter) & 63))
#define POSTGRES_LETTERS                                                          \
	(LETTER('C') | LETTER('D') | LETTER('E') | LETTER('I') | LETTER('K') | LETTER('N') | \
	 LETTER('R') | LETTER('S') | LETTER('T') | LETTER('Z') | LETTER('n') | LETTER('s') | \
	 LETTER('t'))
#define POSTGRES_DIGITS (LETTER('1') | LETTER('2') | LETTER('3'))
#define FATAL_V WORD('S', 'F', 'A', 'T', 'A', 'L', 0, 'V')	/* as of 9.6 */
#define FATAL_V_53300 WORD('F', 'A', 'T', 'A', 'L', 0, 'C', '5')	/* too_many_connections */
#define FATAL_V_53300_NEXT WORD('3', '3', '0', '0', 0, 0, 0, 0)
#define FATAL_C WORD('S', 'F', 'A', 'T', 'A', 'L', 0, 'C')
#define FATAL_C_53300 WORD('5', '3', '3', '0', '0', 0, 'M', 0)
#define FATAL_C_08P01 WORD('0', '8', 'P', '0', '1', 0, 'M', 'n')	/* PgBouncer: "no more c…" */
#define FATAL_C_08P01_NEXT WORD('o', ' ', 'm', 'o', 'r', 'e', ' ', 'c')

/* ReadyForQuery, and the state of the transaction. */
#define READY WORD('Z', 0, 0, 0, 5, 0, 0, 0)
#define READY_MASK 0xffffffffffULL
#define READY_BYTES 6

/* MySQL, "Text Resultset": the number of columns, their definitions, rows, EOF_Packet or the OK_Packet
 * in its place, with its header.
 */
#define MYSQL_HEAD 4
#define MYSQL_EOF 0xfe
#define MYSQL_COUNT 5		/* bytes of the packet with the number of columns, up to 250 */
#define MYSQL_COLUMN WORD(0, 0, 0, 2, 3, 'd', 'e', 'f')
#define MYSQL_COLUMN_MASK 0xffffffffff000000ULL
#define MYSQL_END 11

/* "ERR_Packet", in place of the handshake or after it; ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS. */
#define MYSQL_ERROR 0xff
#define MYSQL_CONNECTIONS 1040
#define MYSQL_USER_CONNECTIONS 1203

/* Answers of a login: its longest message, the last number, how many there are at the most. */
#define LOGIN_MESSAGE_MAX 2048
#define MYSQL_LOGIN_MAX 8
#define LOGIN_TURNS_MAX 6
#define ENCRYPT_BYTES 8		/* SSLRequest, GSSENCRequest: a length, a code */

/* Terminate of PostgreSQL; COM_QUIT of MySQL. */
#define TERMINATE WORD('X', 0, 0, 0, 4, 0, 0, 0)
#define QUIT WORD(1, 0, 0, 0, 1, 0, 0, 0)

/* networking.c of Redis; memcached.c. */
#define REDIS_FULL WORD('-', 'E', 'R', 'R', ' ', 'm', 'a', 'x')
#define REDIS_FULL_NEXT WORD(' ', 'n', 'u', 'm', 'b', 'e', 'r', ' ')
#define MEMCACHED_FULL WORD('E', 'R', 'R', 'O', 'R', ' ', 'T', 'o')
#define MEMCACHED_FULL_NEXT WORD('o', ' ', 'm', 'a', 'n', 'y', ' ', 'o')

struct postgres_message {
	u8 type;
	u8 length[4];
} __attribute__((packed));

struct mysql_error {
	u8 length[3];
	u8 sequence;
	u8 header;
	u8 code[2];
} __attribute__((packed));

/* The last `length` bytes of a call, 8 at most; 0 where they are not in one buffer. */
static __always_inline u64 last_bytes(const struct user_buffer *buffer, u64 bytes, u32 length)
{
	u64 last = 0;

	if (bytes < length || buffer->length < bytes ||
	    bpf_probe_read_user(&last, length, (void *)(buffer->at + bytes - length)))
		return 0;
	return last;
}

static __always_inline bool is_ready(const struct user_buffer *buffer, u64 bytes)
{
	return (last_bytes(buffer, bytes, READY_BYTES) & READY_MASK) == READY;
}

static __always_inline bool is_goodbye(const struct user_buffer *buffer)
{
	u64 message = last_bytes(buffer, GOODBYE_BYTES, GOODBYE_BYTES);

	return message == TERMINATE || message == QUIT;
}

static __always_inline bool is_too_many(const u64 fields[3])
{
	if (fields[0] == FATAL_V)
		return fields[1] == FATAL_V_53300 && (fields[2] & WORD_LOW) == FATAL_V_53300_NEXT;
	return fields[0] == FATAL_C && ((fields[1] & WORD_ALL_BUT_LAST) == FATAL_C_53300 ||
					(fields[1] == FATAL_C_08P01 &&
					 fields[2] == FATAL_C_08P01_NEXT));
}

static __always_inline u32 message_size(const struct postgres_message *head)
{
	return 1 + ((u32)head->length[0] << 24 | head->length[1] << 16 | head->length[2] << 8 |
		    head->length[3]);
}

static __always_inline bool is_postgres_full(u64 at, u64 bytes)
{
	for (u32 i = 0; i < MESSAGES_LOOKED_AT; i++) {
		struct postgres_message head = {};
		u64 fields[3] = {};
		u32 size;

		if (bytes < sizeof(head) + sizeof(fields) ||
		    bpf_probe_read_user(&head, sizeof(head), (void *)at))
			return false;
		size = message_size(&head);
		if (head.type == 'E')
			return !bpf_probe_read_user(fields, sizeof(fields),
						    (void *)(at + sizeof(head))) &&
			       is_too_many(fields);
		if (head.type != 'R' || size > bytes)
			return false;
		at += size;
		bytes -= size;
	}
	return false;
}

/* What a server sends to whoever asked, but for copies. */
static __always_inline bool is_postgres_type(u8 type)
{
	u64 types = type & 64 ? POSTGRES_LETTERS : POSTGRES_DIGITS;

	return type < 128 && types >> (type & 63) & 1;
}

/* Two or more follow each other, the last of which need not be whole. */
static __always_inline bool are_postgres_messages(u64 at, u64 bytes)
{
	u32 seen = 0;

	for (u32 i = 0; i < MESSAGES_LOOKED_AT; i++) {
		struct postgres_message head = {};
		u32 size;

		if (bytes < sizeof(head) || bpf_probe_read_user(&head, sizeof(head), (void *)at))
			break;
		size = message_size(&head);
		if (!is_postgres_type(head.type) || size < sizeof(head) || size > MESSAGE_MAX)
			return false;
		seen++;
		if (size >= bytes)
			break;
		at += size;
		bytes -= size;
	}
	return seen > 1;
}

static __always_inline u32 mysql_length(const struct mysql_error *head)
{
	return head->length[0] | head->length[1] << 8 | (u32)head->length[2] << 16;
}

static __always_inline bool is_mysql_full(u64 at, u64 bytes)
{
	struct mysql_error error = {};
	u32 length, code;

	if (bytes < sizeof(error) || bpf_probe_read_user(&error, sizeof(error), (void *)at))
		return false;
	length = mysql_length(&error);
	code = error.code[0] | error.code[1] << 8;
	return MYSQL_HEAD + length == bytes && error.header == MYSQL_ERROR &&
	       (code == MYSQL_CONNECTIONS || code == MYSQL_USER_CONNECTIONS);
}

/* Rows: the number of columns, and the first one's definition. */
static __always_inline bool begins_mysql_rows(u64 at, u64 bytes)
{
	struct mysql_error head = {};
	u64 column = 0;

	return bytes >= MYSQL_COUNT + sizeof(column) &&
	       !bpf_probe_read_user(&head, sizeof(head), (void *)at) &&
	       !bpf_probe_read_user(&column, sizeof(column), (void *)(at + MYSQL_COUNT)) &&
	       mysql_length(&head) == 1 && head.sequence == 1 &&
	       (column & MYSQL_COLUMN_MASK) == MYSQL_COLUMN;
}

/* A whole reply: done, or failed. */
static __always_inline bool is_mysql_outcome(u64 at, u64 bytes)
{
	struct mysql_error head = {};

	return bytes >= sizeof(head) && !bpf_probe_read_user(&head, sizeof(head), (void *)at) &&
	       MYSQL_HEAD + mysql_length(&head) == bytes && head.sequence == 1 &&
	       (!head.header || head.header == MYSQL_ERROR);
}

/* EOF_Packet, or the OK_Packet in its place. */
static __always_inline bool ends_mysql_rows(const struct user_buffer *buffer, u64 bytes)
{
	u8 last[MYSQL_END] = {};

	if (bytes < sizeof(last) || buffer->length < bytes ||
	    bpf_probe_read_user(last, sizeof(last), (void *)(buffer->at + bytes - sizeof(last))))
		return false;
	return (last[2] == 5 && !last[3] && !last[4] && last[6] == MYSQL_EOF) ||
	       (last[0] == 7 && !last[1] && !last[2] && last[4] == MYSQL_EOF);
}

/* Yes or no to a request to encrypt. */
static __always_inline bool is_answer_to_encrypt(u64 at, u64 bytes)
{
	u8 answer = 0;

	return bytes == 1 && !bpf_probe_read_user(&answer, 1, (void *)at) &&
	       (answer == 'N' || answer == 'S');
}

/* An Authentication… message. */
static __always_inline bool is_postgres_login(u64 at, u64 bytes)
{
	struct postgres_message head = {};
	u32 size;

	if (bytes < sizeof(head) || bpf_probe_read_user(&head, sizeof(head), (void *)at))
		return false;
	size = message_size(&head);
	return head.type == 'R' && size > sizeof(head) && size <= LOGIN_MESSAGE_MAX;
}

/* A login goes on with the numbers of the server's greeting: an answer to a command has the number 1. */
static __always_inline bool is_mysql_login(u64 at, u64 bytes)
{
	struct mysql_error head = {};

	return bytes >= sizeof(head) && !bpf_probe_read_user(&head, sizeof(head), (void *)at) &&
	       MYSQL_HEAD + mysql_length(&head) <= bytes && head.sequence > 1 &&
	       head.sequence <= MYSQL_LOGIN_MAX && !(head.sequence & 1) &&
	       (head.header <= 1 || head.header == MYSQL_EOF || head.header == MYSQL_ERROR);
}

static __always_inline enum database full_by_text(u64 at, u64 bytes)
{
	u64 text[2] = {};

	if (bytes < sizeof(text) || bpf_probe_read_user(text, sizeof(text), (void *)at))
		return DATABASE_NONE;
	if (text[0] == REDIS_FULL && text[1] == REDIS_FULL_NEXT)
		return DATABASE_REDIS;
	if (text[0] == MEMCACHED_FULL && text[1] == MEMCACHED_FULL_NEXT)
		return DATABASE_MEMCACHED;
	return DATABASE_NONE;
}

static __always_inline enum database full_database(u64 at, u64 bytes)
{
	if (is_postgres_full(at, bytes))
		return DATABASE_POSTGRESQL;
	if (is_mysql_full(at, bytes))
		return DATABASE_MYSQL;
	return full_by_text(at, bytes);
}

#endif
