"""Served requests of a window: how many, how long, and in which stage the time went."""

from __future__ import annotations

from typing import Dict, Mapping, Optional

from udsprobe.model.counters import grown, ratio
from udsprobe.model.histogram import latency_us, subtract
from udsprobe.model.report import Latency, Served, Stages
from udsprobe.sample import Sample, ServedCounts

# activity of the serving thread → what the report calls it inside `app`.
APP_PARTS = {
    "user": "cpu",
    "sys_socket": "cpu",
    "sys_poll": "cpu",
    "sys_other": "cpu",
    "runq": "runq",
    "blocked_poll": "poll",
    "blocked_recv": "upstream",
    "blocked_send": "upstream",
    "blocked_connect": "upstream",
    "blocked_accept": "other",
    "blocked_lock": "lock",
    "blocked_disk": "disk",
    "blocked_other": "other",
}
# Fewer are a client that hurried once; more are a protocol that does not take turns.
PIPELINED_SHARE_MAX = 0.01


def served_requests(first: Sample, last: Sample, elapsed_s: float) -> Optional[Served]:
    """The requests of the window; None when they are not measured."""
    if first.served is None or last.served is None:
        return None
    before, after = first.served, last.served
    count = grown("served count", after.count, before.count)
    pipelined = grown("pipelined", after.pipelined, before.pipelined)
    return Served(
        count=count,
        rate_per_s=ratio(count, elapsed_s),
        latency_us=latency_us(subtract("served latency", after.latency, before.latency)),
        stages_us=Stages(**_stages(before, after)),
        app_time_pct=_app_time_pct(before, after),
        turn_based=pipelined <= count * PIPELINED_SHARE_MAX if count else None,
    )


def _stages(before: ServedCounts, after: ServedCounts) -> Dict[str, Latency]:
    return {
        name: latency_us(subtract(f"stage {name}", latency, before.stages[name]))
        for name, latency in after.stages.items()
        if name in before.stages
    }


def _app_time_pct(before: ServedCounts, after: ServedCounts) -> Optional[Dict[str, float]]:
    parts = dict.fromkeys(APP_PARTS.values(), 0)
    for activity, spent_ns in _app_ns(before, after).items():
        parts[APP_PARTS[activity]] += spent_ns
    whole = sum(parts.values())
    return {part: 100 * ns / whole for part, ns in parts.items()} if whole else None


def _app_ns(before: ServedCounts, after: ServedCounts) -> Mapping[str, int]:
    return {
        activity: grown(f"app {activity}", ns, before.app_activity_ns.get(activity, 0))
        for activity, ns in after.app_activity_ns.items()
    }
