/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a connection speaks HTTP/2. Its streams share the connection, so bytes in, then bytes out,
 * is not a request. The first receive calls of a connection are checked, in the caller's memory. A
 * connection that was open at attach is recognised by its frames, if they end where the bytes end.
 *
 * And whether it is a WebSocket, whose messages need no reply, or TLS, whose handshake is no request
 * and whose goodbye needs no reply.
 */
#ifndef HTTP2_BPF_H
#define HTTP2_BPF_H

#include "pushed_to.bpf.h"
#include "queues.bpf.h"
#include "registers.bpf.h"
#include "tls.bpf.h"

/* RFC 9113, 3.4, the first 16 bytes of the connection preface, in the order of our machines. */
#define PREFACE_START 0x5448202a20495250ULL	/* "PRI * HT" */
#define PREFACE_NEXT 0x0a0d302e322f5054ULL	/* "TP/2.0\r\n" */
#define PREFACE_BYTES 24
#define CONTROL_BYTES_MAX 48	/* the settings that servers have, with an acknowledgement */
#define FRAMES_LOOKED_AT 4
#define FRAME_BYTES_MAX 16384	/* without a setting that few have (RFC 9113, 4.2) */
#define MSG_IOV_AT 16		/* in struct user_msghdr */

/* RFC 9113, 4.1 */
struct frame_head {
	u8 length[3];
	u8 type;
	u8 flags;
	u8 stream[4];
};

/* RFC 9113, 6 */
enum frame_type {
	FRAME_DATA = 0,
	FRAME_HEADERS = 1,
	FRAME_PRIORITY = 2,
	FRAME_RST_STREAM = 3,
	FRAME_SETTINGS = 4,
	FRAME_PING = 6,
	FRAME_GOAWAY = 7,
	FRAME_WINDOW_UPDATE = 8,
	FRAME_CONTINUATION = 9,
};

/* RFC 6455, 5.2: FIN, two reserved bits that nobody uses, the opcode; then MASK and the length. */
#define WEBSOCKET_FIRST 0xb0
#define WEBSOCKET_FIN 0x80
#define WEBSOCKET_MASK 0x80
#define WEBSOCKET_OPCODES 0x706U	/* a bit each: text, binary, close, ping, pong */
#define WEBSOCKET_LENGTH_16 126
#define WEBSOCKET_HEAD 6	/* with the mask; 2 more with a longer length */

struct user_buffer {
	u64 at;
	u64 length;
};

/* Whether lengths and streams are as a frame of this type has them. Those of streams that a
 * client opened are odd, and servers open hardly any.
 */
static __always_inline bool is_frame(const struct frame_head *head, u32 length, u32 stream)
{
	switch (head->type) {
	case FRAME_DATA:
	case FRAME_HEADERS:
	case FRAME_CONTINUATION:
		return !(stream >> 31) && stream & 1;
	case FRAME_PRIORITY:
		return length == 5 && !(stream >> 31) && stream & 1;
	case FRAME_RST_STREAM:
		return length == 4 && !(stream >> 31) && stream & 1;
	case FRAME_SETTINGS:
		return length % 6 == 0 && !stream;
	case FRAME_PING:
		return length == 8 && !stream;
	case FRAME_GOAWAY:
		return length >= 8 && !stream;
	case FRAME_WINDOW_UPDATE:
		return length == 4 && (!stream || (!(stream >> 31) && stream & 1));
	}
	return false;
}

static __always_inline u32 stream_of(const struct frame_head *head)
{
	return (u32)head->stream[0] << 24 | head->stream[1] << 16 | head->stream[2] << 8 |
	       head->stream[3];
}

/* Of the frame that begins so; 0 where none does. */
static __always_inline u32 frame_size(const struct frame_head *head)
{
	u32 length = head->length[0] << 16 | head->length[1] << 8 | head->length[2];

	return is_frame(head, length, stream_of(head)) ? sizeof(*head) + length : 0;
}

