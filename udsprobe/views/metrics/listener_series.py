"""Accept queues as series."""

from __future__ import annotations

from typing import Dict, Hashable, Optional

from udsprobe.model.report import Listener, Report
from udsprobe.sample import ListenerReading, QueueCounts, Sample
from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.ledger import Labels
from udsprobe.views.metrics.page import Sheet, shown
from udsprobe.views.metrics.series_budget import OTHER


def write_listeners(sheet: Sheet, sample: Sample, report: Report) -> None:
    """Every listener of the sample.

    Args:
        report: of the interval the sample ends; it knows the interval's high-water marks.
    """
    rows = {row.inode: row for row in report.listeners or ()}
    for reading in sample.listeners or ():
        key = shown((reading.transport, reading.socket_type, reading.address, reading.netns))
        place = sheet.places["listeners"].of(key)
        if reading.is_open:
            _write_state(sheet, reading, rows.get(reading.inode), place)
        if reading.queue is not None:
            source = (reading.inode, reading.queue.since_ns)
            _write_events(sheet, reading.queue, place, source)


def _write_state(
    sheet: Sheet, reading: ListenerReading, row: Optional[Listener], place: Labels
) -> None:
    # Without a probe at it: how deep it is now. A full window's maximum is of another time.
    has_probe = reading.queue is not None
    peak = row.depth.max if row is not None and has_probe else None
    deepest = peak if has_probe else reading.depth_now
    limit = reading.backlog_effective + 1
    sheet.gauge(c.QUEUES, 1, place)
    sheet.gauge(c.QUEUE_DEPTH, reading.depth_now, place)
    sheet.gauge(c.QUEUE_PEAK, peak, place, max)
    sheet.gauge(c.QUEUE_FILL, None if deepest is None else deepest / limit, place, max)
    if OTHER not in place[:1]:
        sheet.gauge(c.QUEUE_LIMIT, limit, place)
    queue = reading.queue
    if queue is not None:
        sheet.gauge(c.QUEUE_PEAK_EVER, max(queue.depth_max, reading.depth_now or 0), place, max)
        sheet.gauge(c.BLOCKED_NOW, queue.blocked_now, place)
        sheet.gauge(c.SYN_QUEUE, queue.syn_queue, place)


def write_window_events(sheet: Sheet, reading: ListenerReading) -> None:
    """What only full detail tells of a listener: waits for accept(), and failed connects."""
    queue = reading.queue
    if queue is None:
        return
    key = shown((reading.transport, reading.socket_type, reading.address, reading.netns))
    place = sheet.places["listeners"].of(key)
    source = (reading.inode, queue.since_ns)
    _write_waits(sheet, queue, place, source)
    _write_refused(sheet, queue, place, source)


def write_arrivals(sheet: Sheet, reading: ListenerReading) -> None:
    """What detail light tells of a listener as well: who came, was accepted and was dropped."""
    if reading.queue is None:
        return
    key = shown((reading.transport, reading.socket_type, reading.address, reading.netns))
    place = sheet.places["listeners"].of(key)
    _write_arrivals(sheet, reading.queue, place, (reading.inode, reading.queue.since_ns))


def _write_events(sheet: Sheet, queue: QueueCounts, place: Labels, source: Hashable) -> None:
    _write_arrivals(sheet, queue, place, source)
    _write_waits(sheet, queue, place, source)
    _write_refused(sheet, queue, place, source)


def _write_arrivals(sheet: Sheet, queue: QueueCounts, place: Labels, source: Hashable) -> None:
    sheet.count(c.ESTABLISHED, queue.established, place, source)
    sheet.count(c.ACCEPTED, queue.accepted, place, source)
    if queue.drops is not None:
        sheet.count(c.DROPS, queue.drops, place, source)


def _write_waits(sheet: Sheet, queue: QueueCounts, place: Labels, source: Hashable) -> None:
    if queue.wait is not None:
        sheet.time(c.ACCEPT_WAIT, queue.wait, place, source)
    if queue.blocked is not None:
        sheet.time(c.BLOCKED_CONNECT, queue.blocked, place, source)


def _write_refused(sheet: Sheet, queue: QueueCounts, place: Labels, source: Hashable) -> None:
    for errno, count in _refused(queue).items():
        shown_errno = sheet.places["listeners"].detail(place, errno)
        sheet.count(c.REFUSED, count, (*place, shown_errno), (source, errno))


def _refused(queue: QueueCounts) -> Dict[str, int]:
    if queue.refused is None:
        return {}
    # A full queue is what everybody asks about: 0 is an answer.
    return {"EAGAIN": 0, **queue.refused}
