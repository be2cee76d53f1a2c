/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The workloads, by the name they have on the command line. */
#ifndef CASES_H
#define CASES_H

struct family;

/* Over a Unix stream; the receiver returns -1 when nothing came. */
void pass_descriptor(int over, int fd);
int passed_descriptor(int over);

/* clang-format off */
#define CASES(X) \
	X(send) X(read) X(readv) X(preadv2) X(sendmsg) X(sendmmsg) X(nonblocking) \
	X(sendfile) X(splice) X(epoll) X(poll) X(connect) X(errors) X(no_socket) \
	X(files) X(duplicates) X(path_only) X(replaced) X(passed) X(threads) X(forks) \
	X(grandchildren) X(exec) X(exec_from_thread) X(spawn) X(vfork) X(abandoned) \
	X(restarted) X(interrupted) X(stopped) X(retried) X(restarted_twice) X(jumped_out) \
	X(handler_same_call) X(handler_same_restarted) X(handler_other_call) X(handlers_nested) \
	X(handlers_nested_restarted) \
	X(handler_on_own_stack) X(handler_logs) X(jumped_to_reused) X(jumped_to_same_call) \
	X(jumped_out_of_nested) X(handler_exits) X(handlers_in_threads) X(handlers_too_deep) X(denied) X(uring) X(requests) \
	X(requests_pieces) X(requests_epoll) X(requests_passed) X(requests_threads) \
	X(requests_prefork) X(requests_greeting) X(requests_forks) X(requests_sendfile) \
	X(requests_splice) X(requests_short) X(wide) X(socketcall) X(asleep) X(echo)
/* clang-format on */

#define DECLARE_CASE(name) void case_##name(const struct family *family);
CASES(DECLARE_CASE)
#undef DECLARE_CASE

/* What an exec'ed copy of the workload goes on with. */
void continue_after_exec(const struct family *family, int stage, const int fds[2]);

#endif
