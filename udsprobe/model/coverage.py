"""Which part of a report's time a measurement is of: all of it, or a full window of detail auto."""

from __future__ import annotations

from udsprobe.model.report import Report


def observed_s(report: Report, measurement: str) -> float:
    """Seconds that the figures of a measurement are of: what rates are divided by."""
    for each in report.probe.measurements:
        if each.name == measurement and each.coverage is not None:
            return each.coverage.observed_s
    return report.window.duration_s
