"""Network namespaces of a window, and whose drops were overflows of an accept queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional

from udsprobe.model.growth import by_name, growth
from udsprobe.model.report import Listener, Namespace
from udsprobe.sample import NamespaceReading, Sample
from udsprobe.totals import totals


def namespace_rows(first: Sample, last: Sample) -> Optional[List[Namespace]]:
    """The namespaces known at the end of the window, by number."""
    if last.namespaces is None:
        return None
    before = {reading.netns: reading for reading in first.namespaces or ()}
    rows = [_row(reading, before.get(reading.netns)) for reading in last.namespaces]
    return sorted(rows, key=lambda row: row.netns)


def with_overflows(listeners: List[Listener], namespaces: List[Namespace]) -> List[Listener]:
    """The same listeners, their overflows filled in where the counters leave no doubt.

    The kernel counts overflows by namespace only. When all drops of one are
    those of a single listener of ours, its overflows are the namespace's.
    """
    spaces = {space.netns: space for space in namespaces}
    rows = [_without_deferred(row, spaces.get(row.netns)) for row in listeners]
    # Of those that were told less than their socket counted it is not known which are theirs.
    told = zip(rows, (row.drops == was.drops or not row.drops for row, was in zip(rows, listeners)))
    return [
        replace(row, overflows=_overflows(row, rows, spaces.get(row.netns)) if is_known else None)
        for row, is_known in told
    ]


def _without_deferred(row: Listener, space: Optional[Namespace]) -> Listener:
    """Its drops, at most: where accept is deferred, a socket counts more than the namespace does.

    With TCP_DEFER_ACCEPT (Apache's AcceptFilter, `deferred` of nginx) the last packet of each
    handshake is dropped and counted by the socket (tcp_check_req() of net/ipv4/tcp_minisocks.c):
    the connection is established by the request. tcp_listendrop() counts at both.
    """
    if space is None or space.listen_drops is None or row.drops is None:
        return row
    return replace(row, drops=min(row.drops, space.listen_drops))


def _overflows(row: Listener, rows: List[Listener], space: Optional[Namespace]) -> Optional[int]:
    if not row.drops:
        return row.drops
    dropping = [each for each in rows if each.netns == row.netns and each.drops]
    if space is None or len(dropping) > 1 or space.listen_drops != row.drops:
        return None
    return space.listen_overflows


def _row(reading: NamespaceReading, before: Optional[NamespaceReading]) -> Namespace:
    # The kernel's counters are older than the observation: what was not read first has no growth.
    unknown = [name for name in totals(NamespaceReading) if getattr(before, name, None) is None]
    none: Dict[str, Any] = dict.fromkeys(unknown)
    reading = replace(reading, **none)
    abort = reading.tcp_abort_on_overflow
    return Namespace(
        **by_name(growth(f"namespace {reading.netns}", reading, before), Namespace),
        tcp_abort_on_overflow=None if abort is None else bool(abort),
        tcp_wmem=None if reading.tcp_wmem is None else list(reading.tcp_wmem),
        tcp_rmem=None if reading.tcp_rmem is None else list(reading.tcp_rmem),
    )
