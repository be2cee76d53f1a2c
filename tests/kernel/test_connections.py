"""Connections and their queues, against what their owners and `ss` say of them."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.kernel.live import Live
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads.upstream_process import KINDS, Actor, Place, connected

pytestmark = [pytest.mark.root]

BUSY_MS = 150
Row = Dict[str, Any]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[Actor]:
    with Actor("reads") as actor:
        yield actor


@pytest.fixture
def client() -> Iterator[Actor]:
    with Actor("sends") as actor:
        yield actor


def watching(actor: Actor, folder: Path) -> Attached:
    return Attached(["--pid", str(actor.pid), "--no-follow"], folder)


def memory(kind: str, inode: int) -> Row:
    """The send queue's memory and its limit as `ss` prints them (skmem `t` or `w`, and `tb`)."""
    is_tcp = kind.startswith("tcp")
    what = "-tmenHO" if is_tcp else "-xmeHO"
    lines = subprocess.run(["ss", what], capture_output=True, text=True, check=True).stdout
    mark = rf"\bino:{inode}\b" if is_tcp else rf"^u_\w+ +\S+ +\d+ +\d+ +\S+ {inode} "
    match = re.search(rf"{mark}.*?skmem:\(([^)]*)\)", lines, re.MULTILINE)
    assert match, f"ss shows no socket {inode}"
    fields = dict(re.findall(r"([a-z]+)(\d+)", match[1]))
    return {"queue": int(fields["w" if is_tcp else "t"]), "limit": int(fields["tb"])}


def settled(kind: str, inode: int) -> Row:
    """The same, once TCP has moved what it can move: delayed acknowledgements included."""
    give_up_at = time.monotonic() + PATIENCE_S
    shown = [memory(kind, inode)]
    while kind.startswith("tcp") and shown[-8:] != [shown[-1]] * 8:
        assert time.monotonic() < give_up_at, shown[-3:]
        time.sleep(0.02)
        shown.append(memory(kind, inode))
    return shown[-1]


def accepted_pair(server: Actor, client: Actor, place: Place) -> List[int]:
    """A connection: its number at the client, and at the server."""
    (ours,) = connected(client, place)
    return [ours, server.do("accept", listener=place.listener)["socket"]]


def test_bytes_and_requests_are_exact(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=3, request=100, reply=700)
        sockets = connected(client, place, 3)
        for number, turns in zip(sockets, (5, 10, 20)):
            client.do("ask", sockets=[number], turns=turns, request=100, reply=700)
    client.do("close", sockets=sockets)
    server.finish()
    rows = watched.report["connections"]
    assert [row["requests"] for row in rows] == [20, 10, 5]
    for row in rows:
        assert (row["bytes_out"], row["bytes_in"]) == (row["requests"] * 100, row["requests"] * 700)
        assert (row["role"], row["pid"], row["transport"]) == (
            "upstream",
            client.pid,
            place.transport,
        )
        assert row["peer"] == {"pid": server.pid, "comm": "reads", "address": place.shown}
        assert (row["recv_queue_bytes"], row["send_queue_bytes"]) == (0, 0)
        assert row["send_blocked"]["count"] == row["send_blocked"]["eagain"] == 0
    assert watched.report["connections_total"] == 3


