"""Whom a process asks, when its own requests get no answer: told only where it asks no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Optional

from udsprobe.model.report import Connection, Report, ServedBy
from udsprobe.model.sockets.connection_rows import CONNECTIONS_SHOWN_MAX
from udsprobe.rules.wording import is_name_server, named_place, place


@dataclass(frozen=True)
class Asked:
    """The only destination of a process' own connections.

    Attributes:
        address: `unix:/run/db.sock`. pids: of the processes at the other end, where known.
        comm: of these, where it is one name. connections: that it has; None: not all are known.
    """

    address: str
    pids: FrozenSet[int]
    comm: Optional[str]
    connections: Optional[int]

    @property
    def pid(self) -> Optional[int]:
        """Of the process there, where it is one."""
        return next(iter(self.pids)) if len(self.pids) == 1 else None

    @property
    def who(self) -> str:
        """`postgres 812`, `postgres` for several, or the address."""
        if self.comm is None:
            return self.address
        return self.comm if self.pid is None else f"{self.comm} {self.pid}"

    @property
    def where(self) -> str:
        """`postgres 812 at unix:/run/db.sock`."""
        known = self.who != self.address
        return f"{self.who} at {self.address}" if known else named_place(self.address)


def only_upstream(report: Report, row: ServedBy) -> Optional[Asked]:
    """None where it has several, or may have others that are not listed.

    One that is left out of a shorter list has moved no byte in the window, so what it asked in
    the window it did not ask there.
    """
    listed = report.connections or []
    are_all = report.connections_total is not None and report.connections_total <= len(listed)
    is_recent = (row.asking.oldest_us or 0.0) <= 1e6 * report.window.duration_s
    if not are_all and (len(listed) >= CONNECTIONS_SHOWN_MAX or not is_recent):
        return None
    rows = [each for each in listed if each.pid == row.pid and each.role == "upstream"]
    places = {_place(each) for each in rows}
    if are_all and not rows:
        return _only_name_server(report, row)
    found = places.pop() if len(places) == 1 else None
    if found is None:
        return None
    peers = [each.peer for each in rows if each.peer is not None and each.peer.pid]
    comms = {peer.comm for peer in peers}
    return Asked(
        found,
        frozenset(peer.pid for peer in peers if peer.pid),
        comms.pop() if len(comms) == 1 else None,
        len(rows) if are_all else None,
    )


def _only_name_server(report: Report, row: ServedBy) -> Optional[Asked]:
    """Of one without connections, as UDP has none; connects are also to who never answers."""
    asked = {f"{each.transport}:{each.address}" for each in row.upstream}
    asked |= {place(each) for each in report.connects or () if is_name_server(place(each))}
    found = asked.pop() if len(asked) == 1 else ""
    return Asked(found, frozenset(), None, None) if is_name_server(found) else None


def _place(row: Connection) -> Optional[str]:
    address = row.peer.address if row.peer is not None else None
    return f"{row.transport}:{address}" if address else None
