"""Requests a target makes, against a client that counts and times them itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.kernel.tool import Attached
from tests.patience import SLOWNESS
from tests.workloads.upstream_process import KINDS, Actor, Place, connected
from udsprobe.model.threads.thread_time import BUSY

pytestmark = [pytest.mark.root]

# The tolerance of the promise: 5 %, or 50 µs where a request is short.
RELATIVE, ABSOLUTE_US = 0.05 * SLOWNESS, 50.0 * SLOWNESS
ATTEMPTS, ROUNDING_US = 3, 0.001
UPSTREAMS_MAX = 256
Row = Dict[str, Any]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Actor]:
    with Actor("answers") as actor:
        yield actor


@pytest.fixture
def client() -> Iterator[Actor]:
    with Actor("asks") as actor:
        yield actor


def watching(client: Actor, folder: Path) -> Attached:
    """Attached to the client, not to whom it asks."""
    return Attached(["--pid", str(client.pid), "--no-follow"], folder)


def upstream(watched: Attached) -> List[Row]:
    rows: List[Row] = watched.report["requests"]["upstream"]
    lost = watched.report["probe"]["events_lost"]
    assert lost["map_full"] == lost["ring_full"] == 0
    return rows


def mean_us(asked: Row) -> float:
    return float(asked["total_ns"] / asked["count"] / 1000)


def assert_row(row: Row, place: Place, asked: Row, server: Actor) -> None:
    """The count exact, the mean between the server's and the client's, the peer who answered."""
    assert (row["transport"], row["address"]) == (place.transport, place.shown)
    assert row["count"] == row["latency_us"]["count"] == asked["count"]
    assert asked["worked_ns"] / asked["count"] / 1000 <= row["latency_us"]["mean"]
    assert row["latency_us"]["mean"] <= mean_us(asked) + ROUNDING_US
    assert row["latency_us"]["max"] <= asked["longest_ns"] / 1000
    assert (row["peer"]["pid"], row["peer"]["comm"]) == (server.pid, server.name)


def ask_and_leave(client: Actor, server: Actor, sockets: List[int], turns: int, **how: int) -> Row:
    """Every request answered, every connection closed, the server told."""
    answer = client.do("ask", sockets=sockets, turns=turns, **how)
    client.do("close", sockets=sockets)
    served = server.finish()
    assert served["answered"] == answer["count"]
    return {**answer, "worked_ns": served["worked_ns"]}


@pytest.mark.parametrize("delay_ms", [0, 3])
def test_requests_over_several_connections(
    kind: str, folder: Path, server: Actor, client: Actor, delay_ms: int
) -> None:
    """The mean is the client's own in one of three observations: a client that loses its CPU
    between a stamp and the call beside it does not know of it. The rest is so in each."""
    for attempt in range(ATTEMPTS):
        place = Place(server, kind, folder, f"s{attempt}")
        with watching(client, folder) as watched:
            server.start("serve", listeners=[place.listener], connections=5, delay_ms=delay_ms)
            sockets = connected(client, place, 5)
            asked = ask_and_leave(client, server, sockets, 40 if not delay_ms else 10)
        (row,) = upstream(watched)
        assert_row(row, place, asked, server)
        found_us = row["latency_us"]["mean"]
        if found_us == pytest.approx(mean_us(asked), rel=RELATIVE, abs=ABSOLUTE_US):
            return
    raise AssertionError(f"{found_us} µs, not {mean_us(asked)}")


def test_answers_that_lie_unread(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """20 answers come at once and lie there for 20 ms, while the client sleeps elsewhere: that is
    no time of the server's. In the latency it is."""
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=4)
        sockets = connected(client, place, 4)
        asked = client.do("ask_and_sleep", sockets=sockets, turns=5, sleep_ms=20)
        client.do("close", sockets=sockets)
        server.finish()
    (row,) = upstream(watched)
    assert row["count"] == asked["count"] == 20
    lay_us, asked_us = (asked[name] / asked["count"] / 1000 for name in ("lay_ns", "asked_ns"))
    assert lay_us - ABSOLUTE_US <= row["recv_wait_mean_us"] <= asked_us
    assert row["recv_wait_mean_us"] <= row["latency_us"]["mean"]


