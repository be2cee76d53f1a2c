"""The sentence: whether B differs from A, by how much, and in which stage it comes about."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.compare.comparison import Figure, Side
from udsprobe.rules.wording import duration

_MEAN, _MEDIAN = "latency_mean", "latency_p50"
# What makes the whole different; the rest says why, or rests on few requests.
DECISIVE = (
    *(_MEAN, _MEDIAN, "latency_p90", "latency_p99", "requests_per_s"),
    *("syscalls_per_request", "cpu_per_request", "socket_bytes_per_request"),
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
}
STAGE_WORDS = {
    "before_accept": "waiting to be accepted",
    "recv_wait": "recv_wait",
    "recv": "recv",
    "app": "app",
    "send": "send",
}
TOO_NOISY_PCT = 30.0
"""Of the mean: wider noise would hide what most people compare for."""

_STAGES_NAMED = 2
_EXPLAINED_PCT = 80.0
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
    stages: Sequence[Figure],
    calls: Sequence[Figure],
) -> str:
    """One sentence for a human."""
    of = {figure.name: figure for figure in figures}
    mean = of[_MEAN]
    if mean.delta is None:
        return f"Latency cannot be compared: {mean.reason}{_also(of, ())}."
    if mean.exceeds_noise:
        comes_from = f"{_from(mean, stages)}{_cost(of, calls)}"
        return f"{_faster(mean)}{_transports(sides)}: {_mean(of)}{comes_from}."
    if mean.exceeds_noise is None:
        numbers = f"{_mean(of)}{_from(mean, stages)}"
        return f"Whether A and B differ is not known ({numbers}): {mean.reason}."
    others = _also(of, (_MEAN,))
    if others:
        return f"Requests take as long on average ({_within(mean)}){others}."
    if (mean.noise_pct or 0.0) > TOO_NOISY_PCT and abs(mean.delta) > (mean.floor or 0.0):
        return f"Nothing can be told apart in this noise: {_within(mean)}{_cost(of, calls)}."
    return f"No difference beyond the noise: {_within(mean)}{_cost(of, calls)}."


def _faster(mean: Figure) -> str:
    direction = "faster" if (mean.delta or 0.0) < 0 else "slower"
    by = "" if mean.delta_pct is None else f"{abs(mean.delta_pct):.0f} % "
    return f"B is {by}{direction}"


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


def _within(mean: Figure) -> str:
    """The mean, with how far apart it could be for no cause."""
    if not mean.a or mean.delta_pct is None:
        return f"mean {_change(mean)}"
    apart = max(mean.noise or 0.0, mean.floor or 0.0)
    pct = f"{mean.delta_pct:+.1f}".replace("-", "−")
    return f"mean {_change(mean)}, {pct} % within ±{100 * apart / mean.a:.0f} %"


def _change(figure: Figure) -> str:
    assert figure.a is not None and figure.b is not None
    if figure.unit == "µs":
        return f"{duration(figure.a)} → {duration(figure.b)}"
    return f"{figure.a:.3g} → {figure.b:.3g}"


def _from(mean: Figure, stages: Sequence[Figure]) -> str:
    """The stages in which the difference of the mean comes about."""
    ranked = [stage for stage in stages if stage.share_of_delta_pct is not None and stage.delta]
    ranked.sort(key=lambda stage: -(stage.share_of_delta_pct or 0.0))
    if not ranked:
        return ""
    named: List[str] = []
    explained = 0.0
    for stage in ranked[:_STAGES_NAMED]:
        share = stage.share_of_delta_pct or 0.0
        if named and (explained >= _EXPLAINED_PCT or share <= 0):
            break
        named.append(f"{share:.0f} % {'of it ' if not named else ''}in {_named(stage)}")
        explained += share
    against = ranked[-1]
    if (against.share_of_delta_pct or 0.0) < _EXPLAINED_PCT - 100:
        named.append(f"against {_named(against)}")
    return "; " + ", ".join(named)


def _named(stage: Figure) -> str:
    return f"{STAGE_WORDS[stage.name]} ({_change(stage)})"


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
    named = ", ".join(f"{call.name} {call.delta:+.2g}" for call in changed).replace("-", "−")
    return f" ({named})" if named else ""


def _also(of: Figures, without: Sequence[str]) -> str:
    names = [name for name in DECISIVE if name not in without and of[name].exceeds_noise]
    said: List[str] = [f"{_WORDS[name]} {_change(of[name])}" for name in names]
    return f", but these differ: {', '.join(said)}" if said else ""
