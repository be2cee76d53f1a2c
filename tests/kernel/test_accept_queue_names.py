"""Listeners by their names: strange ones, shared ones, ones that are used again; and many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from tests.kernel import tool
from tests.kernel.tool import row_of
from tests.workloads.queue_process import OWN_NETWORK, Actor, inside, unix

pytestmark = [pytest.mark.root]

SUN_PATH = 108
Row = Dict[str, Any]


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


def attached(folder: Path, *servers: Actor) -> tool.Attached:
    selectors = [word for server in servers for word in ("--pid", str(server.pid))]
    return tool.Attached(selectors, folder)


def own_root(folder: Path) -> Tuple[str, ...]:
    """A prefix: its own mount namespace, with an empty file system at `folder`."""
    script = 'mount -t tmpfs -o mode=755 udsprobe-test "$1" && shift && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh", str(folder))


STRANGE: List[Tuple[str, bytes, str]] = [
    ("not-utf8", b"{folder}/\xff\xfe\x80s", r"{folder}/\xff\xfe\x80s"),
    ("control", b"{folder}/\x1b[31m\n", r"{folder}/\x1b[31m\x0a"),
    ("abstract", b"\0udsprobe-{pid}", "@udsprobe-{pid}"),
    ("abstract-nul", b"\0ud\0s\0{pid}\0", r"@ud\x00s\x00{pid}\x00"),
    ("abstract-108", b"\0{pid}-".ljust(SUN_PATH + 4, b"a"), "@{pid}-".ljust(SUN_PATH + 4, "a")),
]


@pytest.mark.parametrize("kind", ["stream", "seqpacket"])
@pytest.mark.parametrize(
    ("name", "shown"), [row[1:] for row in STRANGE], ids=[r[0] for r in STRANGE]
)
def test_strange_names(folder: Path, tmp_path: Path, kind: str, name: bytes, shown: str) -> None:
    pid = b"%05d" % (os.getpid() % 100_000)
    whole = name.replace(b"{folder}", os.fsencode(folder)).replace(b"{pid}", pid)
    place = unix(whole[:SUN_PATH], kind)
    expected = shown.replace("{folder}", str(folder)).replace("{pid}", pid.decode())[:SUN_PATH]
    if len(whole) <= SUN_PATH:
        expected = shown.replace("{folder}", str(folder)).replace("{pid}", pid.decode())
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            heard = server.listen(place, 1)
            assert client.connect(place, 2)["results"] == {"OK": 2}
            assert client.connect(place, 6, blocking=False)["results"] == {"EAGAIN": 6}
        row = row_of(watched.report, heard)
        assert row["address"] == expected
        assert row["refused"] == {"EAGAIN": 6}
        assert (row["depth"]["max"], row["established"]) == (2, 2)


def test_a_path_that_fills_the_structure(folder: Path, tmp_path: Path) -> None:
    path = os.fsencode(folder / "p").ljust(SUN_PATH, b"p")
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(path), 0)
            assert client.connect(unix(path), 1)["results"] == {"OK": 1}
            assert client.connect(unix(path), 4, blocking=False)["results"] == {"EAGAIN": 4}
        row = row_of(watched.report, heard)
        assert row["address"] == path.decode()
        assert row["refused"] == {"EAGAIN": 4}


def test_what_lies_behind_the_end_of_a_path_is_no_part_of_it(folder: Path, tmp_path: Path) -> None:
    """A client that gives the whole structure, with rubbish after the zero byte."""
    path = os.fsencode(folder / "s")
    room = SUN_PATH - len(path)
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server, client) as watched:
            heard = server.listen(unix(path, tail=bytes(room)), 0)
            client.connect(unix(path, tail=b"\0"), 1)
            for rubbish in (b"\0", bytes(room), b"\0" + b"xyz", (b"\0" + b"\xa5" * room)[:room]):
                tried = client.connect(unix(path, tail=rubbish), 3, blocking=False)
                assert tried["results"] == {"EAGAIN": 3}
        row = row_of(watched.report, heard)
        assert row["address"] == str(folder / "s")
        assert row["refused"] == {"EAGAIN": 12}
        (towards,) = watched.report["connects"]
        assert towards["address"] == str(folder / "s")
        assert (towards["calls"], towards["errors"]) == (13, {"EAGAIN": 12})


# ------------------------------------------------------------ who is meant


def test_nobody_listens(folder: Path, tmp_path: Path) -> None:
    """A file whose listener is gone, and no file at all: still that address's refusals."""
    path = folder / "s"
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(path), 3)
            server.do("close", listener=heard["listener"])
            assert client.connect(unix(path), 5)["results"] == {"ECONNREFUSED": 5}
            path.unlink()
            assert client.connect(unix(path), 7)["results"] == {"ENOENT": 7}
            assert client.connect(unix(folder / "other"), 2)["results"] == {"ENOENT": 2}
        row = row_of(watched.report, heard)
        assert row["state"] == "closed"
        assert row["refused"] == {"ECONNREFUSED": 5, "ENOENT": 7}