def test_who_waits_in_the_receive_call_has_the_answer_at_once(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=1, delay_ms=2)
        ask_and_leave(client, server, connected(client, place), 20)
    (row,) = upstream(watched)
    assert row["recv_wait_mean_us"] == 0


@pytest.mark.parametrize("polls", [0, 1, 2])
def test_who_polls_the_connection_where_it_asked_waits_for_the_answer(
    kind: str, folder: Path, server: Actor, client: Actor, polls: int
) -> None:
    """As libpq does, and sockets with a time limit; who polls two may wait for either."""
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=1, delay_ms=10)
        asked = ask_and_leave(client, server, connected(client, place), 20, polls=polls)
    (thread,) = watched.report["time"]["threads"]
    assert (thread["share"]["blocked_poll"] > 0) == (polls > 1)
    # They are off on kernels that do not tell an interrupt from a thread.
    if watched.report["waits"] is not None:
        awake_us = 1e6 * thread["observed_s"] * sum(thread["share"][name] for name in BUSY)
        kind_of_wait = "poll" if polls > 1 else "recv"
        assert_waited(watched.report["waits"], kind_of_wait, server.pid, asked, awake_us)


def assert_waited(rows: List[Row], kind: str, author: int, asked: Row, awake_us: float) -> None:
    """For that process in one kind of waits only, and for as long as it took to answer.

    Args:
        awake_us: of the client, which may have lost its CPU when it had asked, before it slept.
    """
    waited_us = {
        row["kind"]: sum(each["total_us"] for each in row["authors"] if each["pid"] == author)
        for row in rows
    }
    assert {name for name, us in waited_us.items() if us} == {kind}
    assert 0.95 * asked["worked_ns"] <= 1000 * (waited_us[kind] + awake_us) * SLOWNESS
    assert 1000 * waited_us[kind] <= asked["total_ns"]


def test_who_only_asks_is_told_whom(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """A worker, a job: 120 requests of its own, 3 ms each, and none that it serves."""
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=3, delay_ms=3)
        ask_and_leave(client, server, connected(client, place, 3), 40)
    verdict = watched.report["verdict"]
    assert (verdict["cause"], verdict["harm"]["kind"]) == ("healthy", "none")
    where = f"{server.name} {server.pid} at {place.transport}:{place.shown}"
    assert f"it served no request; its own 120 requests to {where} took" in verdict["summary"]
    (action,) = verdict["actions"]
    # The connections are closed by now.
    assert action["run"] == f"sudo udsprobe attach --listener {shlex.quote(place.shown)}"


