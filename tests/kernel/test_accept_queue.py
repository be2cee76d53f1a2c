"""The accept queue: depth, limit, refusals, waits and drops, exactly.

Clients are other processes, which udsprobe was not told about.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple

import pytest

from tests.kernel import tool
from tests.kernel.busy_cpus import busy_cpus
from tests.kernel.tool import row_of
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import (
    OWN_NETWORK,
    Actor,
    Answer,
    inside,
    tcp,
    unix,
    wait_until_asleep,
)

pytestmark = [pytest.mark.root]

KINDS = ("stream", "seqpacket", "tcp4", "tcp6")
UNIX_KINDS = ("stream", "seqpacket")
BACKLOGS = (0, 1, 2, 31, 32, 128)
HOSTS = {"tcp4": "127.0.0.1", "tcp6": "::1"}
SLOT_ERROR = 1 / 16
Row = Dict[str, Any]


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


class Places:
    """Fresh addresses of a kind, and how actors use them."""

    def __init__(self, kind: str, folder: Path) -> None:
        if kind == "tcp6" and not _has_ipv6():
            pytest.skip("no IPv6 on this host's loopback")
        self.socket_type = kind if kind in UNIX_KINDS else "stream"
        self._kind = kind
        self._folder = folder
        self._numbers = itertools.count()

    def listen(self, server: Actor, backlog: int) -> Tuple[Answer, Answer]:
        """Where it listens, and its answer."""
        if self._kind in HOSTS:
            heard = server.listen(tcp(HOSTS[self._kind]), backlog)
            return tcp(HOSTS[self._kind], heard["port"]), heard
        place = unix(self._folder / f"s{next(self._numbers)}", self.socket_type)
        return place, server.listen(place, backlog)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, folder: Path) -> Places:
    return Places(request.param, folder)


@pytest.fixture(params=UNIX_KINDS)
def unix_places(request: pytest.FixtureRequest, folder: Path) -> Places:
    return Places(request.param, folder)


def attached(server: Actor, folder: Path, *options: str) -> tool.Attached:
    return tool.Attached(["--pid", str(server.pid), *options], folder)


def assert_nothing_lost(report: tool.Report) -> None:
    lost = report["probe"]["events_lost"]
    assert lost["map_full"] == lost["ring_full"] == 0


def total_wait_us(latency: Dict[str, Any]) -> float:
    return float(latency["count"] * latency["mean"]) if latency["count"] else 0.0


def assert_wait_between(latency: Dict[str, Any], least_ns: int, most_ns: int, count: int) -> None:
    """Bounds known from stamps on both sides of what was timed; the mean has 3 decimals."""
    assert latency["count"] == count
    rounding = 0.0005 * count
    assert least_ns / 1000 - rounding <= total_wait_us(latency) <= most_ns / 1000 + rounding


# ------------------------------------------------------------ depth and limit


def test_a_queue_filled_to_its_limit(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            filled = []
            for backlog in BACKLOGS:
                place, heard = places.listen(server, backlog)
                assert client.connect(place, backlog + 1)["results"] == {"OK": backlog + 1}
                filled.append((backlog, heard))
        assert_nothing_lost(watched.report)
        for backlog, heard in filled:
            row = row_of(watched.report, heard)
            assert row["socket_type"] == places.socket_type
            assert row["depth"]["max"] == row["depth"]["limit"] == backlog + 1
            assert row["depth"]["now"] == row["established"] == backlog + 1
            assert row["accepted"] == 0
            assert row["backlog"]["requested"] == row["backlog"]["effective"] == backlog
            assert row["backlog"]["clamped_by"] is None


def test_every_depth_on_the_way_is_in_the_histogram(places: Places, tmp_path: Path) -> None:
    """To 20, down to 5, up to 30: 20 + 25 depths, each known; and 129 in another queue."""
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 64)
            client.connect(place, 20)
            server.do("accept", listener=heard["listener"], count=15)
            client.connect(place, 25)
            deep_place, deep = places.listen(server, 128)
            client.connect(deep_place, 129)
        row = row_of(watched.report, heard)
        seen = [*range(1, 21), *range(6, 31)]
        assert row["depth"]["histogram"] == {str(d): seen.count(d) for d in sorted(set(seen))}
        assert (row["depth"]["max"], row["depth"]["now"]) == (30, 30)
        histogram = row_of(watched.report, deep)["depth"]["histogram"]
        assert sum(histogram.values()) == 129
        assert all(histogram[str(exact)] == 1 for exact in range(1, 32))
        assert 129 * (1 - SLOT_ERROR) <= max(map(int, histogram)) <= 129


def test_a_burst_between_two_samples_is_seen(places: Places, tmp_path: Path) -> None:
    """Filled and drained again and again; only the deepest one is the maximum."""
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 100)
            for burst in (3, 77, 12):
                client.connect(place, burst)
                server.do("accept", listener=heard["listener"], count=burst)
        row = row_of(watched.report, heard)
        assert (row["depth"]["max"], row["depth"]["now"]) == (77, 0)
        assert row["established"] == row["accepted"] == 3 + 77 + 12


# ------------------------------------------------------------ refused and blocked


@pytest.mark.parametrize("backlog", [0, 7, 128])
def test_connects_to_a_full_queue_are_refused(
    unix_places: Places, tmp_path: Path, backlog: int
) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, backlog)
            client.connect(place, backlog + 1)
            tried = client.connect(place, 23, blocking=False)
            assert tried["results"] == {"EAGAIN": 23}
        row = row_of(watched.report, heard)
        assert row["refused"] == {"EAGAIN": 23}
        assert row["depth"]["max"] == row["depth"]["limit"] == backlog + 1
        assert row["established"] == backlog + 1
        assert row["blocked_connects"]["count"] == 0
        assert watched.report["connects"] == []


@pytest.mark.parametrize("held_ms", [100, 300])
def test_blocked_connects_wait_as_long_as_their_own_clock_says(
    unix_places: Places, tmp_path: Path, held_ms: int
) -> None:
    blocked = 5
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 1)
            client.connect(place, 2)
            pids = client.do("connect_by_children", address=place, count=blocked)["pids"]
            wait_until_asleep(pids)
            listener = heard["listener"]
            server.do("accept", listener=listener, count=1, after_ms=held_ms, keep=True)
            accepted = server.do("accept", listener=listener, count=blocked + 1, keep=True)
            waited = client.do("reap", pids=pids)["answers"]
        assert [answer["results"] for answer in waited] == [{"OK": 1}] * blocked
        row = row_of(watched.report, heard)
        assert row["established"] == row["accepted"] == blocked + 2
        assert accepted["count"] == blocked + 1
        assert row["refused"] == {}
        assert row["blocked_connects"]["waiting_now"] == 0
        wait = row["blocked_connects"]["wait_us"]
        assert row["blocked_connects"]["count"] == wait["count"] == blocked
        own_us = [(a["after_ns"] - a["before_ns"]) / 1000 for a in waited]
        assert wait["max"] <= max(own_us) + 0.001
        assert wait["p50"] >= held_ms * 1000 * 0.96
        assert total_wait_us(wait) <= sum(own_us)
        # They were asleep before the server was asked to wait.
        assert total_wait_us(wait) >= blocked * held_ms * 1000


@pytest.mark.parametrize("keep", [True, False])
def test_no_blocked_connect_is_missed_on_busy_cpus(
    unix_places: Places, tmp_path: Path, keep: bool
) -> None:
    """Preempted on their way to sleep; accepted, and closed, before their call returns."""
    blocked = 300
    with Actor() as server, Actor() as client, busy_cpus(4):
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            pids = client.do("connect_by_children", address=place, count=blocked)["pids"]
            wait_until_asleep(pids)
            server.do("accept", listener=heard["listener"], count=blocked + 1, keep=keep)
            waited = client.do("reap", pids=pids)["answers"]
        assert [answer["results"] for answer in waited] == [{"OK": 1}] * blocked
        assert_nothing_lost(watched.report)
        row = row_of(watched.report, heard)
        assert row["established"] == row["accepted"] == blocked + 1
        told = row["blocked_connects"]
        assert (told["count"], told["wait_us"]["count"], told["waiting_now"]) == (
            blocked,
            blocked,
            0,
        )


def test_clients_that_wait_at_the_end_of_the_window_are_told(
    unix_places: Places, tmp_path: Path
) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            pids = client.do("connect_by_children", address=place, count=4)["pids"]
            wait_until_asleep(pids)
        row = row_of(watched.report, heard)
        assert row["blocked_connects"]["waiting_now"] == 4
        assert row["blocked_connects"]["count"] == 0
        server.do("accept", listener=heard["listener"], count=5)
        client.do("reap", pids=pids)


def test_clients_killed_while_they_wait_wait_no_more(unix_places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            pids = client.do("connect_by_children", address=place, count=4)["pids"]
            wait_until_asleep(pids)
            client.do("kill", pids=pids[:3])
            server.do("idle", turns=20)
        row = row_of(watched.report, heard)
        assert row["blocked_connects"]["waiting_now"] == 1
        assert row["refused"] == {}
        assert row["established"] == 1
        server.do("accept", listener=heard["listener"], count=2)
        client.do("reap", pids=pids[3:])


def test_a_signal_does_not_end_the_wait(unix_places: Places, tmp_path: Path) -> None:
    """A handler with SA_RESTART: the call goes on, and so does its time."""
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            pids = client.do("connect_by_children", address=place, count=1)["pids"]
            wait_until_asleep(pids)
            for _ in range(5):
                os.kill(pids[0], signal.SIGUSR1)
                server.do("idle", turns=10)
                wait_until_asleep(pids)
            server.do("accept", listener=heard["listener"], count=2)
            (waited,) = client.do("reap", pids=pids)["answers"]
        row = row_of(watched.report, heard)
        assert waited["results"] == {"OK": 1}
        assert row["refused"] == {}
        wait = row["blocked_connects"]["wait_us"]
        own_us = (waited["after_ns"] - waited["before_ns"]) / 1000
        assert wait["count"] == 1
        assert 50_000 <= wait["max"] <= own_us


def test_a_signal_can_end_the_wait(unix_places: Places, tmp_path: Path) -> None:
    """A handler without SA_RESTART: EINTR, and the client goes on with something else."""
    with Actor() as server, Actor() as client, Actor() as patient:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 0)
            client.connect(place, 1)
            for waiting in (client, patient):
                waiting.start("connect", address=place)
                wait_until_asleep([waiting.pid])
            os.kill(client.pid, signal.SIGUSR2)
            assert client.finish()["results"] == {"EINTR": 1}
            server.do("idle", turns=20)
        row = row_of(watched.report, heard)
        assert row["blocked_connects"]["waiting_now"] == 1
        assert row["blocked_connects"]["count"] == 0
        server.do("accept", listener=heard["listener"], count=2)
        assert patient.finish()["results"] == {"OK": 1}


def test_a_listener_that_closes_refuses_those_who_wait(unix_places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = unix_places.listen(server, 2)
            client.connect(place, 3)
            pids = client.do("connect_by_children", address=place, count=3)["pids"]
            wait_until_asleep(pids)
            server.do("close", listener=heard["listener"])
            waited = client.do("reap", pids=pids)["answers"]
        assert [answer["results"] for answer in waited] == [{"ECONNREFUSED": 1}] * 3
        row = row_of(watched.report, heard)
        assert row["state"] == "closed"
        assert row["refused"] == {"ECONNREFUSED": 3}
        assert (row["established"], row["accepted"], row["depth"]["max"]) == (3, 0, 3)
        assert row["depth"]["now"] is None


def test_a_listener_closed_with_connections_queued(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 10)
            client.connect(place, 9)
            server.do("accept", listener=heard["listener"], count=2)
            server.do("close", listener=heard["listener"])
        row = row_of(watched.report, heard)
        assert (row["state"], row["depth"]["now"], row["depth"]["max"]) == ("closed", None, 9)
        assert (row["established"], row["accepted"], row["wait_us"]["count"]) == (9, 2, 2)


# ------------------------------------------------------------ asleep in connect() when we come


@pytest.mark.parametrize("admitted", [0, 1, 7, 20])
def test_clients_asleep_before_us_wait_and_get_in(
    unix_places: Places, tmp_path: Path, admitted: int
) -> None:
    """A listen(4) with 25 clients; nobody accepts until we are there, and then so many."""
    clients, room = 25, 5
    with Actor() as server, Actor() as client:
        place, heard = unix_places.listen(server, room - 1)
        pids = client.do("connect_by_children", address=place, count=clients)["pids"]
        asleep = asleep_of(pids, clients - room)
        with attached(server, tmp_path) as watched:
            server.do("accept", listener=heard["listener"], count=admitted, keep=True)
            let_in = asleep - asleep_of(pids, clients - room - admitted)
            got_in = client.do("reap", pids=sorted(let_in))["answers"]
            told = shown_by_ss(heard)
        assert [answer["results"] for answer in got_in] == [{"OK": 1}] * admitted
        assert_nothing_lost(watched.report)
        row = row_of(watched.report, heard)
        blocked = row["blocked_connects"]
        assert (blocked["waiting_now"], blocked["count"]) == (len(asleep) - admitted, admitted)
        assert (row["depth"]["now"], row["depth"]["limit"]) == told == (room, room)
        assert row["established"] == row["accepted"] == admitted
        assert row["refused"] == {}
        # Since we came, not since they fell asleep.
        assert blocked["wait_us"]["count"] == admitted
        own_us = [(answer["after_ns"] - answer["before_ns"]) / 1000 for answer in got_in]
        assert total_wait_us(blocked["wait_us"]) <= sum(own_us)
        assert not admitted or blocked["wait_us"]["max"] > 0
        server.do("accept", listener=heard["listener"], count=clients - admitted)
        left = client.do("reap", pids=sorted({*pids} - let_in))["answers"]
        assert [answer["results"] for answer in left] == [{"OK": 1}] * (clients - admitted)


@pytest.mark.parametrize("kind", sorted(HOSTS))
@pytest.mark.parametrize("all_get_in", [False, True])
def test_tcp_clients_whose_syn_was_dropped_before_us(
    kind: str, all_get_in: bool, folder: Path, tmp_path: Path
) -> None:
    clients, room, places = 20, 5, Places(kind, folder)
    with Actor() as server, Actor() as client:
        place, heard = places.listen(server, room - 1)
        client.connect(place, room)
        pids = client.do("connect_by_children", address=place, count=clients)["pids"]
        wait_until_asleep(pids, "wait_woken")
        assert syns_sent_to(place["port"]) == clients
        with attached(server, tmp_path) as watched:
            waited = []
            if all_get_in:
                server.do("accept", listener=heard["listener"], count=room + clients)
                waited = client.do("reap", pids=pids)["answers"]
            else:
                assert syns_sent_to(place["port"]) == clients
        assert_nothing_lost(watched.report)
        row = row_of(watched.report, heard)
        blocked = row["blocked_connects"]
        assert (blocked["waiting_now"], blocked["count"]) == (clients - len(waited), len(waited))
        assert row["established"] == len(waited)
        own_us = [(answer["after_ns"] - answer["before_ns"]) / 1000 for answer in waited]
        assert total_wait_us(blocked["wait_us"]) <= sum(own_us)
        if not all_get_in:
            client.do("kill", pids=pids)


def syns_sent_to(port: int) -> int:
    """Clients in SYN-SENT, as ss lists them."""
    argv = ["ss", "-tnH", "state", "syn-sent", f"( dport = :{port} )"]
    return len(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines())


def asleep_of(pids: Iterable[int], wanted: int) -> Set[int]:
    """Those that sleep for want of room, once they are so many."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        asleep = {pid for pid in pids if wchan_of(pid) == "unix_wait_for_peer"}
        if len(asleep) == wanted:
            return asleep
        assert time.monotonic() < give_up_at, f"{len(asleep)} asleep, not {wanted}"
        time.sleep(0.001)


