"""Tasks of asyncio by the memory of real processes, which say themselves where each waits."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from tests.pythons import PYTHONS
from tests.saying import saying
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.cpython.functions import PythonFunctions
from udsprobe.symbols.cpython.interpreter import Interpreter, interpreter_of
from udsprobe.symbols.cpython.layouts import layout_of
from udsprobe.symbols.cpython.stacks import PythonStacks
from udsprobe.symbols.cpython.tasks import task_list
from udsprobe.symbols.cpython.tasks.awaits import AWAITS_MAX, AwaitChains
from udsprobe.symbols.cpython.tasks.layouts import tasks_layout_of
from udsprobe.symbols.cpython.tasks.stacks import TaskStacks
from udsprobe.symbols.process_names import CodeFrame, ParkedStack, ProcessNames
from udsprobe.symbols.target_images import TargetImages

PROGRAM = Path(__file__).resolve().parent.parent / "workloads" / "code" / "tasks.py"
FUTURE = "Future.__await__"
Place = Tuple[Tuple[str, Optional[str], Optional[int]], ...]


class Standing(NamedTuple):
    """A process that stands still."""

    pid: int
    stacks: Counter[Tuple[Place, bool]]


@contextmanager
def standing(*argv: str) -> Iterator[Standing]:
    with saying(*argv[:1], str(PROGRAM), *argv[1:]) as said:
        yield Standing(said["pid"], truth(said["stacks"]))


def truth(stacks: Sequence[List[Any]]) -> Counter[Tuple[Place, bool]]:
    """As the program says; where no function of asyncio's waits, C does, for a future."""
    found: Counter[Tuple[Place, bool]] = Counter()
    for frames, owing, count in stacks:
        place = [tuple(frame) for frame in frames]
        if "/asyncio/" not in place[0][1]:
            place.insert(0, (FUTURE, None, None))
        found[tuple(place), owing] += count
    return found


def told(stacks: Sequence[ParkedStack]) -> Counter[Tuple[Place, bool]]:
    """The same of what was read, but for what waits for answers of other programs."""
    found: Counter[Tuple[Place, bool]] = Counter()
    for stack in (each for each in stacks if not each.for_bytes):
        place = tuple((each.function or "", each.file, each.line) for each in stack.frames)
        found[place, stack.is_owing] += stack.waiting
    return found


class Noise(ProcessMemory):
    """Of each few reads one has other bytes than are there."""

    def __init__(self, pid: int, seed: int, one_in: int) -> None:
        super().__init__(pid)
        self._noise, self._one_in = random.Random(seed), one_in

    def read(self, address: int, size_bytes: int) -> bytes:
        """All of it, or noise; raises OSError as the other."""
        raw = super().read(address, size_bytes)
        if not size_bytes or self._noise.randrange(self._one_in):
            return raw
        changed = bytearray(raw)
        at = self._noise.randrange(size_bytes)
        changed[at : at + 8] = self._noise.randbytes(len(changed[at : at + 8]))
        return bytes(changed)


def interpreter(pid: int) -> Interpreter:
    images, memory = TargetImages(None), ProcessMemory(pid)
    found = interpreter_of(pid, ProcessNames(pid, images).mapped, images, memory)
    memory.close()
    assert found is not None
    return found


def looked_at(pid: int, memory: ProcessMemory) -> List[ParkedStack]:
    found = interpreter(pid)
    functions = PythonFunctions(found.layout.names, memory)
    try:
        return TaskStacks(found, functions, memory).waiting()
    finally:
        memory.close()


@pytest.mark.parametrize("python", PYTHONS)
def test_all_tasks_are_where_they_say(python: str) -> None:
    """So many in each place, the same functions, files and lines; those that have a request."""
    with standing(python) as there:
        assert told(looked_at(there.pid, ProcessMemory(there.pid))) == there.stacks


@pytest.mark.parametrize("python", PYTHONS)
def test_who_waits_for_an_answer_is_told_and_who_waits_for_its_client_is_not(python: str) -> None:
    """Four ask another program; many wait for what their clients say next."""
    with standing(python) as there:
        found = looked_at(there.pid, ProcessMemory(there.pid))
    for_bytes = [each for each in found if each.for_bytes]
    told_of = {(each.frames[2].function, each.is_owing, each.waiting) for each in for_bytes}
    assert told_of == {("Store.upstream", True, 4)}


