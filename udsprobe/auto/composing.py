"""One report of both: what light measures from light, the rest from a full window, marked.

Pure. Figures of the two are never added up or divided by each other: a row has the window's
figures only in fields that light leaves out, and `measurements[].coverage` says from when they are.
Where nothing has a probe between windows, that leaves out all but processes and queues.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Dict, Iterator, List, Optional, Tuple, TypeVar

from udsprobe.auto.pressure import names_cause
from udsprobe.model.report import (
    Coverage,
    Finding,
    Listener,
    Measurement,
    Probe,
    Report,
    Requests,
    Served,
)
from udsprobe.model.requests.served_requests import PIPELINED_SHARE_MAX
from udsprobe.sample import MeasurementState, Observation

NO_WINDOW = "detail is auto: no full window yet"
VERDICT = "verdict"
UNPROBED = "none"
"""The strategy of what is seen without a probe."""

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class FullWindow:
    """The newest full window, as far as it is.

    Attributes:
        report: of all of it; its verdict is the window's.
        now: with the verdict of its last seconds, the newest interval; None: as `report`.
        is_fresh: it is open, or has closed no longer ago than windows come.
    """

    report: Report
    now: Optional[Report] = None
    is_fresh: bool = True


def composed(
    light: Report,
    full: Optional[FullWindow],
    *,
    live: bool = False,
    trouble: Optional[str] = None,
) -> Report:
    """The report in detail auto.

    Args:
        light: of the time that the report is about.
        full: the newest window; None: there was none yet.
        live: the verdict is about the last seconds, not about the whole window.
        trouble: why there is no window, where none can be opened.
    """
    if full is None:
        return replace(light, probe=_probe(light, None, of_full=False, trouble=trouble))
    judged = full.now if live and full.now is not None else full.report
    of_full = full.is_fresh and (names_cause(judged) or not names_cause(light))
    whole = full.report
    both = _filled(light, whole)
    return replace(
        both,
        probe=_probe(light, whole, of_full=of_full, trouble=trouble),
        verdict=judged.verdict if of_full else light.verdict,
        findings=_findings(judged, light) if of_full else light.findings,
        requests=_requests(light.requests, whole.requests),
        listeners=_listeners(light.listeners, whole.listeners),
        waits_now=both.waits_now if full.is_fresh else None,
        waits_now_total=both.waits_now_total if full.is_fresh else None,
    )


def _filled(light: _Row, full: _Row) -> _Row:
    """The same with what full detail has in place of what is not measured."""
    row: Any = light
    absent = [each.name for each in fields(row) if getattr(light, each.name) is None]
    filled: _Row = replace(row, **{name: getattr(full, name) for name in absent})
    return filled


def coverage_of(report: Report) -> Coverage:
    """The time that a report is about."""
    start = datetime.fromisoformat(report.window.start)
    end = start + timedelta(seconds=report.window.duration_s)
    return Coverage(
        from_=report.window.start,
        to=end.isoformat(timespec="milliseconds"),
        observed_s=report.window.duration_s,
    )


def _findings(full: Report, light: Report) -> List[Finding]:
    """Those of the window, and what light sees beside them."""
    found = list(full.findings or ())
    known = {(each.id, each.subject) for each in found}
    return [*found, *(f for f in light.findings or () if (f.id, f.subject) not in known)]


def _requests(light: Requests, full: Requests) -> Requests:
    both = _filled(light, full)
    served = light.served
    if served is None or full.served is None:
        return both
    return replace(
        both,
        served=replace(
            served,
            stages_us=full.served.stages_us,
            app_time_pct=full.served.app_time_pct,
            **_turns(full.served),
            tls_handshakes=full.served.tls_handshakes,
            stages_latency_us=full.served.latency_us,
        ),
    )


def _turns(full: Served) -> Dict[str, Any]:
    """Light counts turns where full counts streams."""
    streams = full.streams or 0
    if full.turn_based is None or streams <= full.count * PIPELINED_SHARE_MAX:
        return {"turn_based": full.turn_based, "multiplexed": full.multiplexed}
    return {"turn_based": False, "multiplexed": (full.multiplexed or 0) + streams}


def _listeners(
    light: Optional[List[Listener]], full: Optional[List[Listener]]
) -> Optional[List[Listener]]:
    if light is None or full is None:
        return light
    by_inode: Dict[int, Listener] = {row.inode: row for row in full}
    return [_listener(row, by_inode.get(row.inode)) for row in light]


def _listener(light: Listener, full: Optional[Listener]) -> Listener:
    if full is None:
        return light
    return replace(
        _filled(light, full),
        backlog=_filled(light.backlog, full.backlog),
        depth=_filled(light.depth, full.depth),
    )


def auto_measurements(
    light: Observation, full: Optional[Observation]
) -> Tuple[MeasurementState, ...]:
    """What each measurement rests on in detail auto: what light lacks, as windows have it."""
    in_full = {} if full is None else {each.name: each for each in full.measurements}
    return tuple(
        in_full.get(each.name, each) if each.state == "off" or each.name == VERDICT else each
        for each in light.measurements
    )


def _probe(
    light: Report, full: Optional[Report], *, of_full: bool, trouble: Optional[str]
) -> Probe:
    rows = list(_measurements(light, full, of_full=of_full, trouble=trouble))
    probe = light.probe
    if full is not None and probe.strategy == UNPROBED:
        own_pct, rss_bytes = probe.self_cpu_pct, probe.rss_bytes
        probe = replace(full.probe, self_cpu_pct=own_pct, rss_bytes=rss_bytes)
    return replace(probe, detail="auto", measurements=rows)


def _measurements(
    light: Report, full: Optional[Report], *, of_full: bool, trouble: Optional[str]
) -> Iterator[Measurement]:
    in_full = {} if full is None else {m.name: m for m in full.probe.measurements}
    coverage = None if full is None else coverage_of(full)
    for each in light.probe.measurements:
        other = in_full.get(each.name)
        if each.state != "off" and not (each.name == VERDICT and of_full):
            yield each
        elif other is None:
            yield replace(each, reason=trouble or NO_WINDOW)
        elif other.state == "off":
            yield replace(other, coverage=None)
        else:
            yield replace(_as_it_is(other, trouble), coverage=coverage)


def _as_it_is(of_window: Measurement, trouble: Optional[str]) -> Measurement:
    """Where no window can be opened any more, the newest one stays what it is."""
    if trouble is None:
        return of_window
    reason = f"{of_window.reason}; {trouble}" if of_window.reason else trouble
    return replace(of_window, state="degraded", reason=reason)
