/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a client sends to which no reply is owed. That it has what a broker pushed to it: the server sends
 * next what another client sends (AMQP 0-9-1, MQTT, STOMP, NATS' JetStream). That it wants what another
 * client will send, until then or for a time of its own (Redis' BLPOP, XREAD BLOCK and the like, reserve of
 * beanstalkd). They are recognised by themselves, as a connection may be older than we are. Several
 * acknowledgements that came together are as many of the same kind; the first and the last are looked at.
 */
#ifndef PUSHED_TO_BPF_H
#define PUSHED_TO_BPF_H

#include "tls.bpf.h"
#include "words.bpf.h"

/* AMQP 0-9-1, 4.2.3: type, channel, length, payload, end: a method, of class 60 (basic). A heartbeat
 * has channel 0 and no payload; each end sends its own.
 */
#define AMQP_ACK_BYTES 21
#define AMQP_METHOD 1
#define AMQP_HEARTBEAT WORD(8, 0, 0, 0, 0, 0, 0, 0xce)
#define AMQP_HEARTBEAT_BYTES 8
#define AMQP_GREETING WORD('A', 'M', 'Q', 'P', 0, 0, 9, 1)
#define AMQP_LENGTH_AT 3
#define AMQP_BASIC WORD(0, 0, 0, 13, 0, 60, 0, 0)	/* length, class, and the method's first byte */
#define AMQP_METHOD_SHIFT 56
#define AMQP_ACK 80
#define AMQP_REJECT 90
#define AMQP_NACK 120
/* Class, method and a field that is 0: what has a reply only where the client asked for confirmations.
 * The server confirms with the frame by which clients acknowledge, and sends no other as long.
 */
#define AMQP_CLASS_AT 7
#define AMQP_PUBLISH WORD(0, 60, 0, 40, 0, 0, 0, 0)
#define AMQP_PUBLISH_MASK 0xffffffffffffULL
#define AMQP_CLASS_MASK 0xffffULL
#define AMQP_CLASS_MAX 90

/* Of a connection. */
enum pushed_to {
	PUSHED_TO = 1,		/* its client waits for others, or acknowledges what they sent */
	PUSHED_BY_AMQP = 2,
	AMQP_CONFIRMS = 4,	/* the server has confirmed what was published there, */
	AMQP_PUBLISHED = 8,	/* as the turn in progress began with that */
	SPEAKS_REDIS = 16,	/* a worker's other commands may come before the first that waits */
};

/* MQTT 3.1.1, 3.4 and 3.7: type, length, the number of the message, which is not 0. */
#define MQTT_ACK_BYTES 4
#define MQTT_PUBACK 0x0240
#define MQTT_PUBCOMP 0x0270

/* STOMP 1.2: a command is a line of its own, and a frame ends with a zero. */
#define STOMP_ACK WORD('A', 'C', 'K', '\n', 0, 0, 0, 0)
#define STOMP_ACK_MASK 0xffffffffULL
#define STOMP_NACK WORD('N', 'A', 'C', 'K', '\n', 0, 0, 0)
#define STOMP_NACK_MASK 0xffffffffffULL

/* To the subject of an acknowledgement. */
#define NATS_ACK_FIRST WORD('P', 'U', 'B', ' ', '$', 'J', 'S', '.')
#define NATS_ACK_NEXT WORD('A', 'C', 'K', '.', 0, 0, 0, 0)
#define NATS_ACK_MASK 0xffffffffULL

#define ACK_BYTES_MAX 256	/* of text; the others may be many at once */

static __always_inline bool is_amqp_ack(u64 at)
{
	u64 basic = 0, method;
	u8 type = 0;

	if (bpf_probe_read_user(&type, sizeof(type), (void *)at) ||
	    bpf_probe_read_user(&basic, sizeof(basic), (void *)(at + AMQP_LENGTH_AT)))
		return false;
	method = basic >> AMQP_METHOD_SHIFT;
	return type == AMQP_METHOD && (basic & WORD_ALL_BUT_LAST) == AMQP_BASIC &&
	       (method == AMQP_ACK || method == AMQP_REJECT || method == AMQP_NACK);
}

static __always_inline bool is_mqtt_ack(u64 at)
{
	u16 words[2] = {};

	if (bpf_probe_read_user(words, sizeof(words), (void *)at))
		return false;
	return (words[0] == MQTT_PUBACK || words[0] == MQTT_PUBCOMP) && words[1];
}

static __always_inline bool is_text_ack(u64 at, u64 length)
{
	u64 words[2] = {};

	if (length < sizeof(words) || length > ACK_BYTES_MAX ||
	    bpf_probe_read_user(words, sizeof(words), (void *)at))
		return false;
	return (words[0] & STOMP_ACK_MASK) == STOMP_ACK ||
	       (words[0] & STOMP_NACK_MASK) == STOMP_NACK ||
	       (words[0] == NATS_ACK_FIRST && (words[1] & NATS_ACK_MASK) == NATS_ACK_NEXT);
}

static __always_inline bool begins_with(u64 at, u64 length, u64 expected)
{
	u64 word = 0;

	return length >= sizeof(word) && !bpf_probe_read_user(&word, sizeof(word), (void *)at) &&
	       word == expected;
}

/* The `length` bytes at `at` are nothing else. A global function, as look_for_protocol. */
__noinline u64 are_acknowledgements(u64 at, u64 length)
{
	if (length == AMQP_HEARTBEAT_BYTES && begins_with(at, length, AMQP_HEARTBEAT))
		return true;
	if (length && length % AMQP_ACK_BYTES == 0 && is_amqp_ack(at))
		return is_amqp_ack(at + length - AMQP_ACK_BYTES);
	if (length && length % MQTT_ACK_BYTES == 0 && is_mqtt_ack(at))
		return is_mqtt_ack(at + length - MQTT_ACK_BYTES);
	return is_text_ack(at, length);
}

/* Redis: "*3\r\n$5\r\nBLPOP\r\n$1 ...", a number of arguments, and each with its length. */
#define RESP_ARGUMENTS '*'
#define RESP_ARGUMENT '$'
#define RESP_ARGUMENTS_LOOKED_AT 7	/* XREADGROUP GROUP g c COUNT 1 BLOCK */
#define RESP_LINE_BYTES 8
#define RESP_NUMBER_MAX 127
#define RESP_LINE_END 0x0a0d
#define RESP_BLOCKING_MIN 5	/* BLPOP to BRPOPLPUSH: nothing else begins with BL, BR or BZ */
#define RESP_BLOCKING_MAX 10
#define RESP_XREAD WORD('X', 'R', 'E', 'A', 'D', 0, 0, 0)
#define RESP_BLOCK WORD('B', 'L', 'O', 'C', 'K', 0, 0, 0)
#define RESP_WORD_MASK 0xffffffffffULL
#define UPPER_CASE 0xdfdfdfdfdfdfdfdfULL	/* of letters */
/* As most commands begin: below ten arguments, the first of them below ten letters. */
#define RESP_SHORT WORD('*', 0, '\r', '\n', '$', 0, '\r', '\n')
#define RESP_SHORT_MASK 0xffff00ffffff00ffULL

/* beanstalkd: "reserve", "reserve-with-timeout 2", and not "reserve-job 7". */
#define RESERVE WORD('r', 'e', 's', 'e', 'r', 'v', 'e', '\r')
#define RESERVE_WITH WORD('r', 'e', 's', 'e', 'r', 'v', 'e', '-')
#define RESERVE_WITH_AT 8
#define RESERVE_WITH_NEXT 'w'

/* Of a line that is `type` and a number below 100, which goes there, the length; 0: there is none. What
 * should be digits is not checked: it is only where to read next.
 */
static __always_inline u32 read_resp_line(u64 at, u8 type, u32 *number)
{
	u32 first, second;
	u64 line = 0;

	*number = 0;
	if (bpf_probe_read_user(&line, sizeof(line), (void *)at) || (line & 0xff) != type)
		return 0;
	first = (line >> 8 & 0xff) - '0';
	second = (line >> 16 & 0xff) - '0';
	if ((line >> 16 & 0xffff) == RESP_LINE_END) {
		*number = first & RESP_NUMBER_MAX;
		return 4;
	}
	if ((line >> 24 & 0xffff) != RESP_LINE_END)
		return 0;
	*number = (first * 10 + second) & RESP_NUMBER_MAX;
	return 5;
}

static __always_inline bool is_blocking_command(u64 word, u32 length)
{
	u8 second = word >> 8 & 0xff;

	return (word & 0xff) == 'B' && (second == 'L' || second == 'R' || second == 'Z') &&
	       length >= RESP_BLOCKING_MIN && length <= RESP_BLOCKING_MAX;
}

/* By how it begins, which tells of most commands that they wait for nobody. */
static __always_inline bool may_wait_in_redis(u64 at, u64 length)
{
	u64 words[2] = {};
	u64 command;

	if (length < sizeof(words) || bpf_probe_read_user(words, sizeof(words), (void *)at))
		return false;
	command = words[1] & UPPER_CASE;
	return (words[0] & RESP_SHORT_MASK) != RESP_SHORT ||
	       is_blocking_command(command, RESP_BLOCKING_MIN) ||
	       (command & RESP_WORD_MASK) == RESP_XREAD;
}

/* A command of Redis that waits for what another client sends. A global function, as look_for_protocol. */
__noinline u64 waits_in_redis(u64 at, u64 length)
{
	u32 number, size = 0;
	u64 end = at + length;

	if (may_wait_in_redis(at, length))
		size = read_resp_line(at, RESP_ARGUMENTS, &number);
	for (u64 i = 0; size && i < RESP_ARGUMENTS_LOOKED_AT; i++) {
		u64 word = 0;

		at += size;
		size = at < end ? read_resp_line(at, RESP_ARGUMENT, &number) : 0;
		if (!size || bpf_probe_read_user(&word, sizeof(word), (void *)(at + size)))
			return false;
		word &= UPPER_CASE;
		if (i ? number == 5 && (word & RESP_WORD_MASK) == RESP_BLOCK :
			is_blocking_command(word, number))
			return true;
		if (!i && (word & RESP_WORD_MASK) != RESP_XREAD)
			return false;
		size += number + 2;
	}
	return false;
}

static __always_inline bool is_of_redis(u64 at, u64 length)
{
	u32 number;

	return length > RESP_LINE_BYTES && read_resp_line(at, RESP_ARGUMENTS, &number);
}

static __always_inline bool waits_in_beanstalkd(u64 at, u64 length)
{
	u8 next = 0;

	if (begins_with(at, length, RESERVE))
		return true;
	return length > RESERVE_WITH_AT && begins_with(at, length, RESERVE_WITH) &&
	       !bpf_probe_read_user(&next, sizeof(next), (void *)(at + RESERVE_WITH_AT)) &&
	       next == RESERVE_WITH_NEXT;
}

static __always_inline bool is_owed_nothing(u64 at, u64 length)
{
	return are_acknowledgements(at, length) || waits_in_redis(at, length) ||
	       waits_in_beanstalkd(at, length);
}

/* A method, and of which class. */
static __always_inline bool is_amqp_method(u64 at, u64 *method)
{
	u8 type = 0;

	*method = 0;
	return !bpf_probe_read_user(&type, sizeof(type), (void *)at) && type == AMQP_METHOD &&
	       !bpf_probe_read_user(method, sizeof(*method), (void *)(at + AMQP_CLASS_AT)) &&
	       !(*method & 0xff) && (*method & AMQP_CLASS_MASK) >> 8 <= AMQP_CLASS_MAX;
}

static __always_inline bool is_publish(u64 method)
{
	return (method & AMQP_PUBLISH_MASK) == AMQP_PUBLISH;
}

/* What is published without confirmations, and the rest of it, has no reply. */
static __always_inline bool is_amqp_one_way(struct connection *connection, u64 at, u64 length)
{
	bool is_method, published;
	u64 method;

	if (length <= AMQP_CLASS_AT + sizeof(method))
		return false;
	is_method = is_amqp_method(at, &method);
	published = is_method && is_publish(method);
	if (published)
		connection->is_pushed_to |= PUSHED_BY_AMQP;
	if (!(connection->is_pushed_to & PUSHED_BY_AMQP))
		return false;
	if (!(connection->is_pushed_to & AMQP_CONFIRMS))
		return published || !is_method;
	if (published)
		connection->is_pushed_to |= AMQP_PUBLISHED;
	return false;
}

/* What was received by a call that is returning. */
static __always_inline void look_for_pushed_to(struct connection *connection, u64 at, u64 length)
{
	bool begins = connection->phase == PHASE_RECEIVING && !connection->receives;

	if (connection->is_pushed_to & SPEAKS_REDIS) {
		if (begins && waits_in_redis(at, length))
			no_request_came(connection);
		return;
	}
	if (begins && is_of_redis(at, length))
		connection->is_pushed_to |= SPEAKS_REDIS;
	if (begins)
		connection->is_pushed_to &= ~AMQP_PUBLISHED;
	if (begins_with(at, length, AMQP_GREETING)) {
		connection->is_pushed_to |= PUSHED_BY_AMQP;
		return;
	}
	if (length % AMQP_ACK_BYTES == 0 && length && is_amqp_ack(at))
		connection->is_pushed_to |= PUSHED_BY_AMQP;
	if (!is_owed_nothing(at, length) && !(begins && is_amqp_one_way(connection, at, length)))
		return;
	connection->is_pushed_to |= PUSHED_TO;
	if (begins)
		no_request_came(connection);
}

/* A server of AMQP sends these bytes while it owes a confirmation, and they are none. */
static __always_inline bool is_pushed_meanwhile(struct connection *connection, bytes_t bytes)
{
	if (!(connection->is_pushed_to & PUSHED_BY_AMQP))
		return false;
	if (bytes % AMQP_ACK_BYTES == 0) {
		connection->is_pushed_to |= AMQP_CONFIRMS;
		return false;
	}
	return connection->is_pushed_to & AMQP_PUBLISHED;
}

#endif