def test_an_abstract_name_that_nobody_has(tmp_path: Path) -> None:
    place = unix(b"\0udsprobe-gone-%d" % os.getpid())
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            heard = server.listen(place, 3)
            server.do("close", listener=heard["listener"])
            assert client.connect(place, 5)["results"] == {"ECONNREFUSED": 5}
        assert row_of(watched.report, heard)["refused"] == {"ECONNREFUSED": 5}


def test_a_client_without_permission(folder: Path, tmp_path: Path) -> None:
    path = folder / "s"
    with Actor() as server, Actor() as client:
        client.do("become_nobody")
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(path), 3)
            path.chmod(0o600)
            assert client.connect(unix(path), 8)["results"] == {"EACCES": 8}
            path.chmod(0o666)
            assert client.connect(unix(path), 1)["results"] == {"OK": 1}
        row = row_of(watched.report, heard)
        assert row["refused"] == {"EACCES": 8}
        assert row["established"] == 1


def test_a_socket_of_another_kind(folder: Path, tmp_path: Path) -> None:
    path = folder / "s"
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(path, "seqpacket"), 3)
            assert client.connect(unix(path, "stream"), 2)["results"] == {"EPROTOTYPE": 2}
        row = row_of(watched.report, heard)
        assert row["refused"] == {"EPROTOTYPE": 2}
        assert (row["socket_type"], row["established"]) == ("seqpacket", 0)


def test_a_path_that_is_bound_again(folder: Path, tmp_path: Path) -> None:
    """Refusals go to whoever had the path then; between the two, to the one that was there last."""
    path = folder / "s"
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            first = server.listen(unix(path), 0)
            assert client.connect(unix(path), 1)["results"] == {"OK": 1}
            assert client.connect(unix(path), 3, blocking=False)["results"] == {"EAGAIN": 3}
            path.unlink()
            assert client.connect(unix(path), 4)["results"] == {"ENOENT": 4}
            second = server.listen(unix(path), 1)
            assert client.connect(unix(path), 2)["results"] == {"OK": 2}
            assert client.connect(unix(path), 5, blocking=False)["results"] == {"EAGAIN": 5}
        old, new = row_of(watched.report, first), row_of(watched.report, second)
        assert (old["established"], new["established"]) == (1, 2)
        assert (old["depth"]["max"], new["depth"]["max"]) == (1, 2)
        assert old["refused"] == {"EAGAIN": 3, "ENOENT": 4}
        assert new["refused"] == {"EAGAIN": 5}


def test_one_listener_after_the_other(folder: Path, tmp_path: Path) -> None:
    """The kernel uses the memory of a closed socket for the next one."""
    path, heard = folder / "s", []
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            for number in range(1, 21):
                heard.append(server.listen(unix(path), number))
                assert client.connect(unix(path), number)["results"] == {"OK": number}
                server.do("close", listener=heard[-1]["listener"])
                assert client.connect(unix(path), 2)["results"] == {"ECONNREFUSED": 2}
                path.unlink()
        rows = [row_of(watched.report, each) for each in heard]
    assert [row["established"] for row in rows] == list(range(1, 21))
    assert [row["refused"] for row in rows] == [{"ECONNREFUSED": 2}] * 20
    assert {row["state"] for row in rows} == {"closed"}


def test_a_relative_path_and_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    (folder / "file-link").symlink_to("real/s")
    with Actor() as server, Actor() as client:
        client.do("chdir", folder=str(folder / "real"))
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(folder / "real" / "s"), 0)
            client.connect(unix(folder / "link" / "s"), 1)
            for number, place in enumerate(
                [b"s", b"../real/s", folder / "link" / "s", folder / "file-link"], start=1
            ):
                tried = client.connect(unix(place), number, blocking=False)
                assert tried["results"] == {"EAGAIN": number}
        assert row_of(watched.report, heard)["refused"] == {"EAGAIN": 1 + 2 + 3 + 4}


# ------------------------------------------------------------ namespaces


