"""Streams of HTTP/2 are requests, in both directions: counted, timed, owed, given up."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.kernel.conversations import (
    WORKLOADS,
    Conversation,
    Program,
    conversation,
    owed,
    started,
)
from tests.kernel.servers import free_port
from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CALLS = 200
REQUESTS = 20
IDLE_S = 0.02

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, ROOM = 0, 1, 3, 4, 6, 8
LAST, WHOLE = 1, 4  # flags: of a stream; of its headers


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s" if request.param == "unix" else f"127.0.0.1:{free_port()}"


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """RFC 9113, 4.1."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


OPENS = PREFACE + frame(SETTINGS, 6 * b"s")


def asks(stream: int, body: bytes = b"") -> bytes:
    headers = frame(HEADERS, b"asks", WHOLE, stream)
    return headers + (frame(DATA, body, LAST, stream) if body else b"")


def tells(stream: int, body: bytes = b"told") -> bytes:
    """A reply of gRPC: headers, a message, trailers."""
    message = frame(HEADERS, b"200", WHOLE, stream) + frame(DATA, body, 0, stream)
    return message + frame(HEADERS, b"ok", WHOLE | LAST, stream)


def stream_ids(count: int) -> List[int]:
    return list(range(1, 2 * count, 2))


class Speaker:
    """Both ends of one connection, of which the server is observed."""

    def __init__(self, server: Program, client: Conversation) -> None:
        self._server = server
        self._client = client
        self._told = 0

    def asks(self, *pieces: bytes) -> None:
        """All are sent, and each is read by a call of its own."""
        self._client.tell(b"".join(pieces))
        for piece in pieces:
            self._client.server_reads(piece)

    def leaves(self, who: str) -> None:
        """Who is left closes its end then. A client that has not read all resets the connection."""
        if who == "client":
            self._client.take(self._told)
        if who != "server":
            self._client.close()
            self._server.do("read 0")
        self._server.do("close")

    def tells(self, *pieces: bytes) -> None:
        """By one call, from as many buffers."""
        self._told += sum(map(len, pieces))
        self._server.do("send " + " ".join(piece.hex() for piece in pieces))


@contextmanager
def spoken(
    address: str, folder: Path, *, opens_before: bool = False
) -> Iterator[Tuple[Speaker, Attached]]:
    """`opens_before`: the connection's first frames were there before udsprobe came."""
    with conversation(address) as (server, client):
        speaker = Speaker(server, client)
        if opens_before:
            speaker.asks(OPENS)
            speaker.tells(frame(SETTINGS))
        with Attached(["--pid", str(server.pid)], folder) as watched:
            if not opens_before:
                speaker.asks(OPENS)
                speaker.tells(frame(SETTINGS))
            yield speaker, watched


def served(watched: Attached) -> Dict[str, Any]:
    found: Dict[str, Any] = watched.report["requests"]["served"]
    assert found["turn_based"] is True
    assert found["multiplexed"] == 0
    assert found["streams"] == found["count"]
    return found


@contextmanager
def grpc_client(address: str) -> Iterator[Program]:
    with started(str(WORKLOADS / "grpc_echo.py"), "client", address, str(CALLS)) as client:
        client.wait_for("connected")
        yield client


def call(client: Program) -> None:
    client.tell("go")
    client.wait_for("done")


@pytest.mark.parametrize("connected_before", [False, True])
def test_calls_of_grpc_are_counted_exactly(
    address: str, tmp_path: Path, connected_before: bool
) -> None:
    """Whether udsprobe saw the preface of the connection or frames only."""
    with started(str(WORKLOADS / "grpc_echo.py"), "server", address) as server:
        server.wait_for("ready")
        watched = Attached(["--pid", str(server.pid)], tmp_path)
        if connected_before:
            with grpc_client(address) as client, watched:
                call(client)
        else:
            with watched, grpc_client(address) as client:
                call(client)
    assert served(watched)["count"] == CALLS + (not connected_before)
    assert owed(watched.report) == (0, 0)
    assert [f["id"] for f in watched.report["findings"] if f["id"] == "not-turn-based"] == []


def test_calls_that_a_client_of_grpc_makes_are_its_own_requests(
    address: str, tmp_path: Path
) -> None:
    with started(str(WORKLOADS / "grpc_echo.py"), "server", address) as server:
        server.wait_for("ready")
        with (
            grpc_client(address) as client,
            Attached(["--pid", str(client.pid)], tmp_path) as watched,
        ):
            call(client)
    (row,) = watched.report["requests"]["upstream"]
    assert row["count"] == CALLS
    assert row["multiplexed"] is True


