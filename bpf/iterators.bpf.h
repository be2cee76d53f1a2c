/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Programs that user space runs, not events: the first targets, their sockets, their threads. */
#ifndef ITERATORS_BPF_H
#define ITERATORS_BPF_H

#include "lookups.bpf.h"
#include "processes.bpf.h"
#include "waiters.bpf.h"

#define COPY_ATTEMPTS 4
#define FDS_UNKNOWN 0xffffffff

/* A task that is about to sleep, or has just left its CPU, is still marked as on a CPU. The kernel
 * clears the mark after the switch, and the event of that switch may have come before attach
 * (kernel/sched/core.c, __schedule, finish_task). The task's state is set before the switch.
 */
static __always_inline bool is_running(struct task_struct *task)
{
	return task->on_cpu && !state_of_task(task);
}

/* A thread that sleeps or waits inside a call left its registers on its stack. */
static __always_inline void adopt_sleeping_call(struct task_struct *task,
						struct thread_state *state)
{
	struct pt_regs *regs;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs) ||
	    is_running(task))
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs || syscall_nr(regs) < 0)
		return;
	adopt_call(task, regs, state, state->since_ns);
	if (ends_unseen(state, task))
		first_event_seen(state, task);
	else
		state->flags |= THREAD_IN_CALL;
}

/* Unless an event of its own has told better meanwhile. That it left a CPU just now is never
 * taken back: only a thread that did is given one again.
 */
static __always_inline void adopt_activity(struct task_struct *task, struct thread_state *state,
					   ns_t adopted_ns)
{
	long task_state = state_of_task(task);
	u8 activity = ACTIVITY_RUNQ;

	if (task_state)
		activity = activity_asleep(task, state, task_state);
	else if (task->on_cpu)
		activity = activity_on_cpu(state);
	if (*(volatile ns_t *)&state->since_ns != adopted_ns)
		return;
	state->activity = activity;
	if (wakers_told && activity > ACTIVITY_RUNQ)
		falls_asleep(task, state, slot_of(task), activity);
}

static __always_inline void seed_thread(struct task_struct *task)
{
	u32 tgid = tgid_of(task);
	struct seed *seed = bpf_map_lookup_elem(&seed_tgids, &tgid);
	struct thread_state *state;
	ns_t adopted_ns;

	if (!seed || slot_of(task))
		return;
	if (untrusted(task)->group_leader->start_boottime / NS_PER_TICK != seed->start_ticks)
		return;
	state = adopt_thread(task, seed->flags | seed_traced(task));
	if (!state)
		return;
	adopted_ns = state->since_ns;
	if (task->pid == task->tgid)
		adopt_process(task, tgid_of(task->real_parent), VIA_SELECTOR);
	if (!(seed->flags & THREAD_DORMANT))
		adopt_sleeping_call(task, state);
	adopt_activity(task, state, adopted_ns);
}

/* Up to now, or to when it fell asleep: that does not change while it sleeps. The thread may
 * change its activity under our eyes: what it had spent in one would be missing, and the next
 * reading of others less than this one. False when it did so again and again.
 */
static __always_inline bool copy_activities(struct thread_state *state,
					    struct thread_record *record)
{
	for (u32 attempt = 0; attempt < COPY_ATTEMPTS; attempt++) {
		ns_t since = *(volatile ns_t *)&state->since_ns, now = bpf_ktime_get_ns();
		u32 activity = *(volatile u8 *)&state->activity;

		for (u32 i = 0; i < ACTIVITY_MAX; i++)
			record->activity_ns[i] = *(volatile ns_t *)&state->activity_ns[i];
		record->asleep = activity > ACTIVITY_RUNQ ? activity : ACTIVITY_MAX;
		record->asleep_since_ns = activity > ACTIVITY_RUNQ ? since : 0;
		if (activity <= ACTIVITY_RUNQ && now > since)
			record->activity_ns[activity] += now - since;
		if (since == *(volatile ns_t *)&state->since_ns)
			return true;
	}
	return false;
}

/* The same sleep as when it was told: nothing of the thread has changed but its name, which
 * another thread can give it.
 */
