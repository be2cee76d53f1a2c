"""What the file of a running program is called: real processes, by the links that start them."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, Sequence

import pytest

from udsprobe.symbols.mappings import mappings
from udsprobe.symbols.process_names import ProcessNames
from udsprobe.symbols.target_images import TargetImages


@contextmanager
def running(argv: Sequence[str], executable: Path, folder: Path) -> Iterator[int]:
    """The PID of such a process, whose program runs by now."""
    with subprocess.Popen(
        argv, executable=executable, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b"runs\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"runs\n"
            yield process.pid
        finally:
            process.kill()


def module_of(pid: int) -> Optional[str]:
    """Of the code of its program."""
    path = os.fsencode(os.readlink(f"/proc/{pid}/exe"))
    found = mappings(Path(f"/proc/{pid}/maps").read_bytes())
    (own,) = (each for each in found if each.path == path)
    return ProcessNames(pid, TargetImages(None)).frame(own.start).module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A real program, under a name that nobody starts it by."""
    found = shutil.which("cat")
    assert found is not None
    path = tmp_path / "lib" / "store-check"
    path.parent.mkdir()
    shutil.copy(found, path)
    return path


@pytest.mark.parametrize("is_hard", [False, True])
@pytest.mark.parametrize("first", ["store-server", "store-server:6379", "{link}"])
def test_a_program_is_called_as_it_was_started(file: Path, first: str, is_hard: bool) -> None:
    """By its `comm`: what it does to its arguments does not matter."""
    link = file.with_name("store-server")
    if is_hard:
        os.link(file, link)
    else:
        link.symlink_to(file.name)
    with running([first.format(link=link)], link, file.parent) as pid:
        assert module_of(pid) == "store-server"


@pytest.mark.parametrize("first", ["{folder}/store-server", "./store-server", "../store-server"])
def test_a_link_elsewhere_is_found_by_the_first_argument(file: Path, first: str) -> None:
    link = file.parent.parent / "store-server"
    link.symlink_to(file)
    folder = file.parent if first.startswith("..") else link.parent
    with running([first.format(folder=link.parent)], link, folder) as pid:
        assert module_of(pid) == "store-server"


def test_no_name_is_believed_that_is_another_files(file: Path) -> None:
    other, link = file.with_name("store-server"), file.parent.parent / "store-server"
    shutil.copy(file, other)
    link.symlink_to(file)
    with running([str(other)], link, file.parent) as pid:
        assert module_of(pid) == "store-check"


def test_the_longer_name_says_as_much(file: Path) -> None:
    """`python3` is a link to python3.11."""
    link = file.with_name("store")
    link.symlink_to(file.name)
    with running([str(link)], link, file.parent) as pid:
        assert module_of(pid) == "store-check"


def test_a_program_that_was_deleted(file: Path) -> None:
    link = file.with_name("store-server")
    link.symlink_to(file.name)
    with running([str(link)], link, file.parent) as pid:
        file.unlink()
        assert module_of(pid) == "store-check (deleted)"