def test_settings_pings_and_room_are_no_part_of_requests(address: str, tmp_path: Path) -> None:
    """A server acknowledges them at once, in pieces of frames, while it works for 20 ms; the next
    request comes 20 ms after those that follow a reply."""
    acknowledges = frame(SETTINGS, flags=1) + frame(PING, 8 * b"p", flags=1)
    waited_s = 0.0
    with spoken(address, tmp_path) as (ends, watched):
        for stream in stream_ids(REQUESTS):
            began_s = time.monotonic()
            ends.asks(asks(stream))
            ends.tells(acknowledges[:10], acknowledges[10:])
            time.sleep(IDLE_S)
            ends.tells(tells(stream)[:9], tells(stream)[9:])
            waited_s += time.monotonic() - began_s
            ends.asks(frame(ROOM, b"\0\0\1\0") + frame(PING, 8 * b"p"))
            time.sleep(IDLE_S)
    found = served(watched)
    assert found["count"] == REQUESTS
    assert 1e6 * IDLE_S <= found["latency_us"]["mean"] <= 1e6 * waited_s / REQUESTS
    assert owed(watched.report) == (0, 0)


@pytest.mark.parametrize("opens_before", [False, True])
@pytest.mark.parametrize("count", [1, 100])
def test_streams_at_once_are_as_many_requests(
    address: str, tmp_path: Path, count: int, opens_before: bool
) -> None:
    """Asked with one call each round and answered with one, in the other order."""
    with spoken(address, tmp_path, opens_before=opens_before) as (ends, watched):
        for round_ in range(3):
            streams = [2 * count * round_ + each for each in stream_ids(count)]
            ends.asks(b"".join(asks(stream, b"body") for stream in streams))
            ends.tells(*(tells(stream) for stream in reversed(streams)))
    assert served(watched)["count"] == 3 * count
    assert owed(watched.report) == (0, 0)


def test_heads_that_are_read_alone_are_recognised(address: str, tmp_path: Path) -> None:
    """As Go reads them, on a connection that was there before."""
    streams = stream_ids(6)
    with spoken(address, tmp_path, opens_before=True) as (ends, watched):
        for stream in streams:
            ends.asks(asks(stream)[:9], asks(stream)[9:])
            ends.tells(tells(stream))
    assert served(watched)["count"] == len(streams)
    assert owed(watched.report) == (0, 0)


@pytest.mark.parametrize("size", [1, 4, 9, 10, 31])
def test_frames_are_followed_from_call_to_call(address: str, tmp_path: Path, size: int) -> None:
    """Each call takes so many bytes, wherever that is in a frame."""
    streams = stream_ids(6)
    said = b"".join(asks(stream, 20 * b"b") for stream in streams)
    told = b"".join(tells(stream) for stream in streams)
    with spoken(address, tmp_path) as (ends, watched):
        ends.asks(*(said[at : at + size] for at in range(0, len(said), size)))
        for at in range(0, len(told), size):
            ends.tells(told[at : at + size])
    assert served(watched)["count"] == len(streams)


def four_of_seven_are_answered(ends: Speaker) -> None:
    for stream in stream_ids(7):
        ends.asks(asks(stream))
    for stream in stream_ids(7)[1:5]:
        ends.tells(tells(stream))
    time.sleep(IDLE_S)


def test_what_has_no_reply_is_owed(address: str, tmp_path: Path) -> None:
    with spoken(address, tmp_path) as (ends, watched):
        four_of_seven_are_answered(ends)
    assert served(watched)["count"] == 4
    assert owed(watched.report)[0] == 3


def test_a_client_that_resets_its_stream_has_given_up(address: str, tmp_path: Path) -> None:
    with spoken(address, tmp_path) as (ends, watched):
        ends.asks(asks(1) + asks(3) + asks(5))
        time.sleep(IDLE_S)
        ends.asks(frame(RESET, b"\0\0\0\10", stream=3))
        ends.tells(tells(1) + frame(RESET, b"\0\0\0\2", stream=5))
    assert served(watched)["count"] == 1
    (row,) = watched.report["requests"]["served_by"]
    assert (row["given_up"]["count"], row["dropped"]["count"]) == (1, 1)


