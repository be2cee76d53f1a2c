"""In which namespaces udsprobe itself runs: the host's, or a container's.

Knows their files under /proc. Knows nothing of the targets' namespaces.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from udsprobe.errors import KernelCannotError

# include/linux/proc_ns.h, PROC_USER_INIT_INO and PROC_PID_INIT_INO: the numbers of the host's own.
HOST_USER_NAMESPACE, HOST_PID_NAMESPACE = 0xEFFFFFFD, 0xEFFFFFFC
_PROC = Path("/proc")


def in_pid_namespace(proc: Path = _PROC) -> bool:
    """Whether process ids are other ones here than on the host.

    Args:
        proc: where procfs is mounted.

    Raises:
        KernelCannotError: `pid-namespace`: it is that of another PID namespace, and says
            nothing of the processes that we can look at; `time-namespace`.
    """
    if _is_foreign(proc):
        raise KernelCannotError(
            "pid-namespace",
            "/proc shows the process IDs of another PID namespace than udsprobe's",
            "mount /proc again in here (unshare --mount-proc, mount -t proc proc /proc), or run it "
            "in the namespace that /proc shows",
        )
    if _has_own_clock(proc):
        raise KernelCannotError(
            "time-namespace",
            "this time namespace shifts the clocks, but the probes see the host's",
            "run it outside of the time namespace",
        )
    return _number(proc, "pid") not in (None, HOST_PID_NAMESPACE)


def in_user_namespace(proc: Path = _PROC) -> bool:
    """Whether our capabilities are those of a user namespace, which BPF does not ask for."""
    return _number(proc, "user") not in (None, HOST_USER_NAMESPACE)


def _is_foreign(proc: Path) -> bool:
    try:
        status = (proc / "self/status").read_text(errors="replace")
    except FileNotFoundError:  # no process of ours is in it
        return proc.is_dir()
    except OSError:  # too few descriptors to look: whoever needs the next one says so
        return False
    # Our numbers from the namespace of this procfs down to our own.
    numbers = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return bool(numbers) and len(numbers[0]) > 1


def _has_own_clock(proc: Path) -> bool:
    try:
        # They are those of our children to be, whose namespace need not be ours.
        if _number(proc, "time") != _number(proc, "time_for_children"):
            return False
        lines = (proc / "self/timens_offsets").read_text().splitlines()
    except OSError:
        return False
    return any(set(line.split()[1:]) - {"0"} for line in lines)


def _number(proc: Path, kind: str) -> Optional[int]:
    try:
        return os.stat(proc / "self/ns" / kind).st_ino
    except OSError:
        return None
