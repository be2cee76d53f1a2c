"""Async functions of Node by the memory of real processes, which say where each waits."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import pytest

from tests.conftest import Require
from tests.saying import saying
from tests.unit.test_tasks import Noise, Place, told
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.process_names import ParkedStack, ProcessNames
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.v8.awaits import async_functions, heap_pages, stacks
from udsprobe.symbols.v8.stacks import V8Stacks

PROGRAM = Path(__file__).resolve().parent.parent / "workloads" / "code" / "async_functions.js"
Waits = Counter[Tuple[Place, bool]]


class Standing(NamedTuple):
    """A process that stands still."""

    pid: int
    waits: Waits


def truth(waits: Sequence[List[Any]]) -> Waits:
    found: Waits = Counter()
    for frames, count, owing in waits:
        found[tuple(tuple(frame) for frame in frames), owing] += count
    return found


@contextmanager
def standing(*argv: str) -> Iterator[Standing]:
    with saying(*argv[:1], str(PROGRAM), *argv[1:]) as said:
        yield Standing(said["pid"], truth(said["waits"]))


def of(pid: int, memory: ProcessMemory) -> V8Stacks:
    images = TargetImages(None)
    names = ProcessNames(pid, images)
    found = V8Stacks(pid, images, memory, names.has_code)
    found.look(names.mapped)
    return found


def looked_at(pid: int) -> List[ParkedStack]:
    memory = ProcessMemory(pid)
    try:
        return of(pid, memory).waiting_functions()
    finally:
        memory.close()


@pytest.fixture
def node(require: Require) -> str:
    return require("node")["node"]


@pytest.mark.parametrize("thread", [(), ("worker",)], ids=["main", "worker"])
def test_all_are_where_they_say(node: str, thread: Sequence[str]) -> None:
    """So many in each place, with those that wait for them; those that have a request."""
    with standing(node, *thread) as there:
        assert told(looked_at(there.pid)) == there.waits


# Of each kind ten wait for each other's turn, each for some milliseconds, and V8 collects what they
# leave: it moves all that is there.
TEN = """
let lastOfA = Promise.resolve(), madeOfA;
async function turnA() {
  const before = lastOfA;
  let free;
  lastOfA = new Promise((resolve) => { free = resolve; });
  await before;
  await heldA();
  free();
}
async function heldA() { await new Promise((resolve) => setTimeout(resolve, 2)); }
async function goesA() { for (;;) { await turnA(); madeOfA = new Array(20000).fill({}); } }
for (let at = 0; at < 10; at++) goesA();
"""
MOVING = f"{TEN}{TEN.replace('A', 'B').replace('Brray', 'Array')}console.log('ready');"


def test_no_stack_is_mixed_of_two_that_move(node: str) -> None:
    """Who had gone, or had waited for another one, before that was looked at is left out."""
    with subprocess.Popen([node, "-e", MOVING], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            memory = ProcessMemory(process.pid)
            found = of(process.pid, memory)
            met = sum((looked_again(found) for _ in range(30)), Counter())
            memory.close()
        finally:
            process.kill()
    whole = [(f"held{kind}", f"turn{kind}", f"goes{kind}") for kind in "AB"]
    assert met.keys() <= {each[at:end] for each in whole for at in range(3) for end in range(4)}
    assert all(met[each[1:]] > met[each[1:2]] for each in whole)


def looked_again(found: V8Stacks) -> Counter[Sequence[str]]:
    """By their functions."""
    assert found._awaits is not None  # pylint: disable=protected-access
    found._awaits._next_s = 0.0
    found.begin_round()
    met: Counter[Sequence[str]] = Counter()
    for stack in found.waiting_functions():
        met[tuple(each.function or "" for each in stack.frames)] += stack.waiting
    return met


def test_a_large_heap_is_not_searched_all_the_time(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there counts until then."""
    monkeypatch.setattr(stacks, "LOOKING_SHARE_MAX", 1e-9)
    with standing(node) as there:
        memory = ProcessMemory(there.pid)
        found = of(there.pid, memory)
        first = found.waiting_functions()
        memory.close()
    assert first != [] and found.waiting_functions() is first


def test_of_too_many_nothing_is_told(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_functions, "LOOKED_AT_MAX", 10)
    with standing(node) as there:
        assert looked_at(there.pid) == []


def test_of_too_large_a_heap_nothing_is_told(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_pages, "HEAP_BYTES_MAX", 1 << 20)
    with standing(node) as there:
        assert looked_at(there.pid) == []


def test_memory_that_lies_does_no_harm(node: str) -> None:
    """No place, or one that can be printed."""
    with standing(node) as there:
        for seed in range(12):
            memory = Noise(there.pid, seed, (5, 50, 500)[seed % 3])
            for stack in of(there.pid, memory).waiting_functions():
                assert 0 < len(stack.frames) <= 32
                assert all((each.function or "").isprintable() for each in stack.frames)
            memory.close()


def test_memory_that_is_gone_has_none(node: str) -> None:
    with standing(node) as there:
        memory = ProcessMemory(there.pid)
        found = of(there.pid, memory)
        memory.close()
    assert found.waiting_functions() == []
    memory.close()


def test_what_runs_no_javascript_has_none() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert of(process.pid, ProcessMemory(process.pid)).waiting_functions() == []
        process.kill()


MAPS = b"""\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/node
1a0000000000-1a0000040000 rw-p 00000000 00:00 0
1b0000000000-1b0000040000 rw-p 00000000 00:00 0                          [anon:v8]
1c0000001000-1c0000040000 rw-p 00000000 00:00 0
1d0000000000-1d0000040000 rw-p 00000000 08:02 135522      /tmp/file
7f0000000000-7f0020000000 rwxp 00000000 00:00 0
"""


def test_pages_are_what_v8_writes_objects_to() -> None:
    """Not files, code, or what begins elsewhere."""
    assert heap_pages.heap_pages(MAPS) == [
        (0x1A0000000000, 0x1A0000040000),
        (0x1B0000000000, 0x1B0000040000),
    ]
    assert heap_pages.heap_pages(b"not maps\n\xff") == []


def test_objects_are_found_by_their_first_word() -> None:
    """At places for words, in whole, also where the end of the pattern is elsewhere."""
    map_, noise = 0x1A0000000011, random.Random(1)
    chunk = bytearray(noise.randbytes(4096).replace(b"\x1a", b"\x1b"))
    for at in (0, 800, 808, 1604, 4088):
        chunk[at : at + 8] = map_.to_bytes(8, "little")
    chunk[2400:2408] = map_.to_bytes(6, "little") + b"\1\0"
    assert list(heap_pages.objects_with(map_, 16, bytes(chunk))) == [0, 800, 808]
