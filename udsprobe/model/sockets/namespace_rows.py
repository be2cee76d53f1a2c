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