# Threads have loops: the main one, two others, and one that has ended and left its tasks.
LOOPS = """
import asyncio, collections, json, os, threading, time
class Own(asyncio.Task): pass
async def main(): await asyncio.sleep(100000)
async def other(): await asyncio.sleep(100000)
async def left(): await asyncio.sleep(100000)
async def own(): await asyncio.sleep(100000)
kept, made, begun = [], collections.Counter(), threading.Semaphore(0)
def begin(kinds):
    loop = asyncio.new_event_loop()
    for kind, task, count in kinds:
        kept.extend(task(kind(), loop=loop) for _ in range(count))
        made[kind.__name__] += count
    # All have taken their first step once this has.
    loop.run_until_complete(asyncio.sleep(0))
    begun.release()
    return loop
def serve(kinds): begin(kinds).run_forever()
def end(kinds): kept.append(begin(kinds))
for run, count in ((serve, 3), (serve, 4)):
    threading.Thread(target=run, args=([(other, asyncio.Task, count)],), daemon=True).start()
    begun.acquire()
ended = threading.Thread(target=end, args=([(left, asyncio.Task, 5), (own, Own, 1)],))
ended.start()
ended.join()
# The interpreter's part of it ends with the thread itself.
while len(os.listdir("/proc/self/task")) > 3:
    time.sleep(0.001)
loop = begin([(main, asyncio.Task, 6), (own, Own, 2)])
print(json.dumps(made), flush=True)
loop.run_forever()
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_those_of_all_threads_are_there(python: str) -> None:
    with subprocess.Popen([python, "-c", LOOPS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            made = json.loads(process.stdout.readline())
            found: Counter[str] = Counter()
            for stack in looked_at(process.pid, ProcessMemory(process.pid)):
                inner, kind = (each.function or "" for each in stack.frames)
                assert inner == "sleep"
                found[kind] += stack.waiting
        finally:
            process.kill()
    assert found == made == {"main": 6, "other": 7, "left": 5, "own": 3}


def test_and_so_are_those_of_uvloop() -> None:
    pytest.importorskip("uvloop")
    with standing(sys.executable, "uvloop") as there:
        assert told(looked_at(there.pid, ProcessMemory(there.pid))) == there.stacks


def test_modules_are_found_where_a_release_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing(sys.executable) as there:
        found, memory = interpreter(there.pid), ProcessMemory(there.pid)
        assert found.layout.tasks is not None
        for moved in (8, -8, 24, 4096):
            tasks = found.layout.tasks._replace(modules=found.layout.tasks.modules + moved)
            other = found._replace(layout=found.layout._replace(tasks=tasks))
            stacks = TaskStacks(other, PythonFunctions(other.layout.names, memory), memory)
            assert told(stacks.waiting()) == there.stacks
        memory.close()


def test_of_many_each_stands_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two looks the one half and the other."""
    with standing(sys.executable) as there:
        memory = ProcessMemory(there.pid)
        found = interpreter(there.pid)
        stacks = TaskStacks(found, PythonFunctions(found.layout.names, memory), memory)
        whole = sum(each.waiting for each in stacks.waiting())
        monkeypatch.setattr(task_list, "LOOKED_AT_MAX", 50)
        looks = [stacks.waiting() for _ in range(3)]
        memory.close()
    assert whole > 50 and all(len(look) > 5 for look in looks)
    assert all(each.waiting % 2 == 0 for look in looks for each in look)


def test_a_process_without_tasks_has_none() -> None:
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert looked_at(process.pid, ProcessMemory(process.pid)) == []
        process.kill()


# Each goes from one place to the other as fast as it can.
BUSY = """
import asyncio
async def naps(): await asyncio.sleep(0.0001)
async def takes(queue): await queue.get()
async def gives(queue): await queue.put(1)
async def one(queue):
    while True:
        await naps()
        await gives(queue)
async def other(queue):
    while True:
        await takes(queue)
        await naps()
async def main():
    queue = asyncio.Queue(1)
    kept = [asyncio.create_task(each(queue)) for _ in range(20) for each in (one, other)]
    print(flush=True)
    await asyncio.gather(*kept)
asyncio.run(main())
"""
WAYS_OF_BUSY = {
    *(("sleep", "naps", "one"), ("Queue.put", "gives", "one")),
    *(("Queue.get", "takes", "other"), ("sleep", "naps", "other")),
}