def test_connections_from_before(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """The Unix client has no name of its own; of TCP both ports are ephemeral."""
    place = Place(server, kind, folder)
    server.start("serve", listeners=[place.listener], connections=3)
    sockets = connected(client, place, 3)
    client.do("ask", sockets=sockets, turns=2)
    with watching(client, folder) as watched:
        asked = client.do("ask", sockets=sockets, turns=30)
    client.do("close", sockets=sockets)
    server.finish()
    asked["worked_ns"] = 0  # the server's is of those before, too
    (row,) = upstream(watched)
    assert_row(row, place, asked, server)
    assert watched.report["connections_total"] == 3
    assert [c["role"] for c in watched.report["connections"]] == ["upstream"] * 3


def test_a_server_of_before_is_no_client(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    """The other end of the same connections, its listener closed long ago."""
    place = Place(server, kind, folder)
    sockets = connected(client, place, 2)
    accepted = [server.do("accept", listener=place.listener)["socket"] for _ in sockets]
    server.do("close", sockets=[place.listener])
    with watching(server, folder) as watched:
        server.start("serve", listeners=[], connections=0, sockets=accepted)
        ask_and_leave(client, server, sockets, 5)
    assert upstream(watched) == []


@pytest.mark.parametrize("kind", ["tcp4", "tcp6"])
def test_a_connect_that_does_not_wait(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=4)
        answer = client.do("connect", address=place.address, count=4, waits=False)
        asked = ask_and_leave(client, server, answer["sockets"], 25)
    assert answer["results"] == [115] * 4  # EINPROGRESS
    (row,) = upstream(watched)
    assert_row(row, place, asked, server)


@pytest.mark.parametrize("kind", ["stream", "tcp4", "tcp6"])
def test_pieces_make_one_turn(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """A request in several sends, its reply in several sends and several reads."""
    place = Place(server, kind, folder)
    sizes = {"request": 96, "reply": 4000}
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=2, pieces=2, **sizes)
        sockets = connected(client, place, 2)
        asked = ask_and_leave(client, server, sockets, 25, pieces=3, read_max=500, **sizes)
    assert asked["reads"] >= 8 * asked["count"]
    (row,) = upstream(watched)
    assert_row(row, place, asked, server)


def test_two_destinations(folder: Path, server: Actor, client: Actor) -> None:
    """By destination, not by server: one of Unix and one of TCP, asked in turns."""
    with Actor("other") as other:
        places = [Place(server, "stream", folder), Place(other, "tcp4", folder)]
        with watching(client, folder) as watched:
            asked = []
            for place, actor, turns in zip(places, (server, other), (30, 20)):
                actor.start("serve", listeners=[place.listener], connections=2, delay_ms=1)
                sockets = connected(client, place, 2)
                asked.append(ask_and_leave(client, actor, sockets, turns))
    first, second = upstream(watched)
    assert_row(first, places[0], asked[0], server)
    assert_row(second, places[1], asked[1], other)


@pytest.mark.parametrize("kind", ["stream", "tcp4"])
def test_the_worker_that_answered(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """Pre-fork: many accept on one listener; who called listen() answers nothing."""
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        workers = server.do("fork_workers", listener=place.listener, connections=[1, 1, 1])["pids"]
        asked, answered = [], []
        for _ in workers:
            sockets = connected(client, place)
            asked.append(client.do("ask", sockets=sockets, turns=10))
            answered.append(sockets)
        client.start("ask", sockets=answered[0], turns=1)
        client.finish()
    rows = watched.report["connections"]
    for sockets in answered:
        client.do("close", sockets=sockets)
    server.do("reap")
    (row,) = upstream(watched)
    assert row["count"] == 31
    assert row["peer"]["pid"] in workers and row["peer"]["comm"] == "worker-1"
    assert {c["peer"]["pid"] for c in rows} == set(workers)
    assert {c["peer"]["comm"] for c in rows} == {"worker-1"}


@pytest.mark.parametrize("kind", ["stream", "tcp4"])
def test_the_process_that_was_handed_the_connection(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    place = Place(server, kind, folder)
    with Actor("heir") as heir, watching(client, folder) as watched:
        sockets = connected(client, place)
        accepted = server.do("accept", listener=place.listener)["socket"]
        theirs = server.hand_over(accepted, heir)
        server.do("close", sockets=[accepted])
        heir.start("serve", listeners=[], connections=0, sockets=[theirs])
        asked = ask_and_leave(client, heir, sockets, 20)
    (row,) = upstream(watched)
    assert_row(row, place, asked, heir)


def test_more_destinations_than_fit(folder: Path, server: Actor, client: Actor) -> None:
    everywhere = 300
    server.do("listen_many", folder=str(folder), count=everywhere)
    with watching(client, folder) as watched:
        server.start("serve", listeners=list(range(everywhere)), connections=everywhere)
        sockets = client.do("connect_many", folder=str(folder), count=everywhere)["sockets"]
        ask_and_leave(client, server, sockets, 2)
    rows = upstream(watched)
    assert {row["address"] for row in rows} == {str(folder / str(n)) for n in range(UPSTREAMS_MAX)}
    assert {row["count"] for row in rows} == {2}
    assert watched.report["probe"]["turned_away"] == everywhere - UPSTREAMS_MAX


def test_a_destination_that_is_started_anew(folder: Path, server: Actor, client: Actor) -> None:
    """Its name is the same, whatever lies behind it in the kernel's memory."""
    address, rounds = {"unix": str(folder / "s"), "kind": "stream"}, UPSTREAMS_MAX + 44
    with watching(client, folder) as watched:
        server.start("serve_restarted", address=address, rounds=rounds)
        for _ in range(rounds):
            server.finish()
            sockets = client.do("connect", address=address)["sockets"]
            client.do("ask", sockets=sockets, turns=1)
            client.do("close", sockets=sockets)
        server.finish()
    (row,) = upstream(watched)
    assert (row["address"], row["count"]) == (address["unix"], rounds)
    assert watched.report["probe"]["turned_away"] == 0