static __always_inline bool sleeps_as_told(struct thread_state *state, u64 *comm)
{
	return !tell_all && state->activity > ACTIVITY_RUNQ && state->told_ns &&
	       state->told_ns == state->since_ns && state->told_comm[0] == comm[0] &&
	       state->told_comm[1] == comm[1];
}

/* What it sleeps for, where wakes are told; nothing when it woke meanwhile. */
static __always_inline void copy_sleep(struct task_struct *task, struct thread_state *state,
				       struct thread_record *record)
{
	struct thread_past *past = past_in_slot(state->slot);
	u8 doing = *(volatile u8 *)&state->doing;

	if (!wakers_told || !past || !record->asleep_since_ns)
		return;
	record->nr = call_of(task, state);
	if (doing == DOING_LOCK)
		record->object = *(volatile u64 *)&past->object;
	if (record->in_call && state->now.sk)
		record->inode = state->now.inode;
	if (*(volatile ns_t *)&state->since_ns == record->asleep_since_ns)
		record->doing = doing;
}

static __always_inline void write_thread(struct seq_file *seq, struct task_struct *task)
{
	struct thread_state *state = thread_state_of(task);
	struct thread_record record = {};
	u64 comm[2] = {};
	bool is_settled;

	if (!state || state->flags & (THREAD_DORMANT | THREAD_EXITED))
		return;
	record.mark.tid = tid_of(task);
	bpf_probe_read_kernel_str(comm, sizeof(comm), task->comm);
	if (sleeps_as_told(state, comm)) {
		bpf_seq_write(seq, &record.mark, sizeof(record.mark));
		return;
	}
	record.mark.is_whole = 1;
	is_settled = copy_activities(state, &record);
	record.loops = state->loops;
	record.busy_ns = state->busy_ns;
	record.busy_max_ns = state->busy_max_ns;
	record.tgid = tgid_of(task);
	if (state->flags & THREAD_IN_CALL && state->now.call != CALL_NONE) {
		record.in_call = 1;
		record.since_ns = state->now.start_ns;
		record.call = state->now.call;
		record.abi = state->now.abi;
		record.endpoint = state->now.endpoint;
	}
	copy_sleep(task, state, &record);
	__builtin_memcpy(record.comm, comm, sizeof(record.comm));
	/* It ended meanwhile, and another has its entry. */
	if (*(volatile address_t *)&state->task != (u64)task)
		return;
	/* What found no room in the reader's buffer is asked for again. */
	if (bpf_seq_write(seq, &record, sizeof(record)) || !is_settled)
		return;
	state->told_ns = record.asleep_since_ns;
	state->told_comm[0] = comm[0];
	state->told_comm[1] = comm[1];
}