static __always_inline u32 read_frame(struct frame_head *head, u64 at, bool in_memory_of_ours)
{
	long failed = in_memory_of_ours ?
			      bpf_probe_read_kernel(head, sizeof(*head), (void *)at) :
			      bpf_probe_read_user(head, sizeof(*head), (void *)at);

	return failed ? 0 : frame_size(head);
}

/* Frames follow each other, and the last one ends where the bytes end. The counter has 64 bits: of 32 that
 * are kept on the stack, as clang 13 does, the verifier knows nothing.
 */
static __always_inline bool are_frames(u64 at, u64 bytes)
{
	for (u64 i = 0; i < FRAMES_LOOKED_AT; i++) {
		struct frame_head head = {};
		u32 size = bytes >= sizeof(head) ? read_frame(&head, at, false) : 0;

		if (!size || size > bytes)
			return false;
		if (size == bytes)
			return true;
		at += size;
		bytes -= size;
	}
	return true;
}

/* Nothing but settings, room for more, pings and the like: they are no part of a request, nor of a
 * reply.
 */
static __noinline int are_control_frames(u64 at, u64 bytes, bool in_memory_of_ours)
{
	for (u64 i = 0; i < FRAMES_LOOKED_AT && bytes; i++) {
		struct frame_head head = {};
		u32 size = bytes >= sizeof(head) ? read_frame(&head, at, in_memory_of_ours) : 0;

		if (!size || size > bytes || head.type == FRAME_DATA || head.type == FRAME_HEADERS ||
		    head.type == FRAME_CONTINUATION)
			return false;
		at += size;
		bytes -= size;
	}
	return !bytes;
}

static __always_inline bool is_preface(u64 at, u64 bytes)
{
	u64 start[2] = {};

	if (bytes < sizeof(start) || bpf_probe_read_user(start, sizeof(start), (void *)at))
		return false;
	return start[0] == PREFACE_START && start[1] == PREFACE_NEXT;
}

/* Exactly one frame of a client, which masks what it sends; of less than 64 KiB. */
static __always_inline bool is_websocket_frame(u64 at, u64 bytes)
{
	u8 head[4] = {};
	u64 length;

	if (bytes < WEBSOCKET_HEAD || bpf_probe_read_user(head, sizeof(head), (void *)at))
		return false;
	if ((head[0] & WEBSOCKET_FIRST) != WEBSOCKET_FIN || !(head[1] & WEBSOCKET_MASK) ||
	    !(WEBSOCKET_OPCODES >> (head[0] & 0xf) & 1))
		return false;
	length = head[1] & ~WEBSOCKET_MASK;
	if (length < WEBSOCKET_LENGTH_16)
		return bytes == WEBSOCKET_HEAD + length;
	return length == WEBSOCKET_LENGTH_16 &&
	       bytes == WEBSOCKET_HEAD + 2 + ((u64)head[2] << 8 | head[3]);
}

static __always_inline bool has_one_buffer(u8 call)
{
	return call == CALL_READ || call == CALL_RECVFROM || call == CALL_WRITE ||
	       call == CALL_SENDTO;
}

/* Where the buffers are described (struct iovec), or 0: there is one, or none that is known. */
static __always_inline u64 buffers_of(struct call_in_flight *call, struct arguments *arguments)
{
	u64 vector = arguments->second;

	if (call->call == CALL_READV || call->call == CALL_WRITEV)
		return vector;
	if (call->call != CALL_RECVMSG && call->call != CALL_SENDMSG && call->call != CALL_SENDMMSG)
		return 0;
	bpf_probe_read_user(&vector, sizeof(vector), (void *)(vector + MSG_IOV_AT));
	return vector;
}

/*
 * The first one that a call filled or sent, as far as it did; its length is 0 where it is not known.
 * Returns where the next is described, or 0.
 */
static __always_inline u64 first_buffer(struct pt_regs *regs, struct call_in_flight *call,
					u64 bytes, struct user_buffer *buffer)
{
	struct arguments arguments;
	u64 vector;

	read_arguments(regs, call, &arguments);
	buffer->at = arguments.second;
	buffer->length = has_one_buffer(call->call) ? bytes : 0;
	vector = buffers_of(call, &arguments);
	if (!vector)
		return 0;
	bpf_probe_read_user(buffer, sizeof(*buffer), (void *)vector);
	if (buffer->length > bytes)
		buffer->length = bytes;
	return vector + sizeof(*buffer);
}

