"""Servers that ask each other: a chain from the outermost inwards, with the part of each."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from udsprobe.model.report import Hop, Listener, OwnRequests, ServedBy
from udsprobe.sample import TargetReading

# Listeners at these are reached by every address of the host.
ANY_HOST = ("0.0.0.0", "[::]")

Place = Tuple[str, str]


class _Server(NamedTuple):
    """The processes of one program: of one name and one listener, or else of one parent."""

    rows: List[ServedBy]
    places: FrozenSet[Place]

    @property
    def pids(self) -> List[int]:
        return sorted(row.pid for row in self.rows)

    @property
    def served(self) -> int:
        return sum(row.count for row in self.rows)


def hops(
    served_by: Optional[Sequence[ServedBy]],
    listeners: Optional[Sequence[Listener]],
    targets: Sequence[TargetReading],
) -> Optional[List[Hop]]:
    """The targets that ask other targets or are asked by them, the outermost first.

    Empty when none does; None when requests are not measured.
    """
    if served_by is None:
        return None
    servers = _servers(served_by, listeners or (), targets)
    nexts = [_nexts(at, servers) for at in range(len(servers))]
    asked = {to for found in nexts for to in found}
    chained = [at for at in range(len(servers)) if nexts[at] or at in asked]
    return [
        _hop(servers[at], listeners or (), [servers[to].pids[0] for to in sorted(nexts[at])])
        for at in _outermost_first(chained, nexts, servers)
    ]


def asked_by_servers(
    served_by: Sequence[ServedBy],
    listeners: Optional[Sequence[Listener]],
    targets: Sequence[TargetReading],
) -> Dict[int, int]:
    """By the first pid of a hop, how many of its requests came from other targets that serve.

    A target that serves nobody is a client: what it asks for is asked once.
    """
    servers = _servers(served_by, listeners or (), targets)
    asked: Dict[int, int] = {}
    for at, server in enumerate(servers):
        for each in (each for row in server.rows if row.count for each in row.upstream):
            to = _answering(each, servers)
            if to is not None and to != at:
                pid = servers[to].pids[0]
                asked[pid] = asked.get(pid, 0) + each.count
    return asked


def _servers(
    rows: Sequence[ServedBy], listeners: Sequence[Listener], targets: Sequence[TargetReading]
) -> List[_Server]:
    parents = {target.pid: target.parent for target in targets}
    grouped: Dict[object, _Server] = {}
    for row in rows:
        places = frozenset(
            (each.transport, each.address) for each in listeners if row.pid in (each.pids or ())
        )
        parent = parents.get(row.pid)
        origin: object = places or (row.pid if parent is None else ("parent", parent))
        server = grouped.setdefault((row.comm, origin), _Server([], places))
        server.rows.append(row)
    return list(grouped.values())


def _nexts(at: int, servers: List[_Server]) -> Set[int]:
    found = set()
    for row in servers[at].rows:
        for asked in row.upstream:
            to = _answering(asked, servers)
            if to is not None and to != at:
                found.add(to)
    return found


def _answering(asked: OwnRequests, servers: List[_Server]) -> Optional[int]:
    """Who answered is known better than who listens where."""
    pid = asked.peer.pid if asked.peer is not None else None
    for at, server in enumerate(servers):
        if pid in server.pids:
            return at
    for at, server in enumerate(servers):
        if any(_leads_to(asked, place) for place in server.places):
            return at
    return None


def _leads_to(asked: OwnRequests, place: Place) -> bool:
    transport, address = place
    if asked.transport != transport:
        return False
    host, _, port = address.rpartition(":")
    if transport == "tcp" and host in ANY_HOST:
        # Whose host that is shows in who answered, and nobody of ours was seen to.
        return asked.address in (f"127.0.0.1:{port}", f"[::1]:{port}")
    return asked.address == address


def _outermost_first(
    chained: List[int], nexts: Sequence[Set[int]], servers: List[_Server]
) -> List[int]:
    """Nobody before those that ask it; where they ask each other, the busiest first."""
    left, order = list(chained), []
    while left:
        free = [at for at in left if not any(at in nexts[by] for by in left)]
        taken = min(free or left, key=lambda at: (-servers[at].served, servers[at].pids[0]))
        left.remove(taken)
        order.append(taken)
    return order


def _hop(server: _Server, listeners: Sequence[Listener], nexts: List[int]) -> Hop:
    count = server.served
    total_us = sum(row.count * (row.latency_us.mean or 0.0) for row in server.rows)
    asked_us = sum(
        each.count * (each.latency_mean_us - (each.recv_wait_mean_us or 0.0))
        for row in server.rows
        for each in row.upstream
    )
    mean_us = total_us / count if count else None
    upstream_us = asked_us / count if count else None
    pids = server.pids
    return Hop(
        pid=pids[0],
        pids=pids,
        comm=server.rows[0].comm,
        address=_address(server, listeners),
        count=count,
        latency_mean_us=mean_us,
        own_us=None if mean_us is None else max(0.0, mean_us - (upstream_us or 0.0)),
        upstream_us=upstream_us,
        next=sorted(nexts),
    )


def _address(server: _Server, listeners: Sequence[Listener]) -> Optional[str]:
    """Of several, the one where most was accepted."""
    accepted: Dict[Place, int] = dict.fromkeys(sorted(server.places), 0)
    for each in listeners:
        by: Mapping[str, int] = each.accepted_by or {}
        if (each.transport, each.address) in accepted:
            mine = sum(by.get(str(pid), 0) for pid in server.pids)
            accepted[each.transport, each.address] += mine
    return max(accepted, key=accepted.__getitem__)[1] if accepted else None
