"""Reports reach their place, or it is said that they did not."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Iterator, TextIO

import pytest

from udsprobe.commands.output.delivery import DeliveryError, Outlet, WholeFile
from udsprobe.errors import UsageError

FULL = "/dev/full"


@pytest.fixture
def pipe() -> Iterator[TextIO]:
    """A stream whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    yield stream
    stream.close()


def test_a_file_holds_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report"
    outlet = Outlet(str(path), None)
    outlet.write("first µ\n")
    assert path.read_text("utf-8") == "first µ\n"
    outlet.write("second\n")
    assert path.read_text("utf-8") == "first µ\nsecond\n"


def test_a_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "report"
    before = os.umask(0)
    try:
        Outlet(str(path), None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_old_report_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("old")
    Outlet(str(path), None)
    assert path.read_text() == ""


@pytest.mark.parametrize("name", ["missing/report", "", "."])
def test_a_bad_path_fails_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        Outlet(f"{tmp_path}/{name}", None)
    assert raised.value.slug == "output-not-writable"


@pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")
def test_a_full_disk_is_said_once(tmp_path: Path) -> None:
    outlet = Outlet(FULL, None)
    with pytest.raises(DeliveryError) as raised:
        outlet.write("report")
    assert raised.value.slug == "output-failed"
    assert "No space left on device" in raised.value.line() and FULL in raised.value.line()
    outlet.write("what is still in the buffer at exit fails no more")


def test_a_reader_of_stdout_that_left(pipe: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", pipe)
    outlet = Outlet(None, pipe)
    with pytest.raises(DeliveryError) as raised:
        outlet.write("report")
    assert raised.value.slug == "stdout-closed"
    assert raised.value.exit_code == 70
    assert "--output FILE" in raised.value.line()


def test_a_reader_of_stderr_that_left(pipe: TextIO) -> None:
    outlet = Outlet(None, pipe)
    with pytest.raises(DeliveryError, match="to stderr failed: Broken pipe"):
        outlet.write("report")


def test_no_stdout_at_all() -> None:
    with pytest.raises(DeliveryError) as raised:
        Outlet(None, None)
    assert raised.value.slug == "stdout-closed"


def test_a_file_is_no_terminal_and_80_columns_wide(tmp_path: Path) -> None:
    outlet = Outlet(str(tmp_path / "report"), None)
    assert (outlet.is_terminal, outlet.columns()) == (False, 80)


def test_a_terminal_has_its_width() -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as stream:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 132, 0, 0))
        outlet = Outlet(None, stream)
        assert (outlet.is_terminal, outlet.columns()) == (True, 132)
    os.close(leader)


def test_a_whole_file_is_there_with_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    with WholeFile(str(path), "--html") as whole:
        assert path.read_text() == "old"
        whole.write("µ\n")
    assert path.read_text("utf-8") == "µ\n" and list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_document_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page"
    with pytest.raises(ZeroDivisionError), WholeFile(str(path), "--html"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), WholeFile(str(path), "--html"):
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_whole_file_through_a_link_is_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    with WholeFile(str(tmp_path / "link")) as whole:
        whole.write("page")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "page"


@pytest.mark.parametrize("name", ["missing/page", "", "."])
def test_a_bad_path_is_said_with_its_own_option(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        WholeFile(f"{tmp_path}/{name}", "--html")
    assert raised.value.slug == "output-not-writable" and "give --html" in raised.value.line()


@pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")
def test_what_is_no_file_is_written_to() -> None:
    with pytest.raises(DeliveryError, match="No space left"), WholeFile(FULL, "--html") as whole:
        whole.write("page")
    assert os.path.exists(FULL)


@pytest.mark.skipif(not os.path.exists(FULL), reason="no /dev/full here")
@pytest.mark.parametrize("size_bytes", [1, 4095, 4096, 8192, 100_000])
def test_what_is_printed_and_lost_is_said(size_bytes: int) -> None:
    """Whether the stream's buffer keeps what the disk refused depends on its size."""
    with open(FULL, "w") as stream:
        outlet = Outlet(None, stream)
        with pytest.raises(DeliveryError) as raised, outlet.printing():
            print("x" * size_bytes, file=stream, flush=True)
    assert raised.value.slug == "output-failed"


def test_a_reader_that_leaves_what_is_printed_is_no_failure(pipe: TextIO) -> None:
    with pytest.raises(BrokenPipeError), Outlet(None, pipe).printing():
        print("x", file=pipe, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())
