"""TCP clients that had spoken last before udsprobe came, against what they know, and ss."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

from tests.kernel.leaving import Server
from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

ASKED, ANSWERED, ASKED_ONCE, ONE_WAY = 13, 5, 7, 4
# The kernel notes when an end spoke last by its ticks, of 10 ms at most.
THINKS_S = 0.03


def ask(clients: List[socket.socket], word: bytes) -> None:
    for client in clients:
        client.sendall(word)
    for client in clients if word == b"answer" else ():
        assert client.recv(64) == b"reply"


def spoke_last(server: Server) -> int:
    """Connections of the server whose client did, after a reply or once, by ss."""
    argv = ["ss", "-Htin", "state", "established", f"( sport = :{server.port} )"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = 0
    for line in said.splitlines():
        times = dict(re.findall(r"\b(lastsnd|lastrcv):(\d+)", line))
        if "bytes_acked" in line:  # ss leaves out what is 0
            found += int(times.get("lastrcv", 0)) < int(times.get("lastsnd", 0))
        else:
            found += "data_segs_in:1 " in f"{line} "
    return found


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    started = Server("tcp", folder, "close")
    yield started
    started.end()


def opened(server: Server, stack: ExitStack) -> Tuple[List[socket.socket], ...]:
    sizes = (ASKED, ANSWERED, ASKED_ONCE, ONE_WAY)
    return tuple([stack.enter_context(server.client()) for _ in range(size)] for size in sizes)


@pytest.mark.parametrize("pauses", [True, False])
@pytest.mark.parametrize("detail", ["full", "light"])
def test_those_that_asked_and_have_no_reply(
    server: Server, folder: Path, detail: str, pauses: bool
) -> None:
    with ExitStack() as stack:
        asked, answered, once, one_way = opened(server, stack)
        ask([*asked, *answered], b"answer")
        if pauses:
            time.sleep(THINKS_S)
        ask([*asked, *once, *one_way], b"leave")
        ask(one_way, b"leave")
        ask(answered[:1], b"answer")  # the server has seen all that went before it
        # Within one tick ss does not tell.
        asking = ASKED + ASKED_ONCE
        assert spoke_last(server) == asking if pauses else spoke_last(server) <= asking
        with Attached(["--pid", str(server.pid), "--detail", detail], folder) as watched:
            time.sleep(THINKS_S)
        (row,) = watched.report["requests"]["served_by"]
        assert row["asked_before"]["count"] == asking
        assert row["asked_before"]["oldest_us"] >= 1e6 * THINKS_S
        assert (row["count"], row["unanswered"]["count"]) == (0, 0)
        with Attached(["--pid", str(server.pid), "--detail", detail], folder) as watched:
            ask(asked[:3], b"answer")
        (row,) = watched.report["requests"]["served_by"]
        assert (row["count"], row["asked_before"]["count"]) == (3, asking - 3)


TOTAL = ASKED + ANSWERED + ASKED_ONCE + ONE_WAY
ASKER = f"""
import socket, sys
port = int(sys.argv[1])
clients = [socket.create_connection(("127.0.0.1", port)) for _ in range({TOTAL})]
for client in clients:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for client in clients[:{ASKED + ANSWERED}]:
    client.sendall(b"first")
    assert client.recv(64) == b"reply"
sys.stdin.readline()
for client in [*clients[:{ASKED}], *clients[{ASKED + ANSWERED}:]]:
    client.sendall(b"second")
for client in clients[-{ONE_WAY}:]:
    client.sendall(b"third")
print("asked", flush=True)
sys.stdin.readline()
for client in clients[:3]:
    assert client.recv(64) == b"reply"
print("answered", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("pauses", [True, False])
@pytest.mark.parametrize("detail", ["full", "light"])
def test_what_a_target_had_asked_itself(folder: Path, detail: str, pauses: bool) -> None:
    """Who had an answer before, or has spoken once, waits; of who goes on without, nobody knows."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, ExitStack() as stack:
        port = listener.getsockname()[1]
        asker = stack.enter_context(PipedProgram(sys.executable, "-c", ASKER, str(port)))
        served = [stack.enter_context(listener.accept()[0]) for _ in range(TOTAL)]
        for each in served[: ASKED + ANSWERED]:
            assert each.recv(64) == b"first"
            each.sendall(b"reply")
        if pauses:
            time.sleep(THINKS_S)
        asker.tell("\n")
        assert asker.says() == "asked"
        with Attached(["--pid", str(asker.pid), "--detail", detail], folder) as watched:
            time.sleep(THINKS_S)
        asking = [each["asking_us"] for each in watched.report["connections"]]
        assert len(asking) == ASKED + ASKED_ONCE and min(asking) >= 1e6 * THINKS_S
        with Attached(["--pid", str(asker.pid), "--detail", detail], folder) as watched:
            for each in served[:3]:
                each.sendall(b"reply")
            asker.tell("\n")
            assert asker.says() == "answered"
        rows = watched.report["connections"]
        assert [each["asking_us"] is None for each in rows].count(False) == ASKED + ASKED_ONCE - 3
