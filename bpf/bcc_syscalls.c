// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Strategy "bcc", for kernels that do not describe their types: compiled on the host, by BCC,
 * against the headers of its kernel. A count means the same as in the shared bodies
 * (syscalls.bpf.h, processes.bpf.h, requests.bpf.h), which need those types; layouts are those
 * of udsprobe.h. A task that is not a target costs one lookup per call.
 *
 * Given by udsprobe: CALLS_MAX, FOLLOW_FORKS and the numbers NR_... and COMPAT_NR_....
 */
#include <linux/errno.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/in.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/socket.h>
#include <net/sock.h>

#include "calls.h"

/* At a time: verifiers up to v5.2 know no loops, and later ones walk a long one too often. */
#define MESSAGES_AT_ONCE 40

struct socket_ref {
	u64 sk;
	u64 inode;
	u32 endpoint;
	u32 is_socket;
};

/* [abi * NR_MAX + number], then what socketcall() stands for. */
BPF_ARRAY(entries, struct call_entry, 1056);
BPF_TABLE("percpu_hash", u32, struct call_counts, calls, CALLS_MAX);
/* By ABI. */
BPF_PERCPU_ARRAY(numbers, struct bcc_numbers, 2);
BPF_PERCPU_ARRAY(accounts, struct bcc_account, 1);
/* By stage; the last is the whole request. */
BPF_PERCPU_ARRAY(served, struct latency, 6);
BPF_HASH(processes, u32, struct bcc_process, 16384);
BPF_HASH(threads, u64, struct bcc_thread, 16384);
BPF_HASH(connections, u64, struct bcc_connection, 16384);
/* Of threads that are in a signal's handler. */
BPF_HASH(interrupted_calls, struct bcc_frame, struct interrupted_call, 4096);
BPF_ARRAY(gauges, u64, 6);
BPF_PROG_ARRAY(programs, 2);
/* Never written: entries are made from these, larger than the stack. */
BPF_PERCPU_ARRAY(no_counts, struct call_counts, 1);
BPF_PERCPU_ARRAY(no_thread, struct bcc_thread, 1);

_Static_assert(2 * NR_MAX + SOCKETCALL_MAX == 1056, "entries");
_Static_assert(STAGE_MAX + 1 == 6, "served");
_Static_assert(BCC_GAUGES == 6, "gauges");
_Static_assert(BCC_PROGRAMS == 2, "programs");
/* A program can be followed by 32 others. */
_Static_assert(MESSAGES_MAX / MESSAGES_AT_ONCE < 30, "messages");

static __always_inline u64 word_at(const void *address)
{
	u64 value = 0;

	bpf_probe_read(&value, sizeof(value), address);
	return value;
}

static __always_inline u32 half_at(const void *address)
{
	u32 value = 0;

	bpf_probe_read(&value, sizeof(value), address);
	return value;
}

static __always_inline u16 quarter_at(const void *address)
{
	u16 value = 0;

	bpf_probe_read(&value, sizeof(value), address);
	return value;
}

