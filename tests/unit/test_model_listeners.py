"""Rows of listeners and of connects: what a window says of an accept queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samples import connects, latency, listener, queue, sample
from udsprobe.model.report import Connect, Listener
from udsprobe.model.sockets.listener_rows import connect_rows, listener_row, listener_rows
from udsprobe.sample import ConnectCounts, ListenerReading, QueueCounts, Sample


def rows(first: Sample, last: Sample) -> List[Listener]:
    shown = listener_rows(first, last)
    assert shown is not None
    return shown


def between(before: Optional[QueueCounts], after: QueueCounts, **changes: Any) -> Listener:
    """The row of a window of one interval."""
    first = sample(0, listeners=(listener(depth_now=0, queue=before),))
    (row,) = rows(first, sample(1, listeners=(listener(depth_now=0, queue=after, **changes),)))
    return row


def high_water(before: Sequence[Any], after: Sequence[Any], last_at_s: float = 1) -> Optional[int]:
    """`depth.max` between two readings of (depth_now, depth_max, recent, slots)."""
    samples = [
        sample(
            at_s,
            listeners=(
                listener(
                    depth_now=now,
                    queue=queue(depth_max=top, depth_max_recent=recent, depth=slots),
                ),
            ),
        )
        for at_s, (now, top, recent, slots) in ((0, before), (last_at_s, after))
    ]
    (row,) = rows(*samples)
    return row.depth.max


def test_counts_are_those_of_the_window() -> None:
    before = queue(
        [1_000, 2_000],
        [5_000_000],
        established=4,
        accepted_early=1,
        accepted_by={4711: 1, 4712: 1},
        accepted_by_thread={4711: 1, 4720: 1},
        depth={1: 3, 2: 1},
        refused={"EAGAIN": 3},
    )
    after = queue(
        [1_000, 2_000, 2_000, 64_000],
        [5_000_000, 7_000_000, 9_000_000],
        established=9,
        accepted_early=2,
        accepted_by={4711: 3, 4712: 1},
        accepted_by_thread={4711: 3, 4720: 1},
        depth={1: 3, 2: 4, 32: 2},
        blocked_now=5,
        refused={"EAGAIN": 10, "ECONNREFUSED": 1},
    )
    row = between(before, after, pids=(4711, 4712, 4713))
    assert (row.established, row.accepted, row.accepted_early) == (5, 2, 1)
    assert row.accepted_by == {"4711": 2, "4712": 0, "4713": 0}
    assert row.accepted_by_thread == {"4711": 2}
    assert row.depth.histogram == {"2": 3, "32": 2}
    assert row.wait_us is not None and (row.wait_us.count, row.wait_us.mean) == (2, 33.0)
    assert row.refused == {"EAGAIN": 7, "ECONNREFUSED": 1}
    assert row.blocked_connects is not None
    assert (row.blocked_connects.count, row.blocked_connects.waiting_now) == (2, 5)
    assert row.blocked_connects.wait_us.mean == 8_000.0


def test_owners_that_accepted_none_are_shown_with_zero() -> None:
    row = between(queue(), queue([1_000] * 3), pids=(4710, 4711, 4712))
    assert row.accepted_by == {"4710": 0, "4711": 3, "4712": 0}
    assert row.accepted_by_thread == {"4711": 3}


def test_who_accepts_is_shown_even_when_owners_are_hidden() -> None:
    assert between(queue(), queue([1_000]), pids=None).accepted_by == {"4711": 1}


def test_ids_are_in_the_order_of_numbers() -> None:
    by = {100: 1, 9: 5, 20: 3}
    row = between(queue(), queue(accepted_by=by, accepted_by_thread=by, depth=by), pids=())
    for shown in (row.accepted_by, row.accepted_by_thread, row.depth.histogram):
        assert list((shown or {}).items()) == [("9", 5), ("20", 3), ("100", 1)]


def test_without_a_probe_at_the_queue_events_are_not_measured() -> None:
    (row,) = rows(sample(), sample(1))
    events = (
        *(row.established, row.accepted, row.accepted_early, row.accepted_by, row.wait_us),
        *(row.accepted_by_thread, row.refused, row.blocked_connects, row.drops, row.syn_queue),
        *(row.depth.max, row.depth.histogram),
    )
    assert set(events) == {None}
    assert (row.depth.now, row.depth.limit, row.state, row.inode) == (97, 129, "listening", 12345)


def test_listeners_that_were_not_read_are_not_measured() -> None:
    assert listener_rows(sample(), sample(1, listeners=None)) is None
    assert rows(sample(), sample(1, listeners=())) == []


def test_one_that_appears_is_counted_from_its_beginning() -> None:
    fresh = listener(inode=9, depth_now=2, queue=queue([1_000] * 3, established=5, depth_max=4))
    (row,) = rows(sample(listeners=()), sample(1, listeners=(fresh,)))
    assert (row.established, row.accepted, row.depth.now, row.depth.max) == (5, 3, 2, 4)


def test_one_that_was_counted_later_than_seen_has_all_its_counts() -> None:
    row = between(None, queue([1_000] * 3, established=5, depth_max=4, depth={4: 5}))
    assert (row.established, row.accepted, row.depth.max) == (5, 3, 4)


def closed(counts: QueueCounts) -> ListenerReading:
    return listener(depth_now=None, is_open=False, queue=counts)


def test_one_that_closes_is_shown_once_more() -> None:
    opened = sample(0, listeners=(listener(depth_now=3, queue=queue(established=3, depth_max=3)),))
    shut = sample(1, listeners=(closed(queue([1_000], established=4, depth_max=4)),))
    (row,) = rows(opened, shut)
    assert (row.state, row.depth.now, row.depth.max) == ("closed", None, 4)
    assert (row.established, row.accepted) == (1, 1)
    assert rows(shut, replace(shut, sequence=2)) == []


def test_one_that_opened_and_closed_within_the_window_is_shown() -> None:
    (row,) = rows(sample(listeners=()), sample(1, listeners=(closed(queue([1_000] * 2)),)))
    assert (row.state, row.accepted) == ("closed", 2)


def test_a_closed_one_is_back_when_somebody_tries_its_address() -> None:
    shut = sample(1, listeners=(closed(queue([1_000] * 2, refused={"ENOENT": 1})),))
    tried = sample(2, listeners=(closed(queue([1_000] * 2, refused={"ENOENT": 5})),))
    (row,) = rows(shut, tried)
    assert (row.state, row.accepted, row.refused) == ("closed", 0, {"ENOENT": 4})
    assert rows(tried, replace(tried, sequence=3)) == []


def test_one_that_vanished_is_left_out() -> None:
    gone, stays = listener(inode=1, queue=queue()), listener(inode=2, queue=queue())
    (row,) = rows(sample(listeners=(gone, stays)), sample(1, listeners=(stays,)))
    assert row.inode == 2


def test_two_at_one_address_are_told_apart_by_inode() -> None:
    first = [listener(inode=inode, queue=queue([1_000])) for inode in (1, 2)]
    last = [replace(first[1], queue=queue([1_000] * 4)), first[0]]
    shown = rows(sample(listeners=tuple(first)), sample(1, listeners=tuple(last)))
    assert [(row.inode, row.accepted) for row in shown] == [(2, 3), (1, 0)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # The maximum since the beginning grew: it is of this window, and exact.
        ((0, 7, 7, {7: 1}), (0, 129, 129, {7: 1, 128: 1}), 129),
        ((0, 7, 7, {7: 1}), (0, 129, None, {7: 1, 128: 1}), 129),
        ((0, 7, 7, {7: 1}), (130, 129, 129, {7: 1, 128: 1}), 130),
        # It did not: the interval's own mark.
        ((0, 129, 129, {128: 1}), (0, 129, 70, {128: 1, 68: 1}), 70),
        ((0, 129, 129, {128: 1}), (0, 129, 129, {128: 2}), 129),
        # Nothing entered: what was there at either end.
        ((0, 129, 129, {128: 1}), (0, 129, None, {128: 1}), 0),
        ((9, 129, 129, {128: 1}), (4, 129, None, {128: 1}), 9),
        ((0, 129, 129, {128: 1}), (5, 129, None, {128: 1}), 5),
        ((None, 129, 129, {128: 1}), (None, 129, None, {128: 1}), 0),
        # Queued while the previous sample was read: its mark is of that interval.
        ((0, 129, 129, {128: 1}), (0, 129, None, {128: 1, 40: 1}), 40),
    ],
)
def test_high_water_of_one_interval(before: Any, after: Any, expected: int) -> None:
    assert high_water(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0, 7, 7, {7: 1}), (0, 129, None, {7: 1, 128: 1}), 129),
        ((0, 7, 7, {7: 1}), (130, 129, 129, {7: 1, 128: 1}), 130),
        # The mark is of the last interval only: slots tell, 72 and 75 share one.
        ((0, 129, 129, {128: 1}), (0, 129, 3, {128: 1, 72: 2, 3: 1}), 72),
        ((80, 129, 129, {128: 1}), (0, 129, 3, {128: 1, 72: 2, 3: 1}), 80),
        ((0, 129, 129, {128: 1}), (81, 129, 3, {128: 1, 3: 1}), 81),
        ((0, 129, 129, {128: 1}), (0, 129, 129, {128: 1}), 0),
    ],
)
def test_high_water_of_many_intervals(before: Any, after: Any, expected: int) -> None:
    assert high_water(before, after, last_at_s=5) == expected


def test_consecutive_intervals_have_each_their_own_high_water() -> None:
    marks = [(0, 0, None, {}), (0, 50, 50, {50: 1}), (0, 50, 20, {50: 1, 20: 1}), (0, 60, 60, {})]
    slots = {}
    shown = []
    for before, after in zip(marks, marks[1:]):
        earlier, slots = slots, {**slots, after[1] if after[2] is None else after[2]: 1}
        shown.append(high_water((*before[:3], earlier), (*after[:3], slots)))
    assert shown == [50, 20, 60]


depths = st.lists(st.integers(1, 31), max_size=8)


@settings(deadline=None)
@given(depths, depths, st.integers(0, 31), st.integers(1, 3))
def test_high_water_is_at_least_everything_that_was_seen(
    earlier: List[int], later: List[int], now: int, apart: int
) -> None:
    def read(at_s: int, history: List[int], depth_now: int) -> Sample:
        counted = queue(
            established=len(history),
            depth={depth: history.count(depth) for depth in history},
            depth_max=max(history, default=0),
            depth_max_recent=max(later, default=None),
        )
        return sample(at_s, listeners=(listener(depth_now=depth_now, queue=counted),))

    (row,) = rows(read(0, earlier, 0), read(apart, earlier + later, now))
    assert row.depth.max == max([*later, now])


def test_drops_and_handshakes_are_of_tcp() -> None:
    before = queue(drops=7, syn_queue=1, syn_young=1)
    row = between(before, queue(drops=19, syn_queue=3, syn_young=2), transport="tcp")
    assert (row.drops, row.syn_queue) == (12, {"now": 3, "young": 2})
    unix = between(queue(), queue([1_000]))
    assert (unix.drops, unix.syn_queue) == (None, None)
    fresh = listener(inode=9, transport="tcp", queue=queue(drops=4, syn_queue=0, syn_young=0))
    assert listener_row(fresh).drops == 4


@pytest.mark.parametrize(
    "shrunk",
    [
        {"established": 0},
        {"accepted": 0},
        {"accepted_by": {}},
        {"accepted_by_thread": {4711: 1}},
        {"depth": {1: 1}},
        {"refused": {}},
        {"wait": latency([1_000])},
        {"blocked": latency()},
        {"drops": 1},
    ],
    ids=lambda shrunk: str(next(iter(shrunk))),
)
def test_a_count_that_shrinks_is_refused_by_the_listeners_name(shrunk: Any) -> None:
    counts = queue([1_000] * 2, [2_000_000], refused={"EAGAIN": 1}, drops=2)
    with pytest.raises(ValueError, match=r"(listener /run/app.sock|depth).* went backwards"):
        between(counts, replace(counts, **shrunk))


def connects_between(
    first: Sequence[ConnectCounts], last: Sequence[ConnectCounts]
) -> List[Connect]:
    shown = connect_rows(sample(connects=tuple(first)), sample(1, connects=tuple(last)))
    assert shown is not None
    return shown


def test_connects_to_one_address_are_one_row_whatever_came_of_them() -> None:
    first = [connects([1_000]), connects([9_000], error="ENOENT")]
    last = [
        connects([1_000] * 3),
        connects([9_000], error="ENOENT"),
        connects([4_000] * 2, error="EAGAIN"),
    ]
    (row,) = connects_between(first, last)
    assert (row.transport, row.address, row.calls) == ("unix", "/run/db.sock", 4)
    assert row.errors == {"EAGAIN": 2}
    assert (row.latency_us.count, row.latency_us.mean, row.latency_us.max) == (4, 2.5, 4.0)


def test_connects_by_sockets_of_several_types_are_one_row() -> None:
    """The kernel half counts them apart, and the map they are in has no order."""
    stream, seqpacket = connects([1_000] * 3, error="ENOENT"), connects([5_000], error="ENOENT")
    more = connects([1_000] * 5, error="ENOENT"), connects([5_000] * 4, error="ENOENT")
    for last in (more, more[::-1]):
        (row,) = connects_between([stream, seqpacket], last)
        assert (row.calls, row.errors) == (5, {"ENOENT": 5})
        assert row.latency_us.mean == (2 * 1 + 3 * 5) / 5


def test_connects_are_sorted_by_calls_then_address_and_idle_ones_left_out() -> None:
    idle = connects([500], address="/idle.sock")
    last = [
        idle,
        connects([500], address="127.0.0.1:6379", transport="tcp"),
        connects([500] * 2, address="/b.sock"),
        connects([500] * 2, address="/a.sock"),
    ]
    shown = [(row.transport, row.address) for row in connects_between([idle], last)]
    assert shown == [("unix", "/a.sock"), ("unix", "/b.sock"), ("tcp", "127.0.0.1:6379")]


@pytest.mark.parametrize("missing", ["first", "last"])
def test_connects_of_one_sample_only_are_not_measured(missing: str) -> None:
    first, last = sample(connects=(connects([1]),)), sample(1, connects=(connects([1] * 2),))
    if missing == "first":
        first = replace(first, connects=None)
    else:
        last = replace(last, connects=None)
    assert connect_rows(first, last) is None


def test_connects_that_shrink_are_refused() -> None:
    with pytest.raises(ValueError, match=r"connects to /run/db.sock went backwards"):
        connects_between([connects([1, 2])], [connects([1])])