/* Frames of a client that begin a turn. */
static __always_inline void look_for_request(struct connection *connection, u64 at, bytes_t bytes)
{
	if (connection->role == ROLE_SERVED && connection->phase == PHASE_RECEIVING &&
	    !connection->receives && are_control_frames(at, bytes, false))
		no_request_came(connection);
}

/* What a target said first was no question. */
static __always_inline void nothing_asked(struct connection *connection)
{
	u32 tgid = connection->asked_by;
	struct server *server = bpf_map_lookup_elem(&servers, &tgid);

	if (server)
		forget_asks(server, connection);
}

/* Frames are followed from the call on that is returning, which moved these bytes last. What was taken for
 * a turn is none. False: there is no room.
 */
static __always_inline bool follow_streams(address_t sk, struct connection *connection,
					   bytes_t received, bytes_t sent)
{
	struct streams *streams;

	bpf_map_update_elem(&shared_connections, &sk, &no_streams, BPF_ANY);
	streams = bpf_map_lookup_elem(&shared_connections, &sk);
	if (!streams)
		return false;
	streams->asks_by_sending = connection->role == ROLE_UPSTREAM;
	streams->received.moved = connection->bytes_in - received;
	streams->sent.moved = connection->bytes_out - sent;
	connection->before.came_ns = connection->receives ? connection->before.came_ns :
							    connection->turn_ns;
	connection->before.received_ns = connection->received_ns;
	if (connection->role == ROLE_SERVED)
		no_request_came(connection);
	else
		nothing_asked(connection);
	connection->is_multiplexed = STREAMS_FOLLOWED;
	connection->phase = PHASE_SHARED;
	return true;
}

static __always_inline bool becomes_multiplexed(address_t sk, struct connection *connection,
						bytes_t bytes)
{
	connection->looks = LOOKS_MAX;
	if (follow_streams(sk, connection, bytes, 0))
		return true;
	connection->is_multiplexed = SHARED_BY_STREAMS;
	multiplexed_seen = 1;
	return false;
}

/* The head of a frame alone, as Go's servers and clients receive them: what comes next should be the rest. */
static __always_inline bool look_for_head(struct connection *connection, u64 at)
{
	struct frame_head head = {};
	u32 size = read_frame(&head, at, false);

	if (size <= sizeof(head) || size > FRAME_BYTES_MAX + sizeof(head))
		return false;
	connection->frame_left = size - sizeof(head);
	connection->frame_stream = head.type == FRAME_HEADERS ? stream_of(&head) : 0;
	return true;
}

/* After a head of one alone. The request that it began is the first of the streams. */
static __always_inline bool look_for_rest(address_t sk, struct connection *connection,
					  bytes_t bytes)
{
	u32 left = connection->frame_left, id = connection->frame_stream;
	struct streams *streams;

	connection->frame_left = 0;
	if (!left || left != bytes || !becomes_multiplexed(sk, connection, bytes))
		return false;
	streams = bpf_map_lookup_elem(&shared_connections, &sk);
	if (!streams)
		return false;
	streams->received.left = bytes;
	connection->before.came_ns = connection->turn_ns;
	if (id && connection->role == ROLE_SERVED)
		stream_begins(sk, id);
	return true;
}

/* `bytes` were received by a call that is returning, the first `length` of them at `at`. Returns whether
 * the streams that share them are followed from now on. A global
 * function: the verifier walks the many ways through it once, and not once for each way to it.
 */
