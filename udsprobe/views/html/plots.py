"""The plots of a comparison."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from markupsafe import Markup

from udsprobe.compare.comparison import Figure
from udsprobe.views import compare_rows
from udsprobe.views.html.drawing import INK, LINE, QUIET, STAGES, drawn_as, svg

_EDGES_PCT = (10.0, 25.0, 50.0, 100.0)


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
    """Each figure's difference in percent with its noise; what differs is filled.

    None when there is no figure that both sides have.
    """
    shown = [figure for figure in figures if figure.delta_pct is not None]
    if not shown:
        return None
    with drawn_as("differences", 0.7 + 0.25 * len(shown)) as canvas:
        axes = canvas.add_subplot()
        axes.axvline(0, color=LINE, linewidth=1)
        edge = _edge_pct(shown)
        for place, figure in enumerate(shown):
            _difference(axes, place, figure, edge)
        axes.set_yticks(range(len(shown)), [compare_rows.label(figure) for figure in shown])
        axes.set_xlim(-edge * 1.05, edge * 1.05)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("B against A, %")
        return svg(canvas)


def _edge_pct(figures: Sequence[Figure]) -> float:
    """Where the scale ends: far enough for all, and at 100 %."""
    furthest = max(abs(each.delta_pct or 0.0) + (each.noise_pct or 0.0) for each in figures)
    return next((edge for edge in _EDGES_PCT if furthest <= edge), _EDGES_PCT[-1])


def _difference(axes: Any, place: int, figure: Figure, edge: float) -> None:
    pct = figure.delta_pct or 0.0
    at = max(-edge, min(pct, edge))
    if figure.noise_pct is not None:
        ends = (pct - figure.noise_pct, pct + figure.noise_pct)
        low, high = (max(-edge, min(end, edge)) for end in ends)
        axes.plot([low, high], [place, place], color=QUIET, linewidth=1.4)
    marker = "o" if at == pct else "<" if pct < 0 else ">"
    fill = INK if figure.exceeds_noise else "none"
    axes.plot(
        at, place, marker, markersize=6, markeredgecolor=INK, markerfacecolor=fill, clip_on=False
    )