/* By the bits of a number, added up in pairs, fours, bytes. */
static __always_inline u32 bits_set(u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

struct open_fds {
	const u64 *words;
	u32 found;
};

static long add_open_fds(u32 index, struct open_fds *open)
{
	u64 word;

	if (bpf_probe_read_kernel(&word, sizeof(word), open->words + index)) {
		open->found = FDS_UNKNOWN;
		return 1;
	}
	open->found += bits_set(word);
	return 0;
}

/* As proc_readfd_count() counts; of `struct files_struct`. */
__noinline u32 open_fds_of(u64 at)
{
	struct files_struct *files = (void *)at;
	struct fdtable *fdt = BPF_CORE_READ(files, fdt);
	struct open_fds open = { .words = (void *)BPF_CORE_READ(fdt, open_fds) };
	u32 count = BPF_CORE_READ(fdt, max_fds) / 64;

	if (!open.words || count > FDS_WORDS_MAX)
		return FDS_UNKNOWN;
	repeat(count, FDS_WORDS_MAX, add_open_fds, &open);
	return open.found;
}

/* As /proc has it: 0 for nobody of this PID namespace. */
static __always_inline u32 number_here(u32 number)
{
	return in_pid_namespace && number & PID_OUTSIDE ? 0 : number;
}

static __always_inline u32 parent_of(struct task_struct *task)
{
	return number_here(tgid_of(task->real_parent));
}

/* Linux kernel commit f5d39b020809 "freezer,sched: Rewrite core freezer logic" (in v6.1):
 * TASK_FROZEN, also of cgroup v1; commit 76f969e8948d "cgroup: cgroup v2 freezer" (in v5.2).
 */
static __always_inline u32 stopped_by(struct task_struct *task)
{
	long state = state_of_task(task);

	if (task->jobctl & JOBCTL_TRAP_FREEZE || state & TASK_FROZEN)
		return STOPPED_BY_FREEZER;
	if (task->signal->flags & SIGNAL_STOP_STOPPED)
		return STOPPED_BY_SIGNAL;
	return state & __TASK_TRACED ? STOPPED_BY_TRACER : STOPPED_BY_NOBODY;
}

static __always_inline void write_process(struct seq_file *seq, struct task_struct *task)
{
	struct process_record record = { .tgid = tgid_of(task), .fds_open = FDS_UNKNOWN };
	struct process_state *process;
	struct files_struct *files;

	if (task->pid != task->tgid || task->flags & PF_EXITING)
		return;
	process = bpf_map_lookup_elem(&processes, &record.tgid);
	if (!process || process->exited_ns)
		return;
	record.started_ns = task->start_boottime;
	record.cgroups = (address_t)BPF_CORE_READ(task, cgroups);
	record.fds_limit = task->signal->rlim[RLIMIT_NOFILE].rlim_cur;
	record.emfile = process->emfile;
	record.enfile = process->enfile;
	record.started = process->started;
	record.start_eagain = process->start_eagain;
	record.start_enomem = process->start_enomem;
	record.parent = parent_of(task);
	record.threads = task->signal->nr_threads;
	files = BPF_CORE_READ(task, files);
	if (files)
		record.fds_open = open_fds_of((u64)files);
	record.netns = task->nsproxy->net_ns->ns.inum;
	record.via = process->via;
	record.stopped = stopped_by(task);
	if (task->ptrace)
		record.tracer = number_here(tgid_of(task->parent));
	bpf_probe_read_kernel_str(record.comm, sizeof(record.comm), task->comm);
	__builtin_memcpy(record.program, process->comm, sizeof(record.program));
	bpf_seq_write(seq, &record, sizeof(record));
}

enum end {
	END_UNKNOWN,
	THIS_END,
	OTHER_END,
};

/* By the ticks of both (tcp_info: tcpi_last_data_sent, tcpi_last_data_recv). Within one tick: the
 * other end acknowledges the last bytes of this one by a segment that begins where all its own end,
 * if it sent none after them (net/ipv4/tcp_input.c, tcp_update_wl).
 */
static __always_inline enum end who_spoke_last(struct tcp_sock *tcp)
{
	struct inet_connection_sock *connection = (void *)tcp;
	s32 later = BPF_CORE_READ(tcp, lsndtime) - BPF_CORE_READ(connection, icsk_ack.lrcvtime);

	if (later)
		return later > 0 ? THIS_END : OTHER_END;
	if (BPF_CORE_READ(tcp, snd_una) != BPF_CORE_READ(tcp, write_seq))
		return END_UNKNOWN;
	return BPF_CORE_READ(tcp, snd_wl1) == BPF_CORE_READ(tcp, rcv_nxt) ? THIS_END : OTHER_END;
}

/* Its last bytes came after a reply, or are its first and came at once, and are received: they may
 * ask for one. At least 1, or 0: they did not. Who has spoken again and again without a reply waits
 * for none, as the sender of a log.
 */
static __always_inline u32 asked_ticks(struct sock *sk, u8 endpoint)
{
	struct inet_connection_sock *connection = (void *)sk;
	struct tcp_sock *tcp = (void *)sk;
	u32 now = current_tick(), ago;

	if (endpoint != ENDPOINT_TCP || !now || unread_bytes_probed((u64)sk, endpoint))
		return 0;
	if (!BPF_CORE_READ(tcp, data_segs_out)) {
		if (BPF_CORE_READ(tcp, data_segs_in) != 1)
			return 0;
	} else if (!BPF_CORE_READ(tcp, bytes_acked) || who_spoke_last(tcp) != OTHER_END) {
		return 0;
	}
	ago = now - BPF_CORE_READ(connection, icsk_ack.lrcvtime);
	return ago ? ago : 1;
}

/* Sockets of targets, and everybody's listeners: a process may serve connections that its
 * parent accepted, as those of PostgreSQL do, and hold no listener itself.
 */
static __always_inline void write_socket(struct seq_file *seq, struct task_struct *task, u32 fd,
					 struct file *file)
{
	struct socket_record record = {};
	struct socket_ref ref = {};
	struct sock *sk;

	if (!read_socket_probed(file, &ref))
		return;
	sk = (void *)ref.sk;
	record.state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (ref.endpoint == ENDPOINT_TCP && record.state == TCP_SYN_SENT)
		adopt_handshake(sk);
	if (!thread_state_of(task) && record.state != TCP_LISTEN)
		return;
	record.sk = ref.sk;
	record.inode = ref.inode;
	record.endpoint = ref.endpoint;
	record.tgid = tgid_of(task);
	record.fd = fd;
	if (record.state == TCP_ESTABLISHED)
		record.asked_ticks = asked_ticks(sk, ref.endpoint);
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (ref.endpoint == ENDPOINT_UNIX_STREAM || ref.endpoint == ENDPOINT_UNIX_SEQPACKET)
		record.unix_address = (u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
	else
		record.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	bpf_seq_write(seq, &record, sizeof(record));
}

/* Also who waits for room there: one that is known already adds nobody. */
static __always_inline void seed_new_listener(struct socket_ref *ref, u32 tgid)
{
	struct listener *known = bpf_map_lookup_elem(&listeners, &ref->sk);
	bool is_new = !known || known->inode != ref->inode;

	if (adopt_listener(ref, tgid) && is_new && is_unix_with_queue(ref->endpoint))
		walk_waiters((struct sock *)ref->sk, true);
}

/* The listeners that are open when we come. */
static __always_inline void seed_listener(struct task_struct *task, struct file *file)
{
	struct socket_ref ref = {};
	struct sock *sk;

	if (!thread_state_of(task) || !read_socket_probed(file, &ref))
		return;
	sk = (void *)ref.sk;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN &&
	    ref.endpoint != ENDPOINT_OTHER)
		seed_new_listener(&ref, tgid_of(task));
}

static __always_inline void read_listener(struct listener_record *record, address_t *key,
					  struct listener *listener)
{
	struct inet_connection_sock *tcp = (void *)*key;
	struct sock *sk = (void *)*key;

	__builtin_memset(record, 0, sizeof(*record));
	record->sk = *key;
	follow(*key);
	record->is_alive = inode_of_socket(sk) == listener->inode &&
			   BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN;
	record->depth = queue_length(sk, listener->endpoint);
	record->backlog = BPF_CORE_READ(sk, sk_max_ack_backlog);
	record->somaxconn = BPF_CORE_READ(sk, __sk_common.skc_net.net, core.sysctl_somaxconn);
	record->drops = BPF_CORE_READ(sk, sk_drops.counter);
	if (listener->endpoint == ENDPOINT_TCP) {
		record->syn_queue = BPF_CORE_READ(tcp, icsk_accept_queue.qlen.counter);
		record->syn_young = BPF_CORE_READ(tcp, icsk_accept_queue.young.counter);
	} else if (record->is_alive) {
		record->waiting = walk_waiters(sk, false);
	}
}

#define EPHEMERAL_PORT_MIN 32768	/* of net.ipv4.ip_local_port_range */

/* A client has no name of its own on Unix. On TCP connect() chose its port
 * (net/ipv4/inet_hashtables.c, __inet_hash_connect: fastreuse = -1; what a
 * listener accepts is in the listener's bucket), or it is an ephemeral one.
 */
static __always_inline bool is_client(struct sock *sk, u8 endpoint)
{
	struct inet_connection_sock *tcp = (void *)sk;
	struct socket_name peer = {};

	if (endpoint == ENDPOINT_TCP) {
		if (BPF_CORE_READ(tcp, icsk_bind_hash) &&
		    BPF_CORE_READ(tcp, icsk_bind_hash, fastreuse) == -1)
			return true;
		name_of_peer(sk, &peer);
		return BPF_CORE_READ(sk, __sk_common.skc_num) >= EPHEMERAL_PORT_MIN &&
		       peer.port < EPHEMERAL_PORT_MIN;
	}
	if (!is_unix_with_queue(endpoint) || BPF_CORE_READ((struct unix_sock *)sk, addr))
		return false;
	name_of_peer(sk, &peer);
	return peer.length;
}

/* A target had spoken last on a connection of its own, after an answer or once: it waits for one, or
 * that message needs none.
 */
static __always_inline void seed_asked(address_t at, u8 endpoint)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, &at);
	struct tcp_sock *tcp = (struct tcp_sock *)at;
	u32 now = current_tick();

	if (!connection || endpoint != ENDPOINT_TCP || !now || unread_bytes_probed(at, endpoint))
		return;
	if (!BPF_CORE_READ(tcp, bytes_received)) {
		if (BPF_CORE_READ(tcp, data_segs_out) != 1)
			return;
	} else if (who_spoke_last(tcp) != THIS_END) {
		return;
	}
	connection->phase = PHASE_ASKED_BEFORE;
	connection->turn_ns = bpf_ktime_get_ns() -
			      (u64)(now - BPF_CORE_READ(tcp, lsndtime)) * tick_ns;
}

