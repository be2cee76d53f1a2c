"""The comparison as rows of words and numbers, the same in text and on the page."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

from udsprobe.compare.comparison import Comparison, Figure, Side
from udsprobe.views import numbers
from udsprobe.views.escape import visible

LABELS = {
    "latency_mean": "mean latency",
    "latency_p50": "p50",
    "latency_p90": "p90",
    "latency_p99": "p99",
    "latency_p999": "p999",
    "accept_wait_mean": "accept wait, mean",
    "requests_per_s": "requests/s",
    "syscalls_per_request": "system calls/request",
    "cpu_per_request": "CPU/request",
    "user_cpu_per_request": "user CPU/request",
    "system_cpu_per_request": "system CPU/request",
    "runq_per_request": "without CPU/request",
    "cpu_used": "CPU used, % of one",
    "socket_bytes_per_request": "bytes/request",
    "connections_per_request": "connections/request",
    "before_accept": "before accept",
}
DIFFERS, SAME, UNKNOWN = "differs", "within noise", "not known"
_CALLS_SHOWN = 12
_CALLS_MIN = 0.005
_FAR_PCT = 999.5


class Row(NamedTuple):
    """One figure in words; `verdict` is one of DIFFERS, SAME, UNKNOWN."""

    label: str
    a: str
    b: str
    delta: str
    delta_pct: str
    noise: str
    verdict: str
    share: str


def rows(figures: Iterable[Figure]) -> List[Row]:
    """The figures in words, in their order."""
    return [_row(figure) for figure in figures]


def calls(comparison: Comparison) -> List[Figure]:
    """The system calls that changed most, of those that are not rare."""
    often = [each for each in comparison.syscalls if max(each.a or 0.0, each.b or 0.0) > _CALLS_MIN]
    return often[:_CALLS_SHOWN]


def left_out(comparison: Comparison) -> int:
    """System calls that `calls` does not show."""
    return len(comparison.syscalls) - len(calls(comparison))


def _row(figure: Figure) -> Row:
    verdict = {True: DIFFERS, False: SAME, None: UNKNOWN}[figure.exceeds_noise]
    share = figure.share_of_delta_pct
    return Row(
        label(figure),
        value(figure.unit, figure.a),
        value(figure.unit, figure.b),
        signed(figure.unit, figure.delta),
        numbers.NOT_MEASURED if figure.delta_pct is None else _percent(figure.delta_pct),
        _noise(figure),
        verdict,
        numbers.NOT_MEASURED if share is None else _percent(share, plus=""),
    )


def label(figure: Figure) -> str:
    """What the figure is called."""
    return LABELS.get(figure.name) or visible(figure.name)


def value(unit: str, number: Optional[float]) -> str:
    """The number with its unit where one does not know it from the label."""
    if number is None:
        return numbers.NOT_MEASURED
    if number < 0:
        return "−" + value(unit, -number)
    if unit == "µs":
        return numbers.duration(number)
    return numbers.size(number) if unit == "bytes" else numbers.rate(number)


def signed(unit: str, number: Optional[float]) -> str:
    """A difference, with its sign unless it is 0."""
    if number is None or number == 0:
        return value(unit, number)
    return ("+" if number > 0 else "−") + value(unit, abs(number))


def _percent(number: float, plus: str = "+") -> str:
    if abs(number) >= _FAR_PCT:
        return (f">{plus}999 %") if number > 0 else "<−999 %"
    digits = f"{abs(number):.1f}" if abs(number) < 99.95 else f"{abs(number):.0f}"
    sign = "" if float(digits) == 0 else plus if number > 0 else "−"
    return f"{sign}{digits} %"


def _noise(figure: Figure) -> str:
    if figure.noise_pct is None:
        return numbers.NOT_MEASURED
    if figure.noise_pct >= _FAR_PCT:
        return ">999 %"
    return (
        f"±{figure.noise_pct:.1f} %" if figure.noise_pct < 99.95 else f"±{figure.noise_pct:.0f} %"
    )


def reasons(figures: Sequence[Figure]) -> Dict[str, List[str]]:
    """Why something is not known, with the labels of what it holds for."""
    found: Dict[str, List[str]] = {}
    for figure in figures:
        if figure.exceeds_noise is None and figure.reason:
            found.setdefault(figure.reason, []).append(label(figure))
    return found


def side_lines(side: Side) -> List[str]:
    """What one side is: files, targets, where it served, how long."""
    files = ", ".join(map(visible, side.sources))
    targets = ", ".join(map(visible, side.targets)) or "no target"
    places = " and ".join(map(visible, side.served_on[:2])) or "no connection accepted"
    more = len(side.served_on) - 2
    places += f" and {more} more" if more > 0 else ""
    return [files, f"{targets} · {places}", _extent(side)]


def _extent(side: Side) -> str:
    parts = [f"{side.runs} runs, together {numbers.span(side.duration_s)}"]
    if side.runs == 1:
        parts = [numbers.span(side.duration_s)]
    if side.intervals:
        parts.append(f"{side.intervals} intervals")
    served = numbers.count(side.requests)
    return " · ".join([", ".join(parts), f"{served} requests", f"from {visible(side.start)}"])


def percentiles_note(comparison: Comparison) -> Optional[str]:
    """Which percentiles these are, where they are not those of the whole window."""
    sides = [n for n in ("A", "B") if getattr(comparison, n.lower()).percentiles_from != "window"]
    if not sides:
        return None
    return (
        f"percentiles of {' and '.join(sides)} are those of the interval in the middle: "
        "those of intervals do not add up"
    )


def noise_line(comparison: Comparison) -> str:
    """Where the noise was taken from."""
    noise = comparison.noise
    return f"noise ({noise.confidence_pct:.0f} % confidence): {noise.says}"
