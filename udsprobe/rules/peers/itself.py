"""What a process asks itself: over connections to a listener of its own, as etcd's gateway does."""

from __future__ import annotations

from udsprobe.model.report import Report
from udsprobe.model.requests.hops import ANY_HOST
from udsprobe.rules.peers.connecting import is_of_this_host


def is_own_listener(report: Report, pid: int, transport: str, address: str) -> bool:
    """Who connects there is answered by a process that has that listener, as this one does."""
    port = address.rpartition(":")[2]
    there = {address}
    if transport == "tcp" and is_of_this_host(address):
        there.update(f"{each}:{port}" for each in ANY_HOST)
    own = [each for each in report.listeners or () if pid in (each.pids or ())]
    return any(each.transport == transport and each.address in there for each in own)
