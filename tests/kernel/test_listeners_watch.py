"""`udsprobe listeners --watch` in a real terminal, over queues that fill and empty."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.conftest import Require
from tests.kernel.terminal import Terminal, has_ended
from tests.kernel.tool import REPOSITORY, UDSPROBE

WATCH = [*UDSPROBE, "listeners", "--watch", "--interval", "0.1", "--pid", str(os.getpid())]
BACKLOG = 7


@pytest.fixture
def server(tmp_path: Path) -> Iterator[socket.socket]:
    """A listener that accepts when told to."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "q.sock"))
        listening.listen(BACKLOG)
        yield listening


@pytest.fixture
def connect(server: socket.socket) -> Iterator[Callable[[int], None]]:
    """Makes so many connections more wait to be accepted."""
    clients: List[socket.socket] = []

    def more(count: int) -> None:
        for _ in range(count):
            client = socket.socket(socket.AF_UNIX)
            clients.append(client)
            client.connect(server.getsockname())

    yield more
    for client in clients:
        client.close()


@pytest.fixture
def terminal(require: Require, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(require("tmux")["tmux"], tmp_path, columns=120, lines=30) as opened:
        opened.type(f"cd {shlex.quote(str(REPOSITORY))}; clear")
        yield opened


def shows(now: int, most: int, *, full: bool = False) -> Callable[[str], bool]:
    """The server's row has this depth and this high-water mark."""
    word = " FULL" if full else ""
    row = re.compile(rf"/q\.sock .* {now}/{BACKLOG + 1}{word} +{most} +{BACKLOG} ")
    return lambda screen: row.search(screen) is not None


def start(terminal: Terminal) -> None:
    terminal.type(f"{shlex.join(WATCH)}; echo ended $?")


def test_the_queue_now_and_the_most_seen(
    terminal: Terminal, server: socket.socket, connect: Callable[[int], None]
) -> None:
    start(terminal)
    terminal.wait(shows(0, 0))
    connect(3)
    terminal.wait(shows(3, 3))
    connect(BACKLOG - 2)
    terminal.wait(shows(BACKLOG + 1, BACKLOG + 1, full=True))
    for _ in range(6):
        server.accept()[0].close()
    screen = terminal.wait(shows(2, BACKLOG + 1))
    assert "high-water sampled every 0.1 s: shorter peaks are not seen" in screen
    assert terminal.flag("alternate_on") == "1"

    terminal.press("q")
    told = terminal.wait(has_ended, terminal.everything)
    assert "\nended 0\n" in told
    assert shows(2, BACKLOG + 1)(told), "the last table does not stay"
    assert terminal.flag("alternate_on") == "0"


def test_other_keys_change_nothing(terminal: Terminal, server: socket.socket) -> None:
    start(terminal)
    terminal.wait(shows(0, 0))
    terminal.press("x", "Enter", "Up")
    first = terminal.screen().splitlines()[0]
    terminal.wait(lambda seen: shows(0, 0)(seen) and seen.splitlines()[0] != first)
    terminal.press("q")
    terminal.wait(has_ended, terminal.everything)


def test_ctrl_c_ends_it_and_restores_the_terminal(
    terminal: Terminal, server: socket.socket, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    terminal.type(f"stty -a > {before}; clear")
    start(terminal)
    terminal.wait(shows(0, 0))
    terminal.press("C-c")
    assert "\nended 0\n" in terminal.wait(has_ended, terminal.everything)
    terminal.type(f"stty -a > {after}; echo all done")
    terminal.wait(lambda seen: "\nall done" in seen)
    assert before.read_text() == after.read_text()
    assert terminal.flag("cursor_flag") == "1"


def test_ctrl_z_gives_the_shell_back_and_fg_goes_on(
    terminal: Terminal, server: socket.socket, connect: Callable[[int], None], tmp_path: Path
) -> None:
    before, stopped = (tmp_path / name for name in ("before", "stopped"))
    terminal.type(f"stty -a > {before}; clear")
    terminal.type(shlex.join(WATCH))
    terminal.wait(shows(0, 0))
    terminal.press("C-z")
    terminal.wait(lambda seen: "Stopped" in seen, terminal.everything)
    assert terminal.flag("alternate_on") == "0"
    terminal.type(f"stty -a > {stopped}; echo and now")
    terminal.wait(lambda seen: "\nand now" in seen)
    assert stopped.read_text() == before.read_text()
    terminal.type("fg; echo ended $?")
    connect(2)
    terminal.wait(shows(2, 2))
    assert terminal.flag("alternate_on") == "1"
    terminal.press("q")
    assert "\nended 0\n" in terminal.wait(has_ended, terminal.everything)
    assert terminal.flag("alternate_on") == "0" and terminal.flag("cursor_flag") == "1"


def test_the_end_of_the_process_asked_about_ends_it(terminal: Terminal) -> None:
    sleeping = subprocess.Popen(["sleep", "1000"])
    try:
        watch = [*WATCH[:-1], str(sleeping.pid)]
        terminal.type(f"{shlex.join(watch)}; echo ended $?")
        terminal.wait(lambda seen: "no listeners" in seen)
    finally:
        sleeping.terminate()
        sleeping.wait()
    assert "\nended 0\n" in terminal.wait(has_ended, terminal.everything)


@pytest.mark.parametrize("redirection", ["< /dev/null", "| cat"])
def test_without_a_terminal_it_is_a_mistake(terminal: Terminal, redirection: str) -> None:
    terminal.type(f"{shlex.join(WATCH)} {redirection}; echo ended $?")
    told = terminal.wait(has_ended, terminal.everything)
    assert "error[usage]: --watch needs a terminal" in " ".join(told.split())
