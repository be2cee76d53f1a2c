"""Rows of waits for answers → which functions of the program's own asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.code.frames import Frame, is_installed
from udsprobe.model.code.places import PLACES_SHOWN_MAX, Row, called_rows, own_inside, place_of
from udsprobe.model.report import CodePlace


def asked_in(rows: Sequence[Row]) -> List[CodePlace]:
    """The innermost functions by `own`, which is that of the program that asked: those with most of
    the time first.

    Of a package that was installed beside the program only where a stack has no other.
    """
    groups: Dict[Tuple[Frame, Frame], List[Row]] = {}
    for row in called_rows(rows):
        asks = _asks(row.frames)
        if asks is not None:
            groups.setdefault((asks, row.frames[-1]), []).append(row)
    whole = sum(row.weight for row in rows)
    found = [_place(asks, inner, own, whole) for (asks, inner), own in groups.items()]
    return sorted(found, key=lambda each: (-each.share_pct, each.stack))[:PLACES_SHOWN_MAX]


def _place(asks: Frame, inner: Frame, rows: Sequence[Row], whole: int) -> CodePlace:
    weight = sum(row.weight for row in rows)
    place = place_of(inner, weight, whole, rows)
    if asks.named() not in place.stack:
        # Ways in between differ.
        place = place_of(asks, weight, whole, rows)
    return replace(place, own=asks.named())


def _asks(frames: Sequence[Frame]) -> Optional[Frame]:
    inward = list(reversed(frames))
    own = [inward[at] for at in own_inside(inward)]
    return next((frame for frame in own if not is_installed(frame)), next(iter(own), None))
