"""Limits of the host as /proc/sys says them, and of one process as /proc/PID does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from udsprobe.host_facts import HostLimits, Identity
from udsprobe.kernel.proc.process_cgroups import ProcessCgroups
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.printable import printable
from udsprobe.sample import StartLimit

# include/uapi/linux/capability.h
_CAP_DAC_OVERRIDE = 1
_CAPS_WITHOUT_NPROC = 1 << 21 | 1 << 24  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
_READ_BYTES = 65536
_OWN_USER_NAMESPACE = "/proc/self/ns/user"


def host_limits() -> HostLimits:
    """Now; None for what cannot be read."""
    files = (_text("/proc/sys/fs/file-nr") or "").split()
    threads = (_text("/proc/loadavg") or "").split()
    total = threads[3].partition("/")[2] if len(threads) > 3 else ""
    return HostLimits(
        file_max=read_int("/proc/sys/fs/file-max"),
        files_open=_int(files[0]) if files else None,
        nr_open=read_int("/proc/sys/fs/nr_open"),
        threads_max=read_int("/proc/sys/kernel/threads-max"),
        pid_max=read_int("/proc/sys/kernel/pid_max"),
        threads=_int(total),
        rmem_default_bytes=read_int("/proc/sys/net/core/rmem_default"),
        rmem_max_bytes=read_int("/proc/sys/net/core/rmem_max"),
        wmem_default_bytes=read_int("/proc/sys/net/core/wmem_default"),
        wmem_max_bytes=read_int("/proc/sys/net/core/wmem_max"),
    )


def read_int(path: str) -> Optional[int]:
    """The number in a file of /proc or /sys; None when there is none or it is hidden."""
    return _int((_text(path) or "").strip())


def nofile(pid: int) -> Tuple[Optional[int], Optional[int]]:
    """RLIMIT_NOFILE of a process, soft and hard; None when gone, hidden or unlimited."""
    return _rlimit(pid, "Max open files")


def _rlimit(pid: int, name: str) -> Tuple[Optional[int], Optional[int]]:
    for line in (_text(f"/proc/{pid}/limits") or "").split("\n"):
        words = line[len(name) :].split()
        if line.startswith(name) and len(words) > 1:
            return _int(words[0]), _int(words[1])
    return None, None


def start_limit(pid: int, procfs: Procfs, cgroups: ProcessCgroups) -> Optional[StartLimit]:
    """Of the limits of threads that a process has, the one that it reaches first.

    Another thread of it counts for each of them: the one with the least room refuses. One that is
    not half used refuses nothing soon, unless its cgroup counts that it did.

    Args:
        cgroups: of the controller `pids`.
    """
    directories = list(cgroups.directories(pid) or ())
    host = host_limits()
    found = [*_of_cgroups(directories), *_of_host(host)]
    limit, _ = _rlimit(pid, "Max processes")
    # Those of one user are no more than all; reading who has them takes long.
    if limit is not None and 2 * (host.threads or 0) >= limit:
        found += _of_user(pid, limit, procfs)
    return min(found, key=lambda each: each.limit - each.used, default=None)


def _of_cgroups(directories: List[Path]) -> Iterator[StartLimit]:
    """The nearest first (Documentation/admin-guide/cgroup-v2.rst, "PID Interface Files")."""
    for each in directories:
        limit, used = (read_int(f"{each}/pids.{name}") for name in ("max", "current"))
        if limit is None or used is None:
            continue
        events = (_text(f"{each}/pids.events") or "").split()
        has_refused = events[:1] == ["max"] and events[1:2] != ["0"]
        if has_refused or 2 * used >= limit:
            path = printable(os.fsencode(each.relative_to(directories[-1])))
            file = printable(os.fsencode(each / "pids.max"))
            yield StartLimit("pids.max", limit, used, f"/{path}", file)


def _of_user(pid: int, limit: int, procfs: Procfs) -> Iterator[StartLimit]:
    """RLIMIT_NPROC: threads of the same real user, who is neither root nor has certain rights."""
    own = _status(_text(f"/proc/{pid}/status") or "")
    if own.get("Uid", ["0"])[0] == "0":
        return
    if int(own.get("CapEff", ["0"])[0], 16) & _CAPS_WITHOUT_NPROC:
        return
    rows = (_status(_text(f"/proc/{each}/status") or "") for each in procfs.pids())
    used = sum(int(r["Threads"][0]) for r in rows if r.get("Uid", [""])[0] == own["Uid"][0])
    if 2 * used >= limit:
        yield StartLimit("RLIMIT_NPROC", limit, used)


def _of_host(host: HostLimits) -> Iterator[StartLimit]:
    for name, limit in (
        ("kernel.threads-max", host.threads_max),
        ("kernel.pid_max", host.pid_max),
    ):
        if limit is not None and host.threads is not None and 2 * host.threads >= limit:
            yield StartLimit(name, limit, host.threads)


def identity(pid: int) -> Optional[Identity]:
    """Whom the kernel checks file permissions against; None when gone or in a user namespace
    that is not ours, where numbers mean other users."""
    try:
        if os.readlink(f"/proc/{pid}/ns/user") != os.readlink(_OWN_USER_NAMESPACE):
            return None
    except OSError:
        return None
    return identity_of(_text(f"/proc/{pid}/status") or "")


def identity_of(status: str) -> Optional[Identity]:
    """The same from the text of /proc/PID/status."""
    fields = _status(status)
    try:
        return Identity(
            uid=int(fields["Uid"][3]),
            gid=int(fields["Gid"][3]),
            gids=tuple(map(int, fields.get("Groups", ()))),
            overrides=bool(int(fields["CapEff"][0], 16) >> _CAP_DAC_OVERRIDE & 1),
        )
    except (KeyError, IndexError, ValueError):
        return None


def _status(text: str) -> Dict[str, List[str]]:
    """Its fields by name."""
    lines = (line.partition(":") for line in text.split("\n"))  # a comm may hold `\r`
    return {name: value.split() for name, _, value in lines}


def _int(text: str) -> Optional[int]:
    return int(text) if text.isascii() and text.isdigit() else None


def _text(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_BYTES).decode("ascii", "replace")
    except OSError:
        return None
