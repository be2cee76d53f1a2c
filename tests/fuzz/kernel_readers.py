"""What comes from the kernel, with names of strangers in it: /proc, sock_diag, BTF."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Dict, List, Tuple

from tests.fuzz.target import Target
from tests.visible import invisible
from udsprobe.kernel.objects.btf import Btf, BtfError
from udsprobe.kernel.proc import cgroups, cpu_files, limits, namespace_files
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets import diag_messages, sock_diag
from udsprobe.printable import printable, raw_name

SEPARATOR = b"\n%%\n"
FILES = ("stat", "status", "cmdline", "limits", "cgroup")
STAT = b"1 (a) R 1 1 1 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 3 0 77 1 1 1"
STATUS = (
    b"Name:\tx\rTgid:\tz\nTgid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\tff\n"
)
LIMITS = b"Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n"
CGROUP = b"3:cpu,cpuacct:/a\n1:name=systemd:/x.service\n0::/a\rb\n"
MOUNTS = b"31 2 0:2 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTS += b"32 2 0:3 / /sys/fs/cgroup/cpu\\040x rw - cgroup cgroup rw,cpu,cpuacct\n"
MOUNTS += b"33 2 0:4 / / rw - tmpfs  rw"
CPUS = b"cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nprocs_running 3\n"
_FOLDER = tempfile.TemporaryDirectory(prefix="udsprobe-fuzz-")


def _written(folder: str, files: Dict[str, bytes]) -> str:
    root = Path(_FOLDER.name, folder)
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    return str(root)


def _process(data: bytes) -> None:
    parts = (*data.split(SEPARATOR), *[b""] * len(FILES))[: len(FILES)]
    root = Path(_written("proc/1", dict(zip(FILES, parts)))).parent
    procfs = Procfs(str(root))
    found = procfs.target(1, "selector")
    for text in (found.comm, found.cmdline, procfs.cgroup(1)) if found else ():
        assert not invisible(text or "")
    procfs.thread_group(1)
    procfs.fds_limit(1)
    procfs.cgroup_paths(1)
    procfs.descendants([1])
    limits.identity_of(parts[1].decode("ascii", "replace"))


def _mountinfo(data: bytes) -> None:
    path = _written("mounts", {"mountinfo": data}) + "/mountinfo"
    for mount in cgroups.mounts(path):
        mount.directory("/a")


def _numbers(data: bytes) -> None:
    root = _written("numbers/sys/fs", {"file-nr": data})
    Procfs(str(Path(root).parent.parent)).open_files()
    text = data.decode("ascii", "replace")
    cpu_files.host_cpus(text)
    cpu_files.pressure_some_us(text)
    namespace_files.tcp_counters(text)


def _diag(data: bytes) -> None:
    for last, message in diag_messages.answers(data, 1):
        if isinstance(message, diag_messages.UnixAnswer):
            sock_diag.unix_listener(message)
        assert last is (message is None)


def _name(data: bytes) -> None:
    shown = printable(data)
    assert not invisible(shown) and raw_name(shown) == data
    raw_name(data.decode("utf-8", "surrogateescape"))


def _unix_answers() -> List[bytes]:
    def attribute(kind: int, value: bytes) -> bytes:
        padded = value + bytes(-len(value) % 4)
        return struct.pack("=HH", 4 + len(value), kind) + padded

    body = struct.pack("=BBBBIQ", 1, 1, 10, 0, 77, 5)
    body += attribute(0, b"\0abstract\xff") + attribute(1, struct.pack("=II", 7, 8))
    body += attribute(4, struct.pack("=II", 1, 128))
    message = struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body
    done = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
    refused = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -2)
    inet = struct.pack("=BBBB", 2, 10, 0, 0) + bytes(68)
    tcp = struct.pack("=IHHII", 16 + len(inet), 20, 2, 1, 0) + inet
    return [message + done, refused, tcp + done]


def btf_of_a_struct() -> bytes:
    """`struct s { int a; unsigned char b[4]; }`, `enum e { x }`, a global in `.bss`."""
    strings = b"\0s\0a\0b\0int\0uchar\0e\0x\0.bss\0v\0"

    def at(name: bytes) -> int:
        return strings.index(b"\0" + name + b"\0") + 1

    def kind(number: int, members: int = 0) -> int:
        return number << 24 | members

    types = struct.pack("<IIII", at(b"int"), kind(1), 4, 1 << 24 | 32)
    types += struct.pack("<IIII", at(b"uchar"), kind(1), 1, 8)
    types += struct.pack("<IIIIII", 0, kind(3), 0, 2, 1, 4)
    types += struct.pack("<III", at(b"s"), kind(4, 2), 8)
    types += struct.pack("<IIIIII", at(b"a"), 1, 0, at(b"b"), 3, 32)
    types += struct.pack("<IIIIi", at(b"e"), kind(6, 1), 4, at(b"x"), 3)
    types += struct.pack("<IIII", at(b"v"), kind(14), 4, 1)
    types += struct.pack("<IIIIII", at(b".bss"), kind(15, 1), 8, 7, 0, 8)
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    return header + types + strings


def _btf(data: bytes) -> None:
    found = Btf(data)
    for reads, name in ((found.structure, "s"), (found.enum, "e"), (found.variables, ".bss")):
        try:
            reads(name)
        except BtfError:
            continue


def _process_seeds() -> List[bytes]:
    hostile = b"1 (\x1b[31m) R (\n\xff) " + STAT.partition(b") ")[2]
    arguments = b"/usr/bin/x\0\x1b]52;c;x\x07\0\xff\0"
    return [SEPARATOR.join((stat, STATUS, arguments, LIMITS, CGROUP)) for stat in (STAT, hostile)]


TARGETS: Tuple[Target, ...] = (
    Target("btf", lambda: [btf_of_a_struct()], _btf, (BtfError,)),
    Target("proc", _process_seeds, _process),
    Target("mountinfo", lambda: [MOUNTS], _mountinfo),
    Target("proc-numbers", lambda: [CPUS, b"1 0 2\n", b"some avg10=0 total=5\n"], _numbers),
    Target("sock-diag", _unix_answers, _diag, (OSError,)),
    Target("names", lambda: [b"/run/\x1b[31m\\x1b\\\xff", "\u202e漢".encode()], _name),
)
