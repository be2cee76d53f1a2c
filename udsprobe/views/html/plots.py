"""The plots of a comparison."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from markupsafe import Markup

from udsprobe.compare.comparison import Figure
from udsprobe.views.fields import compare_rows
from udsprobe.views.html.drawing import INK, LINE, QUIET, STAGES, drawn_as, svg

_EDGES = (1.1, 1.25, 1.5, 2.0, 4.0, 10.0, 100.0, 1000.0)


def stage_bars(stages: Sequence[Figure]) -> Markup:
    """The mean request of A and of B, one above the other, cut into stages."""
    with drawn_as("stages", 1.9) as canvas:
        axes = canvas.add_subplot()
        left = [0.0, 0.0]
        for stage, colour in zip(stages, STAGES):
            values = [max(stage.a or 0.0, 0.0), max(stage.b or 0.0, 0.0)]
            name = compare_rows.label(stage)
            axes.barh(["A", "B"], values, left=left, color=colour, label=name, height=0.62)
            left = [start + value for start, value in zip(left, values)]
        axes.invert_yaxis()
        axes.set_xlabel("µs of the mean request")
        axes.tick_params(axis="y", length=0)
        canvas.legend(loc="outside upper left", ncols=len(stages), frameon=False, handlelength=1)
        return svg(canvas)


def differences(figures: Sequence[Figure]) -> Optional[Markup]:
    """B ÷ A of each figure on a logarithmic scale, with its interval; what differs is filled.

    None when there is no figure that both sides have.
    """
    shown = [figure for figure in figures if figure.ratio]
    if not shown:
        return None
    with drawn_as("differences", 0.7 + 0.25 * len(shown)) as canvas:
        axes = canvas.add_subplot()
        axes.axvline(1, color=LINE, linewidth=1)
        edge = _edge(shown)
        axes.set_xscale("log")
        for place, figure in enumerate(shown):
            _difference(axes, place, figure, edge)
        axes.set_yticks(range(len(shown)), [compare_rows.label(figure) for figure in shown])
        ticks = [1 / edge, edge**-0.5, 1, edge**0.5, edge]
        axes.set_xticks(ticks, [compare_rows.change(tick) for tick in ticks], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_xlim(edge**-1.05, edge**1.05)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("B against A")
        return svg(canvas)


def _edge(figures: Sequence[Figure]) -> float:
    """The ratio at which the scale ends: far enough for all, and at a thousand."""
    ratios = [r for f in figures for r in (f.ratio, f.ratio_low, f.ratio_high) if r]
    furthest = max(max(ratio, 1 / ratio) for ratio in ratios)
    return next((edge for edge in _EDGES if furthest <= edge), _EDGES[-1])


def _difference(axes: Any, place: int, figure: Figure, edge: float) -> None:
    ratio = figure.ratio or 1.0
    at = max(1 / edge, min(ratio, edge))
    if figure.ratio_low is not None and figure.ratio_high is not None:
        ends = (max(1 / edge, min(end, edge)) for end in (figure.ratio_low, figure.ratio_high))
        axes.plot(list(ends), [place, place], color=QUIET, linewidth=1.4)
    marker = "o" if at == ratio else "<" if ratio < 1 else ">"
    fill = INK if figure.exceeds_noise else "none"
    axes.plot(
        at, place, marker, markersize=6, markeredgecolor=INK, markerfacecolor=fill, clip_on=False
    )
