// Preloaded into Node, which has no call for it: a small SO_SNDBUF for whatever it accepts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
	int accepted = real(fd, address, length, flags), bytes = atoi(getenv("SNDBUF"));
	if (accepted >= 0)
		setsockopt(accepted, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	return accepted;
}
