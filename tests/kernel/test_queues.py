"""How full queues were and what bounds them, against what the kernel tells their owners."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from tests.kernel.live import Live
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads.upstream_process import KINDS, Actor, Place, connected

pytestmark = [pytest.mark.root]
SHOWN_TO_US = 2000  # a window: its beginning and its length to 1 ms
TICK_US = time.clock_getres(6) * 1e6  # CLOCK_MONOTONIC_COARSE goes by the kernel's ticks
HAS_INQ_LEN = b"\0inq_len\0" in Path("/sys/kernel/btf/vmlinux").read_bytes()
Row = Dict[str, Any]


def is_told(kind: str) -> bool:
    """Whether this kernel keeps the number of bytes in such a receive queue."""
    return kind.startswith("tcp") or (kind == "stream" and HAS_INQ_LEN)


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


def both(server: Actor, client: Actor) -> List[str]:
    return ["--pid", str(client.pid), "--pid", str(server.pid), "--no-follow"]


def pair(server: Actor, client: Actor, place: Place) -> Tuple[int, int]:
    """A connection used once: its number at the client, and at the server."""
    (ours,) = connected(client, place)
    theirs = server.do("accept", listener=place.listener)["socket"]
    client.do("send", socket_number=ours, size=10)
    server.do("read", socket_number=theirs, size=10)
    return ours, theirs


def by_role(report: Row) -> Tuple[Row, Row]:
    """The sender's connection and the reader's."""
    rows = {row["role"]: row for row in report["connections"]}
    return rows["upstream"], rows["served"]


def arrived(actor: Actor, number: int, wanted: int) -> Row:
    """Both queues once so many bytes are there."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (found := actor.do("queues", socket_number=number))["inq"] < wanted:
        assert time.monotonic() < give_up_at, found
    return found


def at_rest(*ends: Tuple[Actor, int]) -> List[Row]:
    """The queues of both ends once TCP has moved what it can move."""
    give_up_at, seen = time.monotonic() + PATIENCE_S, []
    while len(seen) < 8 or seen[-8:] != [seen[-1]] * 8:
        assert time.monotonic() < give_up_at, seen[-3:]
        seen.append([actor.do("queues", socket_number=number) for actor, number in ends])
        time.sleep(0.02)
    return seen[-1]


