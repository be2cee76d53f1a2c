"""The comparison as a page: sentence, both sides, plots, tables, doubts."""

from __future__ import annotations

from typing import List

from udsprobe.compare.comparison import Comparison
from udsprobe.views.fields import compare_rows
from udsprobe.views.html import plots
from udsprobe.views.html.page import render as page


def render(comparison: Comparison) -> str:
    """One HTML document."""
    stages = [stage for stage in comparison.stages if stage.delta is not None]
    shown = compare_rows.calls(comparison)
    return page(
        "compare.html.jinja",
        comparison=comparison,
        sides=[(n, compare_rows.side_lines(getattr(comparison, n.lower()))) for n in "AB"],
        bars=plots.stage_bars(stages) if stages else None,
        differences=plots.differences(compare_rows.shown(comparison.figures)),
        figures=compare_rows.rows(comparison.figures),
        stages=compare_rows.rows(comparison.stages),
        app=compare_rows.rows([each for each in comparison.app if each.a or each.b]),
        calls=compare_rows.rows(shown),
        code=compare_rows.code(comparison),
        calls_left_out=compare_rows.left_out(comparison),
        notes=_notes(comparison),
    )


def _notes(comparison: Comparison) -> List[str]:
    every = [*compare_rows.shown(comparison.figures), *comparison.stages, *comparison.syscalls]
    percentiles = compare_rows.percentiles_note(comparison)
    return [
        compare_rows.noise_line(comparison),
        *comparison.caveats,
        *([percentiles] if percentiles else []),
        *compare_rows.unknown(every),
        *compare_rows.longer(every),
    ]
