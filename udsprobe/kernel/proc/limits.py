"""Limits of the host as /proc/sys says them, and of one process as /proc/PID does."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from udsprobe.host_facts import HostLimits, Identity

_CAP_DAC_OVERRIDE = 1  # include/uapi/linux/capability.h
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
    for line in (_text(f"/proc/{pid}/limits") or "").split("\n"):
        words = line.split()
        if line.startswith("Max open files") and len(words) > 4:
            return _int(words[3]), _int(words[4])
    return None, None


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
    fields: Dict[str, List[str]] = {}
    for line in status.split("\n"):  # a comm may hold `\r`
        name, _, value = line.partition(":")
        fields[name] = value.split()
    try:
        return Identity(
            uid=int(fields["Uid"][3]),
            gid=int(fields["Gid"][3]),
            gids=tuple(map(int, fields.get("Groups", ()))),
            overrides=bool(int(fields["CapEff"][0], 16) >> _CAP_DAC_OVERRIDE & 1),
        )
    except (KeyError, IndexError, ValueError):
        return None


def _int(text: str) -> Optional[int]:
    return int(text) if text.isascii() and text.isdigit() else None


def _text(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_BYTES).decode("ascii", "replace")
    except OSError:
        return None
