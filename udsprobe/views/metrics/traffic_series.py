"""System calls, requests, destinations and connections as series."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, List, Optional, Tuple

from udsprobe.sample import (
    CallCounts,
    ConnectionReading,
    HttpReplyCounts,
    Sample,
    ServedCounts,
)
from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.ledger import Labels
from udsprobe.views.metrics.page import Sheet, shown


def write_calls(sheet: Sheet, sample: Sample) -> None:
    """System calls by name and endpoint."""
    for row in sample.calls or ():
        endpoint = row.endpoint
        key = shown((row.name, endpoint.transport, endpoint.socket_type, row.abi))
        _write_call(sheet, row, key)
    if sample.in_flight is not None:
        _write_in_flight(sheet, sample)
    if sample.syscalls_by_name is not None:
        sheet.count(c.ALL_CALLS, sum(sample.syscalls_by_name.values()))


def _write_call(sheet: Sheet, row: CallCounts, key: Labels) -> None:
    place = sheet.places["syscalls"].of(key)
    for metric, value in (
        (c.CALLS, row.calls),
        (c.CALL_BYTES, row.bytes),
        (c.CALL_CPU, row.cpu_ns),
        (c.CALL_SLOW, row.slow_ns),
    ):
        sheet.count(metric, value, place, key)
    for errno, count in row.errors.items():
        shown_errno = sheet.places["syscalls"].detail(place, errno)
        sheet.count(c.CALL_ERRORS, count, (*place, shown_errno), (key, errno))
    sheet.time(c.CALL_DURATION, row.latency, place, key)


def _write_in_flight(sheet: Sheet, sample: Sample) -> None:
    kinds = Counter(
        (each.name, each.endpoint.transport, each.endpoint.socket_type, each.abi)
        for each in sample.in_flight or ()
    )
    known = {
        (row.name, row.endpoint.transport, row.endpoint.socket_type, row.abi): 0
        for row in sample.calls or ()
    }
    for kind, count in {**known, **kinds}.items():
        sheet.gauge(c.CALLS_IN_FLIGHT, count, sheet.places["syscalls"].of(shown(kind)))


def write_traffic(sheet: Sheet, sample: Sample) -> None:
    """What sockets moved, where no system call is seen."""
    for row in sample.traffic or ():
        kind = row.endpoint.transport, row.endpoint.socket_type
        for direction, messages, moved in (
            ("sent", row.sent_messages, row.sent_bytes),
            ("received", row.received_messages, row.received_bytes),
        ):
            labels = shown((*kind, direction))
            sheet.count(c.TRAFFIC_MESSAGES, messages, labels)
            sheet.count(c.TRAFFIC_BYTES, moved, labels)


def write_served(sheet: Sheet, served: ServedCounts) -> None:
    """Served requests with their stages."""
    sheet.count(c.SERVED, served.count)
    _write_odd_ones(sheet, served)
    sheet.time(c.SERVED_DURATION, served.latency)
    _write_parts(sheet, served)


def write_requests(sheet: Sheet, served: ServedCounts) -> None:
    """How many, and how long they took."""
    sheet.count(c.SERVED, served.count)
    sheet.time(c.SERVED_DURATION, served.latency)


def write_stages(sheet: Sheet, served: ServedCounts) -> None:
    """What only full detail tells of them: where their time went, which are no single requests."""
    _write_odd_ones(sheet, served)
    _write_parts(sheet, served)


def write_unanswered(sheet: Sheet, sample: Sample) -> None:
    """Requests that ended without a reply, by who ended them."""
    for reading in sample.served_by or ():
        for ended_by, counted in (("client", reading.given_up), ("program", reading.dropped)):
            if counted is not None:
                key = ended_by, str(reading.pid)
                sheet.count(c.UNANSWERED, counted.count, (ended_by,), key)


def write_http_replies(sheet: Sheet, sample: Sample) -> None:
    """Replies of the targets: whether they failed, and how they paused."""
    for reading in sample.served_by or ():
        for outcome, count in _outcomes(reading.http):
            sheet.count(c.HTTP_REPLIES, count, (outcome,), (outcome, str(reading.pid)))
        if reading.in_pieces is not None:
            sheet.count(c.IN_PIECES, reading.in_pieces.count, (), reading.pid)
            sheet.count(c.PAUSES, reading.in_pieces.paused_ns, (), reading.pid)


def _outcomes(http: Optional[HttpReplyCounts]) -> Iterator[Tuple[str, int]]:
    if http is not None:
        yield "failed", http.failed
        yield "answered", http.count - http.failed


def _write_odd_ones(sheet: Sheet, served: ServedCounts) -> None:
    for metric, count in (
        (c.HANDED_OVER, served.handed_over),
        (c.PIPELINED, served.pipelined),
        (c.MULTIPLEXED, served.multiplexed),
        (c.TLS_HANDSHAKES, served.tls_handshakes),
    ):
        if count is not None:
            sheet.count(metric, count)


def _write_parts(sheet: Sheet, served: ServedCounts) -> None:
    for stage, latency in served.stages.items():
        sheet.time(c.SERVED_STAGE, latency, (stage,))
    for activity, spent_ns in served.app_activity_ns.items():
        sheet.count(c.SERVED_ACTIVITY, spent_ns, (activity,))


def write_destinations(sheet: Sheet, sample: Sample) -> None:
    """Requests upstream and connect() calls, by where they went."""
    write_upstream(sheet, sample)
    write_connects(sheet, sample)


def write_upstream(sheet: Sheet, sample: Sample) -> None:
    """Requests upstream, by where they went."""
    for upstream in sample.upstream or ():
        key = shown((upstream.transport, upstream.address))
        place = sheet.places["upstream"].of(key)
        sheet.time(c.UPSTREAM_DURATION, upstream.latency, place, key)
        sheet.count(c.UPSTREAM_OPENED, upstream.opened, place, key)


def write_upstream_unanswered(sheet: Sheet, sample: Sample) -> None:
    """Requests upstream that ended without an answer, by where they went and who ended them."""
    for upstream in sample.upstream or ():
        key = shown((upstream.transport, upstream.address))
        for ended_by, counted in (("upstream", upstream.dropped), ("target", upstream.given_up)):
            if counted is not None:
                labels = (*sheet.places["upstream"].of(key), ended_by)
                sheet.count(c.UPSTREAM_UNANSWERED, counted.count, labels, (key, ended_by))


def write_upstream_http_replies(sheet: Sheet, sample: Sample) -> None:
    """Answers to the targets with an HTTP/1 status, by where they came from."""
    for upstream in sample.upstream or ():
        key = shown((upstream.transport, upstream.address))
        for outcome, count in _outcomes(upstream.http):
            labels = (*sheet.places["upstream"].of(key), outcome)
            sheet.count(c.UPSTREAM_HTTP_REPLIES, count, labels, (key, outcome))


def write_connects(sheet: Sheet, sample: Sample) -> None:
    """connect() calls, by where they went."""
    for connect in sample.connects or ():
        background = "yes" if connect.in_background else None
        key = shown((connect.transport, connect.address, connect.error, background))
        place = sheet.places["connects"].of(key)
        sheet.time(c.CONNECT_DURATION, connect.latency, place, key)


def write_connections(sheet: Sheet, sample: Sample) -> None:
    """How many are open, and what waits in the busiest."""
    sheet.gauge(c.CONNECTIONS, sample.connections_open)
    groups: Dict[Labels, List[ConnectionReading]] = {}
    for reading in sample.connections or ():
        groups.setdefault(_group(reading), []).append(reading)
    for key, readings in groups.items():
        place = sheet.places["connections"].of(key)
        sheet.gauge(c.RECEIVE_QUEUE, sum(each.recv_queue_bytes for each in readings), place)
        sheet.gauge(c.SEND_QUEUE, sum(each.send_queue_bytes for each in readings), place)


def _group(reading: ConnectionReading) -> Labels:
    # The client's end of a TCP connection has a port of its own: no two would be together.
    address = reading.local if reading.role == "served" else reading.peer_address
    peer = reading.peer.comm if reading.peer is not None else None
    return shown((reading.transport, reading.role, address, peer))
