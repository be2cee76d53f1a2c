/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* workload CASE FAMILY TRUTH_FILE: makes the calls, then tells which they were. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "family.h"

enum {
	EXEC_ARGUMENTS = 8
};

static const struct {
	const char *name;
	void (*run)(const struct family *family);
} NAMED_CASES[] = {
#define NAME_CASE(name) {#name, case_##name},
	CASES(NAME_CASE)
#undef NAME_CASE
};

static int run_after_exec(char **argv)
{
	const int fds[2] = {atoi(argv[6]), atoi(argv[7])};

	truth_inherit(atoi(argv[5]));
	continue_after_exec(family_named(argv[2]), atoi(argv[4]), fds);
	return 0;
}

/* Under ptrace even an ignored SIGCHLD makes a sleeping call start again. */
static void block_child_signal(void)
{
	sigset_t children;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
}

int main(int argc, char **argv)
{
	if (argc == EXEC_ARGUMENTS && !strcmp(argv[1], "continue"))
		return run_after_exec(argv);
	if (argc != 4) {
		fprintf(stderr, "usage: workload CASE FAMILY TRUTH_FILE\n");
		return 2;
	}
	block_child_signal();
	truth_create();
	/* Until an observer that attaches is there. */
	if (getenv("WORKLOAD_STOPS"))
		raise(SIGSTOP);
	for (size_t i = 0; i < sizeof(NAMED_CASES) / sizeof(NAMED_CASES[0]); i++) {
		if (strcmp(NAMED_CASES[i].name, argv[1]))
			continue;
		NAMED_CASES[i].run(family_named(argv[2]));
		truth_write(argv[1], argv[3]);
		return 0;
	}
	fprintf(stderr, "workload: no case named %s\n", argv[1]);
	return 2;
}
