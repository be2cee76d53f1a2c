"""`udsprobe run`: what the user sees of a command that cannot be run, fails, or stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.conftest import Require
from tests.kernel.live import Live, answer

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

# Sends COUNT datagrams to itself on a Unix socket pair.
SENDER = (
    "import socket, sys\n"
    "left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "for _ in range(int(sys.argv[1])): left.send(b'x'); right.recv(1)\n"
)


def sender(count: int) -> List[str]:
    return [sys.executable, "-c", SENDER, str(count)]


def sent(path: Path) -> int:
    rows = json.loads(path.read_text())["syscalls"]
    return sum(row["calls"] for row in rows if row["name"] == "sendto")


def test_no_such_command() -> None:
    ended = answer(["run", "--", "no-such-command", "--json"])
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith("udsprobe: error[no-such-command]: command 'no-such-c")


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    ended = answer(["run", "--", str(tmp_path / "text")])
    assert ended.code == 2
    assert ended.line.startswith("udsprobe: error[no-such-command]")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"#!/no/such/interpreter\n", "No such file or directory"),
        (b"\x7fELF of another kind", "Exec format error"),
    ],
)
def test_what_the_kernel_does_not_execute(tmp_path: Path, content: bytes, why: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    ended = answer(["run", "--", str(program)])
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith("udsprobe: error[not-executed]") and why in ended.line


def test_the_command_keeps_stdout_and_its_failure_is_told(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    ended = answer(
        ["run", "--json", "--output", str(output), "--", "sh", "-c", "echo mine; exit 3"]
    )
    assert (ended.code, ended.out) == (0, "mine\n")
    assert ended.line == "udsprobe: sh exited with status 3"
    assert json.loads(output.read_text())["targets"][0]["state"] == "exited"


def test_a_command_killed_by_a_signal_is_told(tmp_path: Path) -> None:
    output = str(tmp_path / "report.json")
    ended = answer(["run", "--output", output, "--", "sh", "-c", "kill -9 $$"])
    assert ended.code == 0
    assert ended.line == "udsprobe: sh was ended by signal 9 (Killed)"


def test_a_document_on_stderr_stays_one_document() -> None:
    ended = answer(["run", "--json", "--", "sh", "-c", "exit 3"])
    assert (ended.code, ended.out) == (0, "")
    assert json.loads(ended.err)["targets"][0]["state"] == "exited"


def test_a_daemon_is_observed_after_its_parent(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    daemon = f'{sys.executable} -c "$1" 40 & exec {sys.executable} -c "$1" 2'
    ended = answer(
        ["run", "--json", "--output", str(output), "--", "sh", "-c", daemon, "sh", SENDER]
    )
    assert (ended.code, ended.err) == (0, "")
    assert sent(output) == 42


def test_no_follow_leaves_the_daemon_out(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    daemon = f'{sys.executable} -c "$1" 40 & exec {sys.executable} -c "$1" 2'
    options = ["--no-follow", "--json", "--output", str(output)]
    ended = answer(["run", *options, "--", "sh", "-c", daemon, "sh", SENDER])
    assert (ended.code, ended.err) == (0, "")
    assert sent(output) == 2


@pytest.mark.parametrize("ignored", ["", "trap '' INT HUP; "])
def test_the_command_has_the_signals_it_would_have_without_us(tmp_path: Path, ignored: str) -> None:
    started = ["sh", "-c", f'{ignored}exec "$@"', "sh"]
    command = ["grep", "^Sig[BIC]", "/proc/self/status"]
    alone = subprocess.run([*started, *command], capture_output=True, text=True, check=True).stdout
    observed = answer(["run", "--output", str(tmp_path / "report"), "--", *command], started)
    assert observed.out == alone


def test_ctrl_c_ends_the_window_with_the_command_running(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    with Live(
        ["run", "--json", "--output", str(output), "--", "cat", "/dev/stdin"], tmp_path
    ) as live:
        ended = live.end(signal.SIGINT)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(output.read_text())["targets"][0]["comm"] == "cat"


def test_an_error_before_the_start_leaves_no_command_behind(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    missing = str(tmp_path / "missing" / "ready")
    ended = answer(["run", "--ready-file", missing, "--", "touch", str(touched)])
    assert ended.code == 2
    assert ended.line.startswith("udsprobe: error[ready-file-not-writable]")
    assert not touched.exists()


def test_without_stdout_the_command_runs_and_the_report_is_written(
    tmp_path: Path, require: Require
) -> None:
    output = tmp_path / "report.json"
    bash = [require("bash")["bash"], "-c", 'exec "$@" >&-', "bash"]
    ended = answer(["run", "--json", "--output", str(output), "--", *sender(3)], bash)
    assert (ended.code, ended.err) == (0, "")
    assert sent(output) == 3


def test_descriptors_of_ours_are_not_inherited(tmp_path: Path) -> None:
    ended = answer(["run", "--output", str(tmp_path / "report"), "--", "ls", "/proc/self/fd"])
    names = ended.out.split()
    assert names[:3] == ["0", "1", "2"]
    assert len(names) == 4, "besides the directory that ls reads"
    assert os.path.exists(tmp_path / "report")
