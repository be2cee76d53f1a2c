"""One request as a sequence, as inline SVG: a row each, time from the left to the right, to scale.

Needs no script. Every row says its own when a pointer rests on it.
"""

from __future__ import annotations

from typing import Dict

from markupsafe import Markup

from udsprobe.model.report import WholeRequest
from udsprobe.views.fields import numbers
from udsprobe.views.fields.bars import KERNEL, NOT_KEPT, PROGRAM, RUN_QUEUE, WAITING
from udsprobe.views.fields.escape import visible
from udsprobe.views.fields.sequence import Step, steps

WIDTH, ROW = 1000.0, 24.0
ROWS_MAX = 40
"""More are drawn together with their neighbours; the report document has all."""

_LEFT, _RIGHT = 300.0, 70.0
_LEAST = 1.5
_LETTERS = 36
_CLASSES: Dict[str, str] = {
    PROGRAM: "program",
    KERNEL: "kernel",
    RUN_QUEUE: "ready",
    WAITING: "asleep",
    NOT_KEPT: "notkept",
}


def sequence(request: WholeRequest) -> Markup:
    """The drawing."""
    rows = steps(request, ROWS_MAX)
    drawn = Markup("").join(_row(step, at, request.latency_us) for at, step in enumerate(rows))
    frame = '<svg class="sequence" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    return Markup(frame).format(f"{WIDTH:g}", f"{ROW * max(1, len(rows)):g}", drawn)


def _row(step: Step, at: int, whole_us: float) -> Markup:
    took = numbers.duration(step.duration_us).strip()
    begins = numbers.duration(step.begin_us).strip()
    name = visible(step.label)
    says = f"{name}: {took}, from {begins} on"
    shown = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    top = ROW * at
    pieces = Markup("").join(
        _piece(piece.fill, piece.begin_us, piece.end_us, whole_us, top) for piece in step.pieces
    )
    texts = Markup('<text x="0" y="{}">{}</text><text class="took" x="{}" y="{}">{}</text>').format(
        f"{top + 16:g}", shown, f"{WIDTH:g}", f"{top + 16:g}", took
    )
    return Markup("<g><title>{}</title>{}{}</g>").format(says, texts, pieces)


def _piece(fill: str, begin_us: float, end_us: float, whole_us: float, top: float) -> Markup:
    scale = (WIDTH - _LEFT - _RIGHT) / whole_us if whole_us > 0 else 0.0
    left, width = _LEFT + begin_us * scale, max(_LEAST, (end_us - begin_us) * scale)
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        *(_CLASSES[fill], f"{left:.2f}", f"{top + 2:g}", f"{width:.2f}", f"{ROW - 4:g}")
    )
