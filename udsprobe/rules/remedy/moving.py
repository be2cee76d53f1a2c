"""What helps where requests spend their time in the kernel moving bytes: the table's rows."""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, reload, restart
from udsprobe.rules.servers import GENERIC

FEWER_CALLS: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "send more with each call: pipelining, batches, writev(), larger buffers",
            "a system call costs the same however little it moves",
        ),
    )
}
POLLS_ALL: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "wait with epoll in place of {call}() (libevent, libuv, libev)",
            "its cost grows with all descriptors that are open; that of epoll with those that have "
            "something",
        ),
    ),
    "python": (
        restart(
            "wait with asyncio or selectors.DefaultSelector in place of {call}()",
            "its cost grows with all descriptors that are open; that of epoll, which these use, "
            "with those that have something",
        ),
    ),
}
FEWER_BYTES: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "send fewer bytes: parts of a reply (pages, ranges), nothing that the client has "
            "already (ETag and 304); on one host, pass a file descriptor (SCM_RIGHTS) instead",
            "each byte is copied twice, in calls that are large already; compression takes more "
            "CPU time than copying does on one host",
        ),
    )
}
UNIX_INSTEAD: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "listen on a Unix socket, and measure both: udsprobe compare tcp.json unix.json",
            "on one host it avoids the TCP and IP layers",
        ),
    )
}

_ONE_COPY_LESS = (
    "what is read from a file only to be sent is copied out of the kernel and back into it, which "
    "TLS in the program needs; it relieves the server, and no reader that is the limit itself"
)
SENDFILE: Dict[str, Tuple[Row, ...]] = {
    GENERIC: (
        restart(
            "send files with sendfile() or splice(), or have nginx in front send them "
            "(X-Accel-Redirect)",
            _ONE_COPY_LESS,
        ),
    ),
    "nginx": (
        reload(
            "`sendfile on;` in nginx's http block, then reload it: nginx -t && nginx -s reload",
            _ONE_COPY_LESS,
        ),
    ),
    "apache": (reload("`EnableSendfile On`, then reload Apache", _ONE_COPY_LESS),),
    "go": (
        restart(
            "send files with http.ServeContent, or set Content-Length and io.Copy from the "
            "*os.File: Go uses sendfile() then",
            _ONE_COPY_LESS,
        ),
    ),
    "python": (
        restart(
            "socket.sendfile(), or wsgi.file_wrapper of a server that has it; or have nginx in "
            "front send files (X-Accel-Redirect)",
            _ONE_COPY_LESS,
        ),
    ),
    "node": (
        restart(
            "have nginx in front send files (X-Accel-Redirect): Node has no sendfile()",
            _ONE_COPY_LESS,
        ),
    ),
    "java": (restart("FileChannel.transferTo() for files", _ONE_COPY_LESS),),
}
