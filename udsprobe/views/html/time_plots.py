"""The plots of a recording: requests, latencies and accept queues over time.

Times are those of intervals that need not be equally long.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from math import ceil
from typing import Any, Dict, List, Optional, Sequence, Tuple

from markupsafe import Markup
from matplotlib import dates
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from udsprobe.model.report import Served
from udsprobe.model.timeline import HeatMap, Timeline
from udsprobe.views.fields import breakdown, numbers
from udsprobe.views.html.drawing import HEAT, INK, LINE, QUIET, STAGES, drawn_as, svg

PERCENTILES = ("p50", "p90", "p99", "max")
_LINES = (("-", 1.8), ("--", 1.2), ("-", 1.2), (":", 1.2))
_COLOURS = (HEAT[4], "#e69f00", "#d55e00", "#999999")
_NOT_A_NUMBER = float("nan")
_CLOSED = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
# Below, a limit at the top of the scale leaves nothing to see of the depth.
_SCALED_TO_LIMIT_FROM = 0.1
_FEW_DECADES = 300
# Shorter ones have ticks within a second, or within a minute.
_TENTHS_BELOW_S, _SECONDS_BELOW_S, _DAY_S = 4.0, 900.0, 86400.0
_PER_UNIT_US = {"µs": 1.0, "ms": 1e3, " s": 1e6, " h": 3.6e9}


def stage_means(line: Timeline) -> Optional[Markup]:
    """The mean request of each interval, cut into stages; None without any."""
    means = [_stages(interval.served) for interval in line.intervals]
    names = next((list(each) for each in means if each), None)
    if names is None:
        return None
    with drawn_as("request", 2.6) as canvas:
        axes = canvas.add_subplot()
        base = [0.0] * len(means)
        for name, colour in zip(names, STAGES):
            values = [_NOT_A_NUMBER if each is None else each[name] / 1000 for each in means]
            tops = [below + value for below, value in zip(base, values)]
            axes.stairs(tops, _edges(line), baseline=base, fill=True, color=colour, label=name)
            base = [_NOT_A_NUMBER if value is None else top for value, top in zip(means, tops)]
        axes.set_ylim(bottom=0)
        axes.set_ylabel("ms of the mean request")
        _over_time(axes, line)
        canvas.legend(loc="outside upper left", ncols=len(names), frameon=False, handlelength=1)
        return svg(canvas)


def percentiles(line: Timeline) -> Optional[Markup]:
    """Percentiles of each interval; None without any."""
    latencies = [None if i.served is None else i.served.latency_us for i in line.intervals]
    if not any(each is not None and each.count for each in latencies):
        return None
    with drawn_as("percentiles", 2.6) as canvas:
        axes = canvas.add_subplot()
        for name, colour, (style, width) in zip(PERCENTILES, _COLOURS, _LINES):
            values = [_number(None if each is None else getattr(each, name)) for each in latencies]
            axes.stairs(
                values,
                _edges(line),
                baseline=None,
                color=colour,
                label=name,
                linestyle=style,
                linewidth=width,
            )
        _durations(axes)
        _over_time(axes, line)
        canvas.legend(loc="outside upper left", ncols=4, frameon=False, handlelength=2)
        return svg(canvas)


def heat(line: Timeline, shown: HeatMap) -> Markup:
    """How many requests of each interval took how long."""
    levels = heat_levels(max(map(max, shown.counts)))
    with drawn_as("heat", 3.2) as canvas:
        axes = canvas.add_subplot()
        edges = _edges(line)
        for (low, high), colour in levels:
            vertices = _cells(shown, edges, low, high)
            if vertices:
                path = Path(vertices, _CLOSED * (len(vertices) // len(_CLOSED)))
                axes.add_patch(PathPatch(path, facecolor=colour, linewidth=0, snap=True))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(max(shown.bounds_us[0][0], 0.004), shown.bounds_us[-1][1])
        _durations(axes)
        _over_time(axes, line)
        handles = [Patch(color=colour, label=_range(*bounds)) for bounds, colour in levels]
        canvas.legend(
            handles=handles,
            loc="outside upper left",
            ncols=len(handles),
            frameon=False,
            handlelength=1,
        )
        return svg(canvas)


def heat_levels(most: int) -> List[Tuple[Tuple[int, int], str]]:
    """(fewest, most) requests of each colour, from few to many, in equal ratios."""
    span = len(HEAT)
    tops = sorted({ceil(most ** (level / span)) for level in range(1, span + 1)} | {1})
    tops = [top for top in tops if top <= most][-span:]
    bottoms = [1, *(top + 1 for top in tops[:-1])]
    return list(zip(zip(bottoms, tops), HEAT[span - len(tops) :]))


def depth(line: Timeline, inode: int, limit: int) -> Markup:
    """The deepest an accept queue was in each interval, and its limit where the scale has it."""
    depths = [interval.depth_max.get(inode) for interval in line.intervals]
    most = max((each for each in depths if each is not None), default=0)
    with drawn_as(f"depth{inode}", 1.7) as canvas:
        axes = canvas.add_subplot()
        values = list(map(_number, depths))
        axes.stairs(values, _edges(line), fill=True, color=STAGES[4], label="connections")
        if has_limit_in_scale(most, limit):
            axes.axhline(limit, color=INK, linewidth=1.2, linestyle="--", label=f"limit {limit:,}")
        axes.set_ylim(0, max(most, limit if has_limit_in_scale(most, limit) else 1) * 1.08)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        _over_time(axes, line)
        canvas.legend(loc="outside upper left", ncols=2, frameon=False, handlelength=1.6)
        return svg(canvas)


def has_limit_in_scale(most: int, limit: int) -> bool:
    """Whether the plot of a queue shows its limit."""
    return most >= limit * _SCALED_TO_LIMIT_FROM


def shares(parts: Sequence[Tuple[str, float]]) -> Markup:
    """Parts of a whole, each with its percentage; the names are our own."""
    with drawn_as("shares", 0.35 + 0.22 * len(parts)) as canvas:
        axes = canvas.add_subplot()
        places = range(len(parts))
        axes.barh(places, [100 * share for _, share in parts], color=STAGES[4], height=0.7)
        for place, (_, share) in enumerate(parts):
            axes.text(100 * share + 1, place, f"{numbers.share(share)} %", va="center")
        axes.set_yticks(places, [name for name, _ in parts])
        axes.set_xlim(0, 112)
        axes.set_ylim(len(parts) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        return svg(canvas)


def _stages(served: Optional[Served]) -> Optional[Dict[str, float]]:
    return None if served is None else breakdown.stage_means(served)


def _number(value: Optional[float]) -> float:
    return _NOT_A_NUMBER if value is None else value


def _edges(line: Timeline) -> List[float]:
    """Where intervals begin, and the last one ends, as matplotlib counts days."""
    seconds = [line.intervals[0].start_s, *(each.end_s for each in line.intervals)]
    start = datetime.fromtimestamp(line.start_unix_s, tz=timezone.utc)
    return [float(dates.date2num(start + timedelta(seconds=each))) for each in seconds]


def _over_time(axes: Any, line: Timeline) -> None:
    edges = _edges(line)
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    seconds = line.intervals[-1].end_s - line.intervals[0].start_s
    axes.xaxis.set_major_formatter(FuncFormatter(lambda day, _: clock_label(day, seconds)))
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel(f"time of day on {dates.num2date(edges[0]):%Y-%m-%d}, UTC")
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", color=LINE, labelcolor=QUIET)


def clock_label(day: float, seconds: float) -> str:
    """A tick's time, as finely as the axis needs it: `14:20:25`.

    Args:
        day: as matplotlib counts days.
        seconds: that the axis spans.
    """
    moment = dates.num2date(day)
    if seconds < _TENTHS_BELOW_S:
        return f"{moment:%H:%M:%S}.{moment.microsecond // 100_000}"
    if seconds < _SECONDS_BELOW_S:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%H:%M}" if seconds < _DAY_S else f"{moment:%m-%d %H:%M}"


def _durations(axes: Any) -> None:
    """A logarithmic axis of µs, with at least a few labels."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0,) if high / low > _FEW_DECADES else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    axes.minorticks_off()


def _tick(value_us: float, _: object) -> str:
    """`50 µs`, `2 ms`: ticks are round."""
    unit = numbers.duration_unit(value_us)
    return f"{value_us / _PER_UNIT_US[unit]:g} {unit.strip()}"


def _cells(
    shown: HeatMap, edges: Sequence[float], low: int, high: int
) -> List[Tuple[float, float]]:
    """Corners of every cell of that many requests."""
    corners: List[Tuple[float, float]] = []
    for (bottom, top), counts in zip(shown.bounds_us, shown.counts):
        bottom = max(bottom, 0.001)
        for left, right, count in zip(edges, edges[1:], counts):
            if low <= count <= high:
                corners += [(left, bottom), (right, bottom), (right, top), (left, top)]
                corners.append((left, bottom))
    return corners


def _range(low: int, high: int) -> str:
    return numbers.count(low) if low == high else f"{numbers.count(low)}–{numbers.count(high)}"
