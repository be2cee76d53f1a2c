"""A table as lines of text: what a panel draws, made without a screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Hashable, List, Mapping, Optional, Sequence, Tuple

from udsprobe.views.fields.columns import Column, widths
from udsprobe.views.fields.escape import column as padded
from udsprobe.views.fields.escape import fit

GAP = 2
MARGIN = 2
"""Cells to the left of a row: the cursor's mark and a blank."""

PLAIN, DIM, WARNING, CRITICAL = "", "dim", "warning", "critical"


@dataclass(frozen=True)
class Line:
    """One row as drawn. `key` stays the same from frame to frame; None cannot be selected."""

    key: Optional[Hashable]
    text: str
    severity: str = PLAIN


@dataclass(frozen=True)
class Table:
    """One panel's content.

    Attributes:
        titles: column titles on the panel's rule, from the column `titles_at` on.
        asks_for: so many lines on a screen that has room, where not all; None: all.
        behind: what `r` shows of a page instead, and again the page.
        copies: of each remedy on a page, what `y` copies: one line, or nothing.
    """

    name: str
    lines: Tuple[Line, ...]
    titles: str = ""
    titles_at: int = 0
    copies: Tuple[str, ...] = ()
    behind: Tuple[Line, ...] = ()
    asks_for: Optional[int] = None


def remedy_key(number: int) -> Hashable:
    """Of the line in which a remedy of a page begins; `Table.copies` has them in this order."""
    return "remedy", number


def laid_out(name: str, columns: Sequence[Column], lines: Sequence[Line], width: int) -> Table:
    """A table whose rule carries the column titles, right of the panel's name."""
    room = widths(columns, width - MARGIN, GAP)
    named = len(name) + len("──  1–99 of 99 ")
    shown: List[str] = []
    position, titles_at = MARGIN, 0
    for column in columns:
        cells = room[column.key]
        if shown or (column.title and position >= named):
            titles_at = titles_at or position
            shown.append(padded(column.title, cells, right=column.right))
        position += cells + GAP
    return Table(name, tuple(lines), (" " * GAP).join(shown).rstrip(), titles_at)


def row(
    columns: Sequence[Column],
    cells: Mapping[str, str],
    width: int,
    keep: Optional[Mapping[str, str]] = None,
) -> str:
    """Cells joined, each in its column's width; `keep` names the end of a cell worth keeping."""
    ends = keep or {}
    room = widths(columns, width - MARGIN, GAP)
    shown = (
        padded(
            fit(cells[column.key], room[column.key], keep=ends.get(column.key, "start")),
            room[column.key],
            right=column.right,
        )
        for column in columns
    )
    return (" " * GAP).join(shown).rstrip()


def note(text: str) -> Line:
    """A line that says why there is no row."""
    return Line(None, text, DIM)
