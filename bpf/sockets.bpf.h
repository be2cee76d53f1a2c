/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* From a file descriptor to its socket, and from a socket to its kind. */
#ifndef SOCKETS_BPF_H
#define SOCKETS_BPF_H

#include "calls.h"
#include "core_fixes.bpf.h"
#include "maps.bpf.h"

struct socket_ref {
	address_t sk;
	u64 inode;
	u8 endpoint;
	bool is_socket;
};

static __always_inline u8 state_of_socket(address_t at)
{
	struct sock *sk = (void *)at;

	if (!direct_loads)
		return BPF_CORE_READ(sk, __sk_common.skc_state);
	sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	return sk->__sk_common.skc_state;
}

/* A load that faults gives 0, as a failed read does. */
static __always_inline u64 inode_of_socket(struct sock *sk)
{
	if (!direct_loads)
		return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
	return sk->sk_socket->file->f_inode->i_ino;
}

/* Its client has not closed it. A program that shuts a TCP connection down before it closes it does
 * so first.
 */
static __always_inline bool client_is_there(address_t at, u8 endpoint)
{
	struct sock *sk = (void *)at, *peer;
	u8 state = state_of_socket(at);

	if (endpoint == ENDPOINT_TCP)
		return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2;
	peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	return peer && BPF_CORE_READ(peer, __sk_common.skc_state) != TCP_CLOSE;
}

/* A slot of the table is a pointer to a pointer, a scalar to the verifier. */
static __always_inline struct file *file_of_fd(struct task_struct *task, u32 fd)
{
	struct files_struct *files = task_read(untrusted(task), files);
	struct file *file = NULL;
	struct fdtable *fdt;
	struct file **slot;

	if (!files)
		return NULL;
	fdt = task_read(files, fdt);
	if (!fdt || fd >= task_read(fdt, max_fds))
		return NULL;
	slot = task_read(fdt, fd) + fd;
	if (direct_loads && bpf_core_type_exists(struct epoll_filefd)) {
		struct epoll_filefd *holder;

		holder = bpf_rdonly_cast(slot, bpf_core_type_id_kernel(struct epoll_filefd));
		return holder->file;
	}
	bpf_probe_read_kernel(&file, sizeof(file), slot);
	/* struct epoll_filefd is gone in 7.2. */
	if (direct_loads && file)
		return bpf_rdonly_cast(file, bpf_core_type_id_kernel(struct file));
	return file;
}

/* An O_PATH descriptor and a recycled struct file fail the last test. */
static __always_inline bool read_socket_direct(struct file *file, struct socket_ref *ref)
{
	struct inode *inode = file->f_inode;
	struct socket *socket;
	struct sock *sk;

	if (!inode || (inode->i_mode & S_IFMT) != S_IFSOCK)
		return false;
	socket = bpf_rdonly_cast(file->private_data, bpf_core_type_id_kernel(struct socket));
	if ((u64)socket->file != (u64)file)
		return false;
	sk = socket->sk;
	if (!sk)
		return false;
	ref->sk = (u64)sk;
	ref->inode = inode->i_ino;
	ref->endpoint = endpoint_of(sk->__sk_common.skc_family, sk->sk_type, sk->sk_protocol);
	return true;
}

static __always_inline bool read_socket_probed(struct file *file, struct socket_ref *ref)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct socket *socket;
	struct sock *sk;

	if (!inode || (BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	socket = BPF_CORE_READ(file, private_data);
	if (!socket || BPF_CORE_READ(socket, file) != file)
		return false;
	sk = BPF_CORE_READ(socket, sk);
	if (!sk)
		return false;
	ref->sk = (u64)sk;
	ref->inode = BPF_CORE_READ(inode, i_ino);
	ref->endpoint = endpoint_of(BPF_CORE_READ(sk, __sk_common.skc_family),
				    BPF_CORE_READ(sk, sk_type), BPF_CORE_READ(sk, sk_protocol));
	return true;
}

static __always_inline bool read_socket(struct file *file, struct socket_ref *ref)
{
	if (direct_loads)
		return read_socket_direct(file, ref);
	return read_socket_probed(file, ref);
}

/* A pointer that was loaded is no number to the verifier, which allows no hash of it. */
static __always_inline address_t as_number(address_t pointer)
{
	address_t number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

/* Leaves ref zeroed, which is ENDPOINT_OTHER, when there is no file, or it is no socket. */
static __always_inline void resolve_file(struct file *file, struct socket_ref *ref)
{
	ref->sk = 0;
	ref->inode = 0;
	ref->endpoint = ENDPOINT_OTHER;
	ref->is_socket = file && read_socket(file, ref);
}

static __always_inline void resolve_fd(struct task_struct *task, u32 fd, struct socket_ref *ref)
{
	resolve_file(file_of_fd(task, fd), ref);
}

#endif
