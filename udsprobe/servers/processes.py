"""Which processes are looked at, and what is known of each without asking it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Iterable, Optional, Sequence, Set, Tuple

from udsprobe.doctor.facts import ProcessFacts
from udsprobe.kernel.proc.limits import identity, nofile
from udsprobe.kernel.proc.procfs import Process, Procfs

_KINDS = {
    b"nginx": "nginx",
    b"openresty": "nginx",
    b"node": "node",
    b"nodejs": "node",
    b"caddy": "caddy",
    b"systemd": "systemd",
}
_UNIT = re.compile(r"([^/]+\.service)(?:/|$)")


def servers_found(procfs: Procfs, listening: Iterable[int]) -> Tuple[int, ...]:
    """Who listens, and every nginx, Node or Caddy with its relatives of the same kind."""
    ours = procfs.descendants([os.getpid()]) | {os.getpid()}
    known = {
        one.pid
        for one in procfs.processes()
        if not one.ended and not one.kernel_thread and kind_of(procfs, one) in ("nginx", "caddy")
    }
    return tuple(sorted((known | set(listening)) - ours))


def with_masters(procfs: Procfs, pids: Iterable[int]) -> Tuple[int, ...]:
    """The processes, and of an nginx worker its master and the other workers."""
    found: Set[int] = set(pids)
    for pid in tuple(found):
        process = procfs.process(pid)
        while process is not None and kind_of(procfs, process) == "nginx":
            found |= {process.pid} | procfs.descendants([process.pid])
            process = procfs.process(process.ppid)
    return tuple(sorted(found))


def kind_of(procfs: Procfs, process: Process) -> str:
    """`nginx`, `node`, `caddy`, `systemd` or `other`."""
    name = procfs.executable_name(process.pid) or process.comm_raw
    return _KINDS.get(name, "other")


def process_facts(procfs: Procfs, pids: Sequence[int]) -> Tuple[ProcessFacts, ...]:
    """Of those that are alive."""
    booted_s = boot_time_s()
    found = (_facts(procfs, pid, booted_s) for pid in pids)
    return tuple(one for one in found if one is not None)


def _facts(procfs: Procfs, pid: int, booted_s: Optional[float]) -> Optional[ProcessFacts]:
    process = procfs.process(pid)
    if process is None or process.ended or process.kernel_thread:
        return None
    soft, hard = nofile(pid)
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessFacts(
        pid=pid,
        ppid=process.ppid,
        comm=process.comm,
        kind=kind_of(procfs, process),
        netns=procfs.netns(pid),
        unit=unit_of(procfs.cgroups(pid)),
        started_s=None if booted_s is None else booted_s + process.start_ticks / ticks,
        fds_open=procfs.fds_open(pid),
        nofile_soft=soft,
        nofile_hard=hard,
        identity=identity(pid),
    )


def unit_of(cgroups: Dict[str, str]) -> Optional[str]:
    """The last `.service` in the path of the hierarchy that systemd keeps."""
    for controllers in ("", "name=systemd"):
        found = _UNIT.findall(cgroups.get(controllers, ""))
        if found:
            return str(found[-1])
    return None


def boot_time_s() -> Optional[float]:
    """When the kernel started, seconds since the epoch (`btime` of /proc/stat)."""
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except OSError:
        pass
    return None
