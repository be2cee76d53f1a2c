"""Rows of connections and of upstream requests: what a window says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional

import pytest

from tests.unit.samples import connection, latency, sample, upstream
from udsprobe.model.report import Connection, Latency, Peer, SendBlocked, Upstream
from udsprobe.model.sockets.connection_rows import (
    CONNECTIONS_SHOWN_MAX,
    connection_rows,
    upstream_rows,
)
from udsprobe.sample import CONNECTIONS_KEPT_MAX, PeerReading, PieceCounts

US, MS = 1_000, 1_000_000


def connections(before: List[Any], after: List[Any]) -> List[Connection]:
    first, last = (sample(at, connections=tuple(r)) for at, r in enumerate((before, after)))
    rows = connection_rows(first, last)
    assert rows is not None
    return rows


def upstreams(before: List[Any], after: List[Any]) -> List[Upstream]:
    first, last = (sample(at, upstream=tuple(r)) for at, r in enumerate((before, after)))
    rows = upstream_rows(first, last)
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("before", "after", "held"), [(2, 9, 7), (None, 9, 9), (0, 0, 0), (None, None, None)]
)
def test_sends_held_back_are_those_of_the_window_or_not_measured(
    before: Optional[int], after: Optional[int], held: Optional[int]
) -> None:
    first, last = (connection(sends_held=each, bytes_out=1) for each in (before, after))
    assert [row.sends_held for row in connections([first], [replace(last, bytes_out=2)])] == [held]


def test_how_long_sends_were_held_is_of_the_window() -> None:
    one = connection(held_ns=2 * SECOND_NS)
    later = replace(one, held_ns=5 * SECOND_NS, bytes_out=2)
    assert [row.held_us for row in connections([one], [later])] == [3e6]
    assert [row.held_us for row in connections([], [later])] == [5e6]
    assert [row.held_us for row in connections([], [replace(later, held_ns=None)])] == [None]


def test_counts_are_those_of_the_window_and_queues_of_its_end() -> None:
    before = connection(
        turns=3,
        bytes_in=100,
        bytes_out=200,
        send_queue_bytes=9,
        send_blocked=1,
        send_blocked_ns=MS,
        send_blocked_max_ns=MS,
        send_eagain=2,
    )
    after = connection(
        turns=5,
        bytes_in=150,
        bytes_out=1200,
        recv_queue_bytes=7,
        send_queue_bytes=8,
        send_blocked=3,
        send_blocked_ns=7 * MS,
        send_blocked_max_ns=4 * MS,
        send_eagain=6,
    )
    assert connections([before], [after]) == [
        Connection(
            transport="unix",
            local="/run/app.sock",
            peer=Peer(33, "nginx", None),
            pid=4711,
            role="served",
            requests=2,
            bytes_in=50,
            bytes_out=1000,
            recv_queue_bytes=7,
            send_queue_bytes=8,
            send_buffer_bytes=212_992,
            send_blocked=SendBlocked(2, Latency(2, mean=3000.0, max=4000.0), 4),
            recv_queue_max_bytes=0,
            send_queue_max_bytes=0,
            recv_buffer_bytes=212_992,
            recv_buffer_is_fixed=False,
            send_buffer_is_fixed=False,
            stalled_us=0.0,
        )
    ]


def test_one_that_was_opened_in_the_window_counts_from_nothing() -> None:
    (row,) = connections([connection(inode=1)], [connection(inode=2, turns=4, bytes_in=40)])
    assert (row.requests, row.bytes_in) == (4, 40)


@pytest.mark.parametrize(
    ("known", "shown"), [(CONNECTIONS_KEPT_MAX - 1, 1), (CONNECTIONS_KEPT_MAX, 0)]
)
def test_one_that_found_no_place_before_has_no_history(known: int, shown: int) -> None:
    before = [connection(inode=number, bytes_in=9) for number in range(known)]
    rows = connections(before, [*before, connection(inode=9999, turns=4, bytes_in=40)])
    assert len(rows) == shown


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({}, 0), ({"bytes_in": 1}, 1), ({"send_queue_bytes": 1}, 1), ({"recv_queue_bytes": 1}, 1)],
)
def test_a_quiet_and_empty_one_is_left_out(changes: Any, shown: int) -> None:
    assert len(connections([connection()], [connection(**changes)])) == shown


def test_those_that_block_come_first_and_fifty_are_shown() -> None:
    after = [connection(inode=n, turns=n, bytes_in=n + 1) for n in range(70)]
    after += [
        connection(inode=100, send_eagain=1, bytes_out=1),
        connection(inode=101, send_blocked=2, bytes_out=1, send_blocked_ns=US),
    ]
    rows = connections([], after)
    assert len(rows) == CONNECTIONS_SHOWN_MAX
    assert [row.requests for row in rows[:4]] == [0, 0, 69, 68]
    assert [row.send_blocked.count for row in rows[:2] if row.send_blocked] == [2, 0]


@pytest.mark.parametrize(
    ("peer", "address", "shown"),
    [
        (PeerReading(5, "db"), "/run/db", Peer(5, "db", "/run/db")),
        (PeerReading(5, None), "", Peer(5, None, None)),
        (None, "10.0.0.1:80", Peer(None, None, "10.0.0.1:80")),
        (None, "", None),
    ],
)
def test_what_is_known_of_the_peer(peer: Any, address: str, shown: Any) -> None:
    (row,) = connections([], [connection(bytes_in=1, peer=peer, peer_address=address)])
    assert row.peer == shown


def test_upstream_requests_of_the_window_most_first() -> None:
    before = [upstream([MS]), upstream([US], address="/run/b")]
    after = [upstream([MS, 2 * MS]), upstream([US, US, US, US], address="/run/b")]
    rows = upstreams(before, after)
    assert [(row.address, row.count) for row in rows] == [("/run/b", 3), ("/run/db.sock", 1)]
    assert rows[1].latency_us.mean == pytest.approx(2000)
    assert rows[1].peer == Peer(812, "postgres", None)


def test_two_rows_of_one_destination_are_added_up() -> None:
    parts = [upstream([MS], peer=None), upstream([3 * MS]), upstream([MS], transport="tcp")]
    rows = upstreams([], parts)
    assert [(row.transport, row.count) for row in rows] == [("unix", 2), ("tcp", 1)]
    assert rows[0].latency_us.mean == pytest.approx(2000)
    assert rows[0].peer == Peer(812, "postgres", None)


def test_how_long_answers_lay_unread_is_of_the_window() -> None:
    before = [upstream([MS], recv_wait_ns=MS)]
    after = [upstream([MS, 5 * MS], recv_wait_ns=3 * MS), upstream([3 * MS], recv_wait_ns=2 * MS)]
    (row,) = upstreams(before, after)
    assert (row.count, row.recv_wait_mean_us) == (2, 2000.0)
    assert upstreams([], [upstream([MS])])[0].recv_wait_mean_us is None


def test_logins_are_told_by_their_number_and_mean() -> None:
    before = [upstream([MS], logins=1, login_ns=MS)]
    after = [upstream([MS, MS, 5 * MS, 7 * MS], logins=3, login_ns=13 * MS)]
    (row,) = upstreams(before, after)
    assert (row.count, row.logins, row.login_mean_us) == (3, 2, 6000.0)
    (row,) = upstreams([], [upstream([MS])])
    assert (row.logins, row.login_mean_us) == (None, None)


def test_an_answer_that_lies_unread_is_not_waited_for() -> None:
    """One connection, kept: 4 ms of 1 s without an answer, and 900 ms with one."""
    place = {"role": "upstream", "transport": "unix", "peer_address": "/run/db.sock"}
    kept = (connection(**place),)
    asked = (upstream([452 * MS, 452 * MS], recv_wait_ns=900 * MS, opened=0),)
    rows = upstream_rows(
        sample(1, connections=kept, upstream=()), sample(2, connections=kept, upstream=asked)
    )
    assert rows is not None
    assert (rows[0].connections, rows[0].busy_pct) == (1, pytest.approx(0.4))


def test_a_destination_nothing_was_asked_of_is_left_out() -> None:
    assert upstreams([upstream([MS])], [upstream([MS]), upstream(address="/run/b")]) == []


def test_what_was_not_measured_is_no_list() -> None:
    nothing = sample(1, connections=None, upstream=None)
    assert connection_rows(nothing, nothing) is None
    assert upstream_rows(nothing, nothing) is None


def test_a_counter_that_went_backwards_is_named() -> None:
    with pytest.raises(ValueError, match="connection 777 turns"):
        connections([connection(turns=2)], [connection(turns=1, bytes_in=1)])
    with pytest.raises(ValueError, match=r"/run/db\.sock"):
        upstreams([upstream([MS, MS])], [upstream(latency=latency([MS]).__class__(1, MS, MS, {}))])


def test_high_water_of_an_interval_and_of_the_whole() -> None:
    fields = {"recv_queue_max_bytes": 9, "recv_queue_recent_max_bytes": 2}
    fields.update(send_queue_max_bytes=8, send_queue_recent_max_bytes=1)
    last = connection(bytes_in=1, stalled_ns=1_500, recv_buffer_is_fixed=True, **fields)
    shown = []
    for first, end in ((0, 1), (0, 5), (3, 4), (3, 5)):
        rows = connection_rows(sample(first), sample(end, connections=(last,)))
        assert rows is not None
        shown.append((rows[0].recv_queue_max_bytes, rows[0].send_queue_max_bytes))
    assert shown == [(2, 1), (9, 8), (2, 1), (None, None)]
    assert (rows[0].stalled_us, rows[0].recv_buffer_is_fixed) == (1.5, True)
    assert (rows[0].send_buffer_is_fixed, rows[0].recv_buffer_bytes) == (False, 212_992)


SECOND_NS = 1_000_000_000


def stopped_row(before: Any, after: Any) -> Connection:
    """Over ten seconds, from the clock's 0."""
    used = tuple(replace(each, bytes_out=each.bytes_out + 1) for each in after)
    first, last = sample(0, connections=before), sample(10, connections=used)
    (row,) = connection_rows(first, last) or []
    return row


