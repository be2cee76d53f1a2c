"""Methods of Java by the memory of real virtual machines, which say themselves where they are."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

import pytest

from tests import traced
from tests.conftest import Require
from tests.javas import JAVAS
from udsprobe.kernel.stacks.raw_stacks import Came, RawStack
from udsprobe.model.code.frames import Frame, frames_of
from udsprobe.symbols.stack_profile import StackProfile

pytestmark = traced.needs_x86

CODE = Path(__file__).resolve().parent.parent / "workloads" / "code"
PROGRAMS = CODE / "Nested.java", CODE / "Outdated.java"
# The interpreter, both compilers, and what they make of each other's code.
MODES = {
    "interpreted": ("-Xint",),
    "c1": ("-XX:TieredStopAtLevel=1",),
    "c2": ("-XX:-TieredCompilation",),
    "mixed": (),
    "frame-pointers": ("-XX:+PreserveFramePointer",),
    "not-inlined": ("-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Nested::*"),
    "zgc": ("-XX:+UseZGC",),
}
SAMPLES = 150
# Else they leave out what a program has not written.
_ALL_FRAMES = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames")
# Of a hidden class, behind its name.
_ADDRESS = re.compile(r"[+/]0x[0-9a-f]+(?=\.)")


@dataclass(frozen=True)
class Waiting:
    """A process whose threads wait in methods that it has told: name (file), innermost first."""

    pid: int
    stacks: Dict[str, List[str]]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, require: Require) -> Path:
    made = tmp_path_factory.mktemp("classes")
    argv = [require("javac")["javac"], "--release", "8", "-nowarn", "-Xlint:-options"]
    subprocess.run([*argv, "-d", str(made), *map(str, PROGRAMS)], check=True)
    return made


@contextmanager
def waiting(
    java: str, classes: Path, *options: str, warm: int = 3000, program: str = "Nested"
) -> Iterator[Waiting]:
    argv = [java, *_ALL_FRAMES, *options, "-cp", str(classes), program, str(warm)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            told: Dict[str, List[str]] = {}
            for line in iter(process.stdout.readline, "ready\n"):
                assert line, "it ended"
                name, *methods = line.split()
                told[name] = [_ADDRESS.sub("", each) for each in methods]
            yield Waiting(process.pid, told)
        finally:
            process.kill()


@pytest.fixture(params=JAVAS)
def java(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(stacks: Sequence[RawStack]) -> List[Tuple[Tuple[Frame, ...], bool]]:
    """Frames of each, the innermost first; whether they reach the outermost."""
    profile, found = StackProfile(), []
    for stack in stacks:
        before = {each.frames: each for each in profile.counts()}
        profile.add(Came([stack], []))
        for each in profile.counts():
            had = before.get(each.frames)
            if had is None or had.samples != each.samples:
                lost = each.truncated - (had.truncated if had else 0)
                found.append((frames_of(each.frames)[::-1], not lost))
    profile.close()
    return found


def methods(frames: Sequence[Frame]) -> List[str]:
    return [f"{each.function}({each.file or 'null'})" for each in frames if each.module == "[jit]"]


def _is_told_of(name: str, stack: List[str]) -> bool:
    """Until JDK 12 what reads from a socket keeps 64 KB on its stack: callers are beyond it."""
    return name != "p-spin" and not stack[0].startswith("java.net.SocketInputStream.socketRead0")


@pytest.mark.parametrize("mode", MODES)
def test_threads_wait_in_the_methods_that_they_say(java: str, mode: str, classes: Path) -> None:
    """Asleep, parked, at a lock, a monitor and a socket: by native methods, called by others."""
    with waiting(java, classes, *MODES[mode]) as there:
        tids = traced.threads(there.pid)
        names = [name for name, stack in there.stacks.items() if _is_told_of(name, stack)]
        found = told([traced.taken(there.pid, tids[name]) for name in names])
    assert len(names) >= 5
    assert {name: methods(frames) for name, (frames, _) in zip(names, found)} == {
        name: there.stacks[name] for name in names
    }
    assert all(is_whole for _, is_whole in found)


def paths() -> Set[Tuple[str, ...]]:
    """All ways that lead from the thread that computes to where it may be, the innermost first."""
    handler = ("plantedHandler", "spin")
    digest, copies = ("plantedDigest", *handler), ("plantedCopies", *handler)
    return {("spin",), handler, digest, copies, ("plantedMix", *digest)}


@pytest.mark.parametrize("mode", ["interpreted", "c1", "c2", "mixed", "not-inlined"])
def test_a_thread_that_computes_is_where_it_can_be(java: str, mode: str, classes: Path) -> None:
    """At any of its instructions; what is inlined may count as what it is inlined in."""
    with waiting(java, classes, *MODES[mode]) as there:
        tid = traced.threads(there.pid)["p-spin"]
        stacks = list(traced.running(there.pid, tid, SAMPLES))
        found = told(stacks)
        callers = there.stacks["p-spin"]
    callers = callers[callers.index("Nested.spin(Nested.java)") + 1 :]
    whole = [methods(frames) for frames, is_whole in found if is_whole]
    # By instruction: a thread may be stopped at the same one most of the time.
    met = {raw.registers.ip: is_whole for raw, (_, is_whole) in zip(stacks, found)}
    assert sum(met.values()) >= 0.7 * len(met)
    places = set()
    for stack in whole:
        assert stack[-len(callers) :] == callers
        own = [each for each in stack[: -len(callers)] if each.startswith("Nested.")]
        places.add(tuple(each.partition("(")[0].partition(".")[2] for each in own))
    assert places <= paths()
    if mode in ("interpreted", "not-inlined"):
        assert ("plantedMix", "plantedDigest", "plantedHandler", "spin") in places
    # What is not whole has the name of where it was, or none.
    cut = {methods(frames)[-1] for frames, is_whole in found if not is_whole and methods(frames)}
    assert not cut & {"java.lang.Thread.run(Thread.java)"}


def test_methods_whose_code_is_not_valid_any_more_are_those_that_they_say(
    java: str, classes: Path
) -> None:
    """They are inlined in another one, which a call does not return to any more."""
    options = ("-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Outdated::waits")
    with waiting(java, classes, *options, warm=20_000, program="Outdated") as there:
        tid = traced.threads(there.pid)["p-outdated"]
        ((frames, is_whole),) = told([traced.taken(there.pid, tid)])
    assert methods(frames) == there.stacks["p-outdated"]
    assert "Outdated.plantedSum(Outdated.java)" in methods(frames)
    assert is_whole


def test_what_has_ended_keeps_the_names_that_are_known(java: str, classes: Path) -> None:
    profile = StackProfile()
    with waiting(java, classes) as there:
        stack = traced.taken(there.pid, traced.threads(there.pid)["p-park"])
        profile.add(Came([stack], []))
    profile.add(Came([stack], []))
    (told_twice,) = profile.counts()
    assert told_twice.samples == 2
    assert methods(frames_of(told_twice.frames)[::-1]) == there.stacks["p-park"]
    profile.close()


def test_lines_where_methods_begin(java: str, classes: Path) -> None:
    """The first statement's."""
    lines = (CODE / "Nested.java").read_text(encoding="utf-8").splitlines()
    with waiting(java, classes, "-Xint", warm=1) as there:
        tid = traced.threads(there.pid)["p-wait"]
        ((frames, _),) = told([traced.taken(there.pid, tid)])
    found = {each.function: each.line for each in frames}
    for name, statement in (
        ("inner", "ends.end();"),
        ("outer", "middle(ends, 3);"),
        ("waits", "synchronized (object) {"),
    ):
        line = found[f"Nested.{name}"]
        assert line is not None and lines[line - 1].strip() == statement
