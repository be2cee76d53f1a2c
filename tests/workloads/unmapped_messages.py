"""Takes two messages in one `recvmmsg`, the length of the first out of its memory again.

The lengths lie in two pages. While the call waits for its second message, the
page with the first length is unmapped: nobody can read it when the call returns.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Callable

FIRST, SECOND = b"a" * 700, b"b" * 55
HEADER_BYTES = 64
LENGTH_AT = 56
PATIENCE_S = 120.0
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_long]


def main() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    page = mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    at = libc.mmap(None, 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    # One header at the end of the first page, one at the beginning of the second.
    headers = at + page - HEADER_BYTES
    buffers = [_with_room(headers + number * HEADER_BYTES, 1024) for number in (0, 1)]
    taken = []
    reader = threading.Thread(
        target=lambda: taken.append(libc.recvmmsg(right.fileno(), headers, 2, 0, 0))
    )
    left.send(FIRST)
    reader.start()
    length = ctypes.c_uint.from_address(headers + LENGTH_AT)
    _wait_until(lambda: length.value == len(FIRST))
    where = Path(f"/proc/self/task/{reader.native_id}/wchan")
    _wait_until(lambda: "wait_for_more_packets" in where.read_text())
    libc.munmap(at, page)
    left.send(SECOND)
    reader.join()
    del buffers
    print(json.dumps({"taken": taken[0], "readable": len(SECOND)}))


def _with_room(header: int, size: int) -> object:
    """Give a `struct msghdr` one buffer; returns what has to stay alive."""
    buffer = ctypes.create_string_buffer(size)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), size)
    words = (ctypes.c_uint64 * (HEADER_BYTES // 8)).from_address(header)
    words[2], words[3] = ctypes.addressof(vector), 1
    return buffer, vector


def _wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > give_up_at:
            print("gave up", file=sys.stderr)
            os._exit(1)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
