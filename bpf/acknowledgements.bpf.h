/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Messages by which a client of a broker says that it has what was pushed to it: nobody replies to them.
 * What the server sends next is the next message, and that comes when another client has sent it. They
 * are recognised by themselves, as a connection may be older than we are: of AMQP 0-9-1, MQTT, STOMP and
 * NATS' JetStream. Several that came together are as many of the same kind; the first and the last are
 * looked at.
 */
#ifndef ACKNOWLEDGEMENTS_BPF_H
#define ACKNOWLEDGEMENTS_BPF_H

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

/* The `length` bytes at `at` are nothing else. */
static __noinline int are_acknowledgements(u64 at, u64 length)
{
	if (length == AMQP_HEARTBEAT_BYTES && begins_with(at, length, AMQP_HEARTBEAT))
		return true;
	if (length && length % AMQP_ACK_BYTES == 0 && is_amqp_ack(at))
		return is_amqp_ack(at + length - AMQP_ACK_BYTES);
	if (length && length % MQTT_ACK_BYTES == 0 && is_mqtt_ack(at))
		return is_mqtt_ack(at + length - MQTT_ACK_BYTES);
	return is_text_ack(at, length);
}

/* What was received by a call that is returning. */
static __always_inline void look_for_acknowledgements(struct connection *connection, u64 at,
						      u64 length)
{
	if (begins_with(at, length, AMQP_GREETING))
		connection->acknowledges = 1;
	if (!are_acknowledgements(at, length))
		return;
	connection->acknowledges = 1;
	if (connection->phase == PHASE_RECEIVING && !connection->receives)
		no_request_came(connection);
}

#endif
