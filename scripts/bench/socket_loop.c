/* SPDX-License-Identifier: MIT */
/*
 * A round for every line on stdin: send and recv of 64 bytes on a socketpair,
 * then getppid. Prints the process's CPU time in ns per call of either.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int argc, char **argv)
{
	int calls = argc > 1 ? atoi(argv[1]) : 200000, pair[2];
	char bytes[64] = { 0 }, line[16];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		double start = cpu_ns(), socket_ns, other_ns;

		for (int i = 0; i < calls / 2; i++)
			if (send(pair[0], bytes, 64, 0) != 64 || recv(pair[1], bytes, 64, 0) != 64)
				return 2;
		socket_ns = (cpu_ns() - start) / calls;
		start = cpu_ns();
		for (int i = 0; i < calls; i++)
			syscall(SYS_getppid);
		other_ns = (cpu_ns() - start) / calls;
		printf("%.2f %.2f\n", socket_ns, other_ns);
		fflush(stdout);
	}
	return 0;
}
