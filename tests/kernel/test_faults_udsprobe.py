"""What can happen to udsprobe itself: counts stay exact or the end is one line, nothing is left.

Beside these: killed, signalled, the reader of stdout gone (test_lifecycle.py), stdout closed
(test_run_lifecycle.py), recording on a full disk (test_recording.py).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import Require, give_up
from tests.kernel.actor import Caller, sent
from tests.kernel.live import Live, answer
from tests.kernel.memory_cgroup import MemoryCgroup
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

STOPPED_S = float(os.environ.get("UDSPROBE_TEST_STOPPED_S", "1"))
CALLS = 5000


@pytest.fixture
def actor() -> Iterator[Caller]:
    with Caller() as started:
        yield started


def attach(actor: Caller, *options: str) -> List[str]:
    return ["attach", "--pid", str(actor.pid), *options]


def lines(text: str) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def wait_for_state(pid: int, state: str) -> None:
    """`T` stopped, as /proc/PID/stat has it."""
    give_up_at = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < give_up_at


def wait_for_write(pid: int) -> None:
    """Until a process sleeps in write()."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
        if words[0] == "1" and Path(f"/proc/{pid}/wchan").read_text() not in ("", "0"):
            return
        assert time.monotonic() < give_up_at, words


def test_stopped_and_resumed(actor: Caller, tmp_path: Path) -> None:
    """The kernel counts on; the sample after has all of it, in one long interval."""
    with Live(attach(actor, "--jsonl", "--interval", "0.1"), tmp_path) as live:
        calls = actor.does("call", 20)
        live.send(signal.SIGSTOP)
        wait_for_state(live.pid, "T")
        stopped_at = time.monotonic()
        calls += actor.does("call", CALLS) + actor.does("fork", 30) + actor.does("thread", 10)
        time.sleep(max(0.0, stopped_at + STOPPED_S - time.monotonic()))
        live.send(signal.SIGCONT)
        calls += actor.does("call", 20)
        ended = live.end()
    reports = lines(ended.out)
    assert (ended.code, sum(map(sent, reports))) == (0, calls)
    assert max(map(sent, reports)) >= CALLS
    assert max(report["window"]["duration_s"] for report in reports) >= STOPPED_S


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_is_slow(
    actor: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """The pipe is full and udsprobe asleep in write(): what happens then is in a later line."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Live(attach(actor, "--jsonl", "--interval", "0.1"), tmp_path) as live:
        fcntl.fcntl(live.stdout(), fcntl.F_SETPIPE_SZ, 4096)
        wait_for_write(live.pid)
        calls = actor.does("call", CALLS)
        wait_for_write(live.pid)
        ended = live.end()
    assert (ended.code, sum(map(sent, lines(ended.out)))) == (0, calls)


@pytest.fixture
def full_disk(require: Require, tmp_path: Path) -> Iterator[Path]:
    """A file system without a free block."""
    require("mount", "umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(f"no tmpfs can be mounted: {done.stderr.strip()}")
    (folder / "ballast").write_bytes(bytes(64 << 10))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("form", ["--json", "--jsonl", "--plain"])
def test_a_full_disk_is_one_line(actor: Caller, full_disk: Path, form: str) -> None:
    output = str(full_disk / "report")
    ended = answer(attach(actor, form, "--output", output, "--duration", "0.3"))
    assert (ended.code, ended.out) == (70, "")
    assert ended.line.startswith("udsprobe: error[output-failed]")
    assert os.strerror(errno.ENOSPC) in ended.line


def test_too_little_memory_to_begin_with(actor: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for Python and not for the maps, whose buckets are 512 MiB here.

    The kernel says so, or kills: imports that run meanwhile may be who asks for the last page.
    """
    monkeypatch.setenv("UDSPROBE_TEST_MAP_BOUNDS", f"connections={1 << 25}")
    with MemoryCgroup() as cgroup:
        cgroup.limit(256 << 20)
        ended = answer(attach(actor, "--json", "--duration", "0.2"), cgroup.prefix())
        killed = cgroup.kills()
    assert (ended.code, ended.out) == (-signal.SIGKILL if killed else 4, "")
    assert killed or ended.line.startswith("udsprobe: error[no-memory]")
    assert actor.does("call", 10) == 10


# Each is met at another place: before any program is loaded, at some program, at the links.
@pytest.mark.parametrize("limit", [20, 32, 36, 40, 44, 48, 52, 60, 80, 100])
def test_too_few_descriptors_to_attach_with(actor: Caller, limit: int) -> None:
    done = subprocess.run(
        [*UDSPROBE, *attach(actor, "--duration", "1", "--plain")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(
        f"udsprobe: error[no-descriptors]: udsprobe may open {limit} files here"
    )
    assert done.stderr.count("\n") == 1


def test_a_memory_limit_that_is_lowered_while_it_records(actor: Caller, tmp_path: Path) -> None:
    """It goes on with what it has, or the kernel kills it: what was written is there."""
    recording = tmp_path / "a.udsprobe"
    arguments = ["record", "-o", str(recording), "--pid", str(actor.pid), "--interval", "0.1"]
    with MemoryCgroup() as cgroup:
        with Live(arguments, tmp_path, prefix=cgroup.prefix()) as live:
            calls = actor.does("call", CALLS)
            wait_until_recorded(recording, calls)
            cgroup.limit(cgroup.used_bytes())
            more = actor.does("fork", 300) + actor.does("thread", 300)
            ended = live.end()
        killed = cgroup.kills()
    assert ended.code == (-signal.SIGKILL if killed else 0), ended.err
    kept = sent(answer(["replay", "--json", str(recording)]).report)
    assert kept == calls + more if not killed else calls <= kept <= calls + more


def wait_until_recorded(recording: Path, calls: int) -> None:
    """Until so many calls are in a file that is still being written."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        read = answer(["report", "--json", str(recording)])
        if read.code == 0 and sent(read.report) >= calls:
            return
        assert time.monotonic() < give_up_at, read.err


@pytest.mark.parametrize("count", [2, 8])
def test_many_at_once_all_count_the_truth(actor: Caller, tmp_path: Path, count: int) -> None:
    with ExitStack() as stack:
        all_of_us = [
            stack.enter_context(Live(attach(actor, "--json"), tmp_path, f"ready{number}"))
            for number in range(count)
        ]
        calls = actor.does("call", CALLS) + actor.does("fork", 50) + actor.does("thread", 30)
        reports = [live.end().report for live in all_of_us]
    assert [sent(report) for report in reports] == [calls] * count


def test_a_terminal_that_is_gone(actor: Caller) -> None:
    """Its hang-up ends the window; the report has nowhere to go and nothing is left."""
    ours, theirs = pty.openpty()
    process = dashboard(actor, theirs)
    drain_until(ours, b"tracepoint")
    os.close(ours)
    try:
        assert process.wait(PATIENCE_S) == 70
    finally:
        process.kill()
        process.wait()


def test_a_terminal_that_is_slow(actor: Caller) -> None:
    """Nobody reads what the dashboard draws; then somebody does, and the counts are there."""
    ours, theirs = pty.openpty()
    process = dashboard(actor, theirs)
    drain_until(ours, b"tracepoint")
    calls = actor.does("call", CALLS)
    wait_until_unread(ours)
    calls += actor.does("call", CALLS)
    process.send_signal(signal.SIGTERM)
    text = drain(ours, process)
    assert process.returncode == 0
    assert f"{calls:,}".encode() in text
    os.close(ours)


def dashboard(actor: Caller, terminal: int) -> subprocess.Popen[bytes]:
    """On a terminal of its own, whose other end is ours alone."""
    fcntl.ioctl(terminal, 0x5414, b"\x28\x00\x78\x00\x00\x00\x00\x00")  # TIOCSWINSZ: 40 x 120
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *UDSPROBE, *attach(actor, "--interval", "0.1")],
        cwd=REPOSITORY,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    return process


def drain_until(terminal: int, seen: bytes) -> None:
    text = b""
    while seen not in text:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        assert ready, text[-500:]
        text += os.read(terminal, 65536)


def wait_until_unread(terminal: int) -> None:
    """Until there is something to read that nobody reads."""
    ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
    assert ready


def drain(terminal: int, process: subprocess.Popen[bytes]) -> bytes:
    text = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # EIO: the last one has closed it
            process.wait(PATIENCE_S)
            return text
        text += piece


STEPPED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

/* Each look at the wall clock finds it set: a day ahead, a day back. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	static int (*real)(clockid_t, struct timespec *);
	static int ahead;
	int result;

	if (!real)
		real = dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, time);
	if (clock == CLOCK_REALTIME)
		time->tv_sec += (ahead = !ahead) ? 86400 : -86400;
	return result;
}
"""


@pytest.fixture
def stepping_clock(require: Require, tmp_path: Path) -> Path:
    """A library that steps the wall clock for the process that has it preloaded."""
    source, library = tmp_path / "stepped.c", tmp_path / "stepped.so"
    source.write_text(STEPPED)
    command = [require("gcc")["gcc"], "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


def test_the_wall_clock_is_stepped(actor: Caller, stepping_clock: Path, tmp_path: Path) -> None:
    """Windows are as long as they were: only the report's `start` is of the wall clock."""
    environment = {"LD_PRELOAD": str(stepping_clock)}
    shown = [sys.executable, "-c", "import time; print(abs(time.time() - time.time()))"]
    apart = subprocess.run(
        shown, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert float(apart.stdout) > 100_000
    began = time.monotonic()
    command = attach(actor, "--jsonl", "--interval", "0.1")
    with Live(command, tmp_path, environment=environment) as live:
        calls = actor.does("call", CALLS)
        ended = live.end()
    reports = lines(ended.out)
    lasted_s = sum(report["window"]["duration_s"] for report in reports)
    assert (ended.code, sum(map(sent, reports))) == (0, calls)
    assert 0 < lasted_s <= time.monotonic() - began
    starts = {report["window"]["start"][:10] for report in reports}
    assert len(starts) <= 2


@pytest.mark.parametrize("clock", ["monotonic", "boottime"])
def test_clocks_of_its_own_are_refused(actor: Caller, clock: str) -> None:
    prefix = ["unshare", "--time", f"--{clock}", "100000", "--fork"]
    ended = answer(attach(actor, "--json", "--duration", "0.2"), prefix)
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[time-namespace]")


def test_a_time_namespace_with_the_host_s_clocks_is_none(actor: Caller) -> None:
    ended = answer(attach(actor, "--json", "--duration", "0.2"), ["unshare", "--time", "--fork"])
    assert (ended.code, ended.err) == (0, "")
    assert ended.report["targets"][0]["state"] == "running"


END_TWICE = """
import atexit, os, signal, sys
from udsprobe import cli
from udsprobe.commands.live import watching

def send_me_a_signal():
    os.kill(os.getpid(), signal.{signal})

if "{when}" == "at exit":
    atexit.register(send_me_a_signal)
else:
    rendered = watching.rendered
    def late(*given):
        send_me_a_signal()
        return rendered(*given)
    watching.rendered = late
sys.exit(cli.main())
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("when", ["at the report", "at exit"])
def test_a_signal_at_the_moment_of_the_own_end(actor: Caller, number: str, when: str) -> None:
    """The report is there and the exit code is 0, as if one of them had come alone."""
    script = END_TWICE.format(signal=number, when=when)
    done = subprocess.run(
        [sys.executable, "-c", script, *attach(actor, "--json", "--duration", "0.2")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["targets"][0]["pid"] == actor.pid


def test_objects_of_other_sources_are_one_line(actor: Caller) -> None:
    """As after `git pull` without scripts/setup."""
    with tempfile.TemporaryDirectory(prefix="udsprobe-") as folder:
        checkout = Path(folder)
        for name in ("udsprobe", "bpf", "scripts"):
            copy = ["cp", "-r", str(REPOSITORY / name), str(checkout / name)]
            subprocess.run(copy, check=True)
        with (checkout / "bpf/udsprobe.h").open("a") as header:
            header.write("/* newer */\n")
        prefix = ["env", f"PYTHONPATH={checkout}"]
        ended = answer(attach(actor, "--json", "--duration", "0.2"), prefix, checkout)
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[stale-object]") and "scripts/setup" in ended.line
