"""Who traces a target, while it does: as /proc has it."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import pytest

from tests.kernel import tool
from tests.kernel.busy import until
from tests.workloads.queue_process import Actor
from udsprobe.kernel.proc.procfs import Procfs

pytestmark = [pytest.mark.root]


@contextmanager
def straced(pid: int) -> Iterator[int]:
    command = ["strace", "-o", "/dev/null", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        try:
            until(lambda: Procfs().tracer(pid) == strace.pid, "traced")
            yield strace.pid
        finally:
            strace.terminate()
    until(lambda: not Procfs().tracer(pid), "let go")


def told(report: tool.Report) -> List[Tuple[int, Optional[int], Optional[str]]]:
    rows = ((row["pid"], row["tracer_pid"], row["tracer_comm"]) for row in report["targets"])
    return sorted(rows, key=lambda row: row[0])


def test_the_tracer_of_each_target_is_named(tmp_path: Path, strace_installed: str) -> None:
    with Actor() as one, Actor() as other, straced(one.pid) as strace:
        selectors = ["--pid", str(one.pid), "--pid", str(other.pid)]
        with tool.Attached(selectors, tmp_path) as watched:
            one.do("chdir", folder="/")
    known = {one.pid: (strace, "strace"), other.pid: (None, None)}
    assert told(watched.report) == [(pid, *known[pid]) for pid in sorted(known)]


def test_one_that_was_let_go_has_none(tmp_path: Path, strace_installed: str) -> None:
    with Actor() as actor:
        with straced(actor.pid):
            pass
        with tool.Attached(["--pid", str(actor.pid)], tmp_path) as watched:
            actor.do("chdir", folder="/")
    assert told(watched.report) == [(actor.pid, None, None)]
