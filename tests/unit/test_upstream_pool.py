"""Connections to one upstream that are all busy are a queue for that upstream."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit import ill
from udsprobe.model.report import BusyTime, Loop, Peer, Report, Upstream, Verdict
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged
from udsprobe.rules.peers.readers import busy_at_least_s


def pooled(busy_pct: Optional[float], connections: Optional[int] = 2, at_once: int = 24) -> Report:
    """A loop that asks an upstream of 20 ms for each request, so many at a time."""
    answered = 950
    app_us = ill.SECONDS * 1e6 * at_once / answered
    waits = 100 * 20_000 / app_us
    row = replace(ill.upstream(answered, 20_000), connections=connections, busy_pct=busy_pct)
    rows: List[Upstream] = [row]
    requests = ill.served(answered, app=app_us, upstream=waits, poll=98 - waits, cpu=2)
    return ill.service(requests, ill.thread(user=0.05), upstream=rows)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_a_full_pool_is_a_queue_for_its_upstream() -> None:
    found = verdict(pooled(95.0))
    assert found.cause == "upstream-wait"
    assert "its pool of 2 connections is full, 95 % busy" in found.summary
    assert request_time(whole_service(pooled(95.0))).share("upstream") > 0.95


def named(report: Report, comm: str) -> Report:
    """The same of another program."""
    return replace(report, targets=[replace(each, comm=comm) for each in report.targets])


def first_action(report: Report) -> str:
    return verdict(report).actions[0].say


def test_the_first_remedy_of_a_queue_for_an_upstream_is_more_at_once() -> None:
    assert first_action(pooled(95.0)).startswith("raise `max` of the pool (pg.Pool")
    assert "default_pool_size" in first_action(named(pooled(95.0), "pgbouncer"))
    assert "circuit_breakers.thresholds" in first_action(named(pooled(95.0), "envoy"))
    assert "see what" in first_action(pooled(95.0, connections=2, at_once=3))


def test_one_connection_may_be_a_lock_that_is_held_meanwhile() -> None:
    one = pooled(98.0, connections=1)
    assert "asks it one request at a time: its one connection is 98 % busy" in verdict(one).summary
    assert "hold no lock meanwhile" in first_action(one)
    assert "raise `max` of the pool" in verdict(one).actions[1].say
    assert "default_pool_size" in first_action(named(one, "pgbouncer"))


def test_one_connection_may_carry_several_requests_at_once() -> None:
    """A client that does not wait for answers (ioredis): more requests than turns."""
    one = pooled(98.0, connections=1)
    row = replace((one.requests.upstream or [])[0], count=300)
    together = replace(one, requests=replace(one.requests, upstream=[row]))
    assert "over one connection, which is 98 % busy" in verdict(together).summary
    assert "see what" in first_action(together)
    assert all("hold no lock" not in each.say for each in verdict(together).actions)


@pytest.mark.parametrize(
    ("connections", "says"),
    [(1, "one connection, which is 98 % busy"), (2, "2 connections, which are 98 % busy")],
)
def test_a_larger_pool_is_no_remedy_where_one_carries_all(connections: int, says: str) -> None:
    """HTTP/2: what waits for an answer there waits for who is asked."""
    few = pooled(98.0, connections=connections)
    row = replace((few.requests.upstream or [])[0], multiplexed=True)
    http2 = replace(few, requests=replace(few.requests, upstream=[row]))
    found = verdict(http2)
    assert found.cause == "upstream-wait" and f"over {says}" in found.summary
    assert "see what" in first_action(http2)
    assert not any("pool" in each.say for each in found.actions)


@pytest.mark.parametrize(
    ("comm", "busy", "has_time"),
    [
        ("redis-server", 0.97, False),
        ("redis-server", 0.5, True),
        ("postgres", 0.97, True),
        ("postgres", 1.97, False),
        ("redis-server", None, True),
    ],
)
def test_more_at_once_does_not_help_where_the_upstream_has_no_time(
    comm: str, busy: Optional[float], has_time: bool
) -> None:
    """On two CPUs, of which Redis uses one."""
    peer = Peer(77, comm, "/run/upstream.sock")
    used_us = None if busy is None else busy * ill.SECONDS * 1e6
    seen_us = None if busy is None else ill.SECONDS * 1e6
    asked = replace(
        ill.connection(role="upstream", peer=peer),
        reader_busy_us=used_us,
        reader_seen_us=seen_us,
    )
    report = pooled(95.0)
    assert report.requests.upstream is not None
    rows = [replace(row, peer=peer) for row in report.requests.upstream]
    report = replace(
        report,
        host=replace(report.host, cpus=2),
        requests=replace(report.requests, upstream=rows),
        connections=[asked],
    )
    assert ("see what" in first_action(report)) is not has_time
    assert (f"{comm} 77 itself is 9" in verdict(report).summary) is not has_time


def test_what_nobody_looked_at_is_no_time_that_an_upstream_was_busy() -> None:
    """Met 9 s after the window began: until then it counts as busy, at the most."""
    peer = Peer(77, "redis-server", "/run/upstream.sock")
    window_us = ill.SECONDS * 1e6
    late = replace(
        ill.connection(role="upstream", peer=peer),
        reader_busy_us=0.91 * window_us,
        reader_seen_us=0.1 * window_us,
    )
    assert busy_at_least_s(pooled(95.0), late) == pytest.approx(0.01 * ill.SECONDS)
    assert busy_at_least_s(pooled(95.0), replace(late, reader_seen_us=None)) is None


def test_a_proxy_with_a_queue_waits_for_its_upstream_in_it() -> None:
    """HAProxy asks two at once (maxconn 2), over three connections in turn."""
    proxy = named(pooled(63.0, connections=3), "haproxy")
    found = verdict(proxy)
    assert found.cause == "upstream-wait"
    assert "queues for it: 1.9 requests at once are outstanding there" in found.summary
    assert "maxconn on the backend's `server` line" in found.actions[0].say


def test_a_proxy_with_timers_of_its_own_holds_requests_back() -> None:
    """As nginx with limit_req, or with a lock of its cache for what it may not keep."""
    found = verdict(named(pooled(60.0), "nginx"))
    assert (found.cause, found.harm.kind) == ("app-blocked", "slow")
    assert "nginx holds requests back itself: of 24.0 requests in hand 1.9 wait" in found.summary
    assert "which takes 20 ms per request" in found.summary
    look, loosen = found.actions[:2]
    assert "_cache_lock" in (look.run or "") and look.effect == "looks"
    assert "proxy_cache_lock off" in loosen.say and "nodelay" in loosen.say
    assert first_action(named(pooled(60.0), "caddy")).startswith("find the limit of its own")
    assert "holds requests back" not in verdict(named(pooled(60.0), "node")).summary


def test_requests_that_never_get_a_reply_are_in_hand_too() -> None:
    """One that is let through again and again is answered, and the others wait."""
    report = named(pooled(60.0, at_once=4), "nginx")
    rows = [replace(ill.served_by(4711, 950, "nginx"), at_once=20.0)]
    report = replace(report, requests=replace(report.requests, served_by=rows))
    assert "of 20.0 requests in hand 1.9 wait" in verdict(report).summary


def test_varnish_fetches_an_object_once_for_all_that_want_it() -> None:
    """They wait on its list with no thread, over two connections in turn."""
    found = verdict(named(pooled(48.0, connections=2), "cache-main"))
    assert found.cause == "upstream-wait"
    assert "queues for it: 1.9 requests at once are outstanding there" in found.summary
    assert "hit-for-miss" in found.actions[0].say


@pytest.mark.parametrize(
    ("busy_pct", "connections"), [(60.0, 2), (None, None)], ids=["room", "not kept"]
)
def test_a_pool_with_room_is_not_what_a_timer_waits_for(
    busy_pct: Optional[float], connections: Optional[int]
) -> None:
    assert verdict(pooled(busy_pct, connections)).cause == "app-blocked"


def test_no_more_requests_than_connections_queue_for_none() -> None:
    """Each has a connection of its own: what it waits for besides is a timer."""
    found = request_time(whole_service(pooled(95.0, connections=32)))
    assert found.share("timer") > 0.8


@pytest.mark.parametrize(
    ("asleep", "late_us", "told"),
    [
        ("blocked_recv", 30_000.0, True),
        ("blocked_poll", 30_000.0, False),
        ("blocked_recv", 20.0, False),
        ("blocked_recv", 2_500.0, False),
    ],
)
def test_a_loop_that_waits_in_the_call_serves_nobody_else(
    asleep: str, late_us: float, told: bool
) -> None:
    """One that asks without await; one that waits in its poller; one client at a time; one of a
    pool of threads, which polls for its answer, with requests that wait for far less than that.
    """
    requests = ill.served(450, recv_wait=late_us, app=20_000, upstream=98.0, cpu=2.0)
    thread = ill.thread(**{"user": 0.04, asleep: 0.9})
    report = ill.service(requests, thread, upstream=[ill.upstream(450, 19_500.0)])
    assert report.time is not None
    loop = Loop(4711, 4711, "node", 500, BusyTime(20_000.0, 30_000.0))
    report = replace(report, time=replace(report.time, loops=[loop]))
    found = judged(report).verdict
    assert found is not None and found.cause == "upstream-wait"
    assert ("waits in its event loop for" in found.summary) is told
    assert any("the loop's own functions" in each.say for each in found.actions) is told


@pytest.mark.parametrize(("late_us", "told"), [(30_000.0, True), (20.0, False)])
def test_a_loop_that_sleeps_in_a_call_serves_nobody_else(late_us: float, told: bool) -> None:
    """time.sleep() in an async function."""
    requests = ill.served(450, recv_wait=late_us, app=20_000, other=98.0, cpu=2.0)
    report = ill.service(requests, ill.thread(user=0.04, blocked_other=0.9))
    assert report.time is not None
    loop = Loop(4711, 4711, "node", 500, BusyTime(20_000.0, 30_000.0))
    report = replace(report, time=replace(report.time, loops=[loop]))
    found = judged(report).verdict
    assert found is not None and found.cause == "app-blocked"
    assert ("its event loop serves nobody meanwhile" in found.summary) is told
    assert ("...Sync" in found.actions[0].say) is told
