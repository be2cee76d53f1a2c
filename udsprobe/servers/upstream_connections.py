"""How many connections each nginx worker has open to its upstreams, at some moments."""

from __future__ import annotations

import os
import time
from typing import Dict, FrozenSet, List, Mapping, Tuple

from udsprobe.doctor.addresses import host_and_port
from udsprobe.doctor.facts import NginxFacts
from udsprobe.errors import KernelCannotError, NotPermittedError
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.sock_diag import ConnectedSocket, NetworkNamespace
from udsprobe.servers.target_files import TargetFiles, Unreadable

# Bursts are shorter than a moment is rare: five looks see most, and cost as much as 0.1 s.
MOMENTS = 5
PAUSE_S = 0.02
# A host with a hundred thousand sockets is looked at once.
BUDGET_S = 0.25

Moment = Mapping[str, Mapping[int, int]]
_Key = Tuple[object, ...]


def upstream_connections(nginx: NginxFacts, procfs: Procfs) -> Tuple[Moment, ...]:
    """Address as configured → worker → connections; empty when they cannot be seen."""
    if nginx.config is None or not nginx.workers:
        return ()
    keys = {
        address: _keys(address, nginx.workers[0])
        for group in nginx.config.upstreams
        if not group.stream
        for address in (*group.servers, *group.backups)
    }
    if not any(keys.values()):
        return ()
    moments: List[Moment] = []
    try:
        with NetworkNamespace.of(nginx.workers[0]) as namespace:
            give_up_at = time.monotonic() + BUDGET_S
            while len(moments) < MOMENTS and (not moments or time.monotonic() < give_up_at):
                time.sleep(PAUSE_S if moments else 0.0)
                moments.append(_moment(nginx, keys, namespace.connected(), procfs))
    except (KernelCannotError, NotPermittedError, ProcessLookupError):
        return ()
    return tuple(moments)


def _moment(
    nginx: NginxFacts,
    keys: Mapping[str, FrozenSet[_Key]],
    sockets: List[ConnectedSocket],
    procfs: Procfs,
) -> Moment:
    leads_to = {one.inode: one.unix_file or one.tcp_remote for one in sockets}
    held = {pid: procfs.socket_fds(pid) or {} for pid in nginx.workers}
    counts: Dict[str, Dict[int, int]] = {address: {} for address in keys}
    for pid, descriptors in held.items():
        ends = [leads_to.get(inode) for inode in descriptors.values()]
        for address, wanted in keys.items():
            counts[address][pid] = sum(1 for end in ends if end in wanted)
    return counts


def _keys(address: str, worker: int) -> FrozenSet[_Key]:
    """What the other end of a connection to this address looks like; empty when not known."""
    if address.startswith("unix:"):
        try:
            found = TargetFiles(worker).status(address[len("unix:") :])
        except Unreadable:
            found = None
        if found is None:
            return frozenset()
        # As sock_diag numbers them: 20 minor bits, the low 32 bits of the inode.
        device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
        return frozenset({(device, found.st_ino & 0xFFFFFFFF)})
    host, port = host_and_port(address, 80) or ("", 0)
    hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    return frozenset((one, port) for one in hosts if port)
