"""Tasks of asyncio in lists, CPython 3.14 and later: what is told of them, and memory that lies."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import pytest

from tests.conftest import Require
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.cpython.layouts import layout_of
from udsprobe.symbols.cpython.tasks import linked_tasks
from udsprobe.symbols.cpython.tasks.awaits import AwaitChains
from udsprobe.symbols.cpython.tasks.layouts import (
    ASYNCIO_BYTES,
    ListsLayout,
    TasksLayout,
    tasks_layout_of,
)
from udsprobe.symbols.cpython.tasks.linked_tasks import LinkedTasks
from udsprobe.symbols.elf_image import ASYNCIO_OFFSETS
from udsprobe.symbols.process_names import ProcessNames
from udsprobe.symbols.target_images import TargetImages

FOUND = layout_of((3, 12), 0, b"")
assert FOUND is not None
HEAD = 0x1000
FRAMES = FOUND.frames._replace(interpreters=HEAD)
LISTS = ListsLayout(in_task=200, in_interpreter=512, in_thread=800, interpreter=16)
INTERPRETER, THREADS = 0x2000, (0x3000, 0x4000)
TASKS = [0x10000 + 0x100 * number for number in range(6)]


class Memory:
    """Words at addresses; OSError elsewhere.

    Attributes:
        until: how often a word is another one before it is what it is.
    """

    def __init__(self) -> None:
        self.words_at: Dict[int, int] = {HEAD: INTERPRETER, INTERPRETER: 0}
        self.until: Dict[int, List[int]] = {}
        self.reads = 0

    def word(self, address: int) -> int:
        """One."""
        self.reads += 1
        if self.until.get(address):
            return self.until[address].pop()
        if address not in self.words_at:
            raise OSError("nothing there")
        return self.words_at[address]

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """So many."""
        return tuple(self.word(address + 8 * at) for at in range(count))

    def ring(self, head: int, tasks: Sequence[int]) -> None:
        """A list of tasks, as it is where nothing is being changed."""
        nodes = [head, *(task + LISTS.in_task for task in tasks)]
        for at, node in enumerate(nodes):
            self.words_at[node] = nodes[(at + 1) % len(nodes)]
            self.words_at[node + 8] = nodes[at - 1]


@pytest.fixture
def memory() -> Memory:
    """Two threads with three tasks and two, and one task of a thread that has ended."""
    found = Memory()
    found.words_at[INTERPRETER + FRAMES.interpreter_threads] = THREADS[0]
    for thread, following in zip(THREADS, (*THREADS[1:], 0)):
        found.words_at[thread + LISTS.interpreter] = INTERPRETER
        found.words_at[thread + FRAMES.thread_next] = following
    for thread, tasks in zip(THREADS, (TASKS[:3], TASKS[3:5])):
        found.ring(thread + LISTS.in_thread, tasks)
    found.ring(INTERPRETER + LISTS.in_interpreter, TASKS[5:])
    return found


def members(memory: Memory) -> List[int]:
    return LinkedTasks(memory, FRAMES, LISTS).members()  # type: ignore[arg-type]


def test_tasks_of_all_threads_and_of_ended_ones(memory: Memory) -> None:
    assert members(memory) == TASKS


def test_a_task_that_goes_away_is_left_out(memory: Memory) -> None:
    """The second one was taken out when it was come to; the next time it is not there."""
    gone = TASKS[1] + LISTS.in_task
    memory.until[TASKS[0] + LISTS.in_task] = [gone]
    memory.ring(THREADS[0] + LISTS.in_thread, [TASKS[0], TASKS[2]])
    memory.words_at[gone] = memory.words_at[gone + 8] = 0
    assert members(memory) == [TASKS[0], *TASKS[2:]]


def test_so_are_those_that_go_with_the_one_before(memory: Memory) -> None:
    """When the third was come to the first two were taken out, too, one after the other."""
    first, second, third = (task + LISTS.in_task for task in TASKS[:3])
    head = THREADS[0] + LISTS.in_thread
    memory.ring(head, [])
    memory.until = {head: [first], first: [second], second: [third]}
    memory.until.update({first + 8: [head], second + 8: [first]})
    for node in (first, second, third):
        memory.words_at[node] = memory.words_at[node + 8] = 0
    assert members(memory) == TASKS[3:]


@pytest.mark.parametrize("leads_to", [TASKS[0] + LISTS.in_task, TASKS[3] + LISTS.in_task, 0, 7])
def test_a_list_that_is_none_is_left(memory: Memory, leads_to: int) -> None:
    """It leads back to where it was, into another one, or to nothing."""
    memory.words_at[TASKS[2] + LISTS.in_task] = leads_to
    assert members(memory) == TASKS[3:]
    assert memory.reads < 10 * linked_tasks.GOINGS_BACK_MAX


@pytest.mark.parametrize(("most", "found"), [(6, 6), (5, 5), (4, 3), (3, 3), (2, 0), (0, 0)])
def test_lists_without_an_end_are_left(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, most: int, found: int
) -> None:
    """And those after them: all together are bounded."""
    monkeypatch.setattr(linked_tasks, "TASKS_MAX", most)
    assert members(memory) == TASKS[:found]


def test_a_thread_that_ends_is_left_out(memory: Memory) -> None:
    memory.until[INTERPRETER + FRAMES.interpreter_threads] = [0x5000]
    assert members(memory) == TASKS


def test_threads_without_an_end_are_left(memory: Memory) -> None:
    memory.words_at[THREADS[1] + FRAMES.thread_next] = THREADS[0]
    assert members(memory) == TASKS


def test_what_is_no_thread_is_none(memory: Memory) -> None:
    memory.words_at[THREADS[1] + LISTS.interpreter] = 0
    assert members(memory) == [*TASKS[:3], *TASKS[5:]]


# Of 3.14: those that are told, by their numbers, and PY_VERSION_HEX.
TOLD = {1: 0x030E00F0, 57: 32, 85: 72, 86: 67, 37: 64, 35: 80, 33: 0, 25: 16}
ASYNCIO = [224, 160, 112, 124, 125, 152, 176, 4096, 3000, 1024, 840, 848, 880]


def taken(told: Dict[int, int], asyncio: Sequence[int]) -> object:
    numbers = [told.get(at, 0) for at in range(100)]
    return tasks_layout_of((3, 14), numbers, struct.pack(f"<{len(asyncio)}Q", *asyncio))


def test_a_layout_is_what_the_process_tells() -> None:
    found = taken(TOLD, ASYNCIO)
    assert isinstance(found, TasksLayout) and len(ASYNCIO) * 8 == ASYNCIO_BYTES
    assert (found.waits_for, found.coroutine, found.state) == (144, 152, 120)
    assert found.lists == ListsLayout(176, 3000, 880, 16) and found.tuple_items == 32
    assert (found.frame.at, found.frame.first, found.frame.top) == (72, 80, 64)


@pytest.mark.parametrize("place", TOLD)
def test_none_is_taken_of_what_cannot_be(place: int) -> None:
    assert taken({**TOLD, place: 1 << 20}, ASYNCIO) is None


def test_nor_of_what_asyncio_does_not_tell() -> None:
    assert taken(TOLD, []) is None and taken(TOLD, ASYNCIO[1:]) is None
    for at in range(len(ASYNCIO)):
        assert taken(TOLD, [*ASYNCIO[:at], 1 << 63, *ASYNCIO[at + 1 :]]) is None
    assert taken(TOLD, [*ASYNCIO[:5], 0, *ASYNCIO[6:]]) is None, "nothing is before it"
    assert taken({**TOLD, 1: 0x030E00B4}, ASYNCIO) is None, "a beta"


class Frame:
    """A coroutine with a frame in it: none of its values is an object."""

    def __init__(self, state: int, values: Sequence[int]) -> None:
        self._raw = bytearray(512)
        self._raw[67] = state
        top = 4096 + 72 + 80 + 8 * len(values)
        struct.pack_into(f"<Q8x{len(values)}Q", self._raw, 72 + 64, top, *values)

    def kind(self, address: int) -> str:
        """The one object that is there."""
        return "coroutine" if address == 4096 else "int"

    def word(self, address: int) -> int:
        """The name of its code."""
        return 0

    def number(self, address: int) -> int:
        """Variables of its code."""
        return 1

    def read_some(self, address: int, size_bytes: int, min_bytes: int) -> bytes:
        """All of it."""
        return bytes(self._raw)


SUSPENDED, DELEGATES = 0xFE, 0xFF
TAGGED_INT, NO_OBJECT, ELSEWHERE = 3, 2, 1


@pytest.mark.parametrize(
    ("state", "values", "argument", "is_known"),
    [
        # It awaits itself, by a reference that is counted elsewhere, or as it is.
        (DELEGATES, (8192 | ELSEWHERE, 4096 | ELSEWHERE), 8192, False),
        (DELEGATES, (8192, 4096), 8192, False),
        # It has handed out a value, and has that coroutine on its stack for something else.
        (SUSPENDED, (ELSEWHERE, 4096), 0, True),
        (DELEGATES, (8192 | TAGGED_INT, 4096 | TAGGED_INT), 0, True),
        (DELEGATES, (8192 | NO_OBJECT, 4096 | NO_OBJECT), 0, True),
        # There is nothing on its stack but a variable.
        (DELEGATES, (8192,), 8192, True),
    ],
)
def test_values_are_tagged(
    state: int, values: Tuple[int, ...], argument: int, is_known: bool
) -> None:
    layout = taken(TOLD, ASYNCIO)
    assert isinstance(layout, TasksLayout)
    frame = Frame(state, values)
    chain = AwaitChains(frame, FRAMES, layout.frame).of(4096)  # type: ignore[arg-type]
    assert (chain is not None) == is_known
    if chain is not None:
        assert [each.arguments for each in chain.frames] == [(argument,)]


TELLS = 'char told[104] __attribute__((section(".AsyncioDebug"), used)) = "asyncio";'
LOADS = """
import ctypes, sys
told = ctypes.c_char.in_dll(ctypes.CDLL(sys.argv[1]), "told")
print(ctypes.addressof(told), flush=True)
input()
"""


def test_what_asyncio_tells_is_found_by_its_section(tmp_path: Path, require: Require) -> None:
    """In a file without symbols but those that it exports."""
    source, built = tmp_path / "told.c", tmp_path / "_asyncio.so"
    source.write_text(TELLS)
    argv = [require("gcc")["gcc"], "-shared", "-fPIC", "-s", "-o", str(built), str(source)]
    subprocess.run(argv, check=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LOADS, str(built)], **pipes) as process:
        try:
            assert process.stdout is not None
            address = int(process.stdout.readline())
            images, memory = TargetImages(None), ProcessMemory(process.pid)
            mapped = ProcessNames(process.pid, images).mapped
            (file,) = (each for each in mapped if each.path == bytes(built))
            at = images.of(process.pid, file).objects_at(file)[ASYNCIO_OFFSETS]
            assert at == address and memory.read(at, 8) == b"asyncio\0"
            memory.close()
        finally:
            process.kill()
