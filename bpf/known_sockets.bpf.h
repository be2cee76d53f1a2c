/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A descriptor usually is the same socket as when its thread used it last. Two loads confirm that,
 * where finding out anew takes nine, and the result for the call need not be computed again.
 */
#ifndef KNOWN_SOCKETS_BPF_H
#define KNOWN_SOCKETS_BPF_H

#include "registers.bpf.h"
#include "sockets.bpf.h"

_Static_assert(__builtin_offsetof(struct call_in_flight, early) -
			       __builtin_offsetof(struct call_in_flight, call) ==
		       sizeof(u64),
	       "a kind is one word of a call");

static __always_inline struct known_socket *known_socket(struct thread_state *state, u32 fd)
{
	return &state->known[fd & (KNOWN_SOCKETS - 1)];
}

/* Never 0. Of a number below NR_MAX. */
static __always_inline u64 known_number(int nr, bool compat, u32 fd)
{
	return (u64)fd << 32 | nr << 2 | compat << 1 | 1;
}

/* Where its memory is another socket's by now, the inode there has another number
 * (net/socket.c, sock_alloc).
 */
static __always_inline bool is_still(struct known_socket *known, struct file *file)
{
	struct inode *inode;

	if (!known->socket || known->socket != (u64)file->private_data)
		return false;
	inode = bpf_rdonly_cast((void *)known->inode_at, bpf_core_type_id_kernel(struct inode));
	return inode->i_ino == known->inode;
}

/* True when the thread made such a call before: all of `now` but its times is as it was then. */
static __always_inline bool recall_call(struct task_struct *task, struct thread_state *state,
					struct pt_regs *regs, int nr)
{
	struct call_in_flight *call = &state->now;
	bool compat = is_compat(task);
	u32 fd = first_argument(regs, compat);
	struct known_socket *known = known_socket(state, fd);
	struct file *file;

	if ((u32)nr >= NR_MAX || known->numbers[nr & 1] != known_number(nr, compat, fd))
		return false;
	file = file_of_fd(task, fd);
	if (!file || !is_still(known, file))
		return false;
	call->sk = known->sk;
	call->inode = known->inode;
	call->fd = fd;
	call->nr = nr;
	call->abi = compat ? ABI_COMPAT : ABI_NATIVE;
	call->is_socketcall = 0;
	__builtin_memcpy(&call->call, &known->kinds[nr & 1], sizeof(known->kinds[0]));
	return true;
}

/* What was found out of the call `now`, whose first argument is a socket. Without a series it
 * would be lost for good.
 */
static __always_inline void remember_kind(struct thread_state *state)
{
	struct call_in_flight *call = &state->now;
	struct known_socket *known = known_socket(state, call->fd);

	if (!direct_loads || !call->series || known->sk != call->sk)
		return;
	known->numbers[call->nr & 1] = known_number(call->nr, call->abi == ABI_COMPAT, call->fd);
	__builtin_memcpy(&known->kinds[call->nr & 1], &call->call, sizeof(known->kinds[0]));
}

static __always_inline void remember_socket(struct known_socket *known, struct file *file,
					    struct socket_ref *ref)
{
	known->socket = (u64)file->private_data;
	known->inode_at = (u64)file->f_inode;
	known->sk = ref->sk;
	known->inode = ref->inode;
	known->endpoint = ref->endpoint;
	known->numbers[0] = 0;
	known->numbers[1] = 0;
}

static __always_inline void recall_socket(struct known_socket *known, struct socket_ref *ref)
{
	ref->sk = known->sk;
	ref->inode = known->inode;
	ref->endpoint = known->endpoint;
	ref->is_socket = true;
}

/* Of the thread that makes a call about it. */
static __always_inline void resolve_own_fd(struct task_struct *task, struct thread_state *state,
					   u32 fd, struct socket_ref *ref)
{
	struct known_socket *known = known_socket(state, fd);
	struct file *file = file_of_fd(task, fd);

	if (direct_loads && file && is_still(known, file)) {
		recall_socket(known, ref);
		return;
	}
	resolve_file(file, ref);
	if (direct_loads && ref->is_socket && (u32)ref->inode == ref->inode)
		remember_socket(known, file, ref);
}

#endif
