"""Whether a reader sleeps over bytes that stop their sender, or copies them as fast as it can."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import Connection, Peer, ProcessTime, Report, Verdict
from udsprobe.rules.judge import judged
from udsprobe.rules.peers import readers
from udsprobe.rules.suspects.buffers import is_stuck, readers_keep_up

WINDOW_US = ill.SECONDS * 1e6
MB = 1024 * 1024


def row(
    sent: int,
    stopped: float,
    *,
    stops: int = 100,
    busy: Optional[float] = None,
    queued: int = 200_000,
    **more: object,
) -> Connection:
    """Sender stopped and reader busy for these parts of the window."""
    return replace(
        ill.connection(queued=queued, sent=sent, eagain=stops),
        stopped_us=stopped * WINDOW_US,
        stops=stops,
        reader_busy_us=None if busy is None else busy * WINDOW_US,
        **more,  # type: ignore[arg-type]
    )


def report(*rows: Connection) -> Report:
    return ill.service(ill.served(100), connections=list(rows))


def verdict(*rows: Connection) -> Verdict:
    found = judged(report(*rows)).verdict
    assert found is not None
    return found


def test_a_fast_download_on_a_fresh_connection_is_no_slow_reader() -> None:
    """50 MB in 40 ms, and the buffer is full at the last moment: of ten seconds that is little."""
    fresh = row(50 * MB, stopped=0.003, busy=0.004)
    assert readers.drain_s(report(fresh), fresh) < 0.001
    assert verdict(fresh).cause == "healthy"
    assert verdict(replace(fresh, reader_busy_us=None)).cause == "healthy"


def test_a_loop_that_never_fills_the_buffer_waits_for_room_too() -> None:
    """Redis sends 64 KB in each turn of its loop: no call finds the buffer full."""
    found = verdict(row(MB, stopped=0.0, stops=0, busy=0.04, queued=190_000))
    assert found.cause == "send-blocked"


@pytest.mark.parametrize("queued", [200_000, 0])
def test_a_steady_reader_that_sleeps_between_slices(queued: int) -> None:
    """4 MB a second in slices of 64 KB: one buffer takes it 50 ms, and it sleeps all the while."""
    steady = row(40 * MB, stopped=0.92, stops=600, busy=0.03, queued=queued)
    found = verdict(steady)
    assert (found.cause, found.subject) == ("send-blocked", "reader 99")
    assert "sleeps with unread bytes: its sender is stopped 92 % of the time" in found.summary
    assert any("the reader slept for" in fact.says for fact in found.evidence)


def test_a_reader_that_copies_is_the_transport() -> None:
    """Measured: 2.3 GB in ten thousand stops, the reader on a CPU or waiting for one throughout."""
    copying = row(2_300 * MB, stopped=0.3, stops=10_000, busy=1.0)
    assert not is_stuck(report(copying), copying)
    assert verdict(copying).cause == "healthy"


def test_a_thread_that_sends_to_a_reader_that_copies_is_full_of_transport() -> None:
    """Measured: 13 MB a reply; it sends for 44 % of the time, and sleeps in send for 42 %."""
    copying = replace(
        row(9_000 * MB, stopped=0.4, stops=20_000, busy=0.9),
        send_blocked=ill.connection(slept=20_000).send_blocked,
    )
    sender = ill.thread(sys_socket=0.44, runq=0.1, blocked_send=0.42)
    requests = ill.served(1000, recv=60, app=70, send=120)
    found = judged(ill.service(requests, sender, connections=[copying])).verdict
    assert found.cause == "transport" and found.transport_bound
    # Beside one to whom a call sends that has not returned yet.
    stuck = row(0, stopped=0.0, stops=0)
    beside = judged(ill.service(requests, sender, connections=[copying, stuck])).verdict
    assert beside.cause == "send-blocked"
    slow = replace(row(40 * MB, stopped=0.9, busy=0.03), send_blocked=copying.send_blocked)
    assert judged(ill.service(requests, sender, connections=[slow])).verdict.cause != "transport"


def test_waking_up_is_no_sleep_over_bytes() -> None:
    """Stopped all the time, 80 µs each: the reader wakes up, copies, and waits for the next."""
    in_turns = row(3_000 * MB, stopped=0.96, stops=120_000, busy=0.2)
    assert readers.asleep_s(report(in_turns), in_turns) == 0
    assert not is_stuck(report(in_turns), in_turns)


def test_what_an_unknown_reader_does_is_said_to_be_unknown() -> None:
    slow = row(2 * MB, stopped=0.99, busy=None)
    found = verdict(slow)
    assert found.cause == "send-blocked"
    assert any("meanwhile was not measured" in fact.says for fact in found.evidence)
    assert verdict(row(40 * MB, stopped=0.92, busy=None)).cause == "healthy"


def test_a_call_that_sends_longer_than_the_window() -> None:
    """Nothing was sent by any call that returned; the other end takes bytes all the same."""
    copying = row(0, stopped=0.5, busy=0.9, stalled_us=0.0)
    assert not is_stuck(report(copying), copying)
    asleep = row(0, stopped=0.99, busy=0.02, stalled_us=0.0)
    assert is_stuck(report(asleep), asleep)
    assert is_stuck(report(row(0, stopped=0.0, stops=0)), row(0, stopped=0.0, stops=0))


def test_a_reader_that_is_a_target_is_known_by_its_threads() -> None:
    steady = row(40 * MB, stopped=0.92, stops=600, busy=None)
    steady = replace(steady, peer=Peer(55, "reader", None))
    one = report(steady)
    assert one.time is not None
    share = {**dict.fromkeys(one.time.total, 0.0), "user": 0.04, "blocked_other": 0.96}
    processes: List[ProcessTime] = [
        *one.time.processes,
        ProcessTime(55, "reader", 1, ill.SECONDS, share),
    ]
    one = replace(one, time=replace(one.time, processes=processes))
    assert readers.busy_s(one, steady) == pytest.approx(0.4)
    assert is_stuck(one, steady)


def test_a_small_tcp_buffer_waits_for_acknowledgements_and_not_for_its_reader() -> None:
    narrow = replace(
        row(MB, stopped=0.95, stops=200, busy=0.01, queued=0),
        transport="tcp",
        send_buffer_bytes=8192,
        send_buffer_is_fixed=True,
    )
    assert not readers.sleeps_over_bytes(report(narrow), narrow)


def test_readers_that_let_blocking_senders_sleep() -> None:
    asleep = replace(
        row(40 * MB, stopped=0.9, busy=0.03), send_blocked=ill.connection(slept=9).send_blocked
    )
    copying = replace(asleep, reader_busy_us=WINDOW_US)
    assert not readers_keep_up(report(asleep))
    assert readers_keep_up(report(copying))


@pytest.mark.parametrize(
    ("stopped", "stops", "busy", "keeps_up"),
    [
        (0.9, 5, 0.04, False),
        # It copies; it is woken for each piece; its thread hardly sleeps; not known what it does.
        (0.9, 5, 0.85, True),
        (0.9, 20_000, 0.04, True),
        (0.1, 5, 0.04, True),
        (0.9, 5, None, True),
    ],
)
def test_stops_of_connections_that_have_ended_are_those_of_their_thread(
    stopped: float, stops: int, busy: Optional[float], keeps_up: bool
) -> None:
    """A connection for each reply, which lives for a tenth of the window."""
    last = row(3 * MB, stopped=0.1, stops=stops, busy=busy)
    last = replace(last, send_blocked=ill.connection(slept=1).send_blocked)
    thread = ill.thread(last.pid, blocked_send=stopped, blocked_poll=1 - stopped)
    one = ill.service(ill.served(20, send=450_000), thread, connections=[last])
    assert readers_keep_up(one) is keeps_up


def fitting(full: float, busy: Optional[float], sent: int = 30 * MB) -> Connection:
    """TCP's send buffer takes each reply whole, and the reader's window is full for this part."""
    return replace(
        row(sent, stopped=0.0, stops=0, busy=busy),
        transport="tcp",
        local="10.0.0.1:80",
        send_buffer_bytes=4 * MB,
        window_full_us=full * WINDOW_US,
    )


def test_a_reader_that_sleeps_over_replies_that_fit_into_the_buffer() -> None:
    """1 MB each, of which it takes 64 KB every 20 ms: the sender never stops."""
    found = verdict(fitting(0.8, busy=0.03))
    assert found.cause == "send-blocked"
    assert found.summary.startswith("replies on 1 connection are stopped 80 % of the time")
    assert "its receive window is full 80 % of the time" in found.summary


def test_a_reader_that_copies_while_its_window_is_full_is_none() -> None:
    assert verdict(fitting(0.8, busy=0.75)).cause == "healthy"
    # It wakes up for each packet, and for each the sender is faster.
    assert verdict(fitting(0.3, busy=0.1, sent=2000 * MB)).cause == "healthy"


def test_a_reader_that_is_busy_while_replies_wait_for_it_is_named() -> None:
    says = "replies wait until reader 99 reads them, which is 75 % busy"
    facts = [each.says for each in verdict(fitting(0.8, busy=0.75)).evidence]
    assert f"for 80 % of the time {says}" in facts
    assert not any("replies wait" in e.says for e in verdict(fitting(0.0, busy=0.75)).evidence)


def test_a_reader_on_another_host_is_judged_by_how_long_a_buffer_takes() -> None:
    assert verdict(fitting(0.8, busy=None)).cause == "send-blocked"
    assert verdict(fitting(0.8, busy=None, sent=1000 * MB)).cause == "healthy"
    assert verdict(fitting(0.1, busy=None)).cause == "healthy"


def test_one_slow_reader_of_many_is_slow_for_itself() -> None:
    """A download through `proxy_buffering off`, beside clients that are served well."""
    slow = row(2 * MB, stopped=0.99, busy=0.01)
    well = [row(MB, stopped=0.0, stops=0, queued=0, busy=0.1) for _ in range(2)]
    found = judged(report(slow, *well))
    assert found.verdict is not None and found.verdict.cause == "healthy"
    (told,) = [each for each in found.findings or [] if each.id == "send-blocked"]
    assert (told.severity, told.subject) == ("info", "reader 99")
    assert told.summary.endswith("; 2 other connections are served")


def test_slow_readers_harm_others_where_they_are_most_or_keep_a_thread() -> None:
    slow = row(2 * MB, stopped=0.99, busy=0.01)
    well = [row(MB, stopped=0.0, stops=0, queued=0, busy=0.1) for _ in range(2)]
    assert verdict(slow, slow, *well).cause == "send-blocked"
    asleep = ill.service(ill.served(100), ill.thread(blocked_send=0.9), connections=[slow, *well])
    kept = judged(asleep).verdict
    assert kept is not None and kept.cause == "send-blocked"
    # A log that takes no more: it is no client.
    assert verdict(replace(slow, role="upstream"), *well).cause == "send-blocked"
