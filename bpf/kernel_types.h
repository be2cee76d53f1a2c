/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel structures and fields this tool reads, and nothing else: CO-RE
 * finds their places on the running kernel. Fields that were renamed are in
 * core_fixes.bpf.h.
 */
#ifndef KERNEL_TYPES_H
#define KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __le16;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
};

/* include/uapi/linux/bpf.h: not to be relocated. */
struct bpf_raw_tracepoint_args {
	u64 args[1];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum bpf_func_id {
	BPF_FUNC_jiffies64 = 118,
	BPF_FUNC_task_pt_regs = 175,
	BPF_FUNC_loop = 181,
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	atomic_t refs;
} refcount_t;

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
	u64 orig_x0;
	s32 syscallno;
};
#else
#error "no system-call registers for this architecture"
#endif

struct thread_info {
	unsigned long flags;
	u32 status;
	u64 preempt_count;	/* arm64: the count is in the lower half */
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *open_fds;
};

struct files_struct {
	struct fdtable *fdt;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct rlimit {
	unsigned long rlim_cur;
	unsigned long rlim_max;
};

struct signal_struct {
	atomic_t live;
	int nr_threads;
	unsigned int flags;
	struct mm_struct *oom_mm;
	struct rlimit rlim[16];
};

struct kernel_siginfo;

struct sigaction {
	void *sa_handler;
	unsigned long sa_flags;
};

struct k_sigaction {
	struct sigaction sa;
};

struct css_set;

struct bpf_local_storage;

struct nsproxy;

struct rq;

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long run_delay;
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
	unsigned long fsbase;
#else
	unsigned long cpu_context;
#endif
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int softirq_disable_cnt;	/* with CONFIG_PREEMPT_RT */
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct nsproxy *nsproxy;
	int exit_code;
	unsigned int ptrace;
	unsigned int on_cpu;	/* u8 in 7.2; unsigned loads are resized */
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned int in_iowait : 1;
	unsigned long jobctl;
	u64 start_boottime;
	int pid;
	int tgid;
	struct pid *thread_pid;
	char comm[16];
	struct css_set *cgroups;
	struct files_struct *files;
	struct signal_struct *signal;
	struct thread_struct thread;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct task_struct *parent;	/* its tracer, if it has one */
	struct bpf_local_storage *bpf_storage;
};

struct ns_common {
	unsigned int inum;
};

struct netns_core {
	int sysctl_somaxconn;
};

struct net {
	struct ns_common ns;
	struct netns_core core;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
	struct net *net_ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	__be16 skc_dport;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	u16 skc_num;
	possible_net_t skc_net;
};

struct sk_buff {
	struct sk_buff *next;
	struct sk_buff *prev;
	struct sock *sk;
	unsigned int len;
	char cb[48];
};

/* In cb of what is queued at a Unix socket. */
struct unix_skb_parms {
	u32 consumed;
};

struct sk_buff_head {
	struct sk_buff *next;
	struct sk_buff *prev;
	u32 qlen;
};

struct net_device {
	int ifindex;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	u16 sk_type;
	u16 sk_protocol;
	struct socket *sk_socket;
	struct sk_buff_head sk_receive_queue;
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
	atomic_t sk_drops;
	int sk_rcvbuf;
	int sk_sndbuf;
	u8 sk_userlocks;
	int sk_wmem_queued;
	refcount_t sk_wmem_alloc;
	int sk_err;
	struct pid *sk_peer_pid;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
	u32 snd_una;
	u32 snd_nxt;
	u32 snd_wl1;
	u32 snd_wnd;
	u32 snd_cwnd;
	u32 write_seq;
	u32 packets_out;
	u32 mss_cache;
	u32 total_retrans;
	u32 lsndtime;
	u64 bytes_received;
	u64 bytes_acked;
	u32 data_segs_in;
	u32 data_segs_out;
	u32 chrono_start;
	u32 chrono_stat[3];
	u8 chrono_type : 2;
	u8 nonagle : 4;
};

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[];
};

struct super_block {
	u32 s_dev;
};

struct dentry {
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct path {
	struct dentry *dentry;
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct wait_queue_head {
	struct list_head head;
};

struct wait_queue_entry {
	void *private;		/* the task */
	struct list_head entry;
};

struct socket_wq {
	struct wait_queue_head wait;
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct path path;
	struct sock *peer;
	struct socket_wq peer_wq;
	int inq_len;
};

struct request_sock_queue {
	atomic_t qlen;
	atomic_t young;
};

struct inet_bind_bucket {
	signed char fastreuse;
};

struct inet_connection_sock {
	struct request_sock_queue icsk_accept_queue;
	struct inet_bind_bucket *icsk_bind_hash;
	struct {
		u32 lrcvtime;
	} icsk_ack;
};

struct socket {
	short type;
	struct file *file;
	struct sock *sk;
};

/* fs/eventpoll.c: a pointer to a file at offset 0, the type under which a slot
 * of the descriptor table can be read without a helper call.
 */
struct epoll_filefd {
	struct file *file;
};

struct io_uring_cqe {
	u64 user_data;
	s32 res;
};

struct io_cqe {
	u64 user_data;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct io_hash_bucket {
	struct hlist_head list;
};

struct io_hash_table {
	struct io_hash_bucket *hbs;
	unsigned int hash_bits;
};

struct io_ring_ctx {
	struct io_hash_table cancel_table;
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	struct io_cqe cqe;
	unsigned int flags;	/* the lower half of 64 bits since v6.9 */
	struct io_ring_ctx *ctx;
	struct hlist_node hash_node;
};

/* What an operation was asked for lies where its struct io_kiocb begins. */
struct io_connect {
	void *addr;
	int addr_len;
};

struct io_accept {
	u32 file_slot;
};

struct io_sr_msg {
	unsigned int msg_flags;
};

struct io_splice {
	int splice_fd_in;
	unsigned int flags;
};

struct io_listen {
	int backlog;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	void *key;
	void *value;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

#endif