/* After the served ones: what a target connected before we came. */
static __always_inline void seed_upstream(struct task_struct *task, struct file *file)
{
	struct socket_ref ref = {};
	struct sock *sk;

	if (!thread_state_of(task) || !read_socket_probed(file, &ref) ||
	    bpf_map_lookup_elem(&connections, &ref.sk))
		return;
	sk = (void *)ref.sk;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED ||
	    !is_client(sk, ref.endpoint))
		return;
	connection_opened(task, &ref, 0);
	seed_asked(ref.sk, ref.endpoint);
}

#define SKBS_MAX 1024

struct skb_walk {
	struct sk_buff *next;
	struct sk_buff *end;
	bytes_t bytes;
};

static long add_skb(u32 index, struct skb_walk *walk)
{
	struct sk_buff *skb = walk->next;
	struct unix_skb_parms *parms = (void *)&skb->cb;

	if (!skb || skb == walk->end)
		return 1;
	walk->bytes += BPF_CORE_READ(skb, len) - BPF_CORE_READ(parms, consumed);
	walk->next = BPF_CORE_READ(skb, next);
	return 0;
}

/* `consumed` is 0 but of streams. */
__noinline u64 unread_in_skbs(u64 at)
{
	struct sock *sk = (void *)at;
	struct skb_walk walk = {
		.next = BPF_CORE_READ(sk, sk_receive_queue.next),
		.end = (void *)&sk->sk_receive_queue,
	};

	repeat(SKBS_MAX, SKBS_MAX, add_skb, &walk);
	return walk.bytes;
}

