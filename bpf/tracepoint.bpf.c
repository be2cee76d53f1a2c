// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The shared bodies, called from BTF tracepoints and, with strategy "fentry", functions. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "iterators.bpf.h"
#include "light.bpf.h"
#include "listings.bpf.h"
#include "processes.bpf.h"
#include "requests.bpf.h"
#include "syscalls.bpf.h"
#include "threads.bpf.h"
#include "uring.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void became_readable(address_t sk)
{
	if (!is_followed(sk))
		return;
	if (state_of_socket(sk) == TCP_LISTEN)
		connection_queued((struct sock *)sk);
	else
		bytes_arrived(sk);
}

#ifndef BY_FUNCTIONS

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	call_entered(regs, nr);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	call_returned(regs, ret);
	return 0;
}

#endif

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	thread_switched(prev, next, preempt);
	return 0;
}

/* In the context of who wakes it, which sched_wakeup need not be. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	is_being_woken(task);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	woken(task);
	return 0;
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(signal_deliver, int number, struct kernel_siginfo *info, struct k_sigaction *action)
{
	handler_begins(action);
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

/* Not tp_btf, whose arguments are no numbers to the verifier: most are only looked up. */
SEC("raw_tp/sk_data_ready")
int sk_data_ready(struct bpf_raw_tracepoint_args *ctx)
{
	became_readable(ctx->args[0]);
	return 0;
}

/* Detail "light". This one is attached before sk_data_ready, and has a stack of its own. */
SEC("raw_tp/sk_data_ready")
int light_listener(struct bpf_raw_tracepoint_args *ctx)
{
	connection_came(ctx->args[0]);
	return 0;
}

SEC("raw_tp/sock_send_length")
int sock_send_length(struct bpf_raw_tracepoint_args *ctx)
{
	light_sent(ctx->args[0], ctx->args[1]);
	return 0;
}

SEC("raw_tp/sock_recv_length")
int sock_recv_length(struct bpf_raw_tracepoint_args *ctx)
{
	light_received(ctx->args[0], ctx->args[1], ctx->args[2]);
	return 0;
}

/* Strategy "fentry": what every socket of the families followed has for sk_data_ready
 * (net/core/sock.c, sock_init_data), on kernels without that tracepoint as well.
 */
SEC("fentry/sock_def_readable")
int BPF_PROG(sock_def_readable, struct sock *sk)
{
	became_readable(as_number((u64)sk));
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int before, int after)
{
	tcp_state_changed(sk, before, after);
	if (is_light && after == TCP_LISTEN)
		adopt_listening(as_number((u64)sk), current_tgid());
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(io_uring_submit_req, struct io_kiocb *req)
{
	uring_submitted(req);
	return 0;
}

/* Its name up to v6.2; `bool force_nonblock` comes second. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(io_uring_submit_sqe, struct io_kiocb *req)
{
	uring_submitted(req);
	return 0;
}

/* Not tp_btf, as programs at different tracepoints may not jump to each other then. */
SEC("raw_tp/io_uring_complete")
int io_uring_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct completion completion = { .ring = ctx->args[0] };
	struct io_uring_cqe *cqe;
	u64 flags;

	if (overflow_ended(&flags)) {
		completion.user_data = ctx->args[1];
		completion.ret = ctx->args[2];
		completion.is_over = !(flags & CQE_MORE);
		completion.is_overflow = true;
	} else if (bpf_core_type_exists(btf_trace_io_uring_complete___cqe)) {
		cqe = (void *)ctx->args[2];
		completion.req = ctx->args[1];
		completion.user_data = BPF_CORE_READ(cqe, user_data);
		completion.ret = BPF_CORE_READ(cqe, res);
		completion.is_over = completion.req;
	} else {
		completion.req = ctx->args[1];
		completion.user_data = ctx->args[2];
		completion.ret = ctx->args[3];
		completion.is_over = completion.req;
	}
	uring_completed(&completion);
	return 0;
}

SEC("raw_tp/io_uring_cqe_overflow")
int io_uring_cqe_overflow(struct bpf_raw_tracepoint_args *ctx)
{
	if (!overflow_began(ctx->args[3]))
		return 0;
	bpf_tail_call(ctx, &completes, 0);
	shared_add(&uring_untold, 1);
	return 0;
}

/* Where udsprobe runs in a PID namespace of its own. */
SEC("iter/task")
int learn_namespace(struct bpf_iter__task *ctx)
{
	learn_own_namespace();
	return 0;
}

SEC("iter/task")
int seed_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		seed_thread(task);
	else	/* once more: a processor may have read an entry before the round that it noted */
		forget_callers();
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

SEC("iter/task")
int list_processes(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		write_process(ctx->meta->seq, task);
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

SEC("iter/task_file")
int seed_upstreams(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (task && file)
		seed_upstream(task, file);
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
