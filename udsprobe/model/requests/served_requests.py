"""Served requests of a window: how many, how long, and in which stage the time went."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Optional, Tuple, Union

from udsprobe.model.counters import UnsoundError, grown, grown_if_measured, ratio
from udsprobe.model.histogram import latency_us, subtract
from udsprobe.model.report import Latency, Served, Stages
from udsprobe.model.requests.http_replies import http_replies
from udsprobe.sample import Moment, Sample, ServedCounts, ServerReading

Times = Mapping[str, int]
Readings = Union[Sample, Moment]
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
# Sleep that can be a wait for an answer, likeliest first; in blocked_recv it shows.
_MAYBE_UPSTREAM = ("blocked_poll", "blocked_lock", "blocked_other")
# Fewer are a client that hurried once; more are a protocol that does not take turns.
PIPELINED_SHARE_MAX = 0.01
# Of replies, those of HTTP/1, where a request is asked after the reply to the one before.
ONE_AT_A_TIME_MIN = 0.99


def served_requests(first: Readings, last: Readings, elapsed_s: float) -> Optional[Served]:
    """The requests of the window; None when they are not measured."""
    if first.served is None or last.served is None:
        return None
    before, after = first.served, last.served
    count = grown("served count", after.count, before.count)
    pipelined = grown_if_measured("pipelined", after.pipelined, before.pipelined)
    multiplexed = grown_if_measured("multiplexed", after.multiplexed, before.multiplexed)
    return Served(
        count=count,
        rate_per_s=ratio(count, elapsed_s),
        latency_us=latency_us(subtract("served latency", after.latency, before.latency)),
        stages_us=Stages(**_stages(before, after)),
        app_time_pct=_app_time_pct(first, last, before, after),
        turn_based=_takes_turns(count, pipelined, multiplexed),
        multiplexed=multiplexed,
        streams=grown_if_measured("streams", after.streams, before.streams),
        tls_handshakes=grown_if_measured(
            "TLS handshakes", after.tls_handshakes, before.tls_handshakes
        ),
    )


def _takes_turns(
    count: int, pipelined: Optional[int], multiplexed: Optional[int]
) -> Optional[bool]:
    if pipelined is None or not count:
        return None
    return pipelined + (multiplexed or 0) <= count * PIPELINED_SHARE_MAX


def _stages(before: ServedCounts, after: ServedCounts) -> Dict[str, Latency]:
    return {
        name: latency_us(subtract(f"stage {name}", latency, before.stages[name]))
        for name, latency in after.stages.items()
        if name in before.stages
    }


def app_parts_ns(app_ns: Times, upstream_wait_ns: int) -> Dict[str, int]:
    """What the requests of one process spent their time on inside `app`.

    Args:
        app_ns: ns by activity of the threads that served them.
        upstream_wait_ns: the sleep that own requests outstanding explain; that in
            `blocked_recv` needs no explanation.

    Raises:
        UnsoundError: there is no such activity.
    """
    unknown = app_ns.keys() - APP_PARTS.keys()
    if unknown:
        raise UnsoundError(f"no activity of a thread: {min(unknown)!r}")
    parts = dict.fromkeys(APP_PARTS.values(), 0)
    for activity, spent_ns in app_ns.items():
        parts[APP_PARTS[activity]] += spent_ns
    explained_ns = max(0, upstream_wait_ns - app_ns.get("blocked_recv", 0))
    for activity in _MAYBE_UPSTREAM:
        moved_ns = min(explained_ns, app_ns.get(activity, 0))
        parts[APP_PARTS[activity]] -= moved_ns
        parts["upstream"] += moved_ns
        explained_ns -= moved_ns
    return parts


def shares_pct(parts: Times) -> Optional[Dict[str, float]]:
    """Parts of their sum in %; None when it is 0."""
    whole = sum(parts.values())
    return {part: 100 * ns / whole for part, ns in parts.items()} if whole else None


def with_rest_of_requests(
    shares: Optional[Dict[str, float]], rest_ns: int, app_ns: float
) -> Optional[Dict[str, float]]:
    """`app_time_pct` with `client`: what of these stages was before the last receive call, because
    the client had not sent the rest of its request.

    Args:
        shares: of what came after that call, in %.
        app_ns: the stages of the requests that stayed with one thread, all together.
    """
    if not shares or not rest_ns or not app_ns:
        return shares
    client = min(1.0, rest_ns / app_ns)
    return {**{name: pct * (1 - client) for name, pct in shares.items()}, "client": 100 * client}


def rest_of_requests_ns(reading: ServerReading, before: Optional[ServerReading]) -> Tuple[int, int]:
    """What one process waited in the window for the rest of requests that had begun, and the `app`
    stages of those that stayed with one thread.

    The former is 0 but of HTTP/1: in other protocols a connection may have several requests at a
    time, and what comes while one is served can be the next one.
    """
    name = f"process {reading.pid}"
    count = grown(f"{name} count", reading.count, before.count if before else 0)
    rest_ns = grown_if_measured(f"{name} rest", reading.rest_ns, before.rest_ns if before else 0)
    http = http_replies(name, reading.http, before.http if before else None)
    is_http = bool(count) and http is not None and http.count >= ONE_AT_A_TIME_MIN * count
    alone_ns = _app_ns(reading, before) - (handed_over_ns(reading, before) or 0)
    return (rest_ns or 0) if is_http else 0, alone_ns


def handed_over_ns(reading: ServerReading, before: Optional[ServerReading]) -> Optional[int]:
    """Of the `app` stages of one process in the window what no thread tells of, because another one
    replied than received; None where that is not measured.

    What it is not: what threads did that received and replied, and what clients had not sent.
    """
    name = f"process {reading.pid}"
    handed = grown_if_measured(
        f"{name} handed over", reading.handed_over, before.handed_over if before else 0
    )
    if not handed:
        return handed
    told = app_growth_ns(reading.app_activity_ns, before.app_activity_ns if before else {})
    rest_ns = grown_if_measured(f"{name} rest", reading.rest_ns, before.rest_ns if before else 0)
    return max(0, _app_ns(reading, before) - sum(told.values()) - (rest_ns or 0))


def _app_ns(reading: ServerReading, before: Optional[ServerReading]) -> int:
    earlier_ns = before.stages_ns.get("app", 0) if before else 0
    return grown(f"process {reading.pid} app", reading.stages_ns.get("app", 0), earlier_ns)


def app_growth_ns(after: Times, before: Times) -> Dict[str, int]:
    """ns by activity in the window."""
    return {
        activity: grown(f"app {activity}", ns, before.get(activity, 0))
        for activity, ns in after.items()
    }


def _app_time_pct(
    first: Readings, last: Readings, before: ServedCounts, after: ServedCounts
) -> Optional[Dict[str, float]]:
    """What is upstream is known by process: elsewhere other requests would explain it."""
    parts = app_parts_ns(app_growth_ns(after.app_activity_ns, before.app_activity_ns), 0)
    for app_ns, upstream_wait_ns in _app_by_process(first, last):
        plain = app_parts_ns(app_ns, 0)
        for part, ns in app_parts_ns(app_ns, upstream_wait_ns).items():
            parts[part] += ns - plain[part]
    shares = shares_pct({part: max(0, ns) for part, ns in parts.items()})
    rests = [rest_of_requests_ns(now, then) for now, then in _by_process(first, last)]
    return with_rest_of_requests(shares, sum(r for r, _ in rests), sum(a for _, a in rests))


def _by_process(
    first: Readings, last: Readings
) -> Iterator[Tuple[ServerReading, Optional[ServerReading]]]:
    before = {reading.pid: reading for reading in first.served_by or ()}
    for reading in last.served_by or ():
        yield reading, before.get(reading.pid)


def _app_by_process(first: Readings, last: Readings) -> Iterator[Tuple[Times, int]]:
    for reading, earlier in _by_process(first, last):
        app_ns = earlier.app_activity_ns if earlier is not None else {}
        waited_ns = earlier.upstream_wait_ns if earlier is not None else 0
        growth = grown("upstream_wait_ns", reading.upstream_wait_ns, waited_ns)
        yield app_growth_ns(reading.app_activity_ns, app_ns), growth
