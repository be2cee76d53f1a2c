"""Rows for SQL, from reports: what a recording holds besides its samples.

Derived and rounded; udsprobe itself reads none of it back.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.report import Latency, Report
from udsprobe.model.threads.thread_time import busy_share
from udsprobe.sample import Sample

Row = Tuple[Any, ...]
Number = Callable[[Optional[str]], Optional[int]]


def moment(sample: Sample, interval: Report) -> Row:
    """The row of `moment` for the interval that ends with `sample`."""
    served = interval.requests.served
    latency = Latency(0) if served is None else served.latency_us
    calls, listeners = interval.syscalls, interval.listeners
    busiest = None if interval.time is None else interval.time.busiest
    lost = interval.probe.events_lost
    return (
        sample.sequence,
        round(sample.unix_s * 1000),
        round(interval.window.duration_s * 1000),
        None if served is None else served.count,
        *map(_whole, (latency.mean, latency.p50, latency.p99, latency.max)),
        None if calls is None else sum(call.calls for call in calls),
        None if calls is None else sum(sum(call.errors.values()) for call in calls),
        _most([each.depth.max for each in listeners or ()]),
        _total([_summed(each.refused) for each in listeners or ()]),
        _total([each.drops for each in listeners or ()]),
        interval.connections_total,
        None if busiest is None else busiest.tid,
        None if busiest is None else _whole(100 * busy_share(busiest.share)),
        lost.map_full + lost.ring_full + lost.missed,
        None if interval.verdict is None else interval.verdict.cause,
    )


def span_rows(report: Report, first_sequence: int, number: Number) -> Dict[str, List[Row]]:
    """Rows of the `span_…` tables, by table.

    Args:
        number: of a text, in `name`.
    """
    makers = {
        "span_call": _calls,
        "span_listener": _listeners,
        "span_upstream": _upstreams,
        "span_connection": _connections,
        "span_thread": _threads,
    }
    return {
        table: [(first_sequence, *row) for row in make(report, number)]
        for table, make in makers.items()
    }


def _calls(report: Report, number: Number) -> Iterator[Row]:
    for call in report.syscalls or ():
        yield (
            number(call.name if call.abi == "native" else f"{call.name}/32"),
            number(_endpoint(call.transport, call.socket_type)),
            call.calls,
            sum(call.errors.values()),
            call.bytes,
            _whole(call.wall_us),
            _whole(call.cpu_us),
            *_tail(call.latency_us),
        )


def _listeners(report: Report, number: Number) -> Iterator[Row]:
    for each in report.listeners or ():
        yield (
            number(each.address),
            number(_endpoint(each.transport, each.socket_type)),
            each.depth.max,
            each.depth.limit,
            each.established,
            each.accepted,
            _summed(each.refused),
            each.drops,
            None if each.wait_us is None else _tenth(each.wait_us.p99),
        )


def _upstreams(report: Report, number: Number) -> Iterator[Row]:
    for each in report.requests.upstream or ():
        where = (number(each.address), number(each.transport))
        yield (*where, each.count, *_tail(each.latency_us))


def _connections(report: Report, number: Number) -> Iterator[Row]:
    for each in report.connections or ():
        peer = each.peer
        yield (
            number(each.local),
            number(None if peer is None else peer.comm or peer.address),
            number(each.role),
            each.requests,
            each.bytes_in,
            each.bytes_out,
            None if each.send_blocked is None else each.send_blocked.count,
        )


def _threads(report: Report, number: Number) -> Iterator[Row]:
    for each in () if report.time is None else report.time.threads:
        parts = (each.share.get(name, 0.0) * 100 for name in ("user", "sys_socket", "runq"))
        yield (
            each.pid,
            each.tid,
            number(each.comm),
            *map(_tenth, parts),
            _tenth(100 * busy_share(each.share)),
        )


def _endpoint(transport: str, socket_type: Optional[str]) -> str:
    return transport if socket_type in (None, "stream") else f"{transport}/{socket_type}"


def _tail(latency: Latency) -> Tuple[Optional[float], ...]:
    return tuple(map(_tenth, (latency.p50, latency.p99, latency.max)))


def _whole(value: Optional[float]) -> Optional[int]:
    return None if value is None else round(value)


def _tenth(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)


def _summed(counts: Optional[Mapping[str, int]]) -> Optional[int]:
    return None if counts is None else sum(counts.values())


def _total(values: Sequence[Optional[int]]) -> Optional[int]:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Sequence[Optional[int]]) -> Optional[int]:
    return max((value for value in values if value is not None), default=None)
