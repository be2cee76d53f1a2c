"""System-call numbers of this machine, and how each call of the table is read.

Numbers come from the `system-calls` package, built from the kernel's own
tables; what the kernel half must know of a call is in `TRAITS`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

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
    **dict.fromkeys(("futex", "futex_wait", "futex_waitv", "flock"), "LOCK"),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"), "DISK"),
    **dict.fromkeys(("open", "openat", "openat2", "ftruncate", "rename", "unlink"), "DISK"),
}

# The kernel's other names for the same call: 64-bit time_t for 32-bit callers.
ALIASES = {
    "_newselect": "select",
    "sendfile64": "sendfile",
    "ppoll_time64": "ppoll",
    "pselect6_time64": "pselect6",
    "recvmmsg_time64": "recvmmsg",
    "futex_time64": "futex",
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
Entry = Tuple[int, int, int, int]


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
        """(number, call, traits, waits) for the kernel half: `struct call_entry` by number.

        Args:
            enums: of the object: `call`, `trait` and `waits`.
        """
        entries = []
        for number, name in self.names.items():
            known = ALIASES.get(name, name)
            waits = enums["waits"][f"WAITS_{WAITS.get(known, 'OTHER')}"]
            listed = known in TRAITS or known == "socketcall"
            call = enums["call"][f"CALL_{known.upper()}"] if listed else 0
            bits = sum(enums["trait"][f"TRAIT_{trait}"] for trait in TRAITS.get(known, ()))
            entries.append((number, call, bits, waits))
        return entries


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