def test_a_queue_that_was_drained_was_this_full(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    """Both queues at their fullest, though they are empty at the end."""
    place = Place(server, kind, folder)
    with Attached(both(server, client), folder) as watched:
        ours, theirs = pair(server, client, place)
        for size in (700, 4300, 1000):
            client.do("send", socket_number=ours, size=size)
        full = arrived(server, theirs, 6000)
        filled = client.do("queues", socket_number=ours)
        server.do("drain", socket_number=theirs, wanted=6000, after_ms=0)
        client.do("send", socket_number=ours, size=50)
        server.do("read", socket_number=theirs, size=50)
    sender, reader = by_role(watched.report)
    assert (sender["recv_queue_bytes"], reader["recv_queue_bytes"]) == (0, 0)
    assert reader["recv_queue_max_bytes"] == (full["inq"] if is_told(kind) else None)
    assert sender["recv_queue_max_bytes"] == (0 if is_told(kind) else None)
    if not kind.startswith("tcp"):
        assert sender["send_queue_max_bytes"] == filled["outq"] > 6000
        assert reader["send_queue_max_bytes"] == 0
    assert sender["stalled_us"] == reader["stalled_us"] == 0


def test_a_reader_that_stops_reading(kind: str, folder: Path, server: Actor, client: Actor) -> None:
    """What sock_diag's own numbers are at that moment, and the limit it ran into."""
    place = Place(server, kind, folder)
    with Attached(both(server, client), folder) as watched:
        ours, theirs = pair(server, client, place)
        client.do("fill", socket_number=ours, size=1000)
        mine, yours = at_rest((client, ours), (server, theirs))
    sender, reader = by_role(watched.report)
    assert reader["recv_queue_max_bytes"] == (yours["inq"] if is_told(kind) else None)
    assert reader["recv_queue_bytes"] == yours["inq"] > 0
    assert sender["send_queue_max_bytes"] >= sender["send_queue_bytes"] > 0
    if not kind.startswith("tcp"):
        assert sender["send_queue_max_bytes"] == mine["outq"]
    assert (sender["send_buffer_bytes"], sender["recv_buffer_bytes"]) == (
        mine["sndbuf"],
        mine["rcvbuf"],
    )


def test_a_send_that_sleeps_finds_the_queue_full(
    folder: Path, server: Actor, client: Actor
) -> None:
    """When it returns the queue need not be full any more."""
    place = Place(server, "stream", folder)
    with Attached(both(server, client), folder) as watched:
        ours, theirs = pair(server, client, place)
        limit = client.do("queues", socket_number=ours)["sndbuf"]
        client.start("send", socket_number=ours, size=3 * limit)
        client.wait_until_asleep()
        server.do("drain", socket_number=theirs, wanted=3 * limit, after_ms=0)
        assert client.finish()["sent"] == 3 * limit
    sender, _ = by_role(watched.report)
    assert sender["send_queue_max_bytes"] >= limit
    assert sender["send_queue_bytes"] == 0


def window_full(actor: Actor, number: int, least_us: float = 0) -> float:
    """What the kernel tells the sender, once it is that long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (told := actor.do("window", socket_number=number)["full_us"]) < least_us:
        assert time.monotonic() < give_up_at, told
        time.sleep(0.01)
    return float(told)


def test_a_full_window_against_tcp_info(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    """A reply that fits into the send buffer: its sender goes on, and the reader has no room."""
    place = Place(server, kind, folder)
    ours, _ = pair(server, client, place)
    if not kind.startswith("tcp"):
        with Attached(both(server, client), folder) as watched:
            client.do("send", socket_number=ours, size=10)
        assert all(row["window_full_us"] is None for row in watched.report["connections"])
        return
    client.do("send", socket_number=ours, size=1_000_000)
    began = window_full(client, ours, 50_000)
    with Attached(both(server, client), folder) as watched:
        ready = window_full(client, ours)
        ending = window_full(client, ours, ready + 200_000)
    ended = window_full(client, ours)
    sender, reader = by_role(watched.report)
    ticks_us = 3 * TICK_US  # each of two readings, and the shown length of the window
    assert ending - ready - ticks_us <= sender["window_full_us"] <= ended - began + ticks_us
    assert sender["stops"] == 0 and reader["window_full_us"] == 0


def test_a_window_that_was_full_before(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    """What a connection had been through before attach is not of the observation."""
    if not kind.startswith("tcp"):
        pytest.skip("a Unix socket has no window")
    place = Place(server, kind, folder)
    ours, theirs = pair(server, client, place)
    client.do("send", socket_number=ours, size=1_000_000)
    window_full(client, ours, 300_000)
    server.do("drain", socket_number=theirs, wanted=1_000_000, after_ms=0)
    before = window_full(client, ours)
    with Attached(both(server, client), folder) as watched:
        client.do("send", socket_number=ours, size=10)
        server.do("read", socket_number=theirs, size=10)
    sender, _ = by_role(watched.report)
    assert sender["window_full_us"] <= window_full(client, ours) - before + TICK_US


@pytest.mark.parametrize("option", ["SO_SNDBUF", "SO_RCVBUF"])
def test_buffers_that_the_application_set(
    kind: str, option: str, folder: Path, server: Actor, client: Actor
) -> None:
    place = Place(server, kind, folder)
    with Attached(both(server, client), folder) as watched:
        ours, theirs = pair(server, client, place)
        server.do("set_buffer", socket_number=theirs, option=option, size=50_000)
        client.do("send", socket_number=ours, size=10)
        server.do("read", socket_number=theirs, size=10)
        yours = server.do("queues", socket_number=theirs)
    sender, reader = by_role(watched.report)
    fixed = (reader["send_buffer_is_fixed"], reader["recv_buffer_is_fixed"])
    assert fixed == (option == "SO_SNDBUF", option == "SO_RCVBUF")
    assert (sender["send_buffer_is_fixed"], sender["recv_buffer_is_fixed"]) == (False, False)
    assert reader["send_buffer_bytes"] == yours["sndbuf"]
    assert reader["recv_buffer_bytes"] == yours["rcvbuf"]
    assert 100_000 in (yours["sndbuf"], yours["rcvbuf"])


def test_a_stall_from_its_beginning_to_its_end(
    kind: str, folder: Path, server: Actor, client: Actor
) -> None:
    """It grows while nothing is read, never above the truth, and is over with the queue."""
    place = Place(server, kind, folder)
    documents = folder / "lines"
    arguments = ["attach", *both(server, client), "--interval", "0.1"]
    with Live([*arguments, "--jsonl", "--output", str(documents)], folder) as live:
        ours, theirs = pair(server, client, place)
        before = time.monotonic()
        filled = client.do("fill", socket_number=ours, size=1000)["sent"]
        stalled = row_when(documents, lambda row: row.get("stalled_us", 0) > 400_000)
        assert stalled["stalled_us"] <= (time.monotonic() - before) * 1e6
        assert stalled["send_queue_max_bytes"] >= stalled["send_queue_bytes"] > 0
        if not kind.startswith("tcp"):  # there the window stays shut for so little
            before = time.time()
            server.do("read", socket_number=theirs, size=1000)
            after = time.time()
            filled -= 1000
            again, ended = row_after(documents, after, lambda row: row["stalled_us"] > 200_000)
            assert again["stalled_us"] <= (ended - before) * 1e6 + SHOWN_TO_US
        server.do("drain", socket_number=theirs, wanted=filled, after_ms=0)
        row_when(documents, lambda row: row.get("send_queue_bytes", 0) == 0)
        client.do("send", socket_number=ours, size=10)
        quiet = row_when(documents, lambda row: row.get("bytes_out") == 10)
        assert quiet["send_queue_max_bytes"] < stalled["send_queue_bytes"]
        assert live.end().code == 0


def row_when(path: Path, holds: Callable[[Row], bool]) -> Row:
    """The sender's connection, empty if it is not shown, in the first fit document from now on."""
    return row_after(path, 0.0, holds)[0]


def row_after(path: Path, unix_s: float, holds: Callable[[Row], bool]) -> Tuple[Row, float]:
    """The same, in a document whose window began later than this, and when that ended."""
    seen, give_up_at, row = len(written(path)), time.monotonic() + PATIENCE_S, None
    while time.monotonic() < give_up_at:
        fresh = written(path)[seen:]
        for document in fresh:
            rows = [row for row in document["connections"] if row["role"] == "upstream"]
            row = rows[0] if rows else {}
            begun = datetime.fromisoformat(document["window"]["start"]).timestamp()
            if begun > unix_s and holds(row):
                return row, begun + document["window"]["duration_s"]
        seen += len(fresh)
        time.sleep(0.02)
    raise AssertionError(row)


def written(path: Path) -> List[Row]:
    """The documents so far; the last line may be on its way."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_limits_of_the_namespace(folder: Path, server: Actor, client: Actor) -> None:
    place = Place(server, "stream", folder)
    with Attached(both(server, client), folder) as watched:
        pair(server, client, place)
    (row,) = [r for r in watched.report["namespaces"] if r["netns"] == own_namespace()]
    for name in ("wmem_max", "wmem_default", "rmem_max", "rmem_default"):
        assert row[name] == int(Path(f"/proc/sys/net/core/{name}").read_text())
    assert row["max_dgram_qlen"] == int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    for name in ("tcp_wmem", "tcp_rmem"):
        text = Path(f"/proc/sys/net/ipv4/{name}").read_text()
        assert row[name] == [int(word) for word in text.split()]


def own_namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino
