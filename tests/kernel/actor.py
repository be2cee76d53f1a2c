"""A process that does what it is told: a known number of `sendto` on a Unix socket pair.

Run as a program it reads orders from stdin, one a line, and answers each with
a line when it is carried out; imported it is the other end of that.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from typing import Any, Dict, List, Optional


def sent(report: Dict[str, Any]) -> int:
    """The calls of all actors in a report."""
    return sum(
        row["calls"]
        for row in report["syscalls"]
        if (row["name"], row["transport"]) == ("sendto", "unix")
    )


class Caller:
    """An actor, from the first line it says to the end of the block.

    Args:
        pid: the one it must have, otherwise any.
    """

    def __init__(self, pid: Optional[int] = None) -> None:
        prefix = [] if pid is None else [sys.executable, __file__, "become", str(pid)]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = int(self._answer())

    def does(self, order: str, calls: int = 0) -> int:
        """Give an order and wait until it is done; returns `calls`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order} {calls}\n")
        self._process.stdin.flush()
        self._answer()
        return calls

    def leave(self) -> None:
        """End it and collect it: its PID is free from now on."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the actor has died"
        return line

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def _obey() -> None:
    left, right = socket.socketpair()

    def call(calls: int) -> None:
        for _ in range(calls):
            left.send(b"x")
            right.recv(1)

    print(os.getpid(), flush=True)
    for line in sys.stdin:
        order, calls = line.split()
        _carry_out(order, int(calls), call)
        print("done", flush=True)


def _carry_out(order: str, calls: int, call: Any) -> None:
    if order == "call":
        call(calls)
    elif order == "thread":
        thread = threading.Thread(target=call, args=(calls,))
        thread.start()
        thread.join()
    elif order == "fork":
        _in_child(lambda: call(calls))
    elif order == "spawn":
        with Caller() as child:
            child.does("call", calls)
    elif order == "forks":
        for _ in range(calls):
            _in_child(lambda: call(1))
    elif order == "swap":
        _swap()
    elif order == "exec":
        os.execv(sys.executable, [sys.executable, __file__])


def _swap() -> None:
    """A receive call on a Unix socket, whose descriptor is a pipe's when it returns."""
    left, right = socket.socketpair()
    pipe, _ = os.pipe()
    descriptor = right.fileno()
    thread = threading.Thread(target=os.read, args=(descriptor, 1))
    thread.start()
    _wait_until_asleep_in_read(thread)
    os.dup2(pipe, descriptor)
    left.send(b"x")
    thread.join()


def _wait_until_asleep_in_read(thread: threading.Thread) -> None:
    wchan = f"/proc/self/task/{thread.native_id}/wchan"
    while True:
        with open(wchan) as file:
            if file.read() == "unix_stream_read_generic":
                return


def _in_child(act: Any) -> None:
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    os.waitpid(pid, 0)


def _become(pid: int, command: List[str]) -> int:
    """Run a command under a chosen PID: clone3(2) with set_tid, Linux v5.5."""
    import ctypes
    import struct

    wanted = (ctypes.c_int * 1)(pid)
    fields = [0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(wanted), 1, 0]  # exit signal SIGCHLD
    arguments = ctypes.create_string_buffer(struct.pack("<11Q", *fields))
    libc = ctypes.CDLL(None, use_errno=True)
    child = libc.syscall(435, arguments, ctypes.c_size_t(88))
    if child == 0:
        os.execv(command[0], command)
    if child < 0:
        sys.exit(f"clone3: {os.strerror(ctypes.get_errno())}")
    # Our end of the pipes must not keep the actor's stdin open.
    os.close(0)
    os.close(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["become"]:
        sys.exit(_become(int(sys.argv[2]), sys.argv[3:]))
    _obey()
