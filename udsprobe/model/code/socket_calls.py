"""Functions of the kernel that tell a system call on a socket, or in a poller."""

from __future__ import annotations

import re

# net/socket.c: one of them is on the way from each system call to a socket.
RECEIVES = frozenset(
    (
        *("sock_recvmsg", "sock_read_iter", "sock_splice_read", "__sys_recvfrom"),
        *("__sys_recvmsg", "___sys_recvmsg", "____sys_recvmsg", "__sys_recvmmsg"),
    )
)
SENDS = frozenset(
    (
        *("sock_sendmsg", "__sock_sendmsg", "sock_write_iter", "__sys_sendto", "__sys_sendmsg"),
        *("___sys_sendmsg", "____sys_sendmsg", "__sys_sendmmsg", "splice_to_socket"),
    )
)
_OTHERS = re.compile(
    r"sock_close|__sock_release|do_(sys_poll|select|epoll_wait|epoll_ctl|accept)|core_sys_select"
    r"|__sys_(accept4|accept4_file|connect|connect_file|listen|bind|shutdown|socket|socketpair)"
    r"|__(x64|arm64)_sys_(epoll_\w+|p?poll|p?select6?|accept4?|connect|listen|bind|shutdown"
    r"|socket|socketpair|sendto|sendmsg|sendmmsg|recvfrom|recvmsg|recvmmsg)"
)


def is_socket_call(function: str) -> bool:
    """What it is on the way to is of the transport: bytes, connections, and waits for them."""
    return function in RECEIVES or function in SENDS or _OTHERS.fullmatch(function) is not None