/* unix_inq_len() of net/unix/af_unix.c; inq_len is of streams only. */
static __always_inline bytes_t unread_unix_bytes(struct sock *sk, u8 endpoint)
{
	struct unix_sock *unix = (void *)sk;

	if (endpoint == ENDPOINT_UNIX_STREAM && bpf_core_field_exists(unix->inq_len))
		return BPF_CORE_READ(unix, inq_len);
	return unread_in_skbs((u64)sk);
}

static __always_inline void read_queues(struct sock *sk, u8 endpoint,
					struct connection_record *record)
{
	u64 at = (u64)sk;

	record->send_queue_bytes = direct_loads ? unsent_bytes_direct(at, endpoint) :
						  unsent_bytes_probed(at, endpoint);
	if (!tells_unread_bytes(endpoint))
		record->recv_queue_bytes = unread_unix_bytes(sk, endpoint);
	else
		record->recv_queue_bytes = direct_loads ? unread_bytes_direct(at, endpoint) :
							  unread_bytes_probed(at, endpoint);
}

/* include/uapi/linux/socket.h, SOCK_SNDBUF_LOCK and SOCK_RCVBUF_LOCK: setsockopt()
 * sets them, and TCP leaves the size of such a buffer alone.
 */
#define SOCK_BUFFERS_LOCKED (SEND_BUFFER_FIXED | RECV_BUFFER_FIXED)

