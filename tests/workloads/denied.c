/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls that a seccomp filter refuses: the kernel tells of their end, not of their beginning. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "cases.h"
#include "family.h"

/* sendto fails with EPERM from now on; anything else is as before. */
static void deny_sendto(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = filter};

	must("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	must("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

void case_denied(const struct family *family)
{
	char payload[PAYLOAD] = {0};
	int fds[2];

	connected_pair(family, fds);
	deny_sendto();
	for (int i = 0; i < ROUNDS; i++) {
		FAILS(EPERM, family->kind, sendto, fds[0], payload, PAYLOAD, 0, NULL, 0);
		MUST(PAYLOAD, family->kind, write, fds[0], payload, PAYLOAD);
		MUST(PAYLOAD, family->kind, read, fds[1], payload, PAYLOAD);
	}
	close_pair(family, fds);
}
