"""Requests of a chain, counted once: where they come in.

A request that nginx hands on to Node is served twice and was asked for once. What
the targets serve is what their outermost hop serves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence

from udsprobe.model.counters import ratio
from udsprobe.model.histogram import added, latency_us
from udsprobe.model.report import Hop, Latency, Served, ServedBy, Stages
from udsprobe.sample import LatencyCounts

_STAGES = ("accept_wait", "recv_wait", "recv", "app", "send")


def of_outermost(
    served: Optional[Served],
    hops: Sequence[Hop],
    rows: Sequence[ServedBy],
    asked: Mapping[int, int],
    latencies: Mapping[int, LatencyCounts],
    elapsed_s: float,
) -> Optional[Served]:
    """`served` without what targets that serve ask of each other.

    Percentiles are None where a process serves both, or its histogram is not known: which
    latencies are whose is not known then. Those of the stages are None, counted for all together.

    Args:
        asked: how many requests of each hop, by its first pid, those are. The others of that hop
            came from outside and count. Unchanged where none asks another.
        latencies: of each process.
    """
    outer = _from_outside(hops, rows, asked)
    if served is None or not any(asked.values()) or not outer:
        return served
    count = sum(row.count for row in outer)
    return replace(
        served,
        count=count,
        rate_per_s=ratio(count, elapsed_s),
        latency_us=_latency(outer, latencies),
        stages_us=_stages(outer),
        app_time_pct=_app_time_pct(outer),
    )


def _latency(outer: Sequence[ServedBy], latencies: Mapping[int, LatencyCounts]) -> Latency:
    known = [latencies[row.pid] for row in outer if row.pid in latencies]
    count = sum(row.count for row in outer)
    if sum(each.count for each in known) == count and len(known) == len(outer):
        return latency_us(added(known))
    return Latency(count, _mean([row.latency_us.mean for row in outer], outer))


def _from_outside(
    hops: Sequence[Hop], rows: Sequence[ServedBy], asked: Mapping[int, int]
) -> List[ServedBy]:
    left = {hop.pid: asked.get(hop.pid, 0) for hop in hops}
    first = {pid: hop.pid for hop in hops for pid in hop.pids}
    outer = []
    for row in rows:
        inner = min(row.count, left.get(first.get(row.pid, -1), 0))
        if inner:
            left[first[row.pid]] -= inner
        if row.count > inner:
            outer.append(replace(row, count=row.count - inner))
    return outer


def _stages(rows: Sequence[ServedBy]) -> Stages:
    """The wait for accept() is of some requests only: of how many, no row tells."""
    means = {
        name: _mean([getattr(row.stages_mean_us, name) for row in rows], rows)
        for name in _STAGES
        if name != "accept_wait"
    }
    count = sum(row.count for row in rows)
    known = {name: Latency(count, mean) for name, mean in means.items() if mean is not None}
    return Stages(**known)


def _mean(means: Sequence[Optional[float]], rows: Sequence[ServedBy]) -> Optional[float]:
    known = [(mean, row.count) for mean, row in zip(means, rows) if mean is not None]
    count = sum(weight for _, weight in known)
    return sum(mean * weight for mean, weight in known) / count if count else None


def _app_time_pct(rows: Sequence[ServedBy]) -> Optional[Dict[str, float]]:
    told = [row for row in rows if row.app_time_pct]
    weights = [(row.stages_mean_us.app or 0.0) * row.count for row in told]
    whole = sum(weights)
    if not whole:
        return None
    names: List[str] = sorted({name for row in told for name in row.app_time_pct or {}})
    return {
        name: sum((row.app_time_pct or {}).get(name, 0.0) * us for row, us in zip(told, weights))
        / whole
        for name in names
    }
