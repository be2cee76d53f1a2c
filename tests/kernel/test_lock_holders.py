"""Who holds the lock that goroutines wait for: as the program was made, and nobody else."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Dict, List, Optional, Set, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.test_code import attach, built, spinning
from tests.kernel.test_goroutines import BUILDS
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.frame_rules import MACHINES
from udsprobe.symbols.go.goroutine_stacks import GoroutineStacks
from udsprobe.symbols.process_names import CodeFrame, ParkedStack, ProcessNames
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import Unwinder

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="goroutines are read on x86-64"),
]

# Waits in such a function → of those that hold: what they are in, and the function that locked.
HELD: Dict[str, Set[Tuple[str, str]]] = {
    "plantedForSleep": {("time.Sleep", "plantedSleeps")},
    "plantedForDeferred": {("time.Sleep", "plantedDefers")},
    "plantedForGlobal": {("time.Sleep", "plantedGlobal")},
    "plantedForKept": {("time.Sleep", "plantedKept")},
    "plantedForCaller": {("time.Sleep", "plantedCaller")},
    "plantedForHouse": {("time.Sleep", "plantedHouse")},
    "plantedForReaders": {("time.Sleep", "plantedReads")},
    "plantedForWriter": {("time.Sleep", "plantedWrites")},
    "plantedForCall": {("syscall.Syscall", "plantedCalls")},
    "plantedForPeer": {("internal/poll.runtime_pollWait", "plantedAsks")},
    "plantedForChannel": {("runtime.chanrecv1", "plantedReceives")},
    "plantedForLoop": {("time.Sleep", "plantedLoops")},
    "plantedSecond": {("time.Sleep", "plantedSleeps")},
    "plantedForSecond": {("sync.(*Mutex).lockSlow", "plantedSecond")},
    "plantedForCond": {("time.Sleep", "plantedSleeps")},
    "plantedForMaybe": {("time.Sleep", "plantedMayHold")},
    # Who locked it has ended; who has it runs.
    "plantedForGone": set(),
    "plantedForRuns": set(),
}


def planted(frames: List[CodeFrame]) -> str:
    """The innermost function of the program that has such a name."""
    names = [(frame.function or "").rpartition(".")[2] for frame in frames]
    return next((name for name in names if name.startswith(("planted", "decoy"))), "")


def waits_in(frames: List[CodeFrame]) -> Optional[str]:
    """What is told of one that holds: the outermost function of the list above."""
    known = {name for holders in HELD.values() for name, _ in holders}
    # Up to Go 1.23 the mutex was in package sync itself.
    names = [(frame.function or "").replace("internal/sync.", "sync.") for frame in frames]
    return next((name for name in reversed(names) if name in known), None)


def looked_at(pid: int) -> List[ParkedStack]:
    """All goroutines, at the second look: not all code is decoded at the first one."""
    machine = MACHINES[platform.machine()]
    names = ProcessNames(pid, TargetImages(machine))
    stacks = GoroutineStacks(names, ProcessMemory(pid), Unwinder(machine, names.place))
    stacks.waiting()
    return stacks.waiting()


@pytest.mark.parametrize("build", BUILDS)
def test_who_unlocks_next_holds(build: str, tmp_path: Path, require: Require) -> None:
    """Of all that wait for a lock, beside doors of the same kind that are held in the same way."""
    with spinning(built("held.go", tmp_path, require, *BUILDS[build])) as process:
        stacks = looked_at(process.pid)
    found: Dict[str, Set[Tuple[str, str]]] = {}
    for stack in stacks:
        if stack.held_by is not None:
            holders = {(waits_in(list(each)) or "", planted(list(each))) for each in stack.held_by}
            found.setdefault(planted(list(stack.frames)), set()).update(holders)
    assert found == HELD


def test_what_waits_for_others_waits_for_no_lock(tmp_path: Path, require: Require) -> None:
    """Channels, groups and conditions; and a lock whose holder never lets go is nobody's."""
    with spinning(built("parked.go", tmp_path, require, "build")) as process:
        stacks = looked_at(process.pid)
    told = {planted(list(stack.frames)): stack.held_by for stack in stacks}
    locks = {name for name, held_by in told.items() if held_by is not None}
    assert locks == {"plantedMutex", "plantedShared"}
    assert all(not told[name] for name in locks)


def test_the_report_tells_who_holds(tmp_path: Path, require: Require) -> None:
    """All of the time, as it holds it all the time."""
    with spinning([*built("held.go", tmp_path, require, "build"), "plantedForSleep"]) as process:
        stacks = attach(process.pid, tmp_path, "--stacks")["stacks"]
    (calls,) = (each["calls"] for each in stacks["sleeps"]["processes"])
    (goroutines,) = (each for each in calls if each["call"] == "goroutine")
    assert "main.(*door).plantedForSleep" in goroutines["code"][0]["own"]
    (holder,) = goroutines["held_by"][:1]
    assert holder["stack"][0].startswith("time.Sleep")
    assert "main.(*door).plantedSleeps" in holder["own"]
    assert holder["share_pct"] == pytest.approx(100, abs=0.001)


def toolchains() -> List[str]:
    """Further versions of Go to be tried, as GOTOOLCHAIN has them: `go1.21.13 go1.23.4`."""
    return os.environ.get("UDSPROBE_GO_TOOLCHAINS", "").split()


@pytest.mark.parametrize("version", toolchains())
def test_other_versions_of_go(
    version: str, tmp_path: Path, require: Require, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOTOOLCHAIN", version)
    test_who_unlocks_next_holds("plain", tmp_path, require)
