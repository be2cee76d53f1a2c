"""The dashboard in a real terminal over a real server: figures, keys, and what is left behind."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, NamedTuple, Sequence

import pytest

from tests.conftest import Require
from tests.kernel.terminal import Terminal, has_ended
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

DEMO = [sys.executable, "-m", "udsprobe.demo"]
SERVED = re.compile(r"served +([\d,.]+)/s")


class Service(NamedTuple):
    pid: int
    socket: str


@contextmanager
def under_load(server: Sequence[str], *load: str) -> Iterator[Service]:
    """A server and its clients, until the block is left."""
    serving = subprocess.Popen(
        server, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    says = json.loads(serving.stdout.readline())
    loading = subprocess.Popen(
        [*DEMO, "load", "--socket", says["socket"], "--seconds", "600", *load],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    yield Service(says["pid"], says["socket"])
    for process in (loading, serving):
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def service() -> Iterator[Service]:
    """A Unix-socket server under load."""
    with under_load([*DEMO, "serve"], "--rate", "500", "--connections", "4") as serving:
        yield serving


@pytest.fixture
def spinning() -> Iterator[Service]:
    """One whose clients wait for its CPU time."""
    server = REPOSITORY / "tests" / "workloads" / "spinning_server.py"
    with under_load([sys.executable, str(server), "5"], "--connections", "4") as serving:
        yield serving


@pytest.fixture
def terminal(require: Require, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(require("tmux")["tmux"], tmp_path) as opened:
        opened.type(f"cd {shlex.quote(str(REPOSITORY))}; clear")
        yield opened


def command(*arguments: str) -> str:
    return shlex.join([*UDSPROBE, *arguments])


def has_figures(screen: str) -> bool:
    found = SERVED.search(screen)
    return found is not None and float(found[1].replace(",", "")) > 0


def start(terminal: Terminal, service: Service, *options: str, after: str = "") -> str:
    """Attach to the service and wait for figures."""
    attach = command("attach", "--pid", str(service.pid), *options)
    terminal.type(f"{attach}; echo ended $?{after}")
    return terminal.wait(has_figures)


def test_the_screen_of_a_live_server(terminal: Terminal, service: Service, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    terminal.type(f"stty -a > {before}; clear")
    screen = start(terminal, service, after=f"; stty -a > {after}; echo all done")
    assert max(map(len, screen.splitlines())) <= 80
    assert str(service.pid) in screen.splitlines()[0]
    assert terminal.flag("alternate_on") == "1"

    terminal.press("p")
    terminal.wait(lambda seen: "PAUSED" in seen)
    terminal.press("p")
    terminal.wait(lambda seen: "PAUSED" not in seen)

    assert "sorted by calls" in screen
    terminal.press("s")
    terminal.wait(lambda seen: "sorted by errors" in seen)

    terminal.press("?")
    terminal.wait(lambda seen: "help (Esc leaves)" in seen)
    terminal.press("?")
    terminal.wait(lambda seen: "━━ system calls" in seen)

    terminal.press("Tab")
    terminal.wait(lambda seen: "━━ system calls" not in seen and "━━ " in seen)
    terminal.press("Enter")
    terminal.wait(lambda seen: "Esc leaves" in seen)
    terminal.press("q")
    terminal.wait(lambda seen: "Esc leaves" not in seen)

    terminal.press("q")
    told = terminal.wait(lambda seen: "\nall done" in seen, terminal.everything)
    assert "\nended 0\n" in told
    assert re.search(r"udsprobe [\d.]+ · \S+ \d+ · .* s from", told), "no final report"
    assert "  served " in told and service.socket.rsplit("/", 1)[1] in told
    assert terminal.flag("alternate_on") == "0"
    assert terminal.flag("mouse_any_flag") == "0"
    assert terminal.flag("cursor_flag") == "1"
    assert before.read_text() == after.read_text()


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP"])
def test_a_signal_restores_the_terminal_and_leaves_the_report(
    terminal: Terminal, service: Service, signal: str, tmp_path: Path
) -> None:
    ready = tmp_path / "pid"
    attach = command("attach", "--pid", str(service.pid))
    # The shell becomes udsprobe, so that its PID is known.
    terminal.type(f"sh -c 'echo $$ > {ready}; exec {attach}'; echo ended $?")
    terminal.wait(has_figures)
    subprocess.run(["kill", f"-{signal}", ready.read_text().strip()], check=True)
    told = terminal.wait(has_ended, terminal.everything)
    assert "\nended 0\n" in told and "── system calls" in told
    assert terminal.flag("alternate_on") == "0"


def test_ctrl_c_leaves_the_report(terminal: Terminal, service: Service) -> None:
    start(terminal, service)
    terminal.press("C-c")
    told = terminal.wait(has_ended, terminal.everything)
    assert "\nended 0\n" in told and "── system calls" in told


def test_ctrl_z_gives_the_shell_back_and_fg_goes_on(terminal: Terminal, service: Service) -> None:
    start(terminal, service)
    terminal.press("C-z")
    terminal.wait(lambda seen: "q quit" not in seen and "Stopped" in seen)
    assert terminal.flag("alternate_on") == "0"
    terminal.type("clear; echo typed in the $((1 + 1))nd shell")
    terminal.wait(lambda seen: "typed in the 2nd shell" in seen)
    terminal.type("fg")
    # What did not change meanwhile is drawn again as well.
    screen = terminal.wait(lambda seen: "q quit" in seen and "── requests" in seen)
    assert "── listeners" in screen and str(service.pid) in screen.splitlines()[0]
    assert "typed in the" not in screen
    terminal.press("s")
    terminal.wait(lambda seen: "sorted by errors" in seen)
    terminal.press("q")
    terminal.wait(lambda seen: "── own cost" in seen, terminal.everything)
    assert terminal.flag("alternate_on") == "0"


def test_the_targets_exit_ends_the_screen(terminal: Terminal, service: Service) -> None:
    start(terminal, service)
    subprocess.run(["kill", str(service.pid)], check=True)
    told = terminal.wait(has_ended, terminal.everything)
    assert "\nended 0\n" in told and "exited" in told


def test_the_verdict_and_what_it_rests_on(terminal: Terminal, spinning: Service) -> None:
    # Once its function has a name, the look for that is no remedy any more.
    start(terminal, spinning, "--no-stacks")
    screen = terminal.wait(lambda seen: "app-cpu, critical" in seen)
    lines = screen.splitlines()
    assert lines[1].startswith(" NOT THE TRANSPORT   app-cpu, critical") and "sure " in lines[1]
    assert f"thread {spinning.pid} is " in lines[2]
    assert re.search(r"a free transport would save at most (< )?[\d.]+ % of request", lines[4])

    terminal.press("v")
    page = terminal.wait(lambda seen: "── evidence ──" in seen)
    assert re.search(r"busy_share \d+ %, threshold 80 %", page)
    assert str(spinning.pid) in page[page.index("── what to do ──") :]
    terminal.press("y")
    terminal.wait(lambda seen: "· copied" in seen)
    terminal.press("Escape")
    terminal.wait(lambda seen: "q quit" in seen)
    terminal.press("q")
    told = terminal.wait(has_ended, terminal.everything)
    assert "NOT THE TRANSPORT · critical: app-cpu · " in told and "  look: " in told


@pytest.mark.parametrize("exported", ["", "COLUMNS=80 LINES=24"])
def test_resizing(terminal: Terminal, service: Service, exported: str) -> None:
    terminal.type(f"unset COLUMNS LINES; export {exported}; clear")
    start(terminal, service)
    terminal.resize(200, 60)
    terminal.wait(lambda seen: max(map(len, seen.splitlines())) > 150 and has_figures(seen))
    terminal.resize(80, 24)
    terminal.wait(lambda seen: max(map(len, seen.splitlines())) <= 80 and has_figures(seen))
    terminal.press("q")
    terminal.wait(has_ended, terminal.everything)


@pytest.mark.parametrize("where", ["< /dev/null", "| cat", "DUMB"])
def test_no_dashboard_where_it_could_not_work(
    terminal: Terminal, service: Service, where: str
) -> None:
    attach = command("attach", "--pid", str(service.pid), "--duration", "0.3")
    line = f"TERM=dumb {attach}" if where == "DUMB" else f"{attach} {where}"
    terminal.type(f"{line}; echo ended $?")
    told = terminal.wait(has_ended, terminal.everything)
    assert "\nended 0\n" in told
    assert re.search(r"udsprobe [\d.]+ · \S+ \d+ · .* s from", told)
    assert "q quit" not in told


def test_run_leaves_the_terminal_to_its_command(terminal: Terminal) -> None:
    run = command("run", "--", "sh", "-c", "read line; echo got $line; exit 3")
    terminal.type(f"{run}; echo ended $?")
    terminal.type("typed")
    told = terminal.wait(has_ended, terminal.everything)
    assert "\ngot typed\n" in told
    assert "── system calls" in told
    assert "\nudsprobe: sh exited with status 3\n" in told


def test_the_dashboard_does_not_need_stderr(terminal: Terminal, service: Service) -> None:
    attach = command("attach", "--pid", str(service.pid))
    terminal.type(f"{attach} 2> /dev/null; echo ended $?")
    terminal.wait(has_figures)
    terminal.press("q")
    assert "\nended 0\n" in terminal.wait(has_ended, terminal.everything)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_final_report_obeys_no_color(
    terminal: Terminal, service: Service, no_color: str
) -> None:
    terminal.type(f"export NO_COLOR={no_color}; clear")
    start(terminal, service)
    terminal.press("q")
    terminal.wait(has_ended, terminal.everything)
    heading = next(line for line in terminal.styled().splitlines() if "── system calls" in line)
    assert ("\x1b[" in heading) == (not no_color)
