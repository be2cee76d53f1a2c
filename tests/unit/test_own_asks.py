"""A program that serves nobody and waits for an answer: whom it asked, and where to look."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Tuple

import pytest

from tests.unit import ill
from udsprobe.model.report import Connection, Peer, Report, Verdict
from udsprobe.rules.judge import judged

REDIS = Peer(55, "redis-server", "/run/redis.sock")
NAMELESS = Peer(None, None, "/run/redis.sock")


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def asking(seconds: Optional[float], peer: Peer = REDIS) -> Connection:
    asking_us = None if seconds is None else 1e6 * seconds
    return replace(ill.connection(role="upstream", peer=peer), asking_us=asking_us)


def worker(*connections: Connection, served: int = 0) -> Report:
    report = ill.service(ill.served(served))
    return replace(report, connections=list(connections), connections_total=len(connections))


def test_a_request_that_waits() -> None:
    found = verdict(worker(asking(6.2), asking(0.9), asking(None)))
    assert found.cause == "unknown"
    says = "request of node 4711 has waited 6.2 s for redis-server 55 at unix:/run/redis.sock: it"
    assert found.summary.startswith(f"A {says} hangs, or is a long poll. Too little traffic")
    assert says in found.harm.says and found.evidence[0].metric == "own_asking_us"
    assert [each.run for each in found.actions] == ["sudo udsprobe attach --pid 55"]


def test_several_at_one_place_are_one_fact() -> None:
    found = verdict(worker(asking(2), asking(7)))
    says = (
        "2 requests of node 4711 wait for redis-server 55 at unix:/run/redis.sock, the oldest for"
    )
    assert f"{says} 7 s: they hang, or are long polls" in found.summary


def test_of_an_unknown_process_its_listener_is_looked_for() -> None:
    found = verdict(worker(asking(6.2, NAMELESS)))
    assert "waited 6.2 s for unix:/run/redis.sock: it hangs" in found.summary
    assert [each.run for each in found.actions] == [
        "sudo udsprobe attach --listener /run/redis.sock"
    ]
    elsewhere = replace(asking(6.2, Peer(None, None, "10.0.0.7:5432")), transport="tcp")
    assert verdict(worker(elsewhere)).actions == []


@pytest.mark.parametrize("address", ["127.0.0.1:2379", "0.0.0.0:2379", "[::]:2379"])
def test_what_a_process_asks_itself_hangs_nowhere_else(address: str) -> None:
    """As etcd, whose gateway keeps a connection to its own listener."""
    there = replace(asking(128.0, Peer(None, None, "127.0.0.1:2379")), transport="tcp")
    own = replace(ill.quiet_listener(), transport="tcp", address=address, pids=[there.pid])
    report = replace(worker(there), listeners=[own])
    assert verdict(report).summary.startswith("Too little traffic")
    member = replace(there, peer=Peer(None, None, "10.0.0.7:2379"))
    of_cluster = replace(worker(member), listeners=[own])
    assert verdict(of_cluster).summary.startswith("A request of node")
    others = replace(own, pids=[there.pid + 1])
    assert verdict(replace(report, listeners=[others])).summary.startswith("A request of node")


@pytest.mark.parametrize("connections", [(), (asking(0.9),), (asking(None),)])
def test_short_ones_are_not_told(connections: Tuple[Connection, ...]) -> None:
    found = verdict(worker(*connections))
    assert "wait" not in found.summary and found.actions == []


def test_who_serves_enough_is_judged_by_that() -> None:
    """A long poll of a queue beside it is nobody's harm."""
    assert verdict(worker(asking(9), served=500)).cause == "healthy"


def test_connections_that_move_nothing_are_sockets() -> None:
    silent = replace(worker(), connections=[], connections_total=4, listeners=[], syscalls=[])
    assert "No target has a socket" not in verdict(silent).summary
    none = replace(silent, connections_total=0)
    assert verdict(none).summary.startswith("No target has a socket")