static __always_inline void read_buffers(struct sock *sk, u8 endpoint,
					 struct connection_record *record)
{
	record->send_buffer_bytes = BPF_CORE_READ(sk, sk_sndbuf);
	record->recv_buffer_bytes = BPF_CORE_READ(sk, sk_rcvbuf);
	record->queue_flags =
		BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SOCK_BUFFERS_LOCKED;
	if (tells_unread_bytes(endpoint))
		record->queue_flags |= RECV_MAX_KNOWN;
	if (endpoint != ENDPOINT_TCP)
		record->peer_inode = inode_of_socket(BPF_CORE_READ((struct unix_sock *)sk, peer));
}

/* TCP: what was acknowledged. Unix: what was sent while we looked, without what waits at
 * the other end; a send call in progress is not in it, which is why its sleeps are told.
 */
static __always_inline void read_progress(struct sock *sk, struct connection *connection,
					  struct connection_record *record)
{
	struct sock *peer;

	if (connection->endpoint == ENDPOINT_TCP) {
		record->taken = BPF_CORE_READ((struct tcp_sock *)sk, snd_una);
	} else {
		peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
		if (!peer)
			return;
		record->taken = connection->bytes_out -
				unread_unix_bytes(peer, connection->endpoint);
		record->send_sleeps = connection->send_sleeps;
	}
	record->queue_flags |= TAKEN_KNOWN;
}

static __always_inline void read_window(struct sock *sk, struct connection *connection,
					struct connection_record *record)
{
	if (connection->endpoint != ENDPOINT_TCP)
		return;
	note_window(connection, (u64)sk);
	record->window_full = window_full_ticks((u64)sk) - connection->window_full_before;
}

/* An iterator's value cannot be indexed by a variable, so both places are asked. */
static __always_inline void read_recent_queues(struct recent_queues *recent,
					       struct connection_record *record)
{
	if (recent->interval != interval - 1)
		return;
	if (recent->recv_bytes > record->recv_max_bytes)
		record->recv_max_bytes = recent->recv_bytes;
	if (recent->send_bytes > record->send_max_bytes)
		record->send_max_bytes = recent->send_bytes;
}

/* False when nothing was noted in the interval that ended. */
static __always_inline bool read_high_water(struct connection *connection,
					    struct connection_record *record)
{
	read_recent_queues(&connection->queues[0], record);
	read_recent_queues(&connection->queues[1], record);
	return record->recv_max_bytes || record->send_max_bytes;
}

/* What has streams, or messages, may have nothing open. */
static __always_inline ns_t asking_since_ns(struct connection *connection)
{
	if (connection->role == ROLE_UPSTREAM && connection->phase == PHASE_SHARED)
		return connection->oldest_stream_ns;
	if (connection->role != ROLE_UPSTREAM || connection->is_multiplexed ||
	    connection->is_websocket)
		return 0;
	return connection->phase == PHASE_ASKING || connection->phase == PHASE_ASKED_BEFORE ?
		       connection->turn_ns : 0;
}

/* As user space weighs them, which keeps the heaviest and says from where on. Where all are
 * alike and more than there is room for, it does not matter which are listed.
 */
static __always_inline bool is_too_light(struct connection *connection)
{
	u64 stuck = connection->send_blocked + connection->send_eagain;
	u64 bytes = connection->bytes_in + connection->bytes_out;
	u64 weight = connection->turns + bytes / 1024 + 1000 * stuck;

	if (listed < LISTED_MAX)
		return weight < listed_weight_min;
	return weight < 2 * listed_weight_min;
}

/* Of a hundred thousand idle ones the sockets themselves would all be loaded. */
static __always_inline bool is_still_idle(struct connection *connection)
{
	return !looks_at_all && connection->inode && connection->was_empty &&
	       connection->active + 1 < interval && !connection->arrived_ns;
}

/* Before anything that is called from here: the record takes most of the stack. */
static __always_inline ns_t open_since_ns(struct connection *connection, address_t sk)
{
	return is_light ? 0 : oldest_stream_ns(sk, connection->bytes_in, connection->bytes_out);
}

/* False: it is not to be listed. */
static __always_inline bool read_connection(struct connection_record *record, address_t *key,
					    struct connection *connection)
{
	struct sock *sk = (void *)*key;
	bool was_filled;

