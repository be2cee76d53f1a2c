"""Who has the lock that goroutines wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Sequence

from udsprobe.model.code.frames import as_parked, frames_of
from udsprobe.model.code.places import Row, places
from udsprobe.model.report import CodePlace


def lock_holders(rows: Sequence[Row], code: Sequence[CodePlace]) -> List[CodePlace]:
    """Where those were that had the lock, by the time that was waited for them.

    Args:
        rows: waits, as the program called them, with their weights.
        code: of these; who waits in another place than the first may wait for another lock.
    """
    waits = [row for row in rows if row.held_by and code and _is_in(row, code[0])]
    parts = [part for row in waits for part in _parts(row)]
    whole = sum(part.weight for part in parts)
    known = [part for part in parts if part.text]
    if not whole or not known:
        return []
    share = sum(part.weight for part in known) / whole
    return [replace(each, share_pct=each.share_pct * share) for each in places(known)]


def _is_in(row: Row, place: CodePlace) -> bool:
    names = {frame.named() for frame in row.frames}
    return names.issuperset(place.stack[:1]) and (place.own is None or place.own in names)


def _parts(row: Row) -> Iterator[Row]:
    """The row once for each that had its lock."""
    for text, ns in row.held_by.items():
        weight = row.weight * ns // row.slept_ns if row.slept_ns else 0
        frames = as_parked(frames_of(text)) if text else ()
        yield row._replace(text=text, frames=frames, weight=weight, truncated=0)
