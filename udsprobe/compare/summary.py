"""The sentence: whether B differs from A, by how much, and which part accounts for it."""

from __future__ import annotations

import math
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.compare.comparison import Figure, Side
from udsprobe.compare.longer import RUNS_MAX, would_tell
from udsprobe.compare.place import parts, place
from udsprobe.rules.wording import duration

_MEAN, _MEDIAN = "latency_mean", "latency_p50"
# What makes the whole different; the rest says why, or rests on few requests.
DECISIVE = (
    *(_MEAN, _MEDIAN, "latency_p90", "latency_p99", "requests_per_s"),
    *("syscalls_per_request", "cpu_per_request", "socket_bytes_per_request"),
    "reply_pauses_per_request",
)
_WORDS = {
    "latency_mean": "the mean",
    "latency_p50": "p50",
    "latency_p90": "p90",
    "latency_p99": "p99",
    "requests_per_s": "the rate",
    "syscalls_per_request": "system calls per request",
    "cpu_per_request": "CPU per request",
    "socket_bytes_per_request": "bytes per request",
    "reply_pauses_per_request": "pauses after a reply has begun, per request",
}
TOO_NOISY = 1.3
"""Of the mean: wider noise would hide what most people compare for."""

TIMES_MIN = 2.0
"""From here on a person thinks in times, not in per cent."""

TELLS_NOTHING = 10.0
"""Times: an interval that is wider than this both ways is of no use."""

_CALLS_NAMED = 2
_CALLS_MIN = 0.05

Figures = Dict[str, Figure]


def is_different(figures: Sequence[Figure]) -> Optional[bool]:
    """Whether any decisive figure differs; None when the mean is not known to, and none does."""
    known = {figure.name: figure.exceeds_noise for figure in figures}
    if any(known[name] for name in DECISIVE):
        return True
    return None if known[_MEAN] is None else False


def summary(
    sides: Tuple[Side, Side],
    figures: Sequence[Figure],
    stages_and_app: Tuple[Sequence[Figure], Sequence[Figure]],
    calls: Sequence[Figure],
) -> str:
    """One sentence for a human."""
    of = {figure.name: figure for figure in figures}
    mean = of[_MEAN]
    if mean.delta is None:
        return f"Latency cannot be compared: {mean.reason}{_also(of, ())}."
    if mean.exceeds_noise:
        where = place(parts(*stages_and_app))
        where = f", {where}" if where else ""
        return f"{faster(mean)}{_transports(sides)}{where}: {_mean(of)}{_cost(of, calls)}."
    if mean.exceeds_noise is None:
        where = place(parts(*stages_and_app))
        numbers = f"{_mean(of)}; {where}" if where else _mean(of)
        return f"Cannot tell whether A and B differ ({numbers}): {mean.reason}."
    others = _also(of, (_MEAN,))
    is_hidden = hides_much(mean) and abs(mean.delta) > (mean.floor or 0.0)
    if others and is_hidden:
        return (
            "No difference in latency can be shown yet: "
            f"{_within(mean)}{_more(mean, sides)}{others}."
        )
    if others:
        return f"Requests take equally long on average ({_within(mean)}){others}."
    if is_hidden:
        return (
            "No difference can be shown yet: "
            f"{_within(mean)}{_more(mean, sides)}{_cost(of, calls)}."
        )
    return f"No difference beyond the noise: {_within(mean)}{_cost(of, calls)}."


def faster(mean: Figure, who: str = "B") -> str:
    """`B is 55 times slower (40 to 70)`, `B is 15 % faster (12 to 18)`: by the figure's ratio.

    Args:
        mean: a time, so that less is faster.
    """
    assert mean.ratio is not None or mean.a is not None
    slower = (mean.delta or 0.0) > 0
    word = "slower" if slower else "faster"
    if not mean.ratio:
        return f"{who} is {word}"
    times = mean.ratio if slower else 1 / mean.ratio
    low, high = mean.ratio_low, mean.ratio_high
    if times >= TIMES_MIN:
        ends = (low, high) if slower else (high and 1 / high, low and 1 / low)
        within = f" ({_digits(ends[0])} to {_digits(ends[1])})" if ends[0] and ends[1] else ""
        return f"{who} is {_digits(times)} times {word}{within}"
    within = ""
    if low and high:
        least, most = sorted(abs(end - 1) * 100 for end in (low, high))
        within = f" ({least:.0f} to {most:.0f})"
    return f"{who} is {abs(mean.ratio - 1) * 100:.0f} % {word}{within}"