def test_both_ends_of_a_target(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """What one sends the other receives; each is the other's peer."""
    place = Place(server, kind, folder)
    selectors = ["--pid", str(client.pid), "--pid", str(server.pid), "--no-follow"]
    with Attached(selectors, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=1, request=50, reply=60)
        sockets = connected(client, place)
        client.do("ask", sockets=sockets, turns=10, request=50, reply=60)
    client.do("close", sockets=sockets)
    server.finish()
    rows = {row["role"]: row for row in watched.report["connections"]}
    served, asked = rows["served"], rows["upstream"]
    assert (served["bytes_in"], served["bytes_out"]) == (500, 600)
    assert (asked["bytes_out"], asked["bytes_in"]) == (500, 600)
    assert (served["requests"], asked["requests"]) == (10, 10)
    assert (served["pid"], served["peer"]["pid"]) == (server.pid, client.pid)
    assert (asked["pid"], asked["peer"]["pid"]) == (client.pid, server.pid)
    assert served["local"] == asked["peer"]["address"] == place.shown


def test_a_hundred_open_connections(folder: Path, server: Actor, client: Actor) -> None:
    """Fifty are shown, all are counted; those that were closed are not."""
    place = Place(server, "stream", folder)
    with watching(client, folder) as watched:
        server.start("serve", listeners=[place.listener], connections=120)
        sockets = connected(client, place, 120)
        client.do("ask", sockets=sockets, turns=1)
        client.do("close", sockets=sockets[:20])
    client.do("close", sockets=sockets[20:])
    server.finish()
    assert watched.report["connections_total"] == 100
    assert len(watched.report["connections"]) == 50


def test_a_refused_connect_is_no_connection(folder: Path, server: Actor, client: Actor) -> None:
    """Of TCP it may fail after connect() has returned."""
    place = Place(server, "tcp4", folder)
    server.do("close", sockets=[place.listener])
    with watching(client, folder) as watched:
        connected(client, place, 3)
        connected(client, place, 3, waits=False)
    assert watched.report["connections_total"] == 0
    assert watched.report["connections"] == []


def test_a_reader_that_drains_late(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """The sender sleeps in its call: while the reader is busy, and not longer than it lasts."""
    place = Place(server, kind, folder)
    with watching(client, folder) as watched:
        ours, theirs = accepted_pair(server, client, place)
        filled = client.do("fill", socket_number=ours, size=16384)["sent"]
        client.start("send", socket_number=ours, size=16384)
        client.wait_until_asleep()
        server.do("drain", socket_number=theirs, wanted=filled, after_ms=BUSY_MS)
        blocked = client.finish()
    (row,) = watched.report["connections"]
    stalled = row["send_blocked"]
    assert row["bytes_out"] == filled + blocked["sent"]
    assert (stalled["count"], stalled["wait_us"]["count"], stalled["eagain"]) == (1, 1, 1)
    waited_us = stalled["wait_us"]["mean"] * stalled["count"]
    assert BUSY_MS * 1000 <= waited_us <= blocked["took_ns"] / 1000
    assert stalled["wait_us"]["max"] == pytest.approx(waited_us)


def test_a_reader_that_never_drains(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """Both queues at the moment of the report, every refusal, and who does not read."""
    place = Place(server, kind, folder)
    selectors = ["--pid", str(client.pid), "--pid", str(server.pid), "--no-follow"]
    with Attached(selectors, folder) as watched:
        ours, theirs = accepted_pair(server, client, place)
        client.do("send", socket_number=ours, size=10)
        server.do("read", socket_number=theirs, size=10)
        filled = client.do("fill", socket_number=ours, size=1000, more=6)
        mine = client.do("queues", socket_number=ours)
        told = settled(kind, mine["inode"])
        mine = client.do("queues", socket_number=ours)  # TCP's buffer grew meanwhile
        yours = server.do("queues", socket_number=theirs)
    rows = {row["role"]: row for row in watched.report["connections"]}
    sender, reader = rows["upstream"], rows["served"]
    assert (sender["send_blocked"]["count"], sender["send_blocked"]["eagain"]) == (0, 7)
    assert sender["bytes_out"] == filled["sent"] + 10
    assert (sender["send_queue_bytes"], sender["send_buffer_bytes"]) == (
        told["queue"],
        told["limit"],
    )
    assert sender["send_buffer_bytes"] == mine["sndbuf"]
    if not kind.startswith("tcp"):  # there it is what is not acknowledged, without overhead
        assert sender["send_queue_bytes"] == mine["outq"]
        assert sender["peer"]["pid"] == server.pid and sender["peer"]["comm"] == "reads"
    assert reader["recv_queue_bytes"] == yours["inq"] > 0
    assert reader["peer"]["pid"] == client.pid


def test_who_it_is_that_never_called(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """The peer was there before us and does nothing: no event tells of it."""
    ours, _ = accepted_pair(server, client, Place(server, kind, folder))
    with Attached(["--pid", str(client.pid), "--no-follow"], folder) as watched:
        client.do("fill", socket_number=ours, size=1000)
    (sender,) = watched.report["connections"]
    assert sender["send_queue_bytes"] > 0
    assert (sender["peer"]["pid"], sender["peer"]["comm"]) == (server.pid, "reads")


def test_what_was_drained_is_not_shown_as_queued(
    folder: Path, server: Actor, client: Actor
) -> None:
    """Our target does nothing in between: its peer reads."""
    place = Place(server, "stream", folder)
    documents = folder / "lines"
    arguments = ["attach", "--pid", str(client.pid), "--no-follow", "--interval", "0.1"]
    with Live([*arguments, "--jsonl", "--output", str(documents)], folder) as live:
        ours, theirs = accepted_pair(server, client, place)
        filled = client.do("fill", socket_number=ours, size=1000)["sent"]
        wait_for(documents, lambda rows: bool(rows) and rows[0]["send_queue_bytes"] > 0, quiet=5)
        server.do("drain", socket_number=theirs, wanted=filled, after_ms=0)
        wait_for(documents, lambda rows: rows[0]["send_queue_bytes"] == 0)
        assert live.end().code == 0
    everything = lines(documents)
    assert sum(row["bytes_out"] for d in everything for row in d["connections"]) == filled
    # Nobody has answered.
    (last,) = everything[-1]["connections"]
    assert last["send_queue_bytes"] == 0 and last["asking_us"] > 0
    assert everything[-1]["connections_total"] == 1


@pytest.mark.parametrize("count", [9, 260])
def test_intervals_add_up(folder: Path, server: Actor, client: Actor, count: int) -> None:
    """No request is in two intervals or in none; of many connections the busiest are shown."""
    place = Place(server, "stream", folder)
    documents = folder / "lines"
    arguments = ["attach", "--pid", str(client.pid), "--no-follow", "--interval", "0.1"]
    with Live([*arguments, "--jsonl", "--output", str(documents)], folder) as live:
        server.start("serve", listeners=[place.listener], connections=count)
        sockets = connected(client, place, count)
        asked = 0
        for turns in (1, 3, 2):
            asked += client.do("ask", sockets=sockets, turns=turns)["count"]
            asked += client.do("ask", sockets=sockets[:7], turns=40)["count"]
            wait_for(documents, lambda rows: not rows)
        client.do("close", sockets=sockets[1:])
        wait_for_total(documents, 1)
        client.do("close", sockets=sockets[:1])
        server.finish()
        assert live.end().code == 0
    everything = lines(documents)
    shown = [row["requests"] for document in everything for row in document["connections"]]
    counted = [row["count"] for d in everything for row in d["requests"]["upstream"]]
    assert sum(counted) == asked
    assert sum(shown) == asked if count < 50 else 7 * 120 <= sum(shown) <= asked
    assert everything[-1]["connections_total"] == 0


def lines(path: Path) -> List[Row]:
    """The documents written so far; the last line may be on its way."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def wait_for(path: Path, holds: Any, quiet: int = 1) -> None:
    """Until the connections of so many new documents in a row are as wanted."""
    seen, in_a_row, give_up_at = len(lines(path)), 0, time.monotonic() + PATIENCE_S
    while in_a_row < quiet:
        assert time.monotonic() < give_up_at, lines(path)[-1:]
        fresh = lines(path)[seen:]
        for document in fresh:
            in_a_row = in_a_row + 1 if holds(document["connections"]) else 0
        seen += len(fresh)
        time.sleep(0.02)


def wait_for_total(path: Path, total: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not (shown := lines(path)) or shown[-1]["connections_total"] != total:
        assert time.monotonic() < give_up_at, f"{shown[-1]['connections_total']} are open"
        time.sleep(0.02)
