"""Starts threads and processes that live until they are told to end, and counts what is refused.

Lines on stdin: `threads N` · `forks N` · `spawns N` (posix_spawn) · `raw N` the system call vfork
of x86-64, where nothing more can be started · `user UID LIMIT` becomes that user,
with RLIMIT_NPROC · `child N` forks a process that tries N forks of its own and ends · `end` ends
what was started. After each it says how many starts it tried, and how many of these were refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import threading
from typing import Callable, Dict, List

X86_64_VFORK = 58
libc = ctypes.CDLL(None)
TOO_MANY = (BlockingIOError, RuntimeError)  # EAGAIN, as the two modules tell it


class Started:
    """What lives, until a pipe is closed."""

    def __init__(self) -> None:
        self._ended, self._alive = os.pipe()
        self._threads: List[threading.Thread] = []
        self._processes: List[int] = []

    def thread(self) -> None:
        thread = threading.Thread(target=os.read, args=(self._ended, 1))
        thread.start()
        self._threads.append(thread)

    def fork(self) -> None:
        pid = os.fork()
        if not pid:
            os.close(self._alive)
            os.read(self._ended, 1)
            os._exit(0)
        self._processes.append(pid)

    def spawn(self) -> None:
        stdin = [(os.POSIX_SPAWN_DUP2, self._ended, 0)]
        self._processes.append(os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=stdin))

    def raw(self) -> None:
        assert libc.syscall(X86_64_VFORK) == -1
        raise BlockingIOError

    def ways(self) -> Dict[str, Callable[[], None]]:
        """To start something, by name."""
        return {
            "threads": self.thread,
            "forks": self.fork,
            "spawns": self.spawn,
            "raw": self.raw,
        }

    def end(self) -> None:
        os.close(self._alive)
        for thread in self._threads:
            thread.join()
        for pid in self._processes:
            os.waitpid(pid, 0)
        os.close(self._ended)


def refused(start: Callable[[], None], tries: int) -> int:
    """Of so many tries."""
    count = 0
    for _ in range(tries):
        try:
            start()
        except TOO_MANY:
            count += 1
    return count


def child(tries: int) -> int:
    """How many of the forks of a child are refused."""
    pid = os.fork()
    if not pid:
        os._exit(refused(Started().fork, tries))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    started = Started()
    print("ready", flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        tries = count = 0
        if what == "user":
            user, limit = map(int, numbers)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
            os.setresuid(user, user, user)
        elif what == "end":
            started.end()
            started = Started()
        elif what == "child":
            tries = int(numbers[0])
            count = child(tries)
            tries += 1
        else:
            tries = int(numbers[0])
            count = refused(started.ways()[what], tries)
        print(tries, count, flush=True)
    with contextlib.suppress(OSError):
        started.end()


main()