/* Per CPU where they are many, and atomic: a program can be preempted from v7.0 on. */
static __always_inline void count_add(u64 *counter, u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

static __always_inline void gauge_add(int gauge)
{
	u64 *value = gauges.lookup(&gauge);

	if (value)
		count_add(value, 1);
}

/* Without branches and without a table: the number of bits at or below the highest. */
static __always_inline u32 floor_log2(u64 value)
{
	value |= value >> 1;
	value |= value >> 2;
	value |= value >> 4;
	value |= value >> 8;
	value |= value >> 16;
	value |= value >> 32;
	value -= (value >> 1) & 0x5555555555555555ULL;
	value = (value & 0x3333333333333333ULL) + ((value >> 2) & 0x3333333333333333ULL);
	value = (value + (value >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return ((value * 0x0101010101010101ULL) >> 56) - 1;
}

static __always_inline void latency_add(struct latency *latency, ns_t value)
{
	latency_add_at(latency, value, latency_slot(value));
}

static __always_inline void stage_add(int stage, ns_t value)
{
	struct latency *latency = served.lookup(&stage);

	if (latency)
		latency_add(latency, value);
}

/* Registers. */

#if defined(CONFIG_X86_64)

static __always_inline u32 is_compat(u64 task)
{
	/* TS_COMPAT */
	return half_at(&((struct task_struct *)task)->thread_info.status) & 2;
}

static __always_inline u32 syscall_nr(u64 regs)
{
	return word_at(&((struct pt_regs *)regs)->orig_ax);
}

/* As in registers.bpf.h. */
static __always_inline u64 return_address(u64 regs)
{
	return word_at(&((struct pt_regs *)regs)->ip);
}

static __always_inline u64 stack_pointer(u64 regs, u32 compat)
{
	return word_at(&((struct pt_regs *)regs)->sp);
}

static __always_inline u64 call_bytes(u64 regs)
{
	return 2;
}

static __always_inline void read_registers(u64 from, u32 compat, struct arguments *arguments)
{
	struct pt_regs *regs = (void *)from;

	arguments->first = word_at(compat ? &regs->bx : &regs->di);
	arguments->second = word_at(compat ? &regs->cx : &regs->si);
	arguments->third = word_at(&regs->dx);
	arguments->fourth = word_at(compat ? &regs->si : &regs->r10);
}

#elif defined(CONFIG_ARM64)

static __always_inline u32 is_compat(u64 task)
{
	return word_at(&((struct task_struct *)task)->thread_info.flags) & (1UL << TIF_32BIT);
}

static __always_inline u32 syscall_nr(u64 regs)
{
	return half_at(&((struct pt_regs *)regs)->syscallno);
}

/* As in registers.bpf.h. */
static __always_inline u64 return_address(u64 regs)
{
	return word_at(&((struct pt_regs *)regs)->pc);
}

static __always_inline u64 stack_pointer(u64 from, u32 compat)
{
	struct pt_regs *regs = (void *)from;

	return compat ? word_at((u64 *)&regs->regs + 13) : word_at(&regs->sp);
}

static __always_inline u64 call_bytes(u64 regs)
{
	return (word_at(&((struct pt_regs *)regs)->pstate) & 0x30) == 0x30 ? 2 : 4;
}

static __always_inline void read_registers(u64 from, u32 compat, struct arguments *arguments)
{
	struct pt_regs *regs = (void *)from;

	arguments->first = word_at(&regs->orig_x0);
	arguments->second = word_at((u64 *)&regs->regs + 1);
	arguments->third = word_at((u64 *)&regs->regs + 2);
	arguments->fourth = word_at((u64 *)&regs->regs + 3);
}

#else
#error "udsprobe reads the registers of x86_64 and arm64"
#endif

/* socketcall() keeps the arguments of the call it stands for in user memory. */
static __always_inline void read_arguments(u64 regs, struct call_in_flight *call,
					   struct arguments *arguments)
{
	u32 words[4] = {};
	u32 compat = call->abi == ABI_COMPAT;

	read_registers(regs, compat, arguments);
	if (call->is_socketcall) {
		bpf_probe_read(words, sizeof(words), (void *)(u64)(u32)arguments->second);
		arguments->first = words[0];
		arguments->second = words[1];
		arguments->third = words[2];
		arguments->fourth = words[3];
	} else if (compat) {
		arguments->first = (u32)arguments->first;
		arguments->second = (u32)arguments->second;
		arguments->third = (u32)arguments->third;
		arguments->fourth = (u32)arguments->fourth;
	}
}

/* Sockets. */

/* sk_protocol is a bit-field up to v5.5; a protocol's name begins alike everywhere. Those that make
 * no difference to endpoint_of() are IPPROTO_RAW here.
 */
static __always_inline u16 protocol_of(struct sock *sk)
{
	struct proto *protocol = (void *)word_at(&sk->__sk_common.skc_prot);
	u32 name = half_at(&protocol->name);

	if (name == 0x50544353 /* SCTP */)
		return IPPROTO_SCTP;
	return (name & 0xffffff) == 0x504455 /* UDP */ ? IPPROTO_UDP : IPPROTO_RAW;
}

static __always_inline u8 endpoint_of_sock(u64 at, u16 type)
{
	struct sock *sk = (void *)at;

	return endpoint_of(quarter_at(&sk->__sk_common.skc_family), type, protocol_of(sk));
}

static __always_inline u64 file_of_fd(u64 task, u32 fd)
{
	struct files_struct *files = (void *)word_at(&((struct task_struct *)task)->files);
	struct fdtable *table;

	if (!files)
		return 0;
	table = (void *)word_at(&files->fdt);
	if (!table || fd >= half_at(&table->max_fds))
		return 0;
	return word_at((void *)(word_at(&table->fd) + (u64)fd * sizeof(u64)));
}

/* Leaves ref zeroed, which is ENDPOINT_OTHER, when fd is no socket. */
static __always_inline void resolve_fd(u64 task, u32 fd, struct socket_ref *ref)
{
	struct file *file = (void *)file_of_fd(task, fd);
	struct socket *socket;
	struct inode *inode;

	if (!file)
		return;
	inode = (void *)word_at(&file->f_inode);
	if (!inode || !S_ISSOCK(quarter_at(&inode->i_mode)))
		return;
	socket = (void *)word_at(&file->private_data);
	/* An O_PATH descriptor and a recycled struct file fail this. */
	if (!socket || word_at(&socket->file) != (u64)file)
		return;
	ref->sk = word_at(&socket->sk);
	if (!ref->sk)
		return;
	ref->inode = word_at(&inode->i_ino);
	ref->endpoint = endpoint_of_sock(ref->sk, quarter_at(&socket->type));
	ref->is_socket = 1;
}

static __always_inline u32 is_last_reference(u64 at)
{
	struct file *file = (void *)at;

/* Linux kernel commits 08ef26ea9ab3 "fs: add file_ref" and 90ee6ed776c0 "fs: port files to
 * file_ref" (in v6.13).
 */
#if __has_include(<linux/file_ref.h>)
	return word_at(&file->f_ref) == 0;
#else
	return word_at(&file->f_count) == 1;
#endif
}

/* Targets. */

static __always_inline struct bcc_process *target_of(u32 tgid)
{
	struct bcc_process *process = processes.lookup(&tgid);

	return process && !process->state.exited_ns ? process : 0;
}

static __always_inline struct bcc_thread *adopt_thread(u64 task, u32 tgid, u32 tid, u32 flags)
{
	struct bcc_thread *thread, *nothing;
	int zero = 0;

	nothing = no_thread.lookup(&zero);
	if (!nothing)
		return 0;
	threads.update(&task, nothing);
	thread = threads.lookup(&task);
	if (!thread) {
		gauge_add(BCC_THREADS_TURNED_AWAY);
		return 0;
	}
	thread->tgid = tgid;
	thread->tid = tid;
	thread->flags = flags;
	return thread;
}

/* The caller, if it is a thread of a target: taken on at the first event that we see of it. */
static __always_inline struct bcc_thread *caller(u64 task)
{
	u64 both = bpf_get_current_pid_tgid();
	struct bcc_process *process = target_of(both >> 32);
	struct bcc_thread *thread;

	if (!process || process->flags & THREAD_DORMANT)
		return 0;
	thread = threads.lookup(&task);
	return thread ? thread : adopt_thread(task, both >> 32, both, 0);
}

static __always_inline struct bcc_connection *connection_of(u64 sk, u64 inode)
{
	struct bcc_connection *connection = connections.lookup(&sk);

	return connection && connection->inode == inode ? connection : 0;
}

static __always_inline void connection_accepted(struct socket_ref *ref, u32 tgid)
{
	struct bcc_connection fresh = {};

	fresh.inode = ref->inode;
	fresh.tgid = tgid;
	if (connections.update(&ref->sk, &fresh))
		gauge_add(BCC_CONNECTIONS_TURNED_AWAY);
}

/* Calls: entry. */

static __always_inline void identify_call(u64 task, u64 regs, struct call_in_flight *call)
{
	u32 nr = syscall_nr(regs);
	struct arguments arguments;
	struct call_entry *entry;
	int index;

	call->abi = is_compat(task) ? ABI_COMPAT : ABI_NATIVE;
	call->nr = nr & (NR_MAX - 1);
	call->endpoint = ENDPOINT_OTHER;
	call->call = CALL_NONE;
	call->traits = 0;
	call->is_socketcall = 0;
	call->sk = 0;
	if (nr >= NR_MAX) {
		call->nr = NR_MAX - 1;
		return;
	}
	index = call->abi * NR_MAX + nr;
	entry = entries.lookup(&index);
	if (entry && entry->call == CALL_SOCKETCALL) {
		read_registers(regs, 1, &arguments);
		index = 2 * NR_MAX + (arguments.first & (SOCKETCALL_MAX - 1));
		entry = entries.lookup(&index);
		call->is_socketcall = 1;
	}
	if (!entry)
		return;
	call->call = entry->call;
	call->traits = entry->traits;
}

static __always_inline void resolve_endpoint(u64 task, struct call_in_flight *call,
					     struct arguments *arguments, struct socket_ref *ref)
{
	if (call->traits & (TRAIT_FD | TRAIT_FD_EITHER)) {
		call->fd = arguments->first;
		resolve_fd(task, call->fd, ref);
		if (!(call->traits & TRAIT_FD_EITHER))
			return;
		call->traits |= ref->is_socket ? TRAIT_RECEIVES : TRAIT_SENDS;
		if (ref->is_socket)
			return;
	}
	if (call->traits & (TRAIT_FD_THIRD | TRAIT_FD_EITHER)) {
		call->fd = arguments->third;
		resolve_fd(task, call->fd, ref);
	} else if (call->traits & TRAIT_FAMILY) {
		ref->endpoint = endpoint_of(arguments->first,
					    arguments->second & SOCK_TYPE_MASK, arguments->third);
	}
}

/* What a call is about; it must be asked at entry, when a close has not happened yet. */
static __always_inline void describe_call(u64 task, u64 regs, struct call_in_flight *call)
{
	struct socket_ref ref = {};
	struct arguments arguments = {};

	read_arguments(regs, call, &arguments);
	resolve_endpoint(task, call, &arguments, &ref);
	call->sk = ref.sk;
	call->inode = ref.inode;
	call->endpoint = ref.endpoint;
	if (call->call == CALL_CLOSE && ref.is_socket && connection_of(ref.sk, ref.inode) &&
	    is_last_reference(file_of_fd(task, call->fd)))
		connections.delete(&ref.sk);
}

/* Calls that a signal interrupts, as in interrupted.bpf.h; one that is set aside is found by its
 * frame.
 */

static __always_inline u32 is_sigreturn(struct call_in_flight *call)
{
	if (call->abi == ABI_COMPAT)
		return call->nr == COMPAT_NR_RT_SIGRETURN || call->nr == COMPAT_NR_SIGRETURN;
	return call->nr == NR_RT_SIGRETURN;
}

static __always_inline void keep_interrupted(struct bcc_thread *thread, u64 regs, long ret,
					     ns_t now)
{
	struct interrupted_call *kept = &thread->interrupted;

	kept->call = thread->now;
	kept->at_ns = now;
	kept->stack = stack_pointer(regs, kept->call.abi == ABI_COMPAT);
	kept->return_address = return_address(regs);
	kept->result = ret;
	kept->fails = ret != -ERESTARTNOINTR;
	thread->flags |= THREAD_INTERRUPTED;
}

static __always_inline void take_out(struct bcc_thread *thread, struct bcc_frame *frame,
				     u32 in_table)
{
	interrupted_calls.delete(frame);
	thread->set_aside--;
	if (in_table)
		thread->set_aside_in_table--;
}

/* The frame makes a new call or is interrupted again, so its interrupted call has ended. */
static __always_inline void leave_call_of(struct bcc_thread *thread, u64 task, u64 stack)
{
	struct bcc_frame frame = {};
	struct interrupted_call *call;
	u32 in_table;

	frame.task = task;
	frame.stack = stack;
	call = interrupted_calls.lookup(&frame);
	if (!call)
		return;
	in_table = call->call.call != CALL_NONE;
	if (in_table)
		gauge_add(BCC_CALLS_LEFT);
	take_out(thread, &frame, in_table);
}

static __always_inline void count_unfollowed(struct interrupted_call *call)
{
	struct bcc_account *account;
	int zero = 0;

	account = accounts.lookup(&zero);
	if (!account || call->call.call == CALL_NONE || !call->fails)
		return;
	count_add(&account->events_seen, 1);
	count_add(&account->lost_map_full, 1);
	gauge_add(BCC_INTERRUPTED_CALLS_TURNED_AWAY);
}

static __always_inline void set_aside(struct bcc_thread *thread, u64 task)
{
	struct interrupted_call *call = &thread->interrupted;
	struct bcc_frame frame = {};

	thread->flags &= ~THREAD_INTERRUPTED;
	if (thread->set_aside)
		leave_call_of(thread, task, call->stack);
	frame.task = task;
	frame.stack = call->stack;
	if (interrupted_calls.update(&frame, call)) {
		count_unfollowed(call);
		return;
	}
	thread->set_aside++;
	if (call->call.call != CALL_NONE)
		thread->set_aside_in_table++;
}

/* What is left of them in the map goes with the next sample. */
static __always_inline void leave_all(struct bcc_thread *thread)
{
	int gauge = BCC_CALLS_LEFT;
	u64 *left = gauges.lookup(&gauge);

	if (left)
		count_add(left, thread->set_aside_in_table);
	thread->set_aside = 0;
	thread->set_aside_in_table = 0;
}

int on_signal_deliver(struct bpf_raw_tracepoint_args *ctx)
{
	struct k_sigaction *action = (void *)ctx->args[2];
	u64 task = bpf_get_current_task(), handler = word_at(&action->sa.sa_handler);
	struct bcc_thread *thread = threads.lookup(&task);

	if (!thread || !(thread->flags & THREAD_INTERRUPTED) || handler <= (u64)SIG_IGN)
		return 0;
	if (thread->interrupted.result == -ERESTARTSYS &&
	    word_at(&action->sa.sa_flags) & SA_RESTART)
		thread->interrupted.fails = 0;
	set_aside(thread, task);
	return 0;
}

/* True: the program goes on behind its call, now `interrupted`, which has failed with EINTR. */
static __always_inline u32 handler_returned(struct bcc_thread *thread, u64 task, u64 regs)
{
	u64 address = return_address(regs);
	struct interrupted_call *call;
	struct bcc_frame frame = {};

	frame.task = task;
	frame.stack = stack_pointer(regs, thread->now.abi == ABI_COMPAT);
	call = interrupted_calls.lookup(&frame);
	if (!call)
		return 0;
	if (address != call->return_address && address + call_bytes(regs) != call->return_address)
		return 0;
	thread->interrupted = *call;
	take_out(thread, &frame, thread->interrupted.call.call != CALL_NONE);
	if (address == thread->interrupted.return_address)
		return 1;
	thread->flags |= THREAD_INTERRUPTED;
	return 0;
}

static __always_inline u32 is_made_again(struct bcc_thread *thread, u64 stack, u64 regs)
{
	struct interrupted_call *kept = &thread->interrupted;
	struct call_in_flight *call = &thread->now;
	u32 restart = call->abi == ABI_COMPAT ? COMPAT_NR_RESTART_SYSCALL : NR_RESTART_SYSCALL;

	if (stack != kept->stack || return_address(regs) != kept->return_address)
		return 0;
	return (call->nr == kept->call.nr && call->abi == kept->call.abi) || call->nr == restart;
}

/* True: the call `now` is one that began before; the time in between was not in it. */
static __always_inline u32 resume_interrupted(struct bcc_thread *thread, u64 task, u64 regs,
					      ns_t now)
{
	struct call_in_flight *call = &thread->now, *old = &thread->interrupted.call;
	u64 stack = stack_pointer(regs, call->abi == ABI_COMPAT);

	if (thread->flags & THREAD_INTERRUPTED) {
		if (is_made_again(thread, stack, regs)) {
			thread->flags &= ~THREAD_INTERRUPTED;
			if (call->nr != old->nr)
				*call = *old;
			call->early = old->early;
			call->off_cpu_ns = old->off_cpu_ns;
			call->start_ns = old->start_ns + now - thread->interrupted.at_ns;
			return 1;
		}
		/* A handler began, and signal_deliver was missed. */
		set_aside(thread, task);
	}
	if (thread->set_aside)
		leave_call_of(thread, task, stack);
	return 0;
}

int on_sys_enter(struct bpf_raw_tracepoint_args *ctx)
{
	u64 task = bpf_get_current_task(), regs = ctx->args[0];
	struct bcc_thread *thread = caller(task);
	ns_t now;

	if (!thread)
		return 0;
	identify_call(task, regs, &thread->now);
	thread->flags = (thread->flags | THREAD_IN_CALL) & ~THREAD_NEWBORN;
	thread->left_cpu_ns = 0;
	thread->messages_read = 0;
	thread->message_bytes = 0;
	if (thread->now.call != CALL_NONE)
		describe_call(task, regs, &thread->now);
	/* Last, so the program's own work does not count for the call. */
	now = bpf_ktime_get_ns();
	if ((thread->flags & THREAD_INTERRUPTED || thread->set_aside) &&
	    resume_interrupted(thread, task, regs, now))
		return 0;
	thread->now.early = 0;
	thread->now.off_cpu_ns = 0;
	thread->now.start_ns = now;
	return 0;
}

/* Calls: return. */

static __always_inline struct call_counts *counts_of(struct call_in_flight *call)
{
	u32 key = series_key(call->call, call->abi, call->endpoint);
	struct call_counts *counts = calls.lookup(&key), *nothing;
	int zero = 0;

	if (counts)
		return counts;
	nothing = no_counts.lookup(&zero);
	if (!nothing)
		return 0;
	/* Another CPU may have been first. */
	calls.insert(&key, nothing);
	return calls.lookup(&key);
}

static __always_inline u64 bytes_of_messages(u64 at, u32 stride, u64 count,
					     struct bcc_account *account)
{
	u64 bytes = 0, unread = 0, error, counts;
	u32 length, i;

	/* Straight through, without a branch: what is beyond the last is read, and not counted. */
#pragma unroll
	for (i = 0; i < MESSAGES_AT_ONCE; i++) {
		counts = (s64)(i - count) >> 63;
		length = 0;
		error = bpf_probe_read(&length, sizeof(length), (void *)at);
		unread += error >> 63 & counts;
		bytes += length & counts;
		at += stride;
		/* One after the other: all at the end would not fit on the stack. */
		asm volatile("" : "+r"(bytes), "+r"(unread), "+r"(at));
	}
	if (unread)
		count_add(&account->unread_messages, unread);
	return bytes;
}

/* Requests, as in requests.bpf.h where nothing tells of arrivals. */

static __always_inline void bytes_received(u64 task, struct call_in_flight *call, ns_t now)
{
	struct bcc_connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return;
	connection->tgid = bpf_get_current_pid_tgid() >> 32;
	if (connection->phase != PHASE_RECEIVING) {
		connection->phase = PHASE_RECEIVING;
		connection->turn_ns = call->start_ns;
		connection->recv_ns = now - call->start_ns;
		connection->app_ns = 0;
	} else {
		connection->recv_ns += now - call->start_ns;
		connection->app_ns += elapsed(connection->received_ns, call->start_ns);
	}
	connection->received_ns = now;
	connection->receiver = task;
}

static __always_inline void bytes_sent(u64 task, struct call_in_flight *call,
				       struct bcc_account *account, ns_t now)
{
	struct bcc_connection *connection = connection_of(call->sk, call->inode);

	if (!connection)
		return;
	connection->tgid = bpf_get_current_pid_tgid() >> 32;
	/* The send call began before the request came: a push, for example, not the reply. */
	if (connection->phase != PHASE_RECEIVING || call->start_ns < connection->received_ns)
		return;
	connection->phase = PHASE_REPLYING;
	connection->app_ns += elapsed(connection->received_ns, call->start_ns);
	stage_add(STAGE_MAX, now - connection->turn_ns);
	stage_add(STAGE_RECV, connection->recv_ns);
	stage_add(STAGE_APP, connection->app_ns);
	stage_add(STAGE_SEND, now - call->start_ns);
	if (connection->receiver != task)
		count_add(&account->handed_over, 1);
}

static __always_inline void record_bytes(u64 task, u64 regs, struct bcc_thread *thread,
					 struct call_counts *counts, struct bcc_account *account,
					 u64 ret, ns_t now)
{
	struct call_in_flight *call = &thread->now;
	struct arguments arguments = {};
	u64 bytes = ret;

	if (call->traits & TRAIT_MESSAGES) {
		bytes = thread->message_bytes;
		if (ret > thread->messages_read)
			count_add(&account->unread_messages, ret - thread->messages_read);
	}
	if (!bytes)
		return;
	count_add(&counts->bytes, bytes);
	read_arguments(regs, call, &arguments);
	if (!call->sk || (can_peek(call->call) && has_peek_flag(call->call, &arguments)))
		return;
	if (call->traits & TRAIT_RECEIVES)
		bytes_received(task, call, now);
	else
		bytes_sent(task, call, account, now);
}

/* The call has its result: one row of the table grows by exactly one call. */
static __always_inline void record_call(u64 task, u64 regs, struct bcc_thread *thread, long ret,
					ns_t now)
{
	struct call_in_flight *call = &thread->now;
	struct bcc_account *account;
	struct call_counts *counts;
	struct socket_ref ref = {};
	int zero = 0;

	account = accounts.lookup(&zero);
	if (!account)
		return;
	count_add(&account->events_seen, 1);
	counts = counts_of(call);
	if (!counts) {
		count_add(&account->lost_map_full, 1);
		return;
	}
	count_add(&account->events_counted, 1);
	record_time(counts, call, now);
	if (ret < 0) {
		count_add(&counts->errors[error_slot(ret)], 1);
	} else if (call->call == CALL_ACCEPT || call->call == CALL_ACCEPT4) {
		resolve_fd(task, ret, &ref);
		if (ref.is_socket)
			connection_accepted(&ref, thread->tgid);
	} else if (call->traits & (TRAIT_SENDS | TRAIT_RECEIVES | TRAIT_MESSAGES)) {
		record_bytes(task, regs, thread, counts, account, ret, now);
	}
}

static __always_inline void count_number(struct call_in_flight *call)
{
	struct bcc_numbers *of_abi;
	int abi = call->abi;

	of_abi = numbers.lookup(&abi);
	if (of_abi)
		count_add(&of_abi->calls[call->nr & (NR_MAX - 1)], 1);
}

/* The call got no descriptor; some calls return the same errno for another limit. */
static __always_inline void count_exhausted(struct bcc_thread *thread, long ret)
{
	int index = (thread->now.abi == ABI_COMPAT ? NR_MAX : 0) + (thread->now.nr & (NR_MAX - 1));
	struct call_entry *entry = entries.lookup(&index);
	struct bcc_process *process;

	if (!entry || entry->limits & LIMIT_OTHER)
		return;
	process = target_of(thread->tgid);
	if (process)
		count_add(ret == -EMFILE ? &process->state.emfile : &process->state.enfile, 1);
}

/* The first event of a thread that was inside a call when we came. */
static __always_inline void adopt_call(u64 task, u64 regs, struct call_in_flight *call, ns_t now)
{
	identify_call(task, regs, call);
	call->early = 1;
	call->off_cpu_ns = 0;
	call->start_ns = now;
	if (call->call != CALL_NONE)
		describe_call(task, regs, call);
}

/* Tail-calls itself until all messages of the call are added up, then handles its return. */
int on_messages(struct bpf_raw_tracepoint_args *ctx)
{
	u64 task = bpf_get_current_task(), regs = ctx->args[0], ret = ctx->args[1], at, stride;
	struct bcc_thread *thread = threads.lookup(&task);
	struct arguments arguments = {};
	struct bcc_account *account;
	int zero = 0;
	u64 begin;

	account = accounts.lookup(&zero);
	if (!thread || !account)
		return 0;
	begin = thread->messages_read;
	read_arguments(regs, &thread->now, &arguments);
	stride = thread->now.abi == ABI_COMPAT ? COMPAT_MESSAGE_SIZE : MESSAGE_SIZE;
	at = thread->now.abi == ABI_COMPAT ? COMPAT_MESSAGE_LENGTH_AT : MESSAGE_LENGTH_AT;
	at += arguments.second + begin * stride;
	thread->message_bytes += bytes_of_messages(at, stride, ret - begin, account);
	begin += MESSAGES_AT_ONCE;
	thread->messages_read = begin;
	if (begin < ret && begin < MESSAGES_MAX)
		programs.call(ctx, BCC_MESSAGES);
	programs.call(ctx, BCC_SYS_EXIT);
	return 0;
}

int on_sys_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 task = bpf_get_current_task(), regs = ctx->args[0];
	struct bcc_thread *thread = caller(task);
	long ret = ctx->args[1];
	ns_t now;

	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	if (thread->flags & THREAD_NEWBORN) {
		thread->flags &= ~THREAD_NEWBORN;
		return 0;
	}
	if (!(thread->flags & THREAD_IN_CALL))
		adopt_call(task, regs, &thread->now, now);
	else if (ret > 0 && thread->now.traits & TRAIT_MESSAGES && !thread->messages_read)
		programs.call(ctx, BCC_MESSAGES);
	thread->flags &= ~THREAD_IN_CALL;
	if (is_restart(ret) && !is_sigreturn(&thread->now)) {
		keep_interrupted(thread, regs, ret, now);
		return 0;
	}
	if (thread->set_aside && is_sigreturn(&thread->now)) {
		count_number(&thread->now);
		if (!handler_returned(thread, task, regs))
			return 0;
		thread->now = thread->interrupted.call;
		now = thread->interrupted.at_ns;
		ret = -EINTR;
	}
	count_number(&thread->now);
	if (ret == -EMFILE || ret == -ENFILE)
		count_exhausted(thread, ret);
	if (thread->now.call != CALL_NONE)
		record_call(task, regs, thread, ret, now);
	return 0;
}

/* On and off a CPU: a call's own time is what it was on one. */

int on_sched_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u64 before = ctx->args[1], after = ctx->args[2];
	struct bcc_thread *thread = threads.lookup(&before);

	if (thread)
		thread->left_cpu_ns = bpf_ktime_get_ns();
	thread = threads.lookup(&after);
	if (thread && thread->left_cpu_ns) {
		thread->now.off_cpu_ns += bpf_ktime_get_ns() - thread->left_cpu_ns;
		thread->left_cpu_ns = 0;
	}
	return 0;
}

/* Processes. */

int on_sched_process_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	u32 tgid = half_at(&parent->tgid), child_tgid = half_at(&child->tgid);
	u64 child_task = ctx->args[1];
	struct bcc_process fresh = {}, *process = target_of(tgid);

	if (!process)
		return 0;
	if (child_tgid != tgid) {
		if (!FOLLOW_FORKS)
			return 0;
		fresh.state.started_ns = bpf_ktime_get_ns();
		fresh.state.parent = tgid;
		fresh.state.via = VIA_FORK;
		fresh.flags = process->flags;
		bpf_probe_read(fresh.state.comm, COMM_LEN, &child->comm);
		if (processes.update(&child_tgid, &fresh)) {
			gauge_add(BCC_PROCESSES_TURNED_AWAY);
			return 0;
		}
	}
	/* Its first event is the return of its parent's clone. */
	adopt_thread(child_task, child_tgid, half_at(&child->pid), THREAD_NEWBORN);
	return 0;
}

