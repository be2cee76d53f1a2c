"""Whose address a failed connect meant: real directories, this process, and children of it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Optional, Tuple

import pytest

from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.socket_names import SocketName
from udsprobe.kernel.tables.refusals import Bound, Refusals, UnixConnect

OURSELVES = os.getpid()
MOUNT_NS = os.stat("/proc/self/ns/mnt").st_ino
NET_NS = os.stat("/proc/self/ns/net").st_ino
ELSEWHERE_NS = 1
"""The inode number of no mount namespace."""
PID_UNUSED = 2**22 + 1
"""Above every PID the kernel hands out."""


def unix(name: bytes) -> SocketName:
    return SocketName(socket.AF_UNIX, name, 0)


def kernel_file(path: Path) -> Tuple[int, int]:
    """As the kernel half names a socket's file."""
    found = path.stat()
    return os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino


def bound(path: Path, inode: int = 100, since_ns: int = 0, **changes: Any) -> Bound:
    """A listener at a path that this process sees; its file is made."""
    path.touch()
    fields = {"pid": OURSELVES, "net_ns": NET_NS, "name": unix(os.fsencode(path))}
    return Bound(inode, since_ns, file=kernel_file(path), **{**fields, **changes})


def failed(name: bytes, error: int = errno.EAGAIN, count: int = 1, **changes: Any) -> UnixConnect:
    """A connect of this process."""
    fields = {"pid": OURSELVES, "mount_ns": MOUNT_NS, "net_ns": NET_NS, **changes}
    return UnixConnect(error=error, name=unix(name), count=count, **fields)


def to(path: Path, **changes: Any) -> UnixConnect:
    return failed(os.fsencode(path), **changes)


