/* Where a server of the lab listens: a path, or HOST:PORT on loopback. */
#ifndef LISTENING_H
#define LISTENING_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* -1 where it cannot; errno says why. */
static inline int listen_at(const char *text)
{
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct sockaddr_in inet = { .sin_family = AF_INET };
	const char *colon = strrchr(text, ':');
	int on = 1, fd = socket(text[0] == '/' ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
	if (text[0] == '/') {
		strncpy(local.sun_path, text, sizeof(local.sun_path) - 1);
		if (bind(fd, (void *)&local, sizeof(local)))
			return -1;
	} else {
		inet.sin_port = htons((unsigned short)atoi(colon + 1));
		inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(fd, (void *)&inet, sizeof(inet)))
			return -1;
	}
	return listen(fd, 128) ? -1 : fd;
}

#endif