def test_a_stop_counts_as_far_as_it_is_in_the_window() -> None:
    start, end = sample(0).monotonic_ns, sample(10).monotonic_ns
    one = connection(stopped_ns=SECOND_NS, stops=3, send_queue_bytes=60, send_buffer_bytes=100)
    settled = stopped_row((one,), (replace(one, stopped_ns=4 * SECOND_NS, stops=5),))
    assert (settled.stopped_us, settled.stops) == (3e6, 2)
    lasting = stopped_row((one,), (replace(one, stopped_since_ns=end - 2 * SECOND_NS),))
    assert lasting.stopped_us == 2e6
    emptied = replace(one, stopped_since_ns=end - 2 * SECOND_NS, send_queue_bytes=0)
    assert stopped_row((one,), (emptied,)).stopped_us == 0
    throughout = replace(one, stopped_since_ns=start - SECOND_NS)
    assert stopped_row((throughout,), (throughout,)).stopped_us == 10e6
    over = stopped_row((throughout,), (replace(one, stopped_ns=4 * SECOND_NS),))
    assert over.stopped_us == 2e6
    assert stopped_row((), (connection(stopped_ns=None, stops=None),)).stopped_us is None


def test_a_full_window_counts_from_the_first_sample_on_and_no_longer_than_it() -> None:
    one = connection(window_full_ns=2 * SECOND_NS)
    later = replace(one, window_full_ns=5 * SECOND_NS)
    assert stopped_row((one,), (later,)).window_full_us == 3e6
    assert stopped_row((), (one,)).window_full_us == 2e6
    assert stopped_row((), (replace(one, window_full_ns=11 * SECOND_NS),)).window_full_us == 10e6
    assert stopped_row((), (connection(),)).window_full_us is None


