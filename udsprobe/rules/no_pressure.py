"""Verdicts without a culprit: healthy, with the headroom of each; unknown, and what is missing."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.report import Evidence, Report, Verdict
from udsprobe.model.thread_time import busy_share
from udsprobe.rules.processing import is_enough
from udsprobe.rules.request_time import RequestTime, request_time
from udsprobe.rules.service import Service
from udsprobe.rules.thresholds import REQUESTS_MIN, STREAM_CALLS_MIN, THREAD_BUSY_MIN
from udsprobe.rules.transport_share import TransportShare
from udsprobe.rules.wording import count, duration, evidence, percent


def unknown(report: Report, service: Service, share: TransportShare) -> Optional[Verdict]:
    """Too little traffic to say; None when there is enough."""
    if is_enough(request_time(service)) or _socket_calls(report) >= STREAM_CALLS_MIN:
        return None
    missing = REQUESTS_MIN - service.count
    says = f"{count(service.count, 'request')} served, {REQUESTS_MIN} are needed"
    return Verdict(
        cause="unknown",
        transport_bound=False,
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=0.0,
        summary=f"Too little traffic to say: {service.count} of {REQUESTS_MIN} requests seen, "
        f"{missing} more are needed.",
        subject=None,
        evidence=[evidence("requests", service.count, "requests", says, REQUESTS_MIN)],
    )


def untold(report: Report) -> Verdict:
    """What requests spend their time on is not measured: no cause is named, and none excluded."""
    return Verdict(
        cause="unknown",
        transport_bound=False,
        transport_share_pct=None,
        max_gain_pct=None,
        confidence=0.0,
        summary="What requests spend their time on is not measured here: no limit is seen to "
        "be reached, and that is no proof of health.",
        subject=None,
        evidence=[*_queue_room(report), *_descriptor_room(report)],
    )


def healthy(report: Report, service: Service, time: RequestTime, share: TransportShare) -> Verdict:
    """Nothing is significant; says how far away each limit is."""
    facts = [*_thread_room(report), *_queue_room(report), *_descriptor_room(report)]
    where = _where(time)
    gain = ""
    if share.share_pct is not None and share.max_gain_pct is not None:
        gain = (
            f" Transport is {percent(share.share_pct / 100)} of request time; a free one would "
            f"save at most {percent(share.max_gain_pct / 100)}."
        )
    return Verdict(
        cause="healthy",
        transport_bound=False,
        transport_share_pct=share.share_pct,
        max_gain_pct=share.max_gain_pct,
        confidence=_confidence(service),
        summary=f"No bottleneck: {where}{gain}",
        subject=None,
        evidence=facts,
    )


def _confidence(service: Service) -> float:
    return round(min(0.99, (service.count + 1) / (service.count + 1 + REQUESTS_MIN)), 2)


def _where(time: RequestTime) -> str:
    if not time.count:
        return "no requests in turns, and nothing is saturated, refused or blocked."
    largest = max(time.parts_us, key=lambda name: time.parts_us[name])
    mean = duration(time.total_us / time.count)
    words = {
        "cpu": "its own CPU time",
        "transport": "moving bytes",
        "runq": "waiting for a CPU",
        "upstream": "its upstreams",
        "lock": "locks",
        "disk": "the disk",
        "timer": "timers in its poller",
        "sleep": "sleeping",
        "send": "readers",
        "accept": "accept()",
    }
    return f"a request takes {mean}, {percent(time.share(largest))} of it {words[largest]}."


def _thread_room(report: Report) -> List[Evidence]:
    busiest = report.time.busiest if report.time is not None else None
    if busiest is None:
        return []
    share = busy_share(busiest.share)
    says = f"the busiest thread, {busiest.comm} {busiest.tid}, is {percent(share)} busy"
    return [evidence("busy_share", share, "of 1", says, THREAD_BUSY_MIN)]


def _queue_room(report: Report) -> List[Evidence]:
    rows = [row for row in report.listeners or [] if row.depth.max is not None]
    if not rows:
        return []
    fullest = max(rows, key=lambda row: (row.depth.max or 0) / row.depth.limit)
    depth = fullest.depth
    says = (
        f"accept queue of {fullest.transport}:{fullest.address}: {depth.max} at the most, "
        f"{depth.limit} fit"
    )
    return [evidence("accept_queue_depth_max", depth.max or 0, "connections", says, depth.limit)]


def _descriptor_room(report: Report) -> List[Evidence]:
    known = [t for t in report.targets if t.fds.open is not None and t.fds.limit]
    if not known:
        return []
    fullest = max(known, key=lambda t: (t.fds.open or 0) / (t.fds.limit or 1))
    opened, limit = fullest.fds.open or 0, fullest.fds.limit or 1
    says = f"{fullest.comm} {fullest.pid} has {opened:,} of {limit:,} file descriptors open"
    return [evidence("fds_open", opened, "fds", says, limit)]


def _socket_calls(report: Report) -> int:
    moving = ("read", "write", "recv", "send")
    return sum(
        row.calls
        for row in report.syscalls or []
        if row.transport != "other" and row.name.startswith(moving)
    )
