"""From rounds to figures: medians, spread, and ratios within each round. Pure."""

from __future__ import annotations

from math import comb
from statistics import median, quantiles
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

Rounds = Mapping[str, Sequence[Mapping[str, Any]]]
CERTAINTY = 0.95
FLOOR, BARE = "empty", "nothing"
TIMES = ("ns_per_socket_call", "ns_per_other_call")


def spread(values: Sequence[float]) -> Dict[str, float]:
    """Median, quartiles, least and most of at least one value."""
    quartiles = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {
        "median": round(median(values), 3),
        "quarter": round(quartiles[0], 3),
        "three_quarters": round(quartiles[2], 3),
        **interval_of_median(values),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "rounds": len(values),
    }


def interval_of_median(values: Sequence[float]) -> Dict[str, float]:
    """Where the true median is with 95 %: between two of the values, whatever their distribution.

    By the binomial distribution of how many lie below it; least to most of fewer than six.
    """
    ranked, count = sorted(values), len(values)
    below, outside = -1, 0.0
    while outside + comb(count, below + 1) / 2**count <= (1 - CERTAINTY) / 2:
        below += 1
        outside += comb(count, below) / 2**count
    at = max(below, 0)
    return {"low": round(ranked[at], 3), "high": round(ranked[count - 1 - at], 3)}


def added_over(rounds: Rounds, tool: str, other: str, name: str) -> Optional[Dict[str, float]]:
    """What a tool adds to a time ÷ what another adds: of the medians, and in each round.

    Returns:
        `median`, and `low` and `high` where both were measured in the same rounds; None when one
        was not measured, or the other adds nothing.
    """
    mine, theirs = (
        _paired(rounds, each, (BARE,), lambda bare, seen: seen - bare, name)
        for each in (tool, other)
    )
    if not mine or not theirs or median(theirs) <= 0:
        return None
    ratio = {"median": round(median(mine) / median(theirs), 3)}
    in_rounds = _paired(rounds, tool, (BARE, other), _over_floor, name)
    return {**ratio, **(interval_of_median(in_rounds) if in_rounds else {})}


def more_pct(rounds: Rounds, tool: str, name: str) -> Optional[Dict[str, float]]:
    """By how much a figure is higher under a tool than under nothing, in % of each round."""
    more = _paired(rounds, tool, (BARE,), lambda bare, seen: 100 * (seen / bare - 1), name)
    return spread(more) if more else None


def of_tool(rounds: Rounds, tool: str) -> Dict[str, Any]:
    """Every figure of one tool: itself, and against nothing, the empty pair, of the same round."""
    mine = rounds[tool]
    names = sorted({name for one in mine for name in one["figures"]})
    figures: Dict[str, Any] = {name: spread(_values(mine, name)) for name in names}
    for name in TIMES:
        if name in figures and tool != BARE:
            figures.update(_added(rounds, tool, name))
    if "requests_per_s" in figures and tool != BARE:
        figures.update(_lost(rounds, tool))
    for name in ("attach_s", "end_s"):
        values = [one["account"][name] for one in mine if one["account"][name] is not None]
        if values:
            figures[name] = spread(values)
    return {**figures, **_counted(mine)}


def _values(rounds: Sequence[Mapping[str, Any]], name: str) -> List[float]:
    return [one["figures"][name] for one in rounds if name in one["figures"]]


def _paired(
    rounds: Rounds, tool: str, others: Sequence[str], of: Callable[..., Optional[float]], name: str
) -> List[float]:
    """`of` the figure under each of `others` and under `tool`, round by round."""
    by_round = {
        other: {one["round"]: one["figures"].get(name) for one in rounds.get(other, ())}
        for other in (*others, tool)
    }
    found = []
    for number in by_round[tool]:
        values = [by_round[other].get(number) for other in (*others, tool)]
        result = None if None in values else of(*values)
        if result is not None:
            found.append(result)
    return found


def _added(rounds: Rounds, tool: str, name: str) -> Dict[str, Any]:
    added = _paired(rounds, tool, (BARE,), lambda bare, seen: seen - bare, name)
    found = {f"{name}_added": spread(added)} if added else {}
    floor = _paired(rounds, FLOOR, (BARE,), lambda bare, seen: seen - bare, name)
    if added and floor and median(floor) > 0:
        found[f"{name}_over_empty"] = {"median": round(median(added) / median(floor), 2)}
        ratios = _paired(rounds, tool, (BARE, FLOOR), _over_floor, name)
        if ratios:
            found[f"{name}_over_empty_of_rounds"] = spread(ratios)
    return found


def _over_floor(bare: float, floor: float, seen: float) -> Optional[float]:
    return (seen - bare) / (floor - bare) if floor > bare else None


def _lost(rounds: Rounds, tool: str) -> Dict[str, Any]:
    lost = _paired(rounds, tool, (BARE,), lambda bare, seen: 100 * (1 - seen / bare), _RATE)
    shift = _paired(rounds, tool, (BARE,), lambda bare, seen: 100 * (seen / bare - 1), "p99_us")
    found = {"requests_lost_pct": spread(lost)} if lost else {}
    if shift:
        found["p99_shift_pct"] = spread(shift)
    return found


def _counted(mine: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """How many socket calls were made and not counted; what the tool itself says it lost."""
    names = ("sendto", "recvfrom")
    made = counted = 0
    knows = False
    for one in mine:
        calls = one["account"]["calls"]
        if calls is not None and one["made"]:
            knows = True
            made += sum(one["made"][name] for name in names)
            counted += sum(calls.get(name, 0) for name in names)
    told = [one["account"]["lost"] for one in mine if one["account"]["lost"] is not None]
    return {
        "calls_made": made if knows else None,
        "calls_not_counted": made - counted if knows else None,
        "events_told_lost": sum(told) if told else None,
    }


_RATE = "requests_per_s"