int on_sched_process_exec(struct bpf_raw_tracepoint_args *ctx)
{
	u64 both = bpf_get_current_pid_tgid(), task = bpf_get_current_task();
	struct bcc_process *process = target_of(both >> 32);
	struct bcc_thread *thread;
	char comm[COMM_LEN] = {};

	if (!process)
		return 0;
	bpf_get_current_comm(comm, sizeof(comm));
	__builtin_memcpy(process->state.comm, comm, sizeof(comm));
	thread = threads.lookup(&task);
	if (process->flags & THREAD_DORMANT) {
		process->flags = 0;
		/* Counting begins in the execve call itself, whose entry was not looked at. */
		if (thread)
			thread->flags = THREAD_NEWBORN;
		else
			thread = adopt_thread(task, both >> 32, both, THREAD_NEWBORN);
	}
	if (!thread)
		return 0;
	leave_all(thread);
	/* The name of the first thread, whichever thread called. */
	thread->tid = both;
	return 0;
}

int on_sched_process_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 task = bpf_get_current_task();
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct bcc_process *process = target_of(tgid);
	struct bcc_thread *thread = threads.lookup(&task);
	struct signal_struct *signal;

	if (thread)
		leave_all(thread);
	threads.delete(&task);
	if (!process)
		return 0;
	signal = (void *)word_at(&((struct task_struct *)task)->signal);
	if (half_at(&signal->live))
		return 0;
	process->state.exited_ns = bpf_ktime_get_ns();
	gauge_add(BCC_TARGETS_EXITED);
	return 0;
}