def wchan_of(pid: int) -> str:
    return Path(f"/proc/{pid}/wchan").read_text()


def shown_by_ss(heard: Answer) -> Tuple[int, int]:
    """Connections in the queue of a Unix listener, and how many fit."""
    shown = subprocess.run(["ss", "-xlHn"], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if f" {heard['inode']} " in line]
    queued, backlog = line.split()[2:4]
    return int(queued), int(backlog) + 1


def test_an_accept_that_began_before_us(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as client:
        place, heard = places.listen(server, 5)
        server.start("accept", listener=heard["listener"], count=3)
        wait_until_in(server.pid, ACCEPTS)
        with attached(server, tmp_path) as watched:
            assert client.connect(place, 3)["results"] == {"OK": 3}
            server.finish()
        row = row_of(watched.report, heard)
        assert (row["established"], row["accepted"], row["accepted_early"]) == (3, 3, 0)
        assert row["accepted_by"] == row["accepted_by_thread"] == {str(server.pid): 3}
        assert row["wait_us"]["count"] == 3
        (calls,) = [c for c in watched.report["syscalls"] if c["name"] == "accept4"]
        assert (calls["calls"], calls["latency_us"]["count"]) == (3, 2)


def test_a_targets_connect_that_began_before_us(places: Places, tmp_path: Path) -> None:
    with Actor() as server, Actor() as filling, Actor() as client:
        place, heard = places.listen(server, 0)
        filling.connect(place, 1)
        client.start("connect", address=place)
        wait_until_in(client.pid, CONNECTS)
        with attached(client, tmp_path) as watched:
            server.do("accept", listener=heard["listener"], count=2)
            assert client.finish()["results"] == {"OK": 1}
        (row,) = watched.report["connects"]
        assert (row["calls"], row["errors"], row["latency_us"]["count"]) == (1, {}, 1)
        (calls,) = [c for c in watched.report["syscalls"] if c["name"] == "connect"]
        assert (calls["calls"], calls["latency_us"]["count"]) == (1, 0)


ACCEPTS = ("inet_csk_accept", "__skb_wait_for_more_packets")
CONNECTS = ("unix_wait_for_peer", "wait_woken")


def wait_until_in(pid: int, functions: Sequence[str]) -> None:
    """Until it sleeps in one of these kernel functions."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (asleep := wchan_of(pid)) not in functions:
        assert time.monotonic() < give_up_at, f"{pid} is in {asleep!r}, not {functions}"
        time.sleep(0.001)


# ------------------------------------------------------------ backlog


@pytest.mark.parametrize("kind", KINDS)
def test_what_clamps_the_backlog(kind: str, folder: Path, tmp_path: Path) -> None:
    places = Places(kind, folder)
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        server.do("write", path="/proc/sys/net/core/somaxconn", text="128")
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 5000)
            assert client.connect(place, 129)["results"] == {"OK": 129}
            _, endless = places.listen(server, -1)
            _, exact = places.listen(server, 128)
            _, less = places.listen(server, 127)
        rows = [row_of(watched.report, each) for each in (heard, endless, exact, less)]
        told = [row["backlog"] for row in rows]
        clamp = "net.core.somaxconn"
        assert [b["requested"] for b in told] == [5000, -1, 128, 127]
        assert [b["effective"] for b in told] == [128, 128, 128, 127]
        assert [b["clamped_by"] for b in told] == [clamp, clamp, None, None]
        assert [b["equals_somaxconn"] for b in told] == [True, True, True, False]
        assert rows[0]["depth"]["max"] == rows[0]["depth"]["limit"] == 129


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_listen_is_followed(kind: str, folder: Path, tmp_path: Path) -> None:
    """Up: the queue takes more. Down: it holds more than its limit until it is drained."""
    places = Places(kind, folder)
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        server.do("write", path="/proc/sys/net/core/somaxconn", text="64")
        with attached(server, tmp_path) as watched:
            place, up = places.listen(server, 2)
            client.connect(place, 3)
            server.do("relisten", listener=up["listener"], backlog=9)
            client.connect(place, 7)
            place, down = places.listen(server, 9)
            client.connect(place, 10)
            server.do("relisten", listener=down["listener"], backlog=4)
            _, clamped = places.listen(server, 4)
            server.do("relisten", listener=clamped["listener"], backlog=1000)
        row = row_of(watched.report, up)
        assert (row["backlog"]["requested"], row["backlog"]["effective"]) == (9, 9)
        assert (row["depth"]["max"], row["depth"]["limit"], row["established"]) == (10, 10, 10)
        row = row_of(watched.report, down)
        assert (row["backlog"]["requested"], row["backlog"]["effective"]) == (4, 4)
        assert (row["depth"]["max"], row["depth"]["now"], row["depth"]["limit"]) == (10, 10, 5)
        told = row_of(watched.report, clamped)["backlog"]
        assert (told["requested"], told["effective"]) == (1000, 64)
        assert told["clamped_by"] == "net.core.somaxconn"


def test_a_backlog_of_before_is_not_known(places: Places, tmp_path: Path) -> None:
    with Actor() as server:
        _, heard = places.listen(server, 17)
        with attached(server, tmp_path) as watched:
            pass
        told = row_of(watched.report, heard)["backlog"]
        assert (told["requested"], told["effective"], told["clamped_by"]) == (None, 17, None)


# ------------------------------------------------------------ the wait in the queue


@pytest.mark.parametrize("after_ms", [1, 10, 100])
def test_the_wait_is_from_established_to_accepted(
    places: Places, tmp_path: Path, after_ms: int
) -> None:
    """Between what lies inside and what lies around it, by the clocks of both ends."""
    connections = 3
    with Actor() as server, Actor() as client:
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, 5)
            least, most = [], []
            for _ in range(connections):
                ((began, connected),) = client.connect(place, 1)["stamps"]
                ((asked, accepted),) = server.do(
                    "accept", listener=heard["listener"], count=1, after_ms=after_ms
                )["stamps"]
                least.append(asked - connected)
                most.append(accepted - began)
        wait = row_of(watched.report, heard)["wait_us"]
        assert_wait_between(wait, sum(least), sum(most), connections)
        assert max(least) / 1000 <= wait["max"] + 0.001
        assert wait["max"] - 0.001 <= max(most) / 1000
        assert min(least) / 1000 >= after_ms * 1000
        assert row_of(watched.report, heard)["accepted_early"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_connections_at_once(kind: str, folder: Path, tmp_path: Path) -> None:
    connections, places = 10_000, Places(kind, folder)
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        server.do("write", path="/proc/sys/net/core/somaxconn", text="16384")
        with attached(server, tmp_path) as watched:
            place, heard = places.listen(server, connections)
            connected = client.connect(place, connections)
            assert connected["results"] == {"OK": connections}
            taken = server.do("accept", listener=heard["listener"], count=connections)
        row = row_of(watched.report, heard)
        assert row["established"] == row["accepted"] == connections
        assert row["depth"]["max"] == connections
        assert sum(row["depth"]["histogram"].values()) == connections
        assert row["accepted_by"] == row["accepted_by_thread"] == {str(server.pid): connections}
        least = taken["before_ns"] - connected["after_ns"]
        most = taken["after_ns"] - connected["before_ns"]
        assert_wait_between(row["wait_us"], least, most, connections)
        assert_nothing_lost(watched.report)


def test_connections_queued_before_us_wait_since_we_came(places: Places, tmp_path: Path) -> None:
    early, late = 6, 4
    with Actor() as server, Actor() as client:
        place, heard = places.listen(server, 20)
        client.connect(place, early)
        with attached(server, tmp_path) as watched:
            connected = client.connect(place, late)
            taken = server.do("accept", listener=heard["listener"], count=early + late)
        row = row_of(watched.report, heard)
        assert (row["accepted"], row["accepted_early"], row["established"]) == (10, early, late)
        assert row["depth"]["max"] == early + late
        assert row["depth"]["histogram"] == {str(depth): 1 for depth in range(7, 11)}
        assert row["wait_us"]["count"] == early + late
        # At least as long as the late ones waited; at most since before they came, plus attaching.
        late_before = sum(before for before, _ in taken["stamps"][early:])
        assert total_wait_us(row["wait_us"]) >= (late_before - connected["after_ns"]) / 1000
        window_us = watched.report["window"]["duration_s"] * 1e6
        attach_us = watched.report["probe"]["attach_ms"] * 1e3
        assert row["wait_us"]["max"] <= window_us + attach_us


# ------------------------------------------------------------ TCP


def drops_of_namespace(actor: Actor) -> Dict[str, int]:
    text = actor.do("read", path="/proc/thread-self/net/netstat")["text"]
    lines = [line.split() for line in text.splitlines() if line.startswith("TcpExt:")]
    counters = dict(zip(lines[0][1:], map(int, lines[1][1:])))
    return {name: counters[name] for name in ("ListenOverflows", "ListenDrops")}


def grown(before: Dict[str, int], after: Dict[str, int]) -> List[int]:
    return [after[name] - before[name] for name in ("ListenOverflows", "ListenDrops")]


@pytest.mark.parametrize("detail", ["full", "light"])
@pytest.mark.parametrize("kind", sorted(HOSTS))
def test_tcp_drops_are_what_the_namespace_counts(
    kind: str, detail: str, folder: Path, tmp_path: Path
) -> None:
    """SYNs to a full queue, of clients that block and that do not.

    Of TCP the handshake tells who waited, not the call: it is the same with detail light.
    """
    places = Places(kind, folder)
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        with attached(server, tmp_path, "--detail", detail) as watched:
            place, heard = places.listen(server, 2)
            client.connect(place, 3)
            before = drops_of_namespace(server)
            tried = client.connect(place, 40, blocking=False, keep=False)
            assert tried["results"] == {"EINPROGRESS": 40}
            pids = client.do("connect_by_children", address=place, count=2)["pids"]
            wait_until_asleep(pids, "wait_woken")
            # Their SYNs are sent again until there is room.
            server.do("accept", listener=heard["listener"], count=5)
            waited = client.do("reap", pids=pids)["answers"]
            overflows, drops = grown(before, drops_of_namespace(server))
        row = row_of(watched.report, heard)
        assert row["drops"] == row["overflows"] == overflows == drops >= 42
        assert row["depth"]["max"] == row["depth"]["limit"] == 3
        assert row["established"] == row["accepted"] == 5
        assert row["syn_queue"] == {"now": 0, "young": 0}
        # Those who closed at once had no time to wait.
        blocked = row["blocked_connects"]
        assert (blocked["count"], blocked["waiting_now"]) == (2, 0)
        own_us = [(answer["after_ns"] - answer["before_ns"]) / 1000 for answer in waited]
        # A SYN is sent again after a second (TCP_TIMEOUT_INIT), by a clock of 4 ms a tick or less.
        assert 2 * 990_000 <= total_wait_us(blocked["wait_us"]) <= sum(own_us)
        # With full, the time in the queue is known too, and may be the worse where a CPU is busy.
        expected = {"accept-queue-full", *({"accept-starved"} if detail == "full" else ())}
        assert watched.report["verdict"]["cause"] in expected


def test_drops_of_before_are_not_ours(tmp_path: Path) -> None:
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        heard = server.listen(tcp("127.0.0.1"), 0)
        place = tcp("127.0.0.1", heard["port"])
        client.connect(place, 1)
        client.connect(place, 10, blocking=False, keep=False)
        with attached(server, tmp_path) as watched:
            client.connect(place, 3, blocking=False, keep=False)
        assert row_of(watched.report, heard)["drops"] == 3


def test_drops_are_no_more_than_the_namespace_has(tmp_path: Path) -> None:
    """With TCP_DEFER_ACCEPT the handshake ends with the first data, and then there is no room.

    The namespace counts that once. The socket (`sk_drops`) counts it twice, as
    listen drop and as discarded packet, and every bare ACK that it defers, which loses nobody.
    """
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        with attached(server, tmp_path) as watched:
            heard = server.listen(tcp("127.0.0.1"), 2)
            place = tcp("127.0.0.1", heard["port"])
            assert client.connect(place, 2)["results"] == {"OK": 2}
            server.do("defer", listener=heard["listener"], seconds=30)
            before = drops_of_namespace(server)
            assert client.connect(place, 2)["results"] == {"OK": 2}
            client.do("send", connection=2)
            assert grown(before, drops_of_namespace(server)) == [0, 0]
            client.do("send", connection=3)
            overflows, listen_drops = grown(before, drops_of_namespace(server))
            socket_drops = server.do("drops", listener=heard["listener"])["drops"]
        row = row_of(watched.report, heard)
    assert overflows == listen_drops == 1
    assert (row["established"], row["depth"]["max"], row["depth"]["limit"]) == (3, 3, 3)
    assert row["drops"] == listen_drops < 2 * overflows <= socket_drops
    # The socket's own count is another one: whose overflows these are cannot be said.
    assert row["overflows"] is None
    (space,) = [s for s in watched.report["namespaces"] if s["netns"] == row["netns"]]
    assert space["listen_overflows"] == overflows and space["listen_drops"] == listen_drops


def test_syn_cookies_and_the_namespaces_own_words(tmp_path: Path) -> None:
    """With tcp_syncookies=2 every handshake is by cookie; the namespace counts them."""
    connections = 7
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        server.do("write", path="/proc/sys/net/ipv4/tcp_syncookies", text="2")
        server.do("write", path="/proc/sys/net/ipv4/tcp_abort_on_overflow", text="1")
        with attached(server, tmp_path) as watched:
            heard = server.listen(tcp("127.0.0.1"), 20)
            place = tcp("127.0.0.1", heard["port"])
            assert client.connect(place, connections)["results"] == {"OK": connections}
        row = row_of(watched.report, heard)
        (space,) = [s for s in watched.report["namespaces"] if s["netns"] == row["netns"]]
    assert (space["tcp_syncookies"], space["tcp_abort_on_overflow"]) == (2, True)
    assert space["syncookies_sent"] == space["syncookies_received"] == connections
    assert (row["established"], row["drops"], row["overflows"]) == (connections, 0, 0)


def test_listeners_of_a_reuseport_group_stay_apart(tmp_path: Path) -> None:
    """One address, three sockets: the kernel spreads connections, each has its own queue."""
    connections = 60
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        with attached(server, tmp_path) as watched:
            first = server.listen({**tcp("127.0.0.1"), "reuseport": True}, 100)
            place = {**tcp("127.0.0.1", first["port"]), "reuseport": True}
            group = [first, server.listen(place, 100), server.listen(place, 100)]
            assert client.connect(place, connections)["results"] == {"OK": connections}
            queued = [server.do("queued", listener=each["listener"])["queued"] for each in group]
        rows = [row_of(watched.report, each) for each in group]
    assert len({row["address"] for row in rows}) == 1
    assert [row["established"] for row in rows] == queued
    assert [row["depth"]["max"] for row in rows] == queued
    assert sum(queued) == connections


def test_for_which_of_a_full_reuseport_group_clients_wait_is_not_known(tmp_path: Path) -> None:
    with Actor(*OWN_NETWORK) as server, Actor(*inside(server, "net")) as client:
        server.do("loopback_up")
        first = server.listen({**tcp("127.0.0.1"), "reuseport": True}, 0)
        place = {**tcp("127.0.0.1", first["port"]), "reuseport": True}
        group = [first, server.listen(place, 0)]
        with attached(server, tmp_path) as watched:
            client.connect(place, 20, blocking=False)
        rows = [row_of(watched.report, each) for each in group]
    assert [row["depth"]["now"] for row in rows] == [row["depth"]["limit"] for row in rows]
    assert [row["blocked_connects"]["waiting_now"] for row in rows] == [None, None]


# ------------------------------------------------------------ the incident


def test_the_incident_names_itself(folder: Path, tmp_path: Path) -> None:
    """An idle event loop, and a queue that is at 512 on a backlog of 511."""
    with Actor() as server, Actor() as client:
        place = unix(folder / "app.sock")
        heard = server.listen(place, 511)
        with attached(server, tmp_path) as watched:
            assert client.connect(place, 512)["results"] == {"OK": 512}
            assert client.connect(place, 30, blocking=False)["results"] == {"EAGAIN": 30}
            pids = client.do("connect_by_children", address=place, count=3)["pids"]
            wait_until_asleep(pids)
            server.do("idle", turns=20)
        row = row_of(watched.report, heard)
        assert (row["depth"]["now"], row["depth"]["max"], row["depth"]["limit"]) == (512, 512, 512)
        assert (row["established"], row["accepted"], row["wait_us"]["count"]) == (512, 0, 0)
        assert row["refused"] == {"EAGAIN": 30}
        assert row["blocked_connects"]["waiting_now"] == 3
        server.do("close", listener=heard["listener"])
        client.do("reap", pids=pids)


def test_the_readable_report_names_the_incident(folder: Path, tmp_path: Path) -> None:
    output, ready = tmp_path / "report.txt", tmp_path / "ready"
    with Actor() as server, Actor() as client:
        argv = [*tool.UDSPROBE, "attach", "--pid", str(server.pid), "--plain"]
        argv += ["--output", str(output), "--ready-file", str(ready)]
        server.listen(unix(folder / "app.sock"), 511)
        watching = subprocess.Popen(argv, cwd=tool.REPOSITORY)
        while not ready.exists():
            assert watching.poll() is None
            time.sleep(0.005)
        client.connect(unix(folder / "app.sock"), 512)
        client.connect(unix(folder / "app.sock"), 30, blocking=False)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 0
    said = output.read_text()
    assert re.search(r"app\.sock .* 512 +512 +512 FULL +511 ", said), said
    assert re.search(r"refused EAGAIN 30\b", said, re.IGNORECASE), said
