"""The comparison as text: the sentence, both sides, figures, stages, system calls, doubts."""

from __future__ import annotations

from io import StringIO
from typing import List, Sequence

from rich.console import Console
from rich.text import Text

from udsprobe.compare.comparison import Comparison, Figure
from udsprobe.views.fields import compare_rows
from udsprobe.views.fields.compare_rows import DIFFERS, SAME, Row
from udsprobe.views.fields.escape import column, fit, visible
from udsprobe.views.text.lines_of_text import printed

MIN_WIDTH = 80
MAX_WIDTH = 120
_LABEL = 19
_CELL = 8
_BETWEEN = 11
_STYLES = {DIFFERS: "bold", SAME: "dim"}
_INDENT = "  "


def render(comparison: Comparison, width: int = MIN_WIDTH, *, colour: bool = False) -> str:
    """The whole comparison, ending in a newline.

    Args:
        width: terminal columns; at least 80 and at most 120 are used.
        colour: ANSI styles; without them nothing is lost.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    lines = [
        *_wrapped(comparison.summary, width, "", style="bold"),
        *_sides(comparison, width),
        *_table("figures", comparison.figures, width),
        *_table("stages of the mean latency", comparison.stages, width),
        *_app(comparison, width),
        *_calls(comparison, width),
        *_code(comparison, width),
        *_notes(comparison, width),
    ]
    return printed(lines, width, colour=colour)


def _sides(comparison: Comparison, width: int) -> List[Text]:
    lines = []
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        files, places, extent = compare_rows.side_lines(side)
        lines.append(Text(fit(f"{name} {files}", width), style="bold"))
        lines.append(Text(fit(_INDENT + places, width, keep="middle")))
        lines += _wrapped(extent, width, _INDENT)
    return lines


def _table(title: str, figures: Sequence[Figure], width: int) -> List[Text]:
    by_share = any(figure.share_of_delta_pct is not None for figure in figures)
    fifth = "of delta" if by_share else "B is"
    heading = _line(Row("", "A", "B", "delta", fifth, "between", "", ""))
    body = [Text(f"── {title} ".ljust(width, "─"), style="bold"), Text(heading, style="dim")]
    for row in compare_rows.rows(figures):
        shown = row._replace(change=row.share) if by_share else row
        body.append(Text(_line(shown), style=_STYLES.get(row.verdict, "")))
    return body


def _app(comparison: Comparison, width: int) -> List[Text]:
    """What was done in the stage app, where both sides know it."""
    known = [each for each in comparison.app if each.a or each.b]
    return _table("in the app", known, width) if known else []


def _line(row: Row) -> str:
    cells = [
        column(fit(row.label, _LABEL), _LABEL),
        *(column(cell, _CELL, right=True) for cell in (row.a, row.b, row.delta, row.change)),
        column(row.between, _BETWEEN, right=True),
    ]
    return f"{' '.join(cells)} {row.verdict}"


def _calls(comparison: Comparison, width: int) -> List[Text]:
    shown = compare_rows.calls(comparison)
    if not shown:
        return []
    lines = _table("system calls per request", shown, width)
    rest = compare_rows.left_out(comparison)
    return (
        [*lines, Text(f"{_INDENT}and {rest} more that changed less or are rare")] if rest else lines
    )


def _code(comparison: Comparison, width: int) -> List[Text]:
    """Where both sides have stacks."""
    if not comparison.code:
        return []
    rows = compare_rows.code(comparison) or ["no function's part differs beyond chance"]
    title = Text("── code: parts of the CPU time ".ljust(width, "─"), style="bold")
    return [title, *(Text(fit(_INDENT + row, width)) for row in rows)]


def _notes(comparison: Comparison, width: int) -> List[Text]:
    every = [*compare_rows.shown(comparison.figures), *comparison.stages, *comparison.syscalls]
    notes = [compare_rows.noise_line(comparison), *comparison.caveats]
    percentiles = compare_rows.percentiles_note(comparison)
    notes += [percentiles] if percentiles else []
    notes += compare_rows.unknown(every)
    notes += compare_rows.longer(every)
    lines = [Text("── notes ".ljust(width, "─"), style="bold")]
    return lines + [line for note in notes for line in _wrapped(note, width, _INDENT)]


def _wrapped(text: str, width: int, indent: str, style: str = "") -> List[Text]:
    console = Console(file=StringIO(), width=width, _environ={})
    wrapped = Text(visible(text), style=style).wrap(console, width - len(indent) - 2)
    lead = [indent, indent + "  "]
    return [Text.assemble(lead[bool(n)] if indent else "", line) for n, line in enumerate(wrapped)]
