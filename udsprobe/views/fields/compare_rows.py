"""The comparison as rows of words and numbers, the same in text and on the page."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.compare.comparison import Comparison, Figure, Side
from udsprobe.compare.longer import would_tell
from udsprobe.compare.summary import TIMES_MIN
from udsprobe.views.fields import numbers
from udsprobe.views.fields.escape import visible

LABELS = {
    "latency_mean": "mean latency",
    "latency_p50": "p50",
    "latency_p90": "p90",
    "latency_p99": "p99",
    "latency_p999": "p999",
    "accept_wait_mean": "accept wait, mean",
    "reply_pauses_per_request": "pauses in replies",
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
    "recv_wait": "queued for the app",
    "recv": "receive calls",
    "app": "the app",
    "send": "send calls",
    "app_client": "for the rest of it",
    "app_cpu": "on CPU",
    "app_runq": "waiting for a CPU",
    "app_upstream": "for its upstream",
    "app_lock": "for locks",
    "app_disk": "for the disk",
    "app_poll": "in a poller",
    "app_other": "otherwise",
}
PAUSES = "reply_pauses_per_request"
DIFFERS, SAME, UNKNOWN = "differs", "within noise", "not known"
_CALLS_SHOWN = 12
_CODE_SHOWN = 10
_CALLS_MIN = 0.005
_FAR_PCT = 999.5
_FAR = 1000
_LABELS = 4


class Row(NamedTuple):
    """One figure in words; `verdict` is one of DIFFERS, SAME, UNKNOWN."""

    label: str
    a: str
    b: str
    delta: str
    change: str
    between: str
    verdict: str
    share: str


def rows(figures: Iterable[Figure]) -> List[Row]:
    """The figures in words, in their order."""
    return [_row(figure) for figure in shown(figures)]


def shown(figures: Iterable[Figure]) -> List[Figure]:
    """All but pauses of which no side has any."""
    return [each for each in figures if each.name != PAUSES or each.a or each.b]


def calls(comparison: Comparison) -> List[Figure]:
    """The system calls that changed most, of those that are not rare."""
    often = [each for each in comparison.syscalls if max(each.a or 0.0, each.b or 0.0) > _CALLS_MIN]
    return often[:_CALLS_SHOWN]


def code(comparison: Comparison) -> List[str]:
    """Functions whose part of the CPU time differs beyond chance, a line each."""
    return [
        f"{each.a_pct:5.1f} % → {each.b_pct:5.1f} %  ({_points(each.low_pct)} to "
        f"{_points(each.high_pct)} points)  {visible(each.function)}"
        for each in comparison.code
        if each.exceeds_noise
    ][:_CODE_SHOWN]


def _points(pct: float) -> str:
    return f"{'−' if pct < 0 else '+'}{abs(pct):.1f}"


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
        numbers.NOT_MEASURED if figure.ratio is None else change(figure.ratio),
        _between(figure),
        verdict,
        numbers.NOT_MEASURED if share is None else _percent(share),
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


def change(ratio: float) -> str:
    """B against A: `+3.1 %` up to a factor of 2, then `55×` and `÷55`."""
    return "".join(_change(ratio))


def _change(ratio: float) -> Tuple[str, str, str]:
    """What is before the digits, they, and what is after them."""
    if ratio <= 0:
        return ("", "0", "×")
    if 1 / TIMES_MIN < ratio < TIMES_MIN:
        pct = 100 * (ratio - 1)
        digits = f"{abs(pct):.1f}" if abs(pct) < 99.95 else f"{abs(pct):.0f}"
        return ("" if float(digits) == 0 else "+" if pct > 0 else "−", digits, " %")
    times = max(ratio, 1 / ratio)
    if times > _FAR:
        return ("", f">{_FAR}", "×") if ratio > 1 else ("÷>", f"{_FAR}", "")
    digits = numbers.significant(times)
    return ("", digits, "×") if ratio > 1 else ("÷", digits, "")


def _between(figure: Figure) -> str:
    """The interval that the change lies in; of a delta where there is no ratio."""
    if figure.ratio_low is None or figure.ratio_high is None:
        if figure.noise is None:
            return numbers.NOT_MEASURED
        return f"±{value(figure.unit, figure.noise)}"
    low, high = _short(figure.ratio_low), _short(figure.ratio_high)
    if low[0] == high[0] == "÷" or (low[2] == high[2] and low[2]):
        first = low[0] + low[1]
        second = high[1] if high[0] == "÷" else high[0] + high[1]
        return f"{first}…{second}{high[2]}"
    return f"{''.join(low)}…{''.join(high)}".replace(" %", "%")


def _short(ratio: float) -> Tuple[str, str, str]:
    before, digits, after = _change(ratio)
    if after == " %" and float(digits) >= 9.95:
        digits = f"{float(digits):.0f}"
    elif after != " %" and not digits.startswith(">"):
        times = float(digits)
        digits = f"{times:.1f}" if times < 9.95 else f"{times:.0f}"
    return before, digits, after


def _percent(number: float) -> str:
    """A share of a difference; those of parts that make up for each other are beyond 100."""
    if abs(number) >= _FAR_PCT:
        return ">999 %" if number > 0 else "<−999 %"
    digits = f"{abs(number):.1f}" if abs(number) < 99.95 else f"{abs(number):.0f}"
    return f"{'−' if number < 0 and float(digits) else ''}{digits} %"


def longer(figures: Sequence[Figure]) -> List[str]:
    """How much longer one has to measure, with the labels of what it would tell."""
    found: Dict[str, List[str]] = {}
    for figure in figures:
        said = would_tell(figure)
        if said is not None:
            found.setdefault(said, []).append(label(figure))
    return [f"{said} would tell {some(labels)}" for said, labels in found.items()]


def some(labels: Sequence[str]) -> str:
    """The first few labels, and how many more there are."""
    more = f" and {len(labels) - _LABELS} more" if len(labels) > _LABELS else ""
    return ", ".join(labels[:_LABELS]) + more


def unknown(figures: Sequence[Figure]) -> List[str]:
    """Why something is not known, with the labels of what it holds for."""
    found: Dict[Tuple[str, str], List[str]] = {}
    for figure in figures:
        if figure.reason and figure.exceeds_noise is not False:
            what = "no interval" if figure.exceeds_noise else "not known"
            found.setdefault((what, figure.reason), []).append(label(figure))
    return [f"{what} for {some(names)}: {why}" for (what, why), names in found.items()]


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
    """Where the intervals were taken from."""
    noise = comparison.noise
    return f"intervals ({noise.confidence_pct:.0f} % confidence) from: {noise.says}"
