"""System-call numbers of this machine, and how each call of the table is read.

Numbers come from the `system-calls` package, built from the kernel's own
tables; what the kernel half must know of a call is in `TRAITS`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

from udsprobe.kernel.objects.btf import Btf

# machine (uname) → tables of the package: native, and 32-bit callers'.
TABLES = {"x86_64": ("x86_64", "i386"), "aarch64": ("arm64", "arm")}

TRAITS: Mapping[str, Tuple[str, ...]] = {
    **dict.fromkeys(("read", "readv", "pread64", "preadv", "preadv2"), ("FD", "RECEIVES")),
    **dict.fromkeys(("recvfrom", "recvmsg"), ("FD", "RECEIVES")),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev", "pwritev2"), ("FD", "SENDS")),
    **dict.fromkeys(("sendto", "sendmsg", "sendfile"), ("FD", "SENDS")),
    "recvmmsg": ("FD", "RECEIVES", "MESSAGES"),
    "sendmmsg": ("FD", "SENDS", "MESSAGES"),
    "splice": ("FD_EITHER",),
    **dict.fromkeys(("accept", "accept4", "connect", "listen"), ("FD", "CONNECTS")),
    **dict.fromkeys(("bind", "shutdown", "close"), ("FD",)),
    **dict.fromkeys(("socket", "socketpair"), ("FAMILY",)),
    "epoll_ctl": ("FD_THIRD",),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"), ()),
    **dict.fromkeys(("select", "pselect6", "io_uring_enter"), ()),
}

# Opcodes of io_uring (include/uapi/linux/io_uring.h), and the system call each is read like.
URING: Mapping[int, Tuple[str, str]] = {
    1: ("readv", "readv"),
    2: ("writev", "writev"),
    4: ("read_fixed", "read"),
    5: ("write_fixed", "write"),
    9: ("sendmsg", "sendmsg"),
    10: ("recvmsg", "recvmsg"),
    13: ("accept", "accept"),
    16: ("connect", "connect"),
    22: ("read", "read"),
    23: ("write", "write"),
    26: ("send", "sendto"),
    27: ("recv", "recvfrom"),
    30: ("splice", "splice"),
    34: ("shutdown", "shutdown"),
    47: ("send_zc", "sendto"),
    48: ("sendmsg_zc", "sendmsg"),
    49: ("read_multishot", "read"),
    56: ("bind", "bind"),
    57: ("listen", "listen"),
}

# What a thread that sleeps in a call waits for.
WAITS: Mapping[str, str] = {
    **dict.fromkeys(("read", "readv", "pread64", "preadv", "preadv2"), "RECV"),
    **dict.fromkeys(("recvfrom", "recvmsg", "recvmmsg"), "RECV"),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev", "pwritev2"), "SEND"),
    **dict.fromkeys(("sendto", "sendmsg", "sendmmsg", "sendfile", "splice"), "SEND"),
    **dict.fromkeys(("accept", "accept4"), "ACCEPT"),
    "connect": "CONNECT",
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"), "POLL"),
    **dict.fromkeys(("select", "pselect6", "io_uring_enter"), "POLL"),
    **dict.fromkeys(("futex", "futex_wait", "futex_waitv"), "LOCK"),
    **dict.fromkeys(("semop", "semtimedop"), "LOCK"),
    **dict.fromkeys(("flock", "fcntl"), "FILE_LOCK"),
    **dict.fromkeys(("wait4", "waitid", "waitpid"), "CHILD"),
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), "SLEEP"),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"), "DISK"),
    **dict.fromkeys(("open", "openat", "openat2", "ftruncate", "rename", "unlink"), "DISK"),
}

# Their EMFILE can be of another limit than that of descriptors, or no error at all:
# inotify(7) and fanotify(7) count instances, mount(2) dummy devices, and what
# rt_sigreturn returns is a register of the program it goes back to.
OTHER_LIMITS = frozenset(
    {"inotify_init", "inotify_init1", "fanotify_init", "mount", "rt_sigreturn", "sigreturn"}
)

# They start a thread or a process.
STARTS = ("clone", "clone3", "fork", "vfork")

# The kernel's other names for the same call: 64-bit time_t for 32-bit callers, and what 32-bit ARM
# has beside sendto and recvfrom, its C library's send() and recv().
ALIASES = {
    "send": "sendto",
    "recv": "recvfrom",
    "sync_file_range2": "sync_file_range",
    "_newselect": "select",
    "sendfile64": "sendfile",
    "ppoll_time64": "ppoll",
    "pselect6_time64": "pselect6",
    "recvmmsg_time64": "recvmmsg",
    "futex_time64": "futex",
    "clock_nanosleep_time64": "clock_nanosleep",
    "fcntl64": "fcntl",
}

# What 32-bit C libraries ask of socketcall(), from 1 (include/uapi/linux/net.h);
# send and recv are sendto and recvfrom without an address.
SOCKETCALLS = (
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "sendto",
    "recvfrom",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
)
Enums = Mapping[str, Mapping[str, int]]
Entry = Tuple[int, int, int, int, int]


@dataclass(frozen=True)
class SyscallTable:
    """Numbers of one ABI.

    Attributes:
        names: number → the kernel's name.
    """

    names: Mapping[int, str]

    def number(self, name: str) -> Optional[int]:
        """The number of `name`, None when this ABI has no such call."""
        return next((number for number, known in self.names.items() if known == name), None)

    def entries(self, enums: Enums) -> List[Entry]:
        """(number, call, traits, waits, limits): `struct call_entry` by number.

        Args:
            enums: of the object: `call`, `trait`, `waits` and `call_limit`.
        """
        entries = []
        for number, name in self.names.items():
            known = ALIASES.get(name, name)
            waits = enums["waits"][f"WAITS_{WAITS.get(known, 'OTHER')}"]
            listed = known in TRAITS or known == "socketcall"
            call = enums["call"][f"CALL_{known.upper()}"] if listed else 0
            entries.append((number, call, _bits(known, enums), waits, _limits(known, enums)))
        return entries


def enums_of(btf: Btf) -> Enums:
    """What `entries` takes, of an object's own types."""
    return {name: btf.enum(name) for name in ("call", "trait", "waits", "call_limit")}


