"""A flame graph as inline SVG: stacks from the top down, each as wide as its samples.

Needs no script: the names that have room are text, which a browser finds, and every box says its
own when a pointer rests on it.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Sequence

from markupsafe import Markup

from udsprobe.model.report import CodeStack
from udsprobe.views import numbers
from udsprobe.views.escape import visible

WIDTH, ROW = 1000.0, 18.0
NARROWEST = 1.0
"""A box that is narrower, of 1000, is left out; the table has its function."""

DEPTH_MAX = 60
_LETTER = 6.2
_LETTERS_MIN = 3


class Box(NamedTuple):
    """One function, called from the one above: where it is, of WIDTH, and its samples."""

    name: str
    depth: int
    left: float
    width: float
    samples: int


class _Node:
    def __init__(self) -> None:
        self.samples = 0
        self.below: Dict[str, _Node] = {}


def boxes(stacks: Sequence[CodeStack]) -> List[Box]:
    """From the outermost functions down; those called most often are to the left."""
    whole = _tree(stacks)
    return list(_boxes(whole, 0, 0.0, WIDTH / whole.samples)) if whole.samples else []


def flame(stacks: Sequence[CodeStack]) -> Markup:
    """The drawing; empty where there are no stacks."""
    found = boxes(stacks)
    if not found:
        return Markup("")
    whole = sum(each.samples for each in stacks)
    height = ROW * (1 + max(box.depth for box in found))
    drawn = Markup("").join(_drawn(box, whole) for box in found)
    frame = '<svg class="flame" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    return Markup(frame).format(f"{WIDTH:g}", f"{height:g}", drawn)


def _tree(stacks: Sequence[CodeStack]) -> _Node:
    whole = _Node()
    for stack in stacks:
        node = whole
        node.samples += stack.samples
        for frame in stack.frames[:DEPTH_MAX]:
            node = node.below.setdefault(frame, _Node())
            node.samples += stack.samples
    return whole


def _boxes(node: _Node, depth: int, left: float, scale: float) -> Iterator[Box]:
    for name, below in sorted(node.below.items(), key=lambda item: (-item[1].samples, item[0])):
        width = below.samples * scale
        if width >= NARROWEST:
            yield Box(name, depth, left, width, below.samples)
            yield from _boxes(below, depth + 1, left, scale)
        left += width


def _drawn(box: Box, whole: int) -> Markup:
    share = numbers.share(box.samples / whole)
    says = f"{visible(box.name)}: {share} %, {numbers.count(box.samples)} samples"
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
