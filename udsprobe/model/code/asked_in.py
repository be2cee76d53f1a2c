"""Rows of waits for answers → which functions of the program's own asked."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from udsprobe.model.code.frames import (
    Frame,
    is_installed,
    own_functions,
    turns_loop,
    without_any_call,
)
from udsprobe.model.code.places import PLACES_SHOWN_MAX, Row, place_of, spoken_for
from udsprobe.model.report import CodePlace


def asked_in(rows: Sequence[Row]) -> List[CodePlace]:
    """Each stack's innermost function of the program's own, those with most of the time first.

    One of a package that was installed beside the program only where the stack has no other.
    """
    by_function: Dict[Frame, List[Row]] = {}
    for row in spoken_for([row._replace(frames=without_any_call(row.frames)) for row in rows]):
        frame = _asks(row.frames)
        if frame is not None:
            by_function.setdefault(frame, []).append(row)
    whole = sum(row.weight for row in rows)
    weighed = {frame: sum(row.weight for row in own) for frame, own in by_function.items()}
    ranked = sorted(weighed, key=lambda frame: (-weighed[frame], frame.named()))
    return [
        place_of(frame, weighed[frame], whole, by_function[frame])
        for frame in ranked[:PLACES_SHOWN_MAX]
    ]


def _asks(frames: Sequence[Frame]) -> Optional[Frame]:
    inward = list(reversed(frames))
    turn = next((at for at, frame in enumerate(inward) if turns_loop(frame)), len(inward))
    own = [inward[at] for at in own_functions(inward[:turn])]
    return next((frame for frame in own if not is_installed(frame)), next(iter(own), None))
