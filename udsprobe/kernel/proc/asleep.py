"""What /proc shows of a thread that sleeps: what its poller watches, who holds its file lock or
reads the pipe that it writes to.

Knows the formats of `/proc/PID/syscall`, of `fdinfo` of epoll sets and pipes, of `/proc/locks`, and
of the list that poll() is given. What is hidden or gone is None or left out.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Dict, FrozenSet, List, Optional, Set

from udsprobe.kernel.proc.process_memory import ProcessMemory

# A thread that is in a call has its number, six arguments, and two registers (fs/proc/base.c).
_WORDS_OF_A_CALL = 9
# ep_show_fdinfo() in fs/eventpoll.c.
_MEMBER = re.compile(rb"tfd:\s*(\d+) events:\s*([0-9a-f]+) .*\bino:([0-9a-f]+)")
_EPOLLIN = 0x1
_SET = "anon_inode:[eventpoll]"
# Of what these stand for is not told here.
_STAND_FOR_OTHERS = frozenset((_SET, "anon_inode:[io_uring]"))
# More are an event loop's, which polls its clients.
_MEMBERS_MAX = 64
# include/uapi/asm-generic/poll.h, struct pollfd.
_POLLED = struct.Struct("<ihh")
_POLLIN = 0x1
_INODE = re.compile(r"(?:socket|pipe):\[(\d+)\]")
# seq_show() in fs/proc/fd.c, in octal: O_ACCMODE is the last two bits.
_FLAGS = re.compile(rb"^flags:\s*[0-7]*([0-7])$", re.MULTILINE)
_O_ACCMODE, _O_WRONLY = 0o3, 0o1
# lock_get_status() in fs/locks.c: number, kind, how, access, process, …
_WORDS_OF_A_LOCK = 6
_BLOCKED = b"->"


def polled_inodes(tid: int, root: str = "/proc") -> Optional[FrozenSet[int]]:
    """Inodes of what ends the wait of a thread in epoll_wait() or its kin when input comes.

    None when that is not all told: it is in another call, or the set has sets or rings as members.
    """
    try:
        fd = _first_argument(tid, root)
        if fd is None or os.readlink(f"{root}/{tid}/fd/{fd}") != _SET:
            return None
        text = Path(f"{root}/{tid}/fdinfo/{fd}").read_bytes()
        members = [row for row in map(_MEMBER.match, text.split(b"\n")) if row is not None]
        if len(members) > _MEMBERS_MAX or _first_argument(tid, root) != fd:
            return None
        links = {os.readlink(f"{root}/{tid}/fd/{int(row[1])}") for row in members}
    except (OSError, ValueError):
        return None
    if links & _STAND_FOR_OTHERS:
        return None
    return frozenset(int(row[3], 16) for row in members if int(row[2], 16) & _EPOLLIN)


def listed_inodes(tid: int, root: str = "/proc") -> Optional[FrozenSet[int]]:
    """The same of a thread in poll() or ppoll(), by its list: of sockets and pipes.

    None where it has an empty list (it sleeps), or sets or rings in it.
    """
    try:
        call = _arguments(tid, root)
        if not call or not 0 < call[1] <= _MEMBERS_MAX:
            return None
        listed = _listed(tid, root, call[0], call[1])
        links = [os.readlink(f"{root}/{tid}/fd/{fd}") for fd in listed]
        if _arguments(tid, root) != call or _STAND_FOR_OTHERS.intersection(links):
            return None
    except (OSError, ValueError):
        return None
    return frozenset(int(found[1]) for found in map(_INODE.fullmatch, links) if found is not None)


def _listed(tid: int, root: str, address: int, count: int) -> List[int]:
    """Descriptors that a list has for input."""
    memory = ProcessMemory(tid, root)
    try:
        listed = memory.read(address, count * _POLLED.size)
    finally:
        memory.close()
    return [fd for fd, events, _ in _POLLED.iter_unpack(listed) if fd >= 0 and events & _POLLIN]


def _first_argument(tid: int, root: str) -> Optional[int]:
    call = _arguments(tid, root)
    return call[0] if call else None


def _arguments(tid: int, root: str) -> List[int]:
    """Of the call that the thread sleeps in; empty: it is in none."""
    words = Path(f"{root}/{tid}/syscall").read_bytes().split()
    return [int(word, 16) for word in words[1:7]] if len(words) == _WORDS_OF_A_CALL else []


def pipe_written(tid: int, root: str = "/proc") -> Optional[str]:
    """The pipe that a thread in write() or writev() writes to, as links of descriptors name it
    (`pipe:[4711]`, or the path of a named one); None: it does not any more."""
    try:
        fd = _first_argument(tid, root)
        return None if fd is None else os.readlink(f"{root}/{tid}/fd/{fd}")
    except (OSError, ValueError):
        return None


def readers_of(pipe: str, root: str = "/proc") -> List[int]:
    """The processes that have a descriptor from which they may read that pipe."""
    pids = (int(name) for name in _listed_names(root) if name.isdigit())
    return sorted(pid for pid in pids if _reads(pid, pipe, root))


def _reads(pid: int, pipe: str, root: str) -> bool:
    return any(
        _leads_to(f"{root}/{pid}/fd/{fd}") == pipe and _may_read(f"{root}/{pid}/fdinfo/{fd}")
        for fd in _listed_names(f"{root}/{pid}/fd")
    )


def _listed_names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _leads_to(link: str) -> Optional[str]:
    try:
        return os.readlink(link)
    except OSError:
        return None


def _may_read(fdinfo: str) -> bool:
    try:
        found = _FLAGS.search(Path(fdinfo).read_bytes())
    except OSError:
        return False
    return found is not None and int(found[1], 8) & _O_ACCMODE != _O_WRONLY


def file_lock_holders(root: str = "/proc") -> Dict[int, int]:
    """Process that waits for a file lock → the one that holds it, where one is known."""
    try:
        return holders_in(Path(f"{root}/locks").read_bytes())
    except OSError:
        return {}


def holders_in(locks: bytes) -> Dict[int, int]:
    """The same of the text of `/proc/locks`: who waits is listed behind who holds.

    A process whose threads wait for several locks is left out, and so are locks of open files,
    which no process holds (`-1`).
    """
    holders: Dict[bytes, int] = {}
    found: Dict[int, Set[int]] = {}
    for line in locks.split(b"\n"):
        words = line.split()
        is_blocked = _BLOCKED in words
        words = [word for word in words if word != _BLOCKED]
        if len(words) < _WORDS_OF_A_LOCK or not words[4].isdigit():
            continue
        pid = int(words[4])
        if is_blocked:
            found.setdefault(pid, set()).add(holders.get(words[0], 0))
        else:
            holders[words[0]] = pid
    sure = {pid: held_by.pop() for pid, held_by in found.items() if len(held_by) == 1}
    return {pid: holder for pid, holder in sure.items() if holder and holder != pid}