@pytest.fixture
def refusals() -> Refusals:
    return Refusals(Procfs())


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Tuple[int, Path]]:
    """A process whose working directory is not ours, and that directory."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    script = "print(flush=True); input()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], cwd=directory, **pipes) as process:
        process.stdout.readline()
        yield process.pid, directory
        process.communicate("\n")


def test_failures_are_added_up_by_errno(refusals: Refusals, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path)])
    refusals.add([to(path, count=3), to(path, error=errno.EACCES)])
    refusals.add([to(path, count=2), to(path, error=errno.ECONNREFUSED)])
    assert refusals.of(100) == {"EAGAIN": 5, "EACCES": 1, "ECONNREFUSED": 1}
    assert refusals.unplaced == 0


def test_an_address_that_is_nobodys_is_not_counted(refusals: Refusals, tmp_path: Path) -> None:
    refusals.learn([bound(tmp_path / "app.sock")])
    (tmp_path / "theirs.sock").touch()
    refusals.add([to(tmp_path / "theirs.sock"), to(tmp_path / "none.sock"), failed(b"\0app")])
    assert refusals.of(100) == {}
    assert refusals.of(999) == {}
    assert refusals.unplaced == 0


def test_learning_again_keeps_what_was_counted(refusals: Refusals, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    for _ in range(2):
        refusals.learn([bound(path)])
        refusals.add([to(path)])
    assert refusals.of(100) == {"EAGAIN": 2}


def test_a_missing_file_is_known_by_its_directory(refusals: Refusals, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path)])
    path.unlink()
    refusals.add([to(path, error=errno.ENOENT), to(tmp_path / "other.sock", error=errno.ENOENT)])
    assert refusals.of(100) == {"ENOENT": 1}


def test_links_to_directory_and_to_file(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "app.sock"
    refusals.learn([bound(path)])
    (tmp_path / "directory").symlink_to("run")
    (tmp_path / "file.sock").symlink_to("run/app.sock")
    refusals.add([to(tmp_path / "directory" / "app.sock"), to(tmp_path / "file.sock")])
    path.unlink()
    refusals.add([to(tmp_path / "directory" / "app.sock"), to(tmp_path / "file.sock")])
    assert refusals.of(100) == {"EAGAIN": 4}


def test_a_file_that_was_moved_is_still_its_listeners(refusals: Refusals, tmp_path: Path) -> None:
    old, new = tmp_path / "fresh.sock", tmp_path / "app.sock"
    refusals.learn([bound(old)])
    old.rename(new)
    refusals.add([to(new)])
    assert refusals.of(100) == {"EAGAIN": 1}


def test_the_file_says_more_than_a_name_somebody_had(refusals: Refusals, tmp_path: Path) -> None:
    moved, replaced = tmp_path / "a.sock", tmp_path / "b.sock"
    refusals.learn([bound(moved, inode=1, since_ns=1), bound(replaced, inode=2, since_ns=2)])
    moved.rename(replaced)
    refusals.add([to(replaced)])
    assert (refusals.of(1), refusals.of(2)) == ({"EAGAIN": 1}, {})


def test_a_relative_path_is_the_clients(
    refusals: Refusals, tmp_path: Path, elsewhere: Tuple[int, Path]
) -> None:
    pid, directory = elsewhere
    refusals.learn([bound(directory / "app.sock"), bound(tmp_path / "app.sock", inode=200)])
    refusals.add([failed(b"app.sock", pid=pid), failed(b"../app.sock", pid=pid, count=2)])
    assert (refusals.of(100), refusals.of(200)) == ({"EAGAIN": 1}, {"EAGAIN": 2})


def test_a_relative_path_is_the_listeners(refusals: Refusals, elsewhere: Tuple[int, Path]) -> None:
    pid, directory = elsewhere
    listener = bound(directory / "app.sock", pid=pid, name=unix(b"app.sock"))
    refusals.learn([listener])
    (directory / "app.sock").unlink()
    refusals.add([to(directory / "app.sock", error=errno.ENOENT)])
    assert refusals.of(100) == {"ENOENT": 1}


def test_abstract_names_are_whole_and_of_their_network_namespace(refusals: Refusals) -> None:
    names = {1: b"\0app", 2: b"\0app\0", 3: b"\0a\0\0pp"}
    for inode, name in names.items():
        refusals.learn([Bound(inode, 0, OURSELVES, NET_NS, unix(name), None)])
        refusals.learn([Bound(inode + 10, 0, OURSELVES, NET_NS + 1, unix(name), None)])
    for inode, name in names.items():
        refusals.add([failed(name, count=inode), failed(name, net_ns=NET_NS + 1, count=9)])
    refusals.add([failed(b"\0ap"), failed(b"\0app", net_ns=NET_NS + 2)])
    assert [refusals.of(inode) for inode in names] == [{"EAGAIN": inode} for inode in names]
    assert [refusals.of(inode + 10) for inode in names] == [{"EAGAIN": 9}] * 3


def test_an_abstract_name_needs_no_living_client(refusals: Refusals) -> None:
    refusals.learn([Bound(1, 0, OURSELVES, NET_NS, unix(b"\0app"), None)])
    refusals.add([failed(b"\0app", pid=PID_UNUSED, mount_ns=ELSEWHERE_NS)])
    assert refusals.of(1) == {"EAGAIN": 1}


@pytest.mark.parametrize(("old", "new"), [(100, 200), (200, 100)])
@pytest.mark.parametrize("at_once", [False, True])
def test_the_newest_listener_of_a_path_is_meant(
    refusals: Refusals, tmp_path: Path, old: int, new: int, at_once: bool
) -> None:
    path = tmp_path / "app.sock"
    first = bound(path, inode=old, since_ns=5)
    if not at_once:
        refusals.learn([first])
        refusals.add([to(path)])
    path.rename(tmp_path / "kept, so that its inode is not used again")
    second = bound(path, inode=new, since_ns=9)
    refusals.learn([second, first])
    refusals.add([to(path, count=4)])
    path.unlink()
    refusals.add([to(path, error=errno.ENOENT)])
    assert refusals.of(new) == {"EAGAIN": 4, "ENOENT": 1}
    assert refusals.of(old) == ({} if at_once else {"EAGAIN": 1})


@pytest.mark.parametrize(
    ("newest_ns", "meant"), [(4, 1), (5, 1), (8, 1), (9, 2), (11, 2), (12, 3), (99, 3), (None, 3)]
)
def test_a_failure_is_of_who_had_the_address_then(
    refusals: Refusals, newest_ns: Optional[int], meant: int
) -> None:
    name = b"\0app"
    since = {2: 9, 3: 12, 1: 5}
    refusals.learn(
        Bound(inode, at, OURSELVES, NET_NS, unix(name), None) for inode, at in since.items()
    )
    refusals.add([replace(failed(name), newest_ns=newest_ns)])
    assert [inode for inode in since if refusals.of(inode)] == [meant]


def test_a_path_that_was_bound_again_is_of_the_earlier_one_before(
    refusals: Refusals, tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path, inode=1, since_ns=5)])
    path.rename(tmp_path / "kept, so that its inode is not used again")
    refusals.learn([bound(path, inode=2, since_ns=9)])
    refusals.add([replace(to(path, count=3), newest_ns=5), replace(to(path), newest_ns=9)])
    assert (refusals.of(1), refusals.of(2)) == ({"EAGAIN": 3}, {"EAGAIN": 1})


def test_a_client_that_is_gone_borrows_a_view(refusals: Refusals, tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path)])
    refusals.add([to(path, pid=PID_UNUSED)])
    assert refusals.of(100) == {"EAGAIN": 1}


def test_a_client_that_is_gone_with_its_namespace_is_unplaced(
    refusals: Refusals, tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path)])
    refusals.add([to(path, pid=PID_UNUSED, mount_ns=ELSEWHERE_NS, count=3), to(path, mount_ns=0)])
    assert (refusals.of(100), refusals.unplaced) == ({}, 4)


def test_a_client_that_is_gone_with_its_relative_path_is_unplaced(
    refusals: Refusals, tmp_path: Path
) -> None:
    refusals.learn([bound(tmp_path / "app.sock")])
    refusals.add([failed(b"app.sock", pid=PID_UNUSED, count=2)])
    assert (refusals.of(100), refusals.unplaced) == ({}, 2)


def test_a_pid_used_again_in_another_namespace_is_not_the_client(
    refusals: Refusals, tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path)])
    refusals.add([to(path, mount_ns=ELSEWHERE_NS)])
    assert (refusals.of(100), refusals.unplaced) == ({}, 1)


def test_a_listener_whose_owner_is_gone_is_known_by_its_file(
    refusals: Refusals, tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    refusals.learn([bound(path, pid=PID_UNUSED)])
    refusals.add([to(path)])
    assert refusals.of(100) == {"EAGAIN": 1}