def _digits(times: float) -> str:
    """Two digits: `2.3`, `55`, `1,200`."""
    if times < 9.95:
        return f"{times:.1f}"
    grain = 10 ** max(0, math.floor(math.log10(times)) - 1)
    return f"{round(times / grain) * grain:,}"


def _transports(sides: Tuple[Side, Side]) -> str:
    a, b = ({place.split(" ")[0] for place in side.served_on} for side in sides)
    if a == b or len(a) != 1 or len(b) != 1:
        return ""
    return f" ({a.pop()} → {b.pop()})"


def _mean(of: Figures) -> str:
    parts = [f"mean {_change(of[_MEAN])}"]
    if of[_MEDIAN].delta is not None:
        parts.append(f"p50 {_change(of[_MEDIAN])}")
    return ", ".join(parts)


def hides_much(mean: Figure) -> bool:
    """Whether the interval is so wide that `no difference` would be too much to say."""
    if mean.ratio is None or mean.ratio_low is None or mean.ratio_high is None:
        return False
    return mean.ratio_high / mean.ratio > TOO_NOISY


def _within(mean: Figure) -> str:
    """The mean, with what is not excluded."""
    if not mean.ratio or not mean.a:
        return f"mean {_change(mean)}"
    return f"mean {_change(mean)}, {not_excluded(mean)}"


def not_excluded(mean: Figure) -> str:
    """`5 % faster to 3 % slower cannot be excluded`: what B may be.

    Args:
        mean: a time with a ratio.
    """
    assert mean.ratio and mean.a
    floor = (mean.floor or 0.0) / max(mean.a, mean.b or 0.0)
    low = min(mean.ratio_low or mean.ratio, 1 - floor)
    high = max(mean.ratio_high or mean.ratio, 1 + floor)
    if min(1 / low, high) >= TELLS_NOTHING:
        return "the measurements of one side differ too much among themselves"
    return f"{_end(low)} to {_end(high)} cannot be excluded"


def _end(ratio: float) -> str:
    """One end of what B may be: `5 % faster`, `3.2 times slower`."""
    word = "faster" if ratio < 1 else "slower"
    times = ratio if ratio >= 1 else 1 / ratio
    if times >= TIMES_MIN:
        return f"{_digits(times)} times {word}"
    return f"{abs(ratio - 1) * 100:.0f} % {word}"


def _more(mean: Figure, sides: Tuple[Side, Side]) -> str:
    """How much longer, or more often, one has to measure."""
    said = would_tell(mean)
    if said is not None:
        return f"; {said} would tell"
    most = "an hour" if all(side.runs == 1 for side in sides) else f"{RUNS_MAX} runs"
    return f"; not even {most} more of each would tell"


def _change(figure: Figure) -> str:
    assert figure.a is not None and figure.b is not None
    if figure.unit == "µs":
        return f"{duration(figure.a)} → {duration(figure.b)}"
    return f"{_short(figure.a)} → {_short(figure.b)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _signed(number: float) -> str:
    digits = f"{abs(number):,.0f}" if abs(number) >= 100 else f"{abs(number):.2g}"
    return f"{'+' if number > 0 else '−'}{digits}"


def _cost(of: Figures, calls: Sequence[Figure]) -> str:
    """System calls and CPU per request, the change or that there is none."""
    parts = []
    made, cpu = of["syscalls_per_request"], of["cpu_per_request"]
    if made.delta is not None:
        names = _named_calls(calls) if made.exceeds_noise is not False else ""
        parts.append(f"{_change(made)} system calls{names}")
    if cpu.delta is not None:
        parts.append(f"{_change(cpu)} of CPU")
    return f"; per request {' and '.join(parts)}" if parts else ""


def _named_calls(calls: Sequence[Figure]) -> str:
    changed = [call for call in calls[:_CALLS_NAMED] if abs(call.delta or 0.0) >= _CALLS_MIN]
    named = ", ".join(f"{call.name} {_signed(call.delta or 0.0)}" for call in changed)
    return f" ({named})" if named else ""


def _also(of: Figures, without: Sequence[str]) -> str:
    names = [name for name in DECISIVE if name not in without and of[name].exceeds_noise]
    said: List[str] = [f"{_WORDS[name]} {_change(of[name])}" for name in names]
    return f", but these differ: {', '.join(said)}" if said else ""