def test_the_same_path_in_two_mount_namespaces(folder: Path, tmp_path: Path) -> None:
    place = unix(folder / "s")
    with Actor(*own_root(folder)) as here, Actor(*own_root(folder)) as there:
        clients = Actor(*inside(here, "mount")), Actor(*inside(there, "mount"))
        with clients[0] as near, clients[1] as far, attached(tmp_path, here, there) as watched:
            ours, theirs = here.listen(place, 1), there.listen(place, 3)
            assert near.connect(place, 2)["results"] == {"OK": 2}
            assert far.connect(place, 4)["results"] == {"OK": 4}
            assert near.connect(place, 5, blocking=False)["results"] == {"EAGAIN": 5}
            assert far.connect(place, 9, blocking=False)["results"] == {"EAGAIN": 9}
            there.do("close", listener=theirs["listener"])
            assert far.connect(place, 1)["results"] == {"ECONNREFUSED": 1}
        rows = [row_of(watched.report, each) for each in (ours, theirs)]
    assert rows[0]["address"] == rows[1]["address"] == str(folder / "s")
    assert [row["established"] for row in rows] == [2, 4]
    assert rows[0]["refused"] == {"EAGAIN": 5}
    assert rows[1]["refused"] == {"EAGAIN": 9, "ECONNREFUSED": 1}


def test_a_stranger_to_the_namespace_is_not_counted(folder: Path, tmp_path: Path) -> None:
    """The same string, seen from outside, is another path: no file there."""
    place = unix(folder / "s")
    with Actor(*own_root(folder)) as server, Actor() as outsider:
        with attached(tmp_path, server) as watched:
            heard = server.listen(place, 1)
            assert outsider.connect(place, 3)["results"] == {"ENOENT": 3}
        assert row_of(watched.report, heard)["refused"] == {}


def test_a_client_with_another_root(folder: Path, tmp_path: Path) -> None:
    (folder / "jail").mkdir()
    with Actor() as server, Actor() as client, Actor() as free:
        client.do("chroot", folder=str(folder / "jail"))
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix(folder / "jail" / "s"), 0)
            assert client.connect(unix("/s"), 1)["results"] == {"OK": 1}
            assert client.connect(unix("/s"), 6, blocking=False)["results"] == {"EAGAIN": 6}
            outside = f"/udsprobe-{os.getpid()}-missing"
            assert client.connect(unix(outside), 2)["results"] == {"ENOENT": 2}
            assert free.connect(unix("/s"), 1)["results"] == {"ENOENT": 1}
        assert row_of(watched.report, heard)["refused"] == {"EAGAIN": 6}


def test_a_server_with_another_root(folder: Path, tmp_path: Path) -> None:
    (folder / "jail").mkdir()
    with Actor() as server, Actor() as client:
        server.do("chroot", folder=str(folder / "jail"))
        with attached(tmp_path, server) as watched:
            heard = server.listen(unix("/s"), 0)
            outside = unix(folder / "jail" / "s")
            assert client.connect(outside, 1)["results"] == {"OK": 1}
            assert client.connect(outside, 6, blocking=False)["results"] == {"EAGAIN": 6}
        row = row_of(watched.report, heard)
        assert row["address"] == "/s"
        assert row["refused"] == {"EAGAIN": 6}


def test_the_same_abstract_name_in_two_network_namespaces(tmp_path: Path) -> None:
    place = unix(b"\0udsprobe-twice-%d" % os.getpid())
    with Actor() as here, Actor(*OWN_NETWORK) as there:
        clients = Actor(), Actor(*inside(there, "net"))
        with clients[0] as near, clients[1] as far, attached(tmp_path, here, there) as watched:
            ours, theirs = here.listen(place, 0), there.listen(place, 0)
            assert near.connect(place, 1)["results"] == {"OK": 1}
            assert far.connect(place, 1)["results"] == {"OK": 1}
            assert near.connect(place, 2, blocking=False)["results"] == {"EAGAIN": 2}
            assert far.connect(place, 3, blocking=False)["results"] == {"EAGAIN": 3}
        rows = [row_of(watched.report, each) for each in (ours, theirs)]
    assert rows[0]["netns"] != rows[1]["netns"]
    assert [row["refused"] for row in rows] == [{"EAGAIN": 2}, {"EAGAIN": 3}]


# ------------------------------------------------------------ many


def test_a_thousand_listeners(folder: Path, tmp_path: Path) -> None:
    """Each with its own number of connections, refusals and accepts."""
    count = 1000
    truth = {n: (1 + n % 4, n % 3, n % 2) for n in range(count)}
    heard = {}
    with Actor() as server, Actor() as client:
        with attached(tmp_path, server) as watched:
            for number, (queued, refused, taken) in truth.items():
                place = unix(folder / str(number))
                heard[number] = server.listen(place, queued - 1)
                client.connect(place, queued)
                client.connect(place, refused, blocking=False, keep=False)
                server.do("accept", listener=heard[number]["listener"], count=taken)
        rows = {row["inode"]: row for row in watched.report["listeners"]}
    assert len(rows) == count
    for number, (queued, refused, taken) in truth.items():
        row = rows[heard[number]["inode"]]
        assert row["address"] == str(folder / str(number))
        assert (row["established"], row["depth"]["max"]) == (queued, queued)
        assert (row["accepted"], row["wait_us"]["count"]) == (taken, taken)
        assert row["refused"] == ({"EAGAIN": refused} if refused else {})