@pytest.mark.parametrize("python", PYTHONS)
def test_of_tasks_that_go_on_no_stack_is_mixed_of_two(python: str) -> None:
    with subprocess.Popen([python, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            found, memory = interpreter(process.pid), ProcessMemory(process.pid)
            stacks = TaskStacks(found, PythonFunctions(found.layout.names, memory), memory)
            met: Counter[Tuple[Optional[str], ...]] = Counter()
            while met.total() < 500:
                for each in stacks.waiting():
                    met[tuple(frame.function for frame in each.frames)] += each.waiting
            memory.close()
        finally:
            process.kill()
    assert set(met) <= {(*way, "main") for way in WAYS_OF_BUSY}


# What imports asyncio only when a line comes.
LATE = """
import sys
print(flush=True)
sys.stdin.readline()
import asyncio
async def late():
    asyncio.get_running_loop().call_soon(lambda: print(flush=True))
    await asyncio.sleep(100000)
asyncio.run(late())
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_those_of_a_program_that_imports_it_later(python: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([python, "-c", LATE], **pipes) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            images, memory = TargetImages(None), ProcessMemory(process.pid)
            stacks, found = PythonStacks(process.pid, images, memory), []
            for _ in range(2):
                process.stdout.readline()
                stacks.look(ProcessNames(process.pid, images).mapped)
                each = [stack.frames for stack in stacks.waiting_tasks()]
                found.append([[frame.function for frame in frames] for frames in each])
                process.stdin.write(b"\n")
                process.stdin.flush()
            memory.close()
        finally:
            process.kill()
    assert found == [[], [["sleep", "late"]]]


def test_what_runs_no_python_has_none() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        images = TargetImages(None)
        stacks = PythonStacks(process.pid, images, ProcessMemory(process.pid))
        stacks.look(ProcessNames(process.pid, images).mapped)
        assert stacks.waiting_tasks() == []
        process.kill()


@pytest.mark.parametrize("python", PYTHONS)
def test_memory_that_lies_does_no_harm(python: str) -> None:
    """No place, or one that can be printed."""
    with standing(python) as there:
        for seed in range(60):
            memory = Noise(there.pid, seed, (5, 50, 500)[seed % 3])
            for stack in looked_at(there.pid, memory):
                assert 0 < len(stack.frames) <= AWAITS_MAX + 1
                assert all((each.function or "").isprintable() for each in stack.frames)


class Ring:
    """Objects each of which awaits itself."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def kind(self, address: int) -> str:
        return self._kind

    def word(self, address: int) -> int:
        return 4096

    def number(self, address: int) -> int:
        return 0

    def read_some(self, address: int, size_bytes: int, min_bytes: int) -> bytes:
        # It waits, and has one value, at its end.
        found = bytearray(struct.pack("<Q", 4096) * (size_bytes // 8))
        found[67:68], found[72 + 64 : 72 + 68] = b"\xff", struct.pack("<i", 1)
        return bytes(found)


@pytest.mark.parametrize("kind", ["coroutine", "coroutine_wrapper"])
def test_awaits_without_an_end_are_left(kind: str) -> None:
    layout, frames = tasks_layout_of((3, 12)), layout_of((3, 12), 0, b"")
    assert layout is not None and frames is not None
    chains = AwaitChains(Ring(kind), frames.frames, layout.frame)  # type: ignore[arg-type]
    assert chains.of(4096) is None


def test_memory_that_is_gone_has_none() -> None:
    with standing(sys.executable) as there:
        found, memory = interpreter(there.pid), ProcessMemory(there.pid)
        stacks = TaskStacks(found, PythonFunctions(found.layout.names, memory), memory)
        assert stacks.waiting() != []
        memory.close()
    assert stacks.waiting() == []
    memory.close()


def test_a_layout_is_taken_only_of_what_is_known() -> None:
    assert tasks_layout_of((3, 16), [0] * 100) is None
    assert tasks_layout_of((3, 14), [0] * 100) is None
    assert tasks_layout_of((3, 13), [0] * 5) is None
    found = tasks_layout_of((3, 13), list(range(20)))
    assert found is not None and found.modules == 11
    assert all(tasks_layout_of((3, minor)) is not None for minor in range(8, 13))


def test_names_are_frames_of_the_interpreter() -> None:
    """So that what waits in C is no function of the program's own."""
    with standing(sys.executable) as there:
        frames = [f for s in looked_at(there.pid, ProcessMemory(there.pid)) for f in s.frames]
        module = interpreter(there.pid).module
    assert CodeFrame(FUTURE, module) in frames
    assert {each.module for each in frames} == {module}
