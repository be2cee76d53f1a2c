"""Counts a command's system calls with strace, the reference nobody disputes.

Two independent readings: the totals of `strace -f -c`, and the full trace of
`strace -f -yy`, in which strace itself says what each descriptor refers to.
Knows nothing of udsprobe, nor of the workloads' own account.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Counter as CounterOf
from typing import DefaultDict, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from tests.patience import PATIENCE_S

# fmt: off
MOVES_BYTES = frozenset((
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2",
    "pwritev2", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendfile", "splice",
))
MOVES_MESSAGES = frozenset(("sendmmsg", "recvmmsg"))
WITHOUT_DESCRIPTOR = frozenset(("poll", "ppoll", "select", "pselect6"))
NAMES = MOVES_BYTES | MOVES_MESSAGES | WITHOUT_DESCRIPTOR | frozenset((
    "accept", "accept4", "connect", "bind", "listen", "socket", "socketpair", "shutdown", "close",
    "epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "io_uring_enter",
))
# fmt: on

# As strace shows what a 32-bit program asks socketcall for: the kernel has no such calls.
SOCKETCALLS = {"send": "sendto", "recv": "recvfrom"}

# What a strace older than a call shows for it: its number (Debian 11's 5.10).
NEWER = {"syscall_0x1b9": "epoll_pwait2"}

# strace names a socket as the kernel names its protocol: seqpacket is "UNIX" too.
TRANSPORTS = {
    "UNIX-STREAM": "unix-stream",
    "UNIX": "unix-packet",
    "UNIX-DGRAM": "unix-packet",
    "UNIX-SEQPACKET": "unix-packet",
    "TCP": "tcp",
    "TCPv6": "tcp",
    "UDP": "udp",
    "UDPv6": "udp",
}
TRANSPORT_OF_ARGUMENTS = {
    ("AF_UNIX", "SOCK_STREAM"): "unix-stream",
    ("AF_UNIX", "SOCK_DGRAM"): "unix-packet",
    ("AF_UNIX", "SOCK_SEQPACKET"): "unix-packet",
    ("AF_INET", "SOCK_STREAM"): "tcp",
    ("AF_INET6", "SOCK_STREAM"): "tcp",
    ("AF_INET", "SOCK_DGRAM"): "udp",
    ("AF_INET6", "SOCK_DGRAM"): "udp",
}

DESCRIPTOR = re.compile(r"\b\d+<([A-Za-z0-9-]+):\[|\b\d+<|-?\b\d+\b|NULL")
LINE = re.compile(r"^(\d+) +(.*)$")
CALL = re.compile(r"^(\w+)\((.*)\) += +(-?\d+|\?)(?:<[^>]*>)?(?: (E[A-Z0-9_]+))?")
UNFINISHED = re.compile(r"^(\w+\(.*?),? *<unfinished \.\.\.>$")
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
RESTARTS = ("ERESTARTSYS", "ERESTARTNOINTR", "ERESTARTNOHAND", "ERESTART_RESTARTBLOCK")


class Key(NamedTuple):
    """A row: `transport` as in TRANSPORTS or `other`; `abi` native or compat."""

    name: str
    transport: str
    abi: str


@dataclass
class Row:
    """Calls which returned; one that the kernel restarted counts once."""

    calls: int = 0
    bytes: int = 0
    errors: CounterOf[str] = field(default_factory=Counter)


class Totals(NamedTuple):
    """`strace -c`: a restarted call counts each time it was entered."""

    calls: int
    errors: int


def totals(command: Sequence[str], **options: object) -> Dict[str, Totals]:
    """Run `command` under `strace -f -c`: calls and errors by name, all ABIs."""
    _, said = _run(["strace", "-f", "-c", "-U", "calls,errors,name", *command], options)
    counted: DefaultDict[str, List[int]] = defaultdict(lambda: [0, 0])
    for line in said.splitlines():
        words = line.split()
        if len(words) in (2, 3) and words[0].isdigit() and words[-1] != "total":
            name = NEWER.get(words[-1], words[-1])
            counted[name][0] += int(words[0])
            counted[name][1] += int(words[1]) if len(words) == 3 else 0
    return {name: Totals(*row) for name, row in counted.items()}


def rows(command: Sequence[str], trace: Path, **options: object) -> Dict[Key, Row]:
    """Run `command` under `strace -f -yy`, writing to `trace`, and count it."""
    _run(["strace", "-f", "-yy", "-s", "1024", "-o", str(trace), *command], options)
    with trace.open(errors="replace") as lines:
        return count(lines)


def _run(command: Sequence[str], options: Dict[str, object]) -> Tuple[str, str]:
    done = subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=True, **options
    )
    return done.stdout, done.stderr


def count(lines: Iterable[str]) -> Dict[Key, Row]:
    """Count the calls of NAMES in the lines of a trace with PIDs.

    A 32-bit process is told apart from its exec on; its forks are not.
    """
    counting = _Counting()
    for line in lines:
        counting.add(line.rstrip("\n"))
    return dict(counting.rows)


class _Counting:
    def __init__(self) -> None:
        self.rows: DefaultDict[Key, Row] = defaultdict(Row)
        self._compat: Set[str] = set()
        self._unfinished: Dict[str, str] = {}
        self._to_restart: DefaultDict[str, List[Key]] = defaultdict(list)
        self._in_restart_block: Dict[str, Key] = {}

    def add(self, line: str) -> None:
        matched = LINE.match(line)
        if not matched:
            return
        pid, text = matched.groups()
        whole = self._whole(pid, text)
        call = CALL.match(whole) if whole else None
        if call:
            self._add_call(pid, *call.groups())

    def _whole(self, pid: str, text: str) -> Optional[str]:
        begun = UNFINISHED.match(text)
        if begun:
            self._unfinished[pid] = begun.group(1)
            return None
        resumed = RESUMED.match(text)
        if resumed:
            return self._unfinished.pop(pid, "") + resumed.group(2)
        return text

    def _add_call(
        self, pid: str, name: str, arguments: str, result: str, error: Optional[str]
    ) -> None:
        if name == "rt_sigreturn" or name == "sigreturn":
            self._return_from_signal(pid, error)
            return
        self._learn_width(pid, name, error)
        name = SOCKETCALLS.get(name, NEWER.get(name, name))
        if name == "restart_syscall" and pid in self._in_restart_block:
            key = self._in_restart_block[pid]
        elif name in NAMES:
            abi = "compat" if pid in self._compat else "native"
            key = Key(name, _transport(name, arguments), abi)
        else:
            return
        if error in RESTARTS:
            self._to_restart[pid].append(key)
            self._in_restart_block[pid] = key
        elif result != "?":
            self._finish(key, arguments, int(result), error)

    def _learn_width(self, pid: str, name: str, error: Optional[str]) -> None:
        # strace keeps its notes on the width out of the file. A 32-bit C library
        # sets up its thread area before anything else; a 64-bit one never does.
        if name == "execve" and not error:
            self._compat.discard(pid)
        elif name == "set_thread_area":
            self._compat.add(pid)

    def _return_from_signal(self, pid: str, error: Optional[str]) -> None:
        if self._to_restart[pid]:
            key = self._to_restart[pid].pop()
            if error == "EINTR":
                self._finish(key, "", -1, error)

    def _finish(self, key: Key, arguments: str, result: int, error: Optional[str]) -> None:
        row = self.rows[key]
        row.calls += 1
        if error:
            row.errors[error] += 1
        elif key.name in MOVES_BYTES:
            row.bytes += result
        elif key.name in MOVES_MESSAGES:
            row.bytes += sum(int(length) for length in re.findall(r"msg_len=(\d+)", arguments))


def _transport(name: str, arguments: str) -> str:
    if name in WITHOUT_DESCRIPTOR:
        return "other"
    if name in ("socket", "socketpair"):
        family, kind, protocol = arguments.split(", ")[:3]
        if protocol == "IPPROTO_ICMP":
            return "other"
        return TRANSPORT_OF_ARGUMENTS.get((family, kind.split("|")[0]), "other")
    if name == "epoll_ctl":
        return _descriptor(arguments.split(", ")[2])
    if name == "splice":
        ends = [_descriptor(arguments.split(", ")[at]) for at in (0, 2)]
        return ends[0] if ends[0] != "other" else ends[1]
    return _descriptor(arguments)


def _descriptor(text: str) -> str:
    matched = DESCRIPTOR.match(text)
    protocol = matched.group(1) if matched else None
    return TRANSPORTS.get(protocol or "", "other")
