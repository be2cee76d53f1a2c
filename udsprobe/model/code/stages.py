"""What ran in which stage of requests, by samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.code.frames import KERNEL, Frame
from udsprobe.model.code.places import Row, places
from udsprobe.model.code.socket_calls import RECEIVES, SENDS
from udsprobe.model.code.stacks import ran
from udsprobe.model.report import Stacks, StageCode
from udsprobe.sample import Sample

RECEIVING, PROCESSING, SENDING, NONE = STAGES = ("receiving", "processing", "sending", "none")


class _Part(NamedTuple):
    """Of the samples of a stack."""

    stage: str
    row: Row


def with_stages(found: Optional[Stacks], first: Sample, last: Sample) -> Optional[Stacks]:
    """The stacks of a window and what of them ran in which stage."""
    if found is None or last.stacks is None:
        return found
    told = stages(ran(first, last), sees_owing=last.stacks.sees_owing)
    return replace(found, stages=told)


def stages(rows: Sequence[Row], *, sees_owing: bool) -> Optional[List[StageCode]]:
    """In the order of STAGES, those that were met; None where it cannot be told.

    Args:
        rows: of what ran.
        sees_owing: whether a process owes a reply is known.
    """
    if not sees_owing or any(row.owing is None for row in rows) or _hides_kernel(rows):
        return None
    by_stage: Dict[str, List[Row]] = {}
    for row in rows:
        for part in _parts(row):
            by_stage.setdefault(part.stage, []).append(part.row)
    return [_stage(name, by_stage[name]) for name in STAGES if name in by_stage]


def _stage(name: str, rows: Sequence[Row]) -> StageCode:
    return StageCode(name, sum(row.samples for row in rows), places(rows))


def _parts(row: Row) -> List[_Part]:
    moving = _moves(row.frames)
    if moving is not None:
        return [_Part(moving, row)]
    owing = row.owing or 0
    shares = ((PROCESSING, owing), (NONE, row.samples - owing))
    return [_Part(stage, _of(row, count)) for stage, count in shares if count > 0]


def _of(row: Row, samples: int) -> Row:
    # Of a part it is not known which callers were not found.
    return row._replace(samples=samples, weight=samples, truncated=min(row.truncated, samples))


def _moves(frames: Tuple[Frame, ...]) -> Optional[str]:
    """Whether the kernel moves bytes of a socket for it; the outermost call decides."""
    for frame in frames:
        if frame.module == KERNEL and frame.function in RECEIVES:
            return RECEIVING
        if frame.module == KERNEL and frame.function in SENDS:
            return SENDING
    return None


def _hides_kernel(rows: Sequence[Row]) -> bool:
    """Functions of the kernel were met, and none has a name."""
    inside = [frame for row in rows for frame in row.frames if frame.module == KERNEL]
    return bool(inside) and not any(frame.function for frame in inside)
