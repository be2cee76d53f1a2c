"""Files that udsprobe makes, in directories where others have been before."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable

import pytest

from udsprobe.written_files import StrangersFileError, invoking_user, open_new, open_to_write

STRANGER, USER, GROUP = 4321, 1234, 1235
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users: root")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    made = tmp_path / "shared"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    made = tmp_path / "victim"
    made.write_text("precious")
    return made


@pytest.fixture
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(GROUP))


def written(path: Path) -> None:
    os.close(open_to_write(str(path)))


def made(path: Path) -> None:
    os.close(open_new(str(path)))


def link_of(owner: int, path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)


# who they belong to


@needs_root
@pytest.mark.usefixtures("sudo")
@pytest.mark.parametrize("opened", [written, made])
def test_they_are_the_invoking_users(tmp_path: Path, opened: Callable[[Path], None]) -> None:
    before = os.umask(0)
    opened(tmp_path / "a")
    os.umask(before)
    found = (tmp_path / "a").stat()
    assert (found.st_uid, found.st_gid) == (USER, GROUP)
    assert stat.S_IMODE(found.st_mode) == 0o600


@needs_root
@pytest.mark.usefixtures("sudo")
def test_what_was_there_stays_whose_it_is(victim: Path) -> None:
    written(victim)
    assert victim.stat().st_uid == 0
    assert victim.read_text() == ""


@pytest.mark.parametrize(
    ("user", "group"), [("", ""), ("0", "0"), ("-1", "5"), ("x", "1"), ("1", "")]
)
def test_nobody_called_sudo(monkeypatch: pytest.MonkeyPatch, user: str, group: str) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    monkeypatch.setenv("SUDO_GID", group)
    assert invoking_user() is None


# what others have put there


@needs_root
@pytest.mark.parametrize("opened", [written, made])
def test_no_link_of_a_stranger_is_followed(
    shared: Path, victim: Path, opened: Callable[[Path], None]
) -> None:
    link_of(STRANGER, shared / "a", victim)
    with pytest.raises(OSError):
        opened(shared / "a")
    assert victim.read_text() == "precious"


@needs_root
@pytest.mark.parametrize("opened", [written, made])
def test_no_directory_of_a_stranger_is_entered_by_a_link(
    shared: Path, victim: Path, opened: Callable[[Path], None]
) -> None:
    link_of(STRANGER, shared / "d", victim.parent)
    with pytest.raises(StrangersFileError):
        opened(shared / "d" / "new")
    assert not (victim.parent / "new").exists()


@needs_root
def test_a_link_to_nothing_makes_nothing(shared: Path, tmp_path: Path) -> None:
    link_of(STRANGER, shared / "a", tmp_path / "not-there")
    with pytest.raises(StrangersFileError):
        written(shared / "a")
    assert not (tmp_path / "not-there").exists()


@needs_root
def test_no_file_of_a_stranger_is_written_to(shared: Path) -> None:
    waiting = shared / "a"
    waiting.write_text("mine")
    os.chown(waiting, STRANGER, STRANGER)
    with pytest.raises(StrangersFileError):
        written(waiting)
    assert waiting.read_text() == "mine"


@needs_root
def test_no_pipe_of_a_stranger_is_waited_for(shared: Path) -> None:
    os.mkfifo(shared / "a")
    os.chown(shared / "a", STRANGER, STRANGER)
    with pytest.raises(StrangersFileError):
        written(shared / "a")


def test_no_second_name_of_a_file_is_written_to(shared: Path, victim: Path) -> None:
    os.link(victim, shared / "a")
    with pytest.raises(StrangersFileError):
        written(shared / "a")
    assert victim.read_text() == "precious"


def test_others_may_write_there_without_the_sticky_bit(tmp_path: Path, victim: Path) -> None:
    tmp_path.chmod(0o777)
    os.link(victim, tmp_path / "a")
    with pytest.raises(StrangersFileError):
        written(tmp_path / "a")


# what one's own links and names go on doing


def test_ones_own_links_are_followed(shared: Path, victim: Path) -> None:
    (shared / "d").symlink_to(victim.parent)
    (shared / "a").symlink_to("d/victim")
    written(shared / "a")
    assert victim.read_text() == ""
    (shared / "b").symlink_to("d/shared/../shared/new")
    written(shared / "b")
    assert (shared / "new").exists()


def test_a_link_in_a_directory_of_ones_own_leads_to_a_strangers_one(
    shared: Path, tmp_path: Path, victim: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes links of other users: root")
    link_of(STRANGER, shared / "a", victim)
    (tmp_path / "mine").symlink_to(shared / "a")
    with pytest.raises(StrangersFileError):
        written(tmp_path / "mine")
    assert victim.read_text() == "precious"


def test_links_that_never_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        written(tmp_path / "a")


def test_a_descriptor_of_ours_by_its_name() -> None:
    reader, writer = os.pipe()
    for name in (f"/dev/fd/{writer}", f"/proc/self/fd/{writer}", f"/proc/thread-self/fd/{writer}"):
        descriptor = open_to_write(name)
        os.write(descriptor, b"x")
        os.close(descriptor)
        assert os.read(reader, 2) == b"x"
    os.close(reader)
    os.close(writer)


def test_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(Path("/dev/null"))
    monkeypatch.chdir(tmp_path)
    written(Path("here"))
    written(Path("./../" + tmp_path.name + "//there"))
    assert {each.name for each in tmp_path.iterdir()} == {"here", "there"}


@pytest.mark.parametrize("name", ["", ".", "/", "d/", "d/..", "missing/a", "file/a"])
def test_no_file_can_have_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "file").touch()
    for opened in (open_new, open_to_write):
        with pytest.raises(OSError):
            opened(name)
