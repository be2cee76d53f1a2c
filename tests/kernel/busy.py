"""Several processes, each with one planted culprit, and what is said of all of them at once."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar

from tests.kernel import tool
from tests.patience import PATIENCE_S

SAMPLES = 50
Name = TypeVar("Name")
Place = Dict[str, Any]
Report = Dict[str, Any]
NOWHERE: Mapping[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


@contextmanager
def started(
    *commands: Sequence[str], environment: Optional[Mapping[str, str]] = None, folder: str = "/"
) -> Iterator[List[subprocess.Popen[bytes]]]:
    """These programs while the block lasts."""
    running: List[subprocess.Popen[bytes]] = []
    try:
        for argv in commands:
            process = subprocess.Popen(argv, cwd=folder, env=environment, **NOWHERE)
            running.append(process)
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary one that every user may enter, under a short path."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for it."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(0.02)


def observed(
    pids: Mapping[Name, int], folder: Path, asleep: Mapping[Name, str] = MappingProxyType({})
) -> Dict[Name, Place]:
    """Culprit → the first place that is named for its process.

    Args:
        pids: by culprit.
        asleep: those that sleep, and in which system call: a verdict is about one kind of them.
            Of the others what runs is looked at.
    """
    for seconds in (4, 12, 36):
        report = _attached(list(pids.values()), folder, seconds)
        running = {each["pid"]: each for each in report["stacks"]["processes"]}
        few = [
            name
            for name, pid in pids.items()
            if name not in asleep and running.get(pid, {"samples": 0})["samples"] < SAMPLES
        ]
        if not few:
            break
    assert not few, f"too few samples of {few}"
    sleeping = {each["pid"]: each for each in report["stacks"]["sleeps"]["processes"]}
    return {
        name: _slept(sleeping[pid], asleep[name]) if name in asleep else running[pid]["code"][0]
        for name, pid in pids.items()
    }


def _slept(process: Report, call: str) -> Place:
    (found,) = (each for each in process["calls"] if each["call"] == call)
    place: Place = found["code"][0]
    return place


def _attached(pids: Sequence[int], folder: Path, seconds: int) -> Report:
    output = folder / "report.json"
    argv = [*tool.UDSPROBE, "attach", "--pid", ",".join(map(str, pids)), "--stacks"]
    argv += ["--duration", str(seconds), "--json", "--output", str(output)]
    done = subprocess.run(
        argv, cwd=tool.REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return tool.read_report(output)
