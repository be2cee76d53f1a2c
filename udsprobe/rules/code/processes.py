"""The code of several processes of one program, told as that of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, Hashable, List, Sequence, TypeVar

from udsprobe.model.report import CodeKind, CodePlace, ProcessCode

_Part = TypeVar("_Part", CodePlace, CodeKind)


def together(rows: Sequence[ProcessCode]) -> ProcessCode:
    """With the id of the first, and what all of them ran.

    A process has as much of it as it has samples.
    """
    first, *others = rows
    if not others:
        return first
    return replace(
        first,
        samples=sum(row.samples for row in rows),
        truncated=sum(row.truncated for row in rows),
        in_sockets=sum(row.in_sockets for row in rows),
        code=_joined(rows, lambda row: row.code, _place),
        kinds=[
            _of_all(kind, [each for row in rows for each in row.kinds if each.kind == kind.kind])
            for kind in _joined(rows, lambda row: row.kinds, lambda kind: kind.kind)
        ],
    )


def own_samples(row: ProcessCode) -> int:
    """Outside of calls on sockets."""
    return row.samples - row.in_sockets


def _place(place: CodePlace) -> Hashable:
    return place.function, place.module, place.file, place.line, place.own


def _joined(
    rows: Sequence[ProcessCode],
    of: Callable[[ProcessCode], Sequence[_Part]],
    key: Callable[[_Part], Hashable],
) -> List[_Part]:
    """As told of the process that has most of each, with the share of all samples."""
    whole = sum(map(own_samples, rows)) or 1
    shares: Dict[Hashable, float] = {}
    most: Dict[Hashable, _Part] = {}
    for row in sorted(rows, key=own_samples, reverse=True):
        for part in of(row):
            shares[key(part)] = (
                shares.get(key(part), 0.0) + part.share_pct * own_samples(row) / whole
            )
            most.setdefault(key(part), part)
    joined = [replace(most[each], share_pct=share) for each, share in shares.items()]
    return sorted(joined, key=lambda part: -part.share_pct)


def _of_all(kind: CodeKind, parts: Sequence[CodeKind]) -> CodeKind:
    samples = sum(each.samples for each in parts)
    threads = [
        replace(thread, share_pct=thread.share_pct * each.samples / (samples or 1))
        for each in parts
        for thread in each.threads
    ]
    busiest = sorted(threads, key=lambda thread: -thread.share_pct)
    return replace(kind, samples=samples, threads=busiest)
