"""Whom a process asks, when its own requests get no answer: told only where it asks no other, or
where all others answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, List, Optional

from udsprobe.model.report import Connection, Report, ServedBy
from udsprobe.model.sockets.connection_rows import CONNECTIONS_SHOWN_MAX
from udsprobe.rules.wording import is_name_server, named_place, place


@dataclass(frozen=True)
class Asked:
    """The only destination of a process' own connections, or the only one that answers nothing.

    Attributes:
        address: `unix:/run/db.sock`. pids: of the processes at the other end, where known.
        comm: of these, where it is one name. connections: that it has; None: not all are known.
        is_silent: its others answer, and this one has sent nothing.
    """

    address: str
    pids: FrozenSet[int]
    comm: Optional[str]
    connections: Optional[int]
    is_silent: bool = False

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
        at = f"{self.who} at {self.address}" if known else named_place(self.address)
        return f"{at} (of its upstreams only this one answers nothing)" if self.is_silent else at


def without_answer(report: Report, row: ServedBy) -> Optional[Asked]:
    """Where its own requests wait; None: not known."""
    return only_upstream(report, row) or _silent_upstream(report, row)


def _silent_upstream(report: Report, row: ServedBy) -> Optional[Asked]:
    """Of several, the one that has been asked and has sent nothing, for most of what waits.

    That another one owes an answer too, beside those that it gave, cannot be told.
    """
    rows = _upstream(report, row)
    answering = {_place(each) for each in rows if each.requests or each.bytes_in}
    silent = [each for each in rows if each.bytes_out and _place(each) not in answering]
    places = {_place(each) for each in silent}
    found = places.pop() if len(places) == 1 else None
    if found is None or 2 * len(silent) < row.asking.count:
        return None
    return replace(_asked(found, silent, None), is_silent=bool(answering))


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
    rows = _upstream(report, row)
    places = {_place(each) for each in rows}
    if are_all and not rows:
        return _only_name_server(report, row)
    found = places.pop() if len(places) == 1 else None
    if found is None:
        return None
    return _asked(found, rows, len(rows) if are_all else None)


def _upstream(report: Report, row: ServedBy) -> List[Connection]:
    listed = report.connections or []
    return [each for each in listed if each.pid == row.pid and each.role == "upstream"]


def _asked(address: str, rows: List[Connection], connections: Optional[int]) -> Asked:
    peers = [each.peer for each in rows if each.peer is not None and each.peer.pid]
    comms = {peer.comm for peer in peers}
    return Asked(
        address,
        frozenset(peer.pid for peer in peers if peer.pid),
        comms.pop() if len(comms) == 1 else None,
        connections,
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