def socketcall_table() -> SyscallTable:
    """What socketcall() stands for, by its first argument."""
    return SyscallTable(dict(enumerate(SOCKETCALLS, 1)))


def uring_entries(enums: Enums) -> List[Entry]:
    """The same for io_uring, by opcode."""
    return [
        (opcode, enums["call"][f"CALL_URING_{name.upper()}"], _bits(like, enums), 0, 0)
        for opcode, (name, like) in URING.items()
    ]


def _bits(name: str, enums: Enums) -> int:
    return sum(enums["trait"][f"TRAIT_{trait}"] for trait in TRAITS.get(name, ()))


def _limits(name: str, enums: Enums) -> int:
    other = enums["call_limit"]["LIMIT_OTHER"] if name in OTHER_LIMITS else 0
    return other | (enums["call_limit"]["LIMIT_STARTS"] if name in STARTS else 0)


def syscall_tables(machine: str) -> Tuple[SyscallTable, SyscallTable]:
    """Native and 32-bit table of a machine.

    Args:
        machine: as `uname -m` says, `x86_64` or `aarch64`.

    Raises:
        KeyError: a machine without a built object.
    """
    native, compat = (_table(name) for name in TABLES[machine])
    return native, compat


def _table(name: str) -> SyscallTable:
    module = importlib.import_module(f"system_calls.tables.{name}")
    numbers: Dict[str, int] = getattr(module, f"syscalls_{name}")
    return SyscallTable({number: call for call, number in numbers.items()})
