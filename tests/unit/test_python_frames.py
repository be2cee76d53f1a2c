"""Functions of Python by the memory of real processes, which say themselves where they are."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.pythons import PYTHONS
from tests.unit.memory_image import MemoryImage
from tests.unit.open_files import opened
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.python_frames import PythonFrame, PythonLayout, python_frames
from udsprobe.kernel.stacks.raw_stacks import Came, RawStack, Registers
from udsprobe.printable import printable
from udsprobe.symbols.cpython.functions import PythonFunctions
from udsprobe.symbols.cpython.interpreter import interpreter_of
from udsprobe.symbols.cpython.layouts import RUNTIME_BYTES, layout_of
from udsprobe.symbols.cpython.stacks import PythonStacks, merged
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.stack_profile import StackProfile
from udsprobe.symbols.target_images import TargetImages

CODE = Path(__file__).resolve().parent.parent / "workloads" / "code"


@dataclass(frozen=True)
class Waiting:
    """A process that waits in functions that it has told."""

    process: subprocess.Popen[str]
    pthread: int
    stack: List[List[Any]]


@contextmanager
def waiting(python: str) -> Iterator[Waiting]:
    argv = [python, str(CODE / "nested.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Waiting(process, told["pthread"], told["stack"])
        finally:
            process.kill()


def minor(python: str) -> int:
    asked = [python, "-c", "import sys; print(sys.version_info[1])"]
    return int(subprocess.run(asked, capture_output=True, check=True, text=True).stdout)


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def interpreter(pid: int) -> Tuple[Any, ProcessMemory]:
    memory, images = ProcessMemory(pid), TargetImages(None)
    found = interpreter_of(pid, ProcessNames(pid, images).mapped, images, memory)
    assert found is not None
    return found, memory


def test_a_thread_is_in_the_functions_that_it_says(python: str) -> None:
    """The same names, files and first lines; letters of one, two and four bytes."""
    with waiting(python) as there:
        found, memory = interpreter(there.process.pid)
        frames = python_frames(found.layout.frames, there.pthread, memory.read)
        functions = PythonFunctions(found.layout.names, memory)
        named = [functions.of(frame) for frame in frames if frame.code]
        memory.close()
    assert [list(each or ()) for each in named] == there.stack
    assert [name.rpartition(".")[2] for name, _, _ in there.stack[:4]] == [
        *("waits", "calls", "wächst", "値段"),
    ]


def test_a_call_by_the_interpreter_is_told_from_one_by_c(python: str) -> None:
    """`map` is C: what it calls is another call of the function that evaluates frames."""
    with waiting(python) as there:
        found, memory = interpreter(there.process.pid)
        frames = python_frames(found.layout.frames, there.pthread, memory.read)
        memory.close()
    calls: List[int] = [0]
    for frame in frames:
        calls[-1] += bool(frame.code)
        if frame.ends_call:
            calls.append(0)
    # `waits` and what `map` called; until 3.10 each has a call of its own.
    assert calls[0] == (1 if minor(python) < 11 else 2)
    assert sum(calls) == len(there.stack)


def test_nothing_stays_open(python: str) -> None:
    with waiting(python) as there:
        profile = StackProfile()
        runtimes = profile.runtimes_of(there.process.pid)
        assert runtimes is not None and runtimes.python is not None
        memory = ProcessMemory(there.process.pid)
        frames = python_frames(runtimes.python, there.pthread, memory.read)
        memory.close()
        where = Registers(0, 0, 0, 0)
        stack = RawStack(there.process.pid, 1, (), (), where, b"", python=frames)
        profile.add(Came([stack], []))
        (told,) = profile.counts()
        assert told.frames.split("\n")[-1].startswith("waits\t")
        assert f"/proc/{there.process.pid}/mem" not in opened()
        profile.close()


def test_other_threads_have_no_frames_of_it(python: str) -> None:
    with waiting(python) as there:
        found, memory = interpreter(there.process.pid)
        assert python_frames(found.layout.frames, there.pthread + 8, memory.read) == ()
        memory.close()


def test_a_process_without_python_has_none() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        images = TargetImages(None)
        stacks = PythonStacks(process.pid, images, ProcessMemory(process.pid))
        stacks.look(ProcessNames(process.pid, images).mapped)
        process.kill()
    assert stacks.layout is None
    native = [CodeFrame("read", "libc.so.6")]
    assert stacks.merged(native, [PythonFrame(16, 16, True)]) == native


START = 0x7F00_0000_0000
LAYOUT = layout_of((3, 12), START, b"\0" * RUNTIME_BYTES)


def text_object(text: str) -> bytes:
    """A `str` of ASCII as 3.12 keeps it, at a multiple of 8 bytes."""
    header = struct.pack("<QQqqI4x", 1, 0, len(text), 0, 1 << 2 | 1 << 5 | 1 << 6)
    raw = header + text.encode() + b"\0"
    return raw.ljust(-(-len(raw) // 8) * 8, b"\0")


def code_image(name: str, type_name: str = "code") -> Tuple[bytes, PythonFrame]:
    """A code object, its type and its names; the frame that executes it."""
    texts = [text_object(name), text_object("app.py")]
    type_at = START + 256 + sum(map(len, texts))
    name_at, file_at = START + 256, START + 256 + len(texts[0])
    code = bytearray(256)
    for offset, value in ((8, type_at), (112, file_at), (128, name_at)):
        struct.pack_into("<Q", code, offset, value)
    struct.pack_into("<i", code, 68, 12)
    of_type = bytearray(32) + type_name.encode() + b"\0" * 8
    struct.pack_into("<Q", of_type, 24, type_at + 32)
    return bytes(code) + b"".join(texts) + bytes(of_type), PythonFrame(START, name_at, True)


def functions(image: bytes) -> Tuple[PythonFunctions, MemoryImage]:
    assert LAYOUT is not None
    memory = MemoryImage(START, image)
    return PythonFunctions(LAYOUT.names, memory), memory


def test_code_in_the_place_of_other_code_is_not_named_as_that() -> None:
    image, frame = code_image("verify")
    found, memory = functions(image)
    assert found.of(frame) == ("verify", "app.py", 12)
    memory.image = image.replace(struct.pack("<Q", frame.name), struct.pack("<Q", frame.name + 64))
    found.begin_round()
    assert found.of(frame) is None


def test_what_has_ended_keeps_the_names_that_are_known() -> None:
    image, frame = code_image("verify")
    found, memory = functions(image)
    assert found.of(frame) is not None
    memory.image = b""
    found.begin_round()
    assert found.of(frame) == ("verify", "app.py", 12)
    assert found.of(PythonFrame(START + 8, frame.name, True)) is None


def test_what_is_no_code_has_no_name() -> None:
    image, frame = code_image("verify", "coda")
    assert functions(image)[0].of(frame) is None


@pytest.mark.parametrize("name", ["a\tb\nc", "\x1b[31m"])
def test_names_cannot_forge_lines(name: str) -> None:
    image, frame = code_image(name)
    found = functions(image)[0].of(frame)
    assert found is not None and found.name == printable(name.encode())
    assert not set(found.name) & set("\t\n\x1b")


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it, once the other way, and noise: no name, or one that can be printed."""
    image, frame = code_image("verify")
    for bit in range(8 * len(image)):
        changed = bytearray(image)
        changed[bit // 8] ^= 1 << bit % 8
        found = functions(bytes(changed))[0].of(frame)
        assert found is None or found.name.isprintable()
    noise = random.Random(1)
    for _ in range(200):
        functions(noise.randbytes(len(image)))[0].of(frame)


def test_lists_without_an_end_are_left() -> None:
    assert LAYOUT is not None
    layout = LAYOUT.frames
    around = struct.pack("<Q", START) * 64
    assert python_frames(layout, START, lambda at, size: around[:size])[127:] != ()
    assert python_frames(layout, START + 1, lambda at, size: around[:size]) == ()


def told(version: int, change: Optional[Dict[int, int]] = None) -> bytes:
    numbers = [0] * (RUNTIME_BYTES // 8)
    numbers[0], numbers[1] = struct.unpack("<Q", b"xdebugpy")[0], version
    for at, number in (change or {}).items():
        numbers[at] = number
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_a_layout_is_taken_only_from_what_is_known() -> None:
    assert layout_of((3, 13), START, told(0x030D00F0)) is not None
    assert layout_of(None, START, told(0x030D00F0, {2: 1})) is None, "without the lock"
    assert layout_of(None, START, told(0x031000F0)) is None, "3.16"
    assert layout_of(None, START, told(0x030D00F0, {21: 1 << 30})) is None
    assert layout_of(None, START, told(0x030D00F0)[:64]) is None
    assert layout_of((3, 7), START, b"\0" * RUNTIME_BYTES) is None
    assert layout_of(None, START, b"\0" * RUNTIME_BYTES) is None


def frame(function: Optional[str], module: str = "python3.11") -> CodeFrame:
    return CodeFrame(function, module)


EVAL = frame("_PyEval_EvalFrameDefault")
F, G, H = (CodeFrame(name, "python3.11", "app.py", 1) for name in "fgh")
ROOT = frame("_start")


@pytest.mark.parametrize(
    ("native", "calls", "expected"),
    [
        pytest.param(
            [EVAL, frame("map_next"), EVAL, ROOT],
            [[F, G], [H]],
            [F, G, frame("map_next"), H, ROOT],
            id="each where it is evaluated",
        ),
        pytest.param(
            [frame("time_sleep"), EVAL, ROOT], [[F], [G]], [frame("time_sleep"), F, G, ROOT],
            id="callers are not found",
        ),
        pytest.param(
            [frame("sleep", "libc.so.6"), frame(None), frame("PyEval_EvalCode"), ROOT],
            [[F]],
            [frame("sleep", "libc.so.6"), F],
            id="none has a name",
        ),
        pytest.param([frame("x", "[kernel]")], [[F]], [frame("x", "[kernel]"), F], id="no stack"),
    ],
)  # fmt: skip
def test_functions_of_python_are_where_c_executes_them(
    native: List[CodeFrame], calls: List[List[CodeFrame]], expected: List[CodeFrame]
) -> None:
    assert merged(native, calls, "python3.11") == expected


def test_a_layout_is_what_the_programs_take() -> None:
    """The fields of bpf/stacks.h, by name; equality is tested where they run, test_code.py."""
    source = (CODE.parents[2] / "bpf" / "stacks.h").read_text()
    body = source.split("struct python_layout {")[1].split("};")[0]
    names = [line.split(";")[0].split()[-1] for line in body.splitlines() if ";" in line]
    assert names == list(PythonLayout._fields)
