/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the C library of Debian 11 lacks: numbers of newer calls, names of errors. */
#ifndef OLDER_LIBC_H
#define OLDER_LIBC_H

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>

/* include/uapi/asm-generic/unistd.h: the same for every architecture. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#if !__GLIBC_PREREQ(2, 32)
#define NAMED(error) \
	case error:  \
		return #error

static inline const char *strerrorname_np(int number)
{
	switch (number) {
		NAMED(EPERM);
		NAMED(ENOENT);
		NAMED(ESRCH);
		NAMED(EINTR);
		NAMED(EIO);
		NAMED(ENXIO);
		NAMED(E2BIG);
		NAMED(ENOEXEC);
		NAMED(EBADF);
		NAMED(ECHILD);
		NAMED(EAGAIN);
		NAMED(ENOMEM);
		NAMED(EACCES);
		NAMED(EFAULT);
		NAMED(EBUSY);
		NAMED(EEXIST);
		NAMED(EXDEV);
		NAMED(ENODEV);
		NAMED(ENOTDIR);
		NAMED(EISDIR);
		NAMED(EINVAL);
		NAMED(ENFILE);
		NAMED(EMFILE);
		NAMED(ENOTTY);
		NAMED(EFBIG);
		NAMED(ENOSPC);
		NAMED(ESPIPE);
		NAMED(EROFS);
		NAMED(EPIPE);
		NAMED(EDOM);
		NAMED(ERANGE);
		NAMED(EDEADLK);
		NAMED(ENAMETOOLONG);
		NAMED(ENOSYS);
		NAMED(ELOOP);
		NAMED(ENODATA);
		NAMED(ETIME);
		NAMED(EPROTO);
		NAMED(EOVERFLOW);
		NAMED(EILSEQ);
		NAMED(ENOTSOCK);
		NAMED(EDESTADDRREQ);
		NAMED(EMSGSIZE);
		NAMED(EPROTOTYPE);
		NAMED(ENOPROTOOPT);
		NAMED(EPROTONOSUPPORT);
		NAMED(ESOCKTNOSUPPORT);
		NAMED(EOPNOTSUPP);
		NAMED(EPFNOSUPPORT);
		NAMED(EAFNOSUPPORT);
		NAMED(EADDRINUSE);
		NAMED(EADDRNOTAVAIL);
		NAMED(ENETDOWN);
		NAMED(ENETUNREACH);
		NAMED(ENETRESET);
		NAMED(ECONNABORTED);
		NAMED(ECONNRESET);
		NAMED(ENOBUFS);
		NAMED(EISCONN);
		NAMED(ENOTCONN);
		NAMED(ESHUTDOWN);
		NAMED(ETIMEDOUT);
		NAMED(ECONNREFUSED);
		NAMED(EHOSTDOWN);
		NAMED(EHOSTUNREACH);
		NAMED(EALREADY);
		NAMED(EINPROGRESS);
		NAMED(ECANCELED);
		NAMED(EOWNERDEAD);
	default:
		return NULL;
	}
}
#endif

#endif