__noinline u64 look_for_protocol(address_t sk, u64 at, u64 length, bytes_t bytes)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);
	bool is_whole = length == bytes;

	if (!connection)
		return 0;
	if (connection->role == ROLE_SERVED)
		look_for_handshake(connection, at, length, bytes);
	if (connection->is_pushed_to & SPEAKS_REDIS) {
		if (is_whole)
			look_for_pushed_to(connection, at, length);
	} else if (connection->is_multiplexed) {
		if (is_whole)
			look_for_request(connection, at, bytes);
	} else if (is_preface(at, length)) {
		if (becomes_multiplexed(sk, connection, bytes))
			return true;
		if (length >= PREFACE_BYTES && is_whole)
			look_for_request(connection, at + PREFACE_BYTES, bytes - PREFACE_BYTES);
	} else if (is_whole && are_frames(at, bytes)) {
		if (becomes_multiplexed(sk, connection, bytes))
			return true;
		look_for_request(connection, at, bytes);
	} else if (is_whole && bytes == sizeof(struct frame_head) && look_for_head(connection, at)) {
		return 0;
	} else if (look_for_rest(sk, connection, bytes)) {
		return true;
	} else if ((connection->turns || !connection->listener) && is_whole &&
		   is_websocket_frame(at, bytes)) {
		connection->is_websocket = 1;
		connection->looks = LOOKS_MAX;
	} else if (is_tls_record(at, length)) {
		connection->is_tls = 1;
	} else if (connection->role == ROLE_SERVED && is_whole) {
		look_for_pushed_to(connection, at, length);
	}
	return 0;
}

/* On a connection of HTTP/2 `bytes` were sent while a reply is owed, and they are none of it: the first
 * `length` of them lie at `at`, and where the others do is described at `next`. gRPC divides frames between
 * buffers wherever one is full. More bytes than that are not looked at. A global function, as
 * look_for_protocol.
 */
__noinline u64 sends_no_reply(u64 at, u64 length, u64 next, bytes_t bytes)
{
	struct user_buffer buffer = { .at = at, .length = length };
	u8 sent[2 * CONTROL_BYTES_MAX] = {};
	u64 have = 0;

	if (bytes > CONTROL_BYTES_MAX)
		return false;
	for (u64 i = 0; i < FRAMES_LOOKED_AT; i++) {
		u64 rest = bytes - have;
		u64 part = at_most(buffer.length < rest ? buffer.length : rest, CONTROL_BYTES_MAX);

		have = at_most(have, CONTROL_BYTES_MAX);
		if (bpf_probe_read_user(sent + have, part, (void *)buffer.at))
			return false;
		have += part;
		if (have == bytes)
			return are_control_frames((u64)sent, bytes, true);
		if (!next || bpf_probe_read_user(&buffer, sizeof(buffer), (void *)next))
			return false;
		next += sizeof(buffer);
	}
	return false;
}

static __always_inline bool owes_reply_of_http2(struct call_in_flight *call)
{
	struct connection *connection = connection_of(call->sk, call->inode);

	return connection && connection->is_multiplexed && connection->role == ROLE_SERVED &&
	       connection->phase == PHASE_RECEIVING;
}

/* To be known before it is looked at whether that ends the turn. Where nobody speaks HTTP/2 its
 * connection is not looked up for that.
 */
static __always_inline void look_for_no_reply(struct pt_regs *regs, struct call_in_flight *call,
					      bytes_t bytes)
{
	struct user_buffer buffer = {};
	struct connection *connection;
	bool is_none;
	u64 next;

	if (!multiplexed_seen || !(call->traits & TRAIT_SENDS) || call->abi == ABI_COMPAT ||
	    !owes_reply_of_http2(call))
		return;
	next = first_buffer(regs, call, bytes, &buffer);
	is_none = sends_no_reply(buffer.at, buffer.length, next, bytes);
	connection = connection_of(call->sk, call->inode);
	if (connection)
		connection->sends_no_reply = is_none;
}

/* A target asks, and `length` bytes of that lie at `at`. Returns as look_for_protocol. */
__noinline u64 look_for_hello(address_t sk, u64 at, u64 length)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &sk);

	if (!connection)
		return 0;
	look_for_own_handshake(connection, at, length);
	return !connection->turns && is_preface(at, length) &&
	       follow_streams(sk, connection, 0, connection->bytes_out);
}

#endif
