"""Connections that a server accepts and closes without having received a byte: exactly so many."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from tests.kernel import tool
from tests.kernel.test_accept_queue import KINDS, UNIX_KINDS, Places
from tests.kernel.tool import row_of
from tests.workloads.queue_process import Actor

pytestmark = [pytest.mark.root]

COUNTS = ("accepted", "read_from", "closed_unread", "closed_unread_sent")
LONGER_THAN_AT_ONCE_MS = 1100
Row = Dict[str, Any]


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, reachable: Path) -> Places:
    return Places(request.param, reachable)


def counted(watched: tool.Attached, heard: Row) -> Dict[str, int]:
    row = row_of(watched.report, heard)
    return {name: row[name] for name in COUNTS}


def attached(server: Actor, folder: Path) -> tool.Attached:
    return tool.Attached(["--pid", str(server.pid)], folder)


def test_connections_that_are_closed_unread_are_counted(places: Places, tmp_path: Path) -> None:
    """3 without a word, 4 with one, 2 whose client had sent; 5 others are read from first."""
    with Actor() as server, Actor() as client, attached(server, tmp_path) as watched:
        place, heard = places.listen(server, 32)
        client.connect(place, 9)
        for connection in (7, 8):
            client.do("send", connection=connection)
        server.do("accept", listener=heard["listener"], count=3)
        server.do("accept", listener=heard["listener"], count=4, says="no room")
        server.do("accept", listener=heard["listener"], count=2, says="no room")
        client.connect(place, 5)
        server.do("accept", listener=heard["listener"], count=5, keep=True)
        for n in range(5):
            client.do("send", connection=9 + n)
            assert server.do("receive", connection=n)["text"] == "x"
        server.do("close_kept")
    assert counted(watched, heard) == dict(zip(COUNTS, (14, 5, 9, 2)))


def test_who_was_left_by_its_client_or_waited_for_it_is_not_counted(
    places: Places, tmp_path: Path
) -> None:
    """6 clients go first, as health checks do; for 2 the server waits longer than a second."""
    with Actor() as server, Actor() as client, attached(server, tmp_path) as watched:
        place, heard = places.listen(server, 32)
        client.connect(place, 6, keep=False)
        server.do("accept", listener=heard["listener"], count=6)
        client.connect(place, 2)
        server.do("accept", listener=heard["listener"], count=2, keep=True)
        server.do("close_kept", after_ms=LONGER_THAN_AT_ONCE_MS)
    assert counted(watched, heard) == dict(zip(COUNTS, (8, 0, 0, 0)))


def test_many_are_counted_exactly(places: Places, tmp_path: Path) -> None:
    connections = 2000
    with Actor() as server, Actor() as client, attached(server, tmp_path) as watched:
        place, heard = places.listen(server, connections)
        client.connect(place, connections)
        server.do("accept", listener=heard["listener"], count=connections)
    assert counted(watched, heard) == dict(zip(COUNTS, (connections, 0, connections, 0)))


def test_who_leaves_at_the_word_has_sent_nothing(places: Places, tmp_path: Path) -> None:
    """Both ends close at about the same time, again and again: a FIN is no byte."""
    connections = 3000
    with Actor() as server, Actor() as client, attached(server, tmp_path) as watched:
        place, heard = places.listen(server, 32)
        client.start("connect", address=place, count=connections, keep=False, hears=True)
        server.do("accept", listener=heard["listener"], count=connections, says="12:00")
        client.finish()
    row = counted(watched, heard)
    assert (row["accepted"], row["read_from"], row["closed_unread_sent"]) == (connections, 0, 0)


def test_the_process_that_closes_need_not_be_the_last_to_hold_it(
    reachable: Path, tmp_path: Path
) -> None:
    """Children accept and close: a connection of theirs is nobody else's."""
    places = Places(UNIX_KINDS[0], reachable)
    with Actor() as server, Actor() as client, attached(server, tmp_path) as watched:
        place, heard = places.listen(server, 32)
        client.connect(place, 7)
        pids = server.do("accept_by_children", listener=heard["listener"], shares=[3, 4])["pids"]
        server.do("reap", pids=pids)
    assert counted(watched, heard) == dict(zip(COUNTS, (7, 0, 7, 0)))