@pytest.mark.parametrize("who", ["client", "resetting client", "server"])
def test_who_ends_the_connection_ends_what_is_open_on_it(
    address: str, tmp_path: Path, who: str
) -> None:
    """A client that leaves has given up; a server that does drops them."""
    with spoken(address, tmp_path) as (ends, watched):
        four_of_seven_are_answered(ends)
        ends.leaves(who)
    assert served(watched)["count"] == 4
    (row,) = watched.report["requests"]["served_by"]
    left, dropped = (0, 3) if who == "server" else (3, 0)
    assert (row["given_up"]["count"], row["dropped"]["count"]) == (left, dropped)
    waited = row["dropped"] if who == "server" else row["given_up"]
    assert waited["waited_mean_us"] > IDLE_S * 1e6
    assert owed(watched.report) == (0, 0)


@contextmanager
def asking(address: str, folder: Path) -> Iterator[Tuple[Program, socket.socket, Attached]]:
    """A client that is observed, and the server's end of its connection."""
    kind, _, at = address.rpartition(":")
    place = ("unix", at) if kind == "unix" else ("tcp", address)
    listener = socket.socket(socket.AF_UNIX) if kind == "unix" else socket.socket()
    with listener, started(str(WORKLOADS / "serving_actor.py"), *place) as client:
        client.wait_for("ready")
        listener.bind(f"{at}2" if kind == "unix" else ("127.0.0.1", 0))
        listener.listen()
        to = f"{at}2" if kind == "unix" else f"127.0.0.1:{listener.getsockname()[1]}"
        with Attached(["--pid", str(client.pid)], folder) as watched:
            client.do(f"connect {place[0]} {to}")
            server, _ = listener.accept()
            yield client, server, watched
        server.close()


@pytest.mark.parametrize("who", ["client", "server"])
def test_own_requests_that_are_open_when_the_connection_ends(
    address: str, tmp_path: Path, who: str
) -> None:
    with asking(address, tmp_path) as (client, server, watched):
        client.do("send " + (OPENS + b"".join(map(asks, stream_ids(5)))).hex())
        server.sendall(tells(3) + tells(7))
        client.do(f"read {len(tells(3) + tells(7))}")
        time.sleep(IDLE_S)
        if who == "server":
            server.close()
            client.do("read 0")
        client.do("close")
    (row,) = watched.report["requests"]["upstream"]
    left, dropped = (3, 0) if who == "client" else (0, 3)
    assert row["count"] == 2
    assert (row["given_up"]["count"], row["dropped"]["count"]) == (left, dropped)
    assert row["dropped_kept"] == dropped


def test_own_requests_that_are_reset_are_given_up(address: str, tmp_path: Path) -> None:
    with asking(address, tmp_path) as (client, server, watched):
        client.do("send " + (OPENS + b"".join(map(asks, stream_ids(5)))).hex())
        client.do("send " + (frame(RESET, b"\0\0\0\10", stream=5)).hex())
        server.sendall(tells(3) + tells(7))
        client.do(f"read {len(tells(3) + tells(7))}")
        client.do("send " + (frame(RESET, b"\0\0\0\10", stream=7)).hex())
    (row,) = watched.report["requests"]["upstream"]
    assert (row["count"], row["given_up"]["count"], row["dropped"]["count"]) == (2, 1, 0)


@pytest.mark.alone
def test_workers_that_streams_hold_are_told(address: str, tmp_path: Path) -> None:
    """Further calls wait for one of them until their clients give up."""
    workload, given_up = str(WORKLOADS / "grpc_echo.py"), 15
    with started(workload, "server", address) as server:
        server.wait_for("ready")
        with started(workload, "holding", address, str(given_up)) as client:
            client.wait_for("connected")
            with Attached(["--pid", str(server.pid), "--stacks"], tmp_path) as watched:
                call(client)
    (row,) = watched.report["requests"]["served_by"]
    # At its deadline the server says so itself, if it is first.
    assert row["count"] + row["given_up"]["count"] + row["dropped"]["count"] == given_up
    verdict = watched.report["verdict"]
    assert verdict["cause"] == "app-blocked"
    assert "4 of its threads are all the time in watch (grpc_echo.py:" in verdict["summary"]
    assert "max_workers" in verdict["actions"][0]["do"]