	if (connection->phase == PHASE_SHARED)
		connection->oldest_stream_ns = open_since_ns(connection, *key);
	if (is_still_idle(connection)) {
		connections_open++;
		note_waiting(connection, *key, 0);
		return false;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->sk = *key;
	if (!connection->inode || connection->inode != inode_of_socket(sk))
		return false;
	/* It was refused before connect() said that it is in progress. */
	if (connection->endpoint == ENDPOINT_TCP &&
	    state_of_socket(*key) == TCP_CLOSE)
		return false;
	/* Its requests tell what there is to say of it. */
	if (connection->endpoint == ENDPOINT_UDP) {
		if (awaits_answers(connection))
			note_waiting(connection, *key, 0);
		return false;
	}
	connections_open++;
	read_queues(sk, connection->endpoint, record);
	was_filled = read_high_water(connection, record);
	connection->was_empty = !record->recv_queue_bytes && !record->send_queue_bytes;
	/* Quiet since the last sample and with nothing queued: nothing new to say. */
	if (connection->active + 1 < interval && !was_filled && !record->recv_queue_bytes &&
	    !record->send_queue_bytes) {
		note_waiting(connection, *key, 0);
		return false;
	}
	if (!record->send_queue_bytes && is_too_light(connection)) {
		note_waiting(connection, *key, record->recv_queue_bytes);
		return false;
	}
	read_buffers(sk, connection->endpoint, record);
	read_progress(sk, connection, record);
	read_window(sk, connection, record);
	record->asking_since_ns = asking_since_ns(connection);
	record->is_multiplexed = connection->is_multiplexed;
	record->inode = connection->inode;
	record->bytes_in = connection->bytes_in;
	record->bytes_out = connection->bytes_out;
	record->turns = connection->turns;
	record->send_blocked_ns = connection->send_blocked_ns;
	record->send_blocked_max_ns = connection->send_blocked_max_ns;
	record->send_blocked = connection->send_blocked;
	record->send_eagain = connection->send_eagain;
	record->sends_held = connection->sends_held;
	record->held = connection->held;
	record->stopped_ns = connection->stopped_ns + connection->send_blocked_ns +
			     connection->asleep_in_call_ns;
	record->stopped_since_ns = connection->stopped_since_ns;
	record->stops = connection->stops + connection->send_sleeps;
	record->tgid = connection->tgid;
	record->peer_tgid = connection->peer_tgid;
	record->role = connection->role;
	record->endpoint = connection->endpoint;
	name_of_socket(sk, &record->local);
	name_of_peer(sk, &record->peer);
	return true;
}

static __always_inline void connection_listed(struct connection_record *record,
					      struct connection *connection)
{
	listed++;
	note_waiting(connection, record->sk, record->recv_queue_bytes);
}

/* Detail "light": accept() is not seen, so one that was closed unused would stay in its queue. So
 * many have come behind it that it cannot be there, and its memory is no open socket's.
 */
static __always_inline bool was_closed_unused(struct connection *connection, address_t sk,
					      struct listener *listener)
{
	u32 behind = (u32)listener->established - connection->unread;
	u32 depth = queue_length((struct sock *)connection->listener, listener->endpoint);

	return is_light && behind > depth + QUEUE_TAIL_MAX && !inode_of_socket((struct sock *)sk);
}

/* Nothing tells of the end of a Unix socket, so its connection is asked for now and then. */
static __always_inline void sweep_connection(address_t *key, struct connection *connection)
{
	address_t sk = *key, at = connection->listener;
	struct listener *listener;

	if (connection->phase == PHASE_QUEUED) {
		listener = bpf_map_lookup_elem(&listeners, &at);
		if (listener && listener->inode == connection->listener_inode &&
		    listener->inode == inode_of_socket((struct sock *)at) &&
		    !was_closed_unused(connection, sk, listener)) {
			follow(sk);
			return;
		}
	} else if (connection->inode == inode_of_socket((struct sock *)sk)) {
		follow(sk);
		return;
	}
	connection_gone(connection, sk);
	bpf_map_delete_elem(&connections, &sk);
}

#endif
