"""What pages are made of: rules, facts with labels, tables of latencies."""

from __future__ import annotations

from typing import Iterable, List, Mapping, Sequence, Tuple

from udsprobe.model.report import Latency, Report
from udsprobe.views.dashboard.table import DIM, Line
from udsprobe.views.fields import cells
from udsprobe.views.fields.escape import visible, wrap

Fact = Tuple[str, str]
LABEL = 24


def section(name: str, facts: Iterable[Fact], width: int) -> List[Line]:
    """A rule, then a label and a text each, wrapped; ends in an empty line."""
    lines = [rule(name)]
    for label, text in facts:
        wrapped = wrap(text, max(20, width - LABEL - 6))
        lines += [
            plain(f"{label if index == 0 else '':<{LABEL}} {part}")
            for index, part in enumerate(wrapped)
        ]
    return [*lines, plain("")]


def latencies(rows: Mapping[str, Latency], name: str = "latency") -> List[Line]:
    """Percentiles by label."""
    names = ("p50", "p90", "p99", "p999", "max", "mean")
    lines = [rule(name), plain(" " * LABEL + "".join(f"{title:>9}" for title in names))]
    for label, latency in rows.items():
        shown = cells.latency(latency)
        lines.append(plain(f"{label:<{LABEL}}" + "".join(f"{shown[n]:>9}" for n in names)))
    return [*lines, plain("")]


def rests_on(report: Report, wanted: Sequence[str], width: int) -> List[Line]:
    """The probes beneath the measurements `wanted`, with their state and reason."""
    facts = []
    for item in report.probe.measurements:
        if item.name in wanted:
            rests = visible(item.rests_on or "nothing on this kernel")
            # One word for the wrapping, which would break it anywhere.
            rests = rests.replace("+", " + ")
            reason = f": {visible(item.reason)}" if item.reason else ""
            facts.append((visible(item.name), f"{visible(item.state)}{reason}; rests on {rests}"))
    return section("rests on", facts, width) if facts else []


def rule(name: str) -> Line:
    return Line(None, f"── {name} ──", DIM)


def plain(text: str) -> Line:
    return Line(None, text)
