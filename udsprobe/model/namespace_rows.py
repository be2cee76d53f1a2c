"""Network namespaces of a window, and whose drops were overflows of an accept queue."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

from udsprobe.model.counters import grown_if_measured
from udsprobe.model.report import Listener, Namespace
from udsprobe.sample import NamespaceReading, Sample


def namespace_rows(first: Sample, last: Sample) -> Optional[List[Namespace]]:
    """The namespaces known at the end of the window, by number."""
    if last.namespaces is None:
        return None
    before = {reading.netns: reading for reading in first.namespaces or ()}
    # One that was not there at the beginning has no counters of this window.
    rows = [_row(reading, before.get(reading.netns)) for reading in last.namespaces]
    return sorted(rows, key=lambda row: row.netns)


def with_overflows(listeners: List[Listener], namespaces: List[Namespace]) -> List[Listener]:
    """The same listeners, their overflows filled in where the counters leave no doubt.

    The kernel counts overflows by namespace only. When all drops of one are
    those of a single listener of ours, its overflows are the namespace's.
    """
    return [replace(row, overflows=_overflows(row, listeners, namespaces)) for row in listeners]


def _overflows(
    row: Listener, listeners: List[Listener], namespaces: List[Namespace]
) -> Optional[int]:
    if not row.drops:
        return row.drops
    space = next((space for space in namespaces if space.netns == row.netns), None)
    dropping = [each for each in listeners if each.netns == row.netns and each.drops]
    if space is None or len(dropping) > 1 or space.listen_drops != row.drops:
        return None
    return space.listen_overflows


def _row(reading: NamespaceReading, before: Optional[NamespaceReading]) -> Namespace:
    def since(name: str) -> Optional[int]:
        if before is None:
            return None
        return grown_if_measured(name, getattr(reading, name), getattr(before, name))

    abort = reading.tcp_abort_on_overflow
    return Namespace(
        netns=reading.netns,
        somaxconn=reading.somaxconn,
        tcp_abort_on_overflow=None if abort is None else bool(abort),
        tcp_syncookies=reading.tcp_syncookies,
        listen_overflows=since("listen_overflows"),
        listen_drops=since("listen_drops"),
        syncookies_sent=since("syncookies_sent"),
        syncookies_received=since("syncookies_received"),
        wmem_max=reading.wmem_max,
        wmem_default=reading.wmem_default,
        rmem_max=reading.rmem_max,
        rmem_default=reading.rmem_default,
        max_dgram_qlen=reading.max_dgram_qlen,
        tcp_wmem=None if reading.tcp_wmem is None else list(reading.tcp_wmem),
        tcp_rmem=None if reading.tcp_rmem is None else list(reading.tcp_rmem),
    )
