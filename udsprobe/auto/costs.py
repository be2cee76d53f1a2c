"""What windows of full detail cost, from what was measured of the last one.

Pure. CPU time of udsprobe itself, with what the kernel does in its calls, and the run time of the
programs. The kernel verifies programs for the first window, and for others only where they do not
stay loaded. What the empty pair of tracepoints costs other programs is in neither.
"""

from __future__ import annotations

from typing import Optional

from udsprobe.auto.control import Costs
from udsprobe.model.report import Report

CALL_NS = 1_000.0
"""Of a system call of a target, where the kernel's own measurement is not to be had: above what
docs/overhead.md has for one, with the moves between CPU and queue that go with it."""

MESSAGE_NS = 750.0
"""The same of a message of a target with detail light, its arrival and the short check that
messages of others pass included: above the 740 ns that were measured."""

REQUESTS_MIN = 20
"""Of fewer the cost of a request says nothing about that of others."""


def running_s(own_s: float, full: Report) -> float:
    """CPU seconds of each second of a window.

    Args:
        own_s: CPU time of udsprobe while it read and judged this part of the window.
        full: of that part.
    """
    duration_s = full.window.duration_s
    if duration_s <= 0:
        return 0.0
    return own_s / duration_s + programs_s(full)


def programs_s(report: Report, event_ns: float = CALL_NS) -> float:
    """The programs' part of it: measured, or what their events take.

    Args:
        event_ns: of each event, where it is not measured.
    """
    if report.probe.bpf_cpu_pct is not None:
        return report.probe.bpf_cpu_pct / 100
    if report.window.duration_s <= 0:
        return 0.0
    return report.probe.events_seen * event_ns / 1e9 / report.window.duration_s


def at_rate(costs: Costs, then: Optional[float], now: Optional[float]) -> Costs:
    """The costs expected at another rate of requests: programs run as often as there is work.

    Args:
        then, now: requests/s; None or 0 where it is not known, which changes nothing.
    """
    if not then or not now:
        return costs
    return Costs(costs.opening_s, costs.running_s * now / then)
