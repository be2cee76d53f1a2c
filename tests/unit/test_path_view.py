"""Paths through another process's root and cwd, with directories in place of /proc/PID."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from udsprobe.kernel.proc.path_view import LINKS_MAX, PathFound, look_up


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """Like /proc/PID of a process whose root is `box` and whose cwd is /srv in it."""
    proc, box = tmp_path / "4711", tmp_path / "box"
    for directory in (proc, box / "run" / "deep", box / "srv" / "app"):
        directory.mkdir(parents=True)
    (proc / "root").symlink_to(box)
    (proc / "cwd").symlink_to(box / "srv")
    (box / "run" / "app.sock").touch()
    (box / "srv" / "app" / "app.sock").touch()
    return proc


def seen(process: Path, path: str) -> Optional[PathFound]:
    return look_up(os.fsencode(process), os.fsencode(path))


def leads_to(process: Path, path: str, expected: str) -> bool:
    """Whether a path names the file or the missing file at `expected`, in the box."""
    there = process.parent / "box" / expected
    found = seen(process, path)
    assert found is not None
    assert (found.file is not None) == there.exists()
    assert found.file is None or os.path.samestat(found.file, there.stat())
    same = os.path.samestat(found.directory, there.parent.stat())
    return same and found.name == os.fsencode(there.name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/run/app.sock", "run/app.sock"),
        ("/run/gone.sock", "run/gone.sock"),
        ("//run/./deep/../app.sock", "run/app.sock"),
        ("/../../run/app.sock", "run/app.sock"),
        ("app/app.sock", "srv/app/app.sock"),
        ("./app/../app/gone.sock", "srv/app/gone.sock"),
        ("../run/app.sock", "run/app.sock"),
        ("../../../run/app.sock", "run/app.sock"),
    ],
)
def test_a_path_leads_where_the_process_sees_it(process: Path, path: str, expected: str) -> None:
    assert leads_to(process, path, expected)


@pytest.mark.parametrize(
    ("link", "target", "path", "expected"),
    [
        ("var", "/run", "/var/app.sock", "run/app.sock"),
        ("var", "run", "/var/app.sock", "run/app.sock"),
        ("var", "/run", "../var/gone.sock", "run/gone.sock"),
        ("var", "/run/deep", "/var/../app.sock", "run/app.sock"),
        ("run/now.sock", "app.sock", "/run/now.sock", "run/app.sock"),
        ("run/now.sock", "/run/app.sock", "/run/now.sock", "run/app.sock"),
        ("run/now.sock", "gone.sock", "/run/now.sock", "run/gone.sock"),
        ("srv/up", "../run", "up/app.sock", "run/app.sock"),
        ("srv/up", "/run", "up/app.sock", "run/app.sock"),
        ("srv/up", "../../../run", "up/app.sock", "run/app.sock"),
    ],
)
def test_links_are_followed_within_the_root(
    process: Path, link: str, target: str, path: str, expected: str
) -> None:
    (process.parent / "box" / link).symlink_to(target)
    assert leads_to(process, path, expected)


def test_an_absolute_link_is_not_followed_to_our_own_root(process: Path, tmp_path: Path) -> None:
    (tmp_path / "ours.sock").touch()
    (process.parent / "box" / "link.sock").symlink_to(tmp_path / "ours.sock")
    assert seen(process, "/link.sock") is None


def test_a_loop_of_links_leads_nowhere(process: Path) -> None:
    (process.parent / "box" / "loop").symlink_to("loop")
    assert seen(process, "/loop/app.sock") is None


def test_as_many_links_as_the_kernel_follows(process: Path) -> None:
    run = process.parent / "box" / "run"
    (run / "0").symlink_to("app.sock")
    for number in range(1, LINKS_MAX + 1):
        (run / str(number)).symlink_to(str(number - 1))
    assert leads_to(process, f"/run/{LINKS_MAX - 1}", "run/app.sock")
    assert seen(process, f"/run/{LINKS_MAX}") is None


@pytest.mark.parametrize("path", ["/none/app.sock", "/run/app.sock/x", "/", "", "."])
def test_what_has_no_directory_is_not_found(process: Path, path: str) -> None:
    assert seen(process, path) is None


def test_a_process_that_is_gone_sees_nothing(tmp_path: Path) -> None:
    assert seen(tmp_path / "4711", "/run/app.sock") is None
    assert seen(tmp_path / "4711", "app.sock") is None


def test_names_are_bytes(process: Path) -> None:
    path = os.fsencode(process.parent / "box" / "run") + b"/\xff.sock"
    Path(os.fsdecode(path)).touch()
    found = look_up(os.fsencode(process), b"/run/\xff.sock")
    assert found is not None and found.file is not None
    assert found.name == b"\xff.sock"
