"""The code that time goes to: a tree of calls, and a flame graph. Lines, made without a screen."""

from __future__ import annotations

from typing import AbstractSet, Iterator, List, NamedTuple, Sequence, Tuple

from udsprobe.model.report import CodeStack, Report, Stacks
from udsprobe.views.dashboard.pages.lines import plain, rule
from udsprobe.views.dashboard.table import DIM, Line, Table
from udsprobe.views.fields import numbers, words
from udsprobe.views.fields.call_tree import WIDTH, Node, boxes, call_tree
from udsprobe.views.fields.escape import column, fit, visible

Path = Tuple[str, ...]
"""Of a call: what it is of (`cpu`, `off-cpu`), then the functions from the outermost on."""

OPEN_MIN = 0.5
"""Calls that had so much of the whole are open to begin with."""

SHOWN_MIN = 0.005
OWN = " ◂ own code"
"""Marks the program's own function, among those of its libraries and the kernel."""

_BAR = 10
NOTHING = "no stacks: --stacks takes them, and a verdict app-cpu, app-blocked or upstream-wait does"


def tree_page(report: Report, turned: AbstractSet[Path], width: int) -> Table:
    """Calls that can be opened and closed.

    Args:
        turned: those that are not as they began.
    """
    lines: List[Line] = []
    marked = frozenset() if report.stacks is None else words.own_functions(report.stacks)
    for on, title, stacks in _parts(report):
        lines += [rule(title)]
        whole = call_tree(stacks)
        lines += _calls(whole, whole, (on,), _Look(turned, marked, width))
        if on == "cpu" and report.stacks is not None:
            lines += _kinds(report.stacks, width)
            lines += _stages(report.stacks, width)
    return _table("tree", lines, report)


def _kinds(stacks: Stacks, width: int) -> Iterator[Line]:
    """What kinds of code ran, as far as functions tell it."""
    for number, (name, share, stack) in enumerate(words.code_kinds(stacks)):
        if not number:
            yield rule("kinds of code")
        names = f": {visible(' ← … ← '.join(stack))}" if stack else ""
        yield plain(fit(f"{numbers.share(share):>4} % {name}{names}", width - 4))


def _stages(stacks: Stacks, width: int) -> Iterator[Line]:
    """What ran in which stage of requests, where that is known."""
    for number, (name, share, stack) in enumerate(words.stages(stacks)):
        if not number:
            yield rule("while requests are")
        text = f"{numbers.share(share):>4} % {name}: {visible(' ← '.join(stack))}"
        yield plain(fit(text, width - 4))


def flame_page(report: Report, width: int) -> Table:
    """Boxes as wide as their part of the whole, what they called below them."""
    lines: List[Line] = []
    for _, title, stacks in _parts(report):
        lines += [rule(title), *map(plain, flame_lines(stacks, width - 4)), plain("")]
    return _table("flame graph", lines, report)


def flame_lines(stacks: Sequence[CodeStack], width: int) -> List[str]:
    """One for each depth: `▏name    ▏other `."""
    rows: List[List[str]] = []
    filled: List[int] = []
    for box in boxes(stacks, narrowest=2 * WIDTH / width):
        left, right = (round(at * width / WIDTH) for at in (box.left, box.left + box.width))
        while len(rows) <= box.depth:
            rows.append([])
            filled.append(0)
        rows[box.depth] += [" " * (left - filled[box.depth])]
        rows[box.depth] += ["▏", column(visible(box.name), right - left - 1)]
        filled[box.depth] = right
    return ["".join(row).rstrip() for row in rows]


def _parts(report: Report) -> Iterator[Tuple[str, str, List[CodeStack]]]:
    stacks = report.stacks
    if stacks is None:
        return
    running = [each for each in stacks.stacks if each.on == "cpu"]
    asleep = [each for each in stacks.stacks if each.on != "cpu"]
    if running:
        yield "cpu", f"running: {words.sampled(stacks)}", running
    if asleep and stacks.sleeps is not None:
        yield "off-cpu", f"asleep: {words.slept(stacks.sleeps)}", asleep


class _Look(NamedTuple):
    """How calls are shown: those that are not open or closed as they began, and those to find."""

    turned: AbstractSet[Path]
    marked: AbstractSet[str]
    width: int


def _calls(node: Node, whole: Node, path: Path, look: _Look) -> Iterator[Line]:
    for name, below in node.dearest_first():
        share = below.weight / whole.weight if whole.weight else 0.0
        if share < SHOWN_MIN:
            continue
        own = (*path, name)
        is_open = (share >= OPEN_MIN) != (own in look.turned)
        mark = " " if not below.below else "▾" if is_open else "▸"
        bar = column("█" * round(share * _BAR), _BAR)
        indent = "  " * min(len(path) - 1, 30)
        said = OWN if name in look.marked else ""
        text = f"{numbers.share(share):>4} % {bar} {indent}{mark} {visible(name)}"
        yield Line(own, fit(text, look.width - 4 - len(said)) + said)
        if is_open:
            yield from _calls(below, whole, own, look)


def _table(name: str, lines: List[Line], report: Report) -> Table:
    if not lines:
        state = {
            each.name: each.reason for each in report.probe.measurements if each.state == "off"
        }
        lines = [Line(None, visible(state.get("stacks") or NOTHING), DIM)]
    return Table(f"code: {name} (Esc leaves, Enter opens, f: tree or flame graph)", tuple(lines))
