"""Process ids of a container: which process of this /proc has them.

Knows `NSpid` of /proc/PID/status (its ids from the namespace of this procfs down to its own) and
how PID namespaces are nested. Knows nothing of selectors.
"""

from __future__ import annotations

import fcntl
import os
from typing import List, Optional

from udsprobe.errors import NoTargetError, NotPermittedError
from udsprobe.kernel.proc.procfs import Procfs

_NS_GET_PARENT = 0xB702  # include/uapi/linux/nsfs.h


def outer_pid(inner: int, member: int, procfs: Procfs) -> int:
    """The id here of the process that has the id `inner` in a PID namespace.

    Args:
        inner: as `ps` in the container says it.
        member: any process of that namespace, by its id here.

    Raises:
        NoTargetError: `no-such-pid`. NotPermittedError: `hidden-namespace`.
    """
    numbers = procfs.namespace_pids(member)
    namespace = _namespace(procfs, member)
    if not numbers:
        raise NoTargetError(
            "no-such-pid",
            f"there is no process {member} for --in",
            "give --in the process ID, as seen here, of a process of the container",
        )
    if namespace is None:
        raise NotPermittedError(
            "hidden-namespace",
            f"the PID namespace of process {member} is hidden from this user",
            "run it as root, or with CAP_SYS_PTRACE",
        )
    depth = len(numbers) - 1
    for pid in procfs.pids():
        seen = procfs.namespace_pids(pid)
        above = len(seen) - 1 - depth
        if seen[depth : depth + 1] == [inner] and _namespace(procfs, pid, above) == namespace:
            return pid
    raise NoTargetError(
        "no-such-pid",
        f"there is no process {inner} in the PID namespace of process {member}",
        f"see `nsenter -t {member} -p -m ps -e`",
    )


def _namespace(procfs: Procfs, pid: int, above: int = 0) -> Optional[int]:
    """Inode number of its PID namespace, or of the one so many levels above; None: hidden."""
    opened: List[int] = []
    try:
        opened.append(procfs.open_namespace(pid, "pid"))
        for _ in range(above):
            opened.append(fcntl.ioctl(opened[-1], _NS_GET_PARENT))
        return os.fstat(opened[-1]).st_ino
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
