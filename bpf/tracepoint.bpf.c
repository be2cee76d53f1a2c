// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Strategy "tracepoint": the shared bodies, called from BTF tracepoints. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "iterators.bpf.h"
#include "processes.bpf.h"
#include "requests.bpf.h"
#include "syscalls.bpf.h"
#include "threads.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	call_entered(bpf_get_current_task_btf(), regs, nr);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	call_returned(bpf_get_current_task_btf(), regs, ret);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	left_cpu(prev, preempt);
	got_cpu(next);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	woken(task);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	process_forked(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	program_replaced(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	thread_exited(task);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(sk_data_ready, struct sock *sk)
{
	if (sk->__sk_common.skc_state == TCP_LISTEN)
		connection_queued(sk);
	else
		bytes_arrived((u64)sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int before, int after)
{
	tcp_state_changed(sk, before, after);
	return 0;
}

SEC("iter/task")
int seed_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		seed_thread(task);
	return 0;
}

SEC("iter/task")
int list_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		write_thread(ctx->meta->seq, task);
	return 0;
}

SEC("iter/task_file")
int seed_listeners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		seed_listener(task, file);
	return 0;
}

SEC("iter/bpf_map_elem")
int list_listeners(struct bpf_iter__bpf_map_elem *ctx)
{
	struct listener *listener = ctx->value;
	address_t *key = ctx->key;

	if (key && listener)
		write_listener(ctx->meta->seq, key, listener);
	return 0;
}

SEC("iter/task_file")
int seed_upstreams(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		seed_upstream(task, file);
	return 0;
}

SEC("iter/bpf_map_elem")
int list_connections(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection *connection = ctx->value;
	address_t *key = ctx->key;

	if (key && connection)
		write_connection(ctx->meta->seq, key, connection);
	return 0;
}

SEC("iter/bpf_map_elem")
int sweep_connections(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection *connection = ctx->value;
	address_t *key = ctx->key;

	if (key && connection)
		sweep_connection(key, connection);
	return 0;
}

SEC("iter/task_file")
int list_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		write_socket(ctx->meta->seq, task, ctx->fd, file);
	return 0;
}
