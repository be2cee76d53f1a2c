/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Numbers of the kernel that BTF does not have, since they are macros or unnamed enums. */
#ifndef KERNEL_CONSTANTS_H
#define KERNEL_CONSTANTS_H

/* include/uapi/asm-generic/errno.h */
#define EINTR 4
#define EAGAIN 11
#define ENOMEM 12
#define EPIPE 32
#define ECONNRESET 104
#define ECONNREFUSED 111
#define EEXIST 17
#define ENFILE 23
#define EMFILE 24
#define EINPROGRESS 115
#define ECANCELED 125

/* include/linux/errno.h: never seen by a program. */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* include/uapi/asm-generic/signal-defs.h */
#define SIG_IGN 1
#define SA_RESTART 0x10000000

/* include/uapi/asm-generic/poll.h */
#define POLLIN 1

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* include/linux/socket.h, include/linux/net.h */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_SEQPACKET 5
#define SOCK_TYPE_MASK 0xf
#define MSG_PEEK 2
#define SHUT_RD 0

/* include/uapi/linux/in.h */
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_SCTP 132
#define IPPROTO_UDPLITE 136

/* include/net/tcp_states.h; Unix sockets have TCP_ESTABLISHED, TCP_CLOSE and TCP_LISTEN. */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11

/* include/linux/sched.h; PF_IO_WORKER: a thread that io_uring made for the process. */
#define TASK_UNINTERRUPTIBLE 2
#define __TASK_TRACED 8
#define TASK_FROZEN 0x8000
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_KTHREAD 0x00200000

/* include/linux/sched/signal.h, include/linux/sched/jobctl.h */
#define SIGNAL_STOP_STOPPED 1
#define JOBCTL_TRAP_FREEZE (1UL << 23)

/* include/uapi/asm-generic/resource.h */
#define RLIMIT_NOFILE 7

#endif
