"""A flame graph as inline SVG: stacks from the top down, each as wide as its samples or its time.

Needs no script: the names that have room are text, which a browser finds, and every box says its
own when a pointer rests on it.
"""

from __future__ import annotations

from typing import Sequence

from markupsafe import Markup

from udsprobe.model.report import CodeStack
from udsprobe.views.fields import numbers
from udsprobe.views.fields.call_tree import WIDTH, Box, boxes, weight_of
from udsprobe.views.fields.escape import visible

ROW = 18.0
_LETTER = 6.2
_LETTERS_MIN = 3


def flame(stacks: Sequence[CodeStack]) -> Markup:
    """The drawing; empty where there are no stacks."""
    found = boxes(stacks)
    if not found:
        return Markup("")
    whole = sum(map(weight_of, stacks))
    is_time = stacks[0].total_us is not None
    height = ROW * (1 + max(box.depth for box in found))
    drawn = Markup("").join(_drawn(box, whole, is_time=is_time) for box in found)
    frame = '<svg class="flame" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    return Markup(frame).format(f"{WIDTH:g}", f"{height:g}", drawn)


def _drawn(box: Box, whole: int, *, is_time: bool) -> Markup:
    share = numbers.share(box.samples / whole)
    much = numbers.duration(box.samples) if is_time else f"{numbers.count(box.samples)} samples"
    says = f"{visible(box.name)}: {share} %, {much}"
    shade = "odd" if box.depth % 2 else "even"
    rectangle = Markup(
        '<g class="{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}"/>'
    ).format(
        *(shade, says, f"{box.left:.2f}", f"{ROW * box.depth:g}"),
        *(f"{max(0.5, box.width - 0.5):.2f}", f"{ROW - 1:g}"),
    )
    return rectangle + _label(box) + Markup("</g>")


def _label(box: Box) -> Markup:
    letters = int((box.width - 6) / _LETTER)
    if letters < _LETTERS_MIN:
        return Markup("")
    name = visible(box.name)
    text = name if len(name) <= letters else f"{name[: letters - 1]}…"
    place = f"{box.left + 3:.2f}", f"{ROW * box.depth + 13:g}"
    return Markup('<text x="{}" y="{}">{}</text>').format(*place, text)
