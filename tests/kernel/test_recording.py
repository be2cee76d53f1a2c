"""Recordings of real observations: the live numbers, whatever ends the one who writes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator, Sequence

import pytest

from tests.conftest import Require, give_up
from tests.kernel.colleague import as_anybody
from tests.kernel.conftest import Workload
from tests.kernel.live import Live, answer
from tests.kernel.terminal import Terminal
from tests.kernel.tool import REPOSITORY, UDSPROBE, read_report, run
from tests.patience import PATIENCE_S
from tests.unit import recordings
from udsprobe.recording import open_recording
from udsprobe.views.documents.report_document import document

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

DEMO = [sys.executable, "-m", "udsprobe.demo"]
ATTACH = ("attach", "--duration", "2", "--pid")
FAST = ("--interval", "0.1")


@pytest.fixture
def service() -> Iterator[int]:
    """The process id of a Unix-socket server under load."""
    serving = subprocess.Popen(
        [*DEMO, "serve"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    says = json.loads(serving.stdout.readline())
    rate = ["--rate", "300", "--connections", "4", "--seconds", "600"]
    loading = subprocess.Popen(
        [*DEMO, "load", "--socket", says["socket"], *rate],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    yield int(says["pid"])
    for process in (loading, serving):
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def samples_in(path: Path) -> int:
    with open_recording(str(path)) as recording:
        return len(list(recording.samples()))


def wait_for_samples(path: Path, count: int) -> None:
    """Until a recording that is being written has so many."""
    give_up_at = time.monotonic() + PATIENCE_S
    while samples_in(path) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def test_a_known_workload_is_reported_as_it_was_live(workload: Workload, tmp_path: Path) -> None:
    recorded = tmp_path / "a"
    live = run(
        [str(workload())],
        tmp_path / "live.json",
        options=["--interval", "0.1", "--record", str(recorded)],
    )
    assert live["syscalls"]
    elsewhere = answer(
        ["report", str(recorded), "--json"],
        prefix=["env", f"PYTHONPATH={REPOSITORY}"],
        cwd=tmp_path,
    )
    assert (elsewhere.code, elsewhere.err) == (0, "")
    assert elsewhere.report == live
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "live.json"]


def test_each_interval_is_replayed_as_it_was_live(service: int, tmp_path: Path) -> None:
    recorded = tmp_path / "a"
    done = answer(
        [*ATTACH, str(service), "--interval", "0.2", "--jsonl", "--record", str(recorded)]
    )
    assert done.code == 0 and "recorded" in done.err
    assert done.out.count("\n") >= 3
    replayed = answer(["replay", str(recorded), "--jsonl"])
    assert (replayed.out, replayed.err) == (done.out, "")


def test_record_without_a_screen(service: int, tmp_path: Path) -> None:
    with Live(
        ["record", "-o", str(tmp_path / "a"), "--ring", "2h", "--pid", str(service), *FAST],
        tmp_path,
    ) as live:
        wait_for_samples(tmp_path / "a", 5)
        ended = live.end()
    assert (ended.code, ended.out) == (0, "")
    assert "the last 2 h 00 min, at most 56 MiB" in ended.err and "replay shows" in ended.err
    assert samples_in(tmp_path / "a") >= 5
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "ready"]


def test_after_a_kill_all_is_readable(service: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    command = ["record", "-o", str(path), "--pid", str(service), "--interval", "0.1"]
    with Live(command, tmp_path) as live:
        wait_for_samples(path, 5)
        live.end(signal.SIGKILL)
    assert samples_in(path) >= 5
    assert answer(["report", str(path), "--json"]).report["syscalls"]


@pytest.fixture
def small_disk(require: Require, tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    require("mount", "umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        give_up(f"no tmpfs can be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_record_and_leaves_what_was_written(
    service: int, small_disk: Path, tmp_path: Path
) -> None:
    path = small_disk / "a"
    (small_disk / "ballast").write_bytes(bytes(600 << 10))
    command = ["record", "-o", str(path), "--pid", str(service), "--interval", "0.1"]
    done = answer([*command, "--duration", "60"])
    assert done.code == 70
    assert done.err.splitlines()[-1].startswith("udsprobe: error[recording-failed]")
    assert samples_in(path) >= 2
    with open_recording(str(path)) as recording:
        assert document(recording.report())["syscalls"]


@pytest.mark.parametrize("arguments", [("--html",), ("--json", "--output"), ("--output",)])
def test_a_full_disk_leaves_no_half_of_a_report(
    arguments: Sequence[str], small_disk: Path, tmp_path: Path
) -> None:
    """What lay there stays; the error is one line, with the option that named the file."""
    recordings.recorded(tmp_path / "a", 30)
    page = small_disk / "page"
    page.write_text("last week's")
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    done = answer(["report", str(tmp_path / "a"), *arguments, str(page)])
    assert done.code == 70 and "error[output-failed]" in done.line
    assert f"give {arguments[-1]} another file" in done.line
    assert page.read_text() == "last week's"
    assert sorted(each.name for each in small_disk.iterdir()) == ["ballast", "page"]


def test_a_full_disk_does_not_end_attach(service: int, small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(900 << 10))
    done = answer(
        [
            *(*ATTACH, str(service), *FAST, "--json", "--output", str(tmp_path / "live.json")),
            *("--record", str(small_disk / "a")),
        ]
    )
    assert done.code == 70 and "error[recording-failed]" in done.line
    assert read_report(tmp_path / "live.json")["window"]["duration_s"] >= 2


def test_the_file_is_the_invoking_users(service: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    command = ["record", "-o", str(path), "--pid", str(service), "--duration", "0.3"]
    done = answer(command, prefix=["env", "SUDO_UID=1234", "SUDO_GID=1235"])
    assert done.code == 0, done.err
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (1234, 1235, 0o600)


def test_nothing_is_written_through_a_link(service: int, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    done = answer(["record", "-o", str(tmp_path / "a"), "--pid", str(service)])
    assert done.code == 2 and "error[recording-exists]" in done.line
    assert not (tmp_path / "victim").exists()


def test_a_colleague_replays_it(
    service: int, require: Require, tmp_path: Path, reachable: Path
) -> None:
    """Another user, no capability, another directory, a real terminal."""
    tools = require("tmux", "setpriv")
    path = reachable / "a"
    done = answer(
        ["record", "-o", str(path), "--pid", str(service), "--interval", "0.2", "--duration", "3"]
    )
    assert done.code == 0, done.err
    if "--reuid" in as_anybody():
        os.chown(path, 65534, 65534)
    whole = answer(["report", str(path), "--json"]).report
    with Terminal(tools["tmux"], tmp_path) as terminal:
        replay = shlex.join([*UDSPROBE, "replay", str(path)])
        terminal.type(f"cd /; clear; {shlex.join(as_anybody())} {replay}; echo ended $?")
        terminal.wait(lambda seen: "replay 1×" in seen and "served" in seen)
        terminal.press("Space")
        terminal.wait(lambda seen: "PAUSED" in seen)
        terminal.type("g+1h")
        seen = terminal.wait(lambda seen: re.search(r"● \d\d:", seen) is not None)
        assert max(map(len, seen.splitlines())) <= 80
        terminal.press("q")
        told = terminal.wait(lambda seen: "ended" in seen, terminal.everything)
    assert "\nended 0\n" in told
    assert f"{whole['requests']['served']['count']:,}" in told