def test_what_a_reader_was_busy_with_is_an_upper_bound() -> None:
    start = sample(0).monotonic_ns
    known = connection(peer=PeerReading(9, "reader", 2 * SECOND_NS, start))
    later = replace(known, peer=PeerReading(9, "reader", 5 * SECOND_NS, start))
    assert stopped_row((known,), (later,)).reader_busy_us == 3e6
    late = replace(known, peer=PeerReading(9, "reader", SECOND_NS, start + 4 * SECOND_NS))
    assert stopped_row((), (late,)).reader_busy_us == 5e6
    assert stopped_row((), (connection(peer=PeerReading(9, "reader")),)).reader_busy_us is None


@pytest.mark.parametrize(
    ("opened", "connections", "busy_pct"), [(0, 2, 95.0), (50, None, None)], ids=["kept", "each"]
)
def test_a_pool_is_connections_that_are_kept(
    opened: int, connections: Optional[int], busy_pct: Optional[float]
) -> None:
    """100 requests of 190 ms over two connections in ten seconds."""
    row = upstream([190_000_000] * 100, opened=opened)
    kept = tuple(
        connection(inode=n, role="upstream", transport=row.transport, peer_address=row.address)
        for n in (1, 2)
    )
    last = sample(11, upstream=(row,), connections=kept)
    (found,) = upstream_rows(sample(1, upstream=(), connections=kept), last) or []
    assert found.connections == connections
    assert found.busy_pct == (None if busy_pct is None else pytest.approx(busy_pct, rel=0.01))


