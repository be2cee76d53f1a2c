// crowd PROCESSES PAIRS: processes that each hold so many connected Unix sockets, and sleep.
// Says "ready" once all of them are there; they end with the first one.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int hold(int pairs)
{
	int ends[2];

	for (int i = 0; i < pairs; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 0, pairs = argc > 2 ? atoi(argv[2]) : 0;
	int ready[2];
	char said;

	if (pipe(ready))
		return 1;
	for (int i = 1; i < processes; i++) {
		pid_t child = fork();
		if (child < 0)
			return 1;
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			said = hold(pairs) ? 'n' : 'y';
			if (write(ready[1], &said, 1) != 1)
				return 1;
			pause();
			return 0;
		}
	}
	said = hold(pairs) ? 'n' : 'y';
	for (int i = 1; said == 'y' && i < processes; i++)
		if (read(ready[0], &said, 1) != 1)
			return 1;
	if (said != 'y')
		return 1;
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
