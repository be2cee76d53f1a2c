"""Chains of servers: who is one hop, who asks whom, and what of the time is whose."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence

from tests.unit.reports import listener
from tests.unit.samples import target
from udsprobe.model.report import (
    Hop,
    Latency,
    Listener,
    OwnRequests,
    Peer,
    ServedBy,
    StageMeans,
    Waiting,
)
from udsprobe.model.requests.hops import asked_by_servers, hops
from udsprobe.sample import TargetReading

NOTHING = Waiting(0, None)


def asks(count: int, mean_us: float, pid: Optional[int] = None, address: str = "?") -> OwnRequests:
    peer = None if pid is None else Peer(pid, "any")
    transport = "unix" if address.startswith("/") else "tcp"
    return OwnRequests(transport, address, peer, count, mean_us)


def row(pid: int, comm: str, count: int, mean_us: float, *upstream: OwnRequests) -> ServedBy:
    return ServedBy(
        pid=pid,
        comm=comm,
        count=count,
        rate_per_s=None,
        latency_us=Latency(count, mean=mean_us if count else None),
        stages_mean_us=StageMeans(),
        app_time_pct=None,
        handed_over=0,
        pipelined=0,
        upstream=list(upstream),
        in_progress=NOTHING,
        unread=NOTHING,
        asking=NOTHING,
    )


def found(
    rows: Sequence[ServedBy],
    listeners: Sequence[Listener] = (),
    targets: Sequence[TargetReading] = (),
) -> List[Hop]:
    chain = hops(rows, listeners, targets)
    assert chain is not None
    return chain


def test_not_measured_is_none() -> None:
    assert hops(None, [], []) is None


def test_servers_that_do_not_ask_each_other_are_no_chain() -> None:
    assert found([row(1, "a", 5, 1), row(2, "b", 5, 1, asks(5, 1, pid=99))]) == []


def test_what_a_proxy_waits_for_is_not_its_own() -> None:
    inner = row(2, "node", 10, 300.0)
    outer = row(1, "nginx", 10, 500.0, asks(10, 400.0, pid=2))
    assert found([inner, outer]) == [
        Hop(1, [1], "nginx", None, 10, 500.0, 100.0, 400.0, [2]),
        Hop(2, [2], "node", None, 10, 300.0, 300.0, 0.0, []),
    ]


def test_an_answer_that_lies_unread_is_the_asker_s_own_time() -> None:
    asked = replace(asks(10, 400.0, pid=2), recv_wait_mean_us=300.0)
    outer, _ = found([row(1, "nginx", 10, 500.0, asked), row(2, "node", 10, 90.0)])
    assert (outer.own_us, outer.upstream_us) == (400.0, 100.0)


def test_requests_of_one_that_overlap_leave_nothing_of_its_own() -> None:
    outer, _ = found([row(1, "a", 10, 500.0, asks(40, 400.0, pid=2)), row(2, "b", 40, 1.0)])
    assert (outer.own_us, outer.upstream_us) == (0.0, 1600.0)


def test_workers_on_one_listener_are_one_hop() -> None:
    heard = listener("/run/web.sock", pids=[8, 9, 7])
    workers = [
        row(9, "nginx", 30, 200.0, asks(30, 100.0, pid=2)),
        row(8, "nginx", 10, 400.0, asks(10, 300.0, pid=2)),
    ]
    outer, inner = found([*workers, row(2, "node", 40, 90.0)], [heard])
    assert (outer.pid, outer.pids, outer.address) == (8, [8, 9], "/run/web.sock")
    assert (outer.count, outer.latency_mean_us, outer.upstream_us) == (40, 250.0, 150.0)
    assert (outer.next, inner.pids) == ([2], [2])


def test_workers_without_a_listener_by_their_parent() -> None:
    """As in Node's cluster, where the parent listens; another parent is another program."""
    targets = [target(pid=pid, parent=5) for pid in (6, 7)] + [target(pid=8, parent=1)]
    rows = [row(pid, "node", 1, 9.0, asks(1, 5.0, pid=2)) for pid in (6, 7, 8)]
    chain = found([*rows, row(2, "db", 3, 1.0)], [], targets)
    assert [hop.pids for hop in chain] == [[6, 7], [8], [2]]


def test_programs_of_one_name_on_two_listeners_are_two_hops() -> None:
    heard = [listener("/a", pids=[1]), listener("/b", pids=[2])]
    chain = found(
        [row(2, "node", 4, 1.0), row(1, "node", 4, 3.0, asks(4, 2.0, address="/b"))], heard
    )
    assert [(hop.pid, hop.address, hop.next) for hop in chain] == [(1, "/a", [2]), (2, "/b", [])]


def test_who_answered_counts_more_than_who_listens() -> None:
    """A socket that was handed over."""
    heard = [listener("/b", pids=[2])]
    rows = [row(1, "a", 4, 3.0, asks(4, 2.0, pid=3, address="/b"))]
    chain = found([*rows, row(2, "b", 1, 1.0), row(3, "c", 4, 1.0)], heard)
    assert [hop.pid for hop in chain] == [1, 3]


def test_a_listener_on_every_address() -> None:
    heard = [listener("[::]:8080", "tcp", pids=[2])]
    ask = row(1, "a", 4, 3.0, asks(4, 2.0, address="127.0.0.1:8080"))
    assert [hop.pid for hop in found([ask, row(2, "b", 4, 1.0)], heard)] == [1, 2]
    other = row(1, "a", 4, 3.0, asks(4, 2.0, address="192.0.2.1:8080"))
    assert found([other, row(2, "b", 4, 1.0)], heard) == []


def test_the_address_where_most_was_accepted() -> None:
    quiet = replace(listener("/admin", pids=[1]), accepted_by={"1": 1})
    busy = replace(listener("/web", pids=[1]), accepted_by={"1": 7})
    chain = found([row(1, "a", 4, 3.0, asks(4, 2.0, pid=2)), row(2, "b", 4, 1.0)], [quiet, busy])
    assert chain[0].address == "/web"


def test_three_hops_and_a_loop() -> None:
    """The outermost first, however they are listed; who ask each other are still in it once."""
    rows = [
        row(3, "db", 20, 1.0, asks(1, 1.0, pid=2)),
        row(2, "app", 10, 5.0, asks(20, 1.5, pid=3), asks(5, 1.0, pid=2)),
        row(1, "proxy", 10, 9.0, asks(10, 7.0, pid=2)),
    ]
    assert [(hop.pid, hop.next) for hop in found(rows)] == [(1, [2]), (3, [2]), (2, [3])]


def test_one_that_only_asks_is_a_hop_without_a_latency() -> None:
    chain = found([row(1, "job", 0, 0.0, asks(5, 1.0, pid=2)), row(2, "b", 5, 1.0)])
    assert chain[0] == Hop(1, [1], "job", None, 0, None, None, None, [2])


def test_what_servers_ask_of_each_other_by_who_is_asked() -> None:
    """Neither what a mere client asks, nor what goes to somebody else."""
    rows = [
        row(1, "nginx", 10, 9.0, asks(10, 5.0, pid=3), asks(7, 5.0, pid=99)),
        row(2, "client", 0, 9.0, asks(50, 5.0, pid=1)),
        row(3, "node", 10, 4.0, asks(4, 5.0, pid=1)),
    ]
    assert asked_by_servers(rows, [], []) == {3: 10, 1: 4}