@pytest.mark.parametrize("is_multiplexed", [False, True])
def test_a_connection_of_http2_is_told(is_multiplexed: bool) -> None:
    """One carries what is asked at the same time: nobody waits until it is free."""
    row = upstream([190_000_000] * 100, opened=0)
    at = {"transport": row.transport, "peer_address": row.address}
    kept = (connection(role="upstream", is_multiplexed=is_multiplexed, **at),)
    last = sample(11, upstream=(row,), connections=kept)
    (found,) = upstream_rows(sample(1, upstream=(), connections=kept), last) or []
    assert (found.connections, found.multiplexed) == (1, is_multiplexed)


@pytest.mark.parametrize(("began", "busy_pct"), [(0, 100.0), (5, 80.0)])
def test_a_pool_was_busy_with_what_was_asked_before_the_observation(
    began: int, busy_pct: float
) -> None:
    """Of requests that take 2 s without a pause ten seconds show four, the one before them not."""
    row = upstream([2 * SECOND_NS] * 4, opened=0)
    kept = (connection(role="upstream", transport=row.transport, peer_address=row.address),)
    first = sample(began, upstream=(), connections=kept)
    (found,) = upstream_rows(first, sample(began + 10, upstream=(row,), connections=kept)) or []
    assert found.busy_pct == pytest.approx(busy_pct)


def test_an_answer_that_has_begun_keeps_its_connection_busy() -> None:
    """100 requests of 50 ms whose answers end 40 ms later: 90 % of ten seconds, not 50 %."""
    row = upstream([50_000_000] * 100, opened=0)
    pieces = PieceCounts(100, 41_000_000 * 100, 40_000_000 * 100, {})
    kept = (connection(role="upstream", transport=row.transport, peer_address=row.address),)
    last = sample(11, upstream=(replace(row, in_pieces=pieces),), connections=kept)
    (found,) = upstream_rows(sample(1, upstream=(), connections=kept), last) or []
    assert found.busy_pct == pytest.approx(90.0, rel=0.01)
