"""Functions of Ruby by the memory of real processes, which say themselves where they are."""

from __future__ import annotations

import platform
import random
import struct
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

import pytest

from tests.conftest import Require
from tests.rubies import RUBIES
from tests.unit.memory_image import MemoryImage
from tests.unit.open_files import opened
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.raw_stacks import Came, RawStack, Registers
from udsprobe.kernel.stacks.ruby_frames import (
    FRAMES_MAX,
    NO_FRAME,
    RubyFrame,
    RubyLayout,
    frames_in,
    ruby_frames,
)
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.ruby.functions import RubyFunction, RubyFunctions
from udsprobe.symbols.ruby.layouts import NamesLayout, layout_of
from udsprobe.symbols.ruby.objects import ClassLayout
from udsprobe.symbols.ruby.stacks import INTERNAL_FILE, RubyStacks, merged
from udsprobe.symbols.stack_profile import StackProfile
from udsprobe.symbols.target_images import TargetImages

CODE = Path(__file__).resolve().parent.parent / "workloads" / "code"
NESTED = CODE / "nested.rb"
LINES = NESTED.read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Waiting:
    """A process whose threads wait in functions that it has told: their names, plain names and
    files, by what pthread_self() returns.
    """

    pid: int
    told: Dict[int, List[List[str]]]


@contextmanager
def waiting(*argv: str) -> Iterator[Waiting]:
    with subprocess.Popen([*argv, str(NESTED)], text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told: Dict[int, List[List[str]]] = {}
            for line in iter(process.stdout.readline, "done\n"):
                frames = list(iter(process.stdout.readline, "\n"))
                told[int(line)] = [each.rstrip("\n").split("\t") for each in frames]
            yield Waiting(process.pid, told)
        finally:
            process.kill()


@pytest.fixture(params=RUBIES)
def ruby(request: pytest.FixtureRequest, require: Require) -> str:
    if platform.machine() != "x86_64":
        pytest.skip("where Ruby keeps its threads is known of x86-64")
    return require(request.param)[request.param]


def looked_at(pid: int) -> Tuple[RubyStacks, ProcessMemory]:
    memory, images = ProcessMemory(pid), TargetImages(None)
    stacks = RubyStacks(pid, images, memory)
    stacks.look(ProcessNames(pid, images).mapped)
    return stacks, memory


def named(there: Waiting) -> Dict[int, List[CodeFrame]]:
    """The functions of each thread, the innermost first."""
    stacks, memory = looked_at(there.pid)
    layout = stacks.layout
    assert layout is not None
    found = {each: ruby_frames(layout, each, memory.read) for each in there.told}
    memory.close()
    assert all(map(stacks.is_whole, [each for each in found.values() if len(each) < FRAMES_MAX]))
    return {each: stacks.merged([], frames) for each, frames in found.items()}


def is_called(name: Optional[str], label: str, plain: str) -> bool:
    """By that label, which has no class before Ruby 3.4."""
    if name == label:
        return True
    before = label[: len(label) - len(plain)]
    owner = (name or "")[len(before) : -len(plain)]
    return name == before + owner + plain and owner.endswith(("#", "."))


def where(text: str) -> int:
    """The line that has this, once."""
    (found,) = (number for number, line in enumerate(LINES, 1) if text in line)
    return found


def test_each_thread_is_in_the_functions_that_it_says(ruby: str) -> None:
    """The same names and files, frame by frame: methods, blocks, fibers, eval() and others."""
    with waiting(ruby) as there:
        found = named(there)
    assert len(there.told) == 7
    for thread, told in there.told.items():
        frames = found[thread]
        assert len(frames) == min(len(told), FRAMES_MAX)
        for frame, (label, plain, file) in zip(frames, told):
            assert is_called(frame.function, label, plain), (frame, label)
            assert frame.file in (file, INTERNAL_FILE)


def test_methods_have_their_class_and_functions_their_first_line(ruby: str) -> None:
    begins = {
        "Größe::Wächter.waits": "def self.waits",
        "block (2 levels) in Größe::Wächter#begins": "[each].map",
        "block in Größe::Wächter#begins": "sort_by do",
        "Größe::Wächter#begins": "def begins",
        "block in <class:Wächter>": "define_method",
        "rescue in Größe::Wächter#<=>": "rescue RuntimeError",
        "Größe::Wächter#<=>": "def <=>",
        "Größe.sorts": "def sorts",
        "Outer#method_missing": "def method_missing",
        "Object#evaluates": "def evaluates",
    }
    with waiting(ruby) as there:
        frames = named(there)[next(iter(there.told))]
    of_files = [each for each in frames if each.file == str(NESTED)]
    assert [each.function for each in of_files] == [*begins, "<main>"]
    lines = {each.function: each.line for each in of_files}
    for function, text in begins.items():
        assert lines[function] in (where(text), where(text) - 1), function
    evaluated = [each for each in frames if each.file == "/srv/evaluated.rb"]
    assert [(each.function, each.line) for each in evaluated] == [
        ("block in Object#evaluates", 7),
        ("Object#evaluates", 7),
    ]
    in_c = [each.function for each in frames if each.file == INTERNAL_FILE]
    expected = ("Kernel#sleep", "Array#each", "Enumerable#sort_by", "Comparable#==", "Kernel#eval")
    assert [each for each in in_c if each in expected] == list(expected)


def test_nothing_stays_open(ruby: str) -> None:
    with waiting(ruby) as there:
        profile = StackProfile()
        runtimes = profile.runtimes_of(there.pid)
        assert runtimes is not None and runtimes.ruby is not None
        memory, thread = ProcessMemory(there.pid), next(iter(there.told))
        frames = ruby_frames(runtimes.ruby, thread, memory.read)
        memory.close()
        stack = RawStack(there.pid, there.pid, (), (), Registers(0, 0, 0, 0), b"", ruby=frames)
        profile.add(Came([stack], []))
        (told,) = profile.counts()
        innermost_last = [each.split("\t")[0] for each in told.frames.split("\n")]
        labels = [(label, plain) for label, plain, _ in reversed(there.told[thread])]
        assert len(innermost_last) == len(labels)
        assert all(is_called(name, *of) for name, of in zip(innermost_last, labels))
        assert told.truncated == 0 and profile.names_code_of(there.pid)
        assert f"/proc/{there.pid}/mem" not in opened()
        profile.close()


def test_a_process_without_ruby_has_none() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        stacks, _ = looked_at(process.pid)
        process.kill()
    assert stacks.layout is None
    native = [CodeFrame("read", "libc.so.6")]
    assert stacks.merged(native, [FRAME]) == native
    assert not stacks.is_whole([FRAME, NO_FRAME])


# ------------------------------------------------------------ memory of any kind

START = 0x7F00_0000_0000
BODY, ENTRY, DEFINITION, OWNER, TEXTS = (START + at for at in (64, 256, 320, 384, 640))
FRAME = RubyFrame(START, BODY, ENTRY, False, True)
NAMES = NamesLayout(64, False, ClassLayout(None, 152, 128), None)


def string(text: bytes) -> bytes:
    """Of 3.2 and later, its letters in it."""
    return struct.pack("<QQQ", 5, 0, len(text)) + text.ljust(40, b"\0")


def image_of(path: bytes, plain: bytes, label: bytes, owner: bytes) -> bytes:
    """A sequence, its body, its method entry, its class, their strings."""
    texts = [string(each) for each in (path, plain, label, owner)]
    at = [TEXTS + 64 * place for place in range(len(texts))]
    image = bytearray(640)
    struct.pack_into("<QQQ", image, 0, 0x701A, 0, BODY)
    struct.pack_into("<QQQII", image, BODY - START + 64, *at[:3], 12, 0)
    struct.pack_into("<QQQQQ", image, ENTRY - START, 0x601A, 0, DEFINITION, 0, OWNER)
    struct.pack_into("<QQ", image, OWNER - START, 2, 0)
    struct.pack_into("<Q", image, OWNER - START + 152, at[3])
    return bytes(image) + b"".join(texts)


def functions(image: bytes) -> RubyFunctions:
    return RubyFunctions(NAMES, MemoryImage(START, image))


@pytest.mark.parametrize(
    ("plain", "label", "owner", "name"),
    [
        (b"verify", b"verify", b"Auth::Token", "Auth::Token#verify"),
        (b"verify", b"block (2 levels) in verify", b"Auth", "block (2 levels) in Auth#verify"),
        (b"<=>", b"<=>", b"Auth", "Auth#<=>"),
        (b"<class:Auth>", b"block in <class:Auth>", b"Auth", "block in <class:Auth>"),
        (b"verify", b"verify", b"#<Class:0x00007f>", "verify"),
        (b"verify", b"another", b"Auth", "another"),
    ],
)
def test_methods_have_the_names_that_people_know(
    plain: bytes, label: bytes, owner: bytes, name: str
) -> None:
    found = functions(image_of(b"/srv/app.rb", plain, label, owner)).of(FRAME)
    assert found == RubyFunction(name, "/srv/app.rb", 12)


IMAGE = image_of(b"/srv/app.rb", b"verify", b"verify", b"Auth")


@pytest.mark.parametrize(
    "image",
    [
        IMAGE[:600],
        IMAGE.replace(struct.pack("<Q", BODY), struct.pack("<Q", BODY + 8)),
        IMAGE.replace(struct.pack("<QQQ", 5, 0, 6), struct.pack("<QQQ", 5, 0, 1 << 40)),
        image_of(b"/srv/app.rb", b"", b"", b"Auth"),
        image_of(b"", b"verify", b"verify", b"Auth"),
    ],
    ids=["ends", "another body", "endless", "no name", "no file"],
)
def test_what_is_no_function_has_no_name(image: bytes) -> None:
    assert functions(image).of(FRAME) is None


def test_names_cannot_forge_lines() -> None:
    found = functions(image_of(b"a\tb\nc.rb", b"v\x1b[31m", b"v\x1b[31m", b"A\nB")).of(FRAME)
    assert found is not None and found.file is not None
    assert not set(found.name + found.file) & set("\t\n\x1b")


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it, once the other way, and noise: no name, or one that can be printed."""
    in_c = FRAME._replace(function=ENTRY, mark=DEFINITION, is_c=True)
    for bit in range(8 * len(IMAGE)):
        changed = bytearray(IMAGE)
        changed[bit // 8] ^= 1 << bit % 8
        found = functions(bytes(changed))
        assert found.of(in_c) is None, "there are no symbols"
        one = found.of(FRAME)
        assert one is None or (one.name.isprintable() and str(one.file).isprintable())
    noise = random.Random(1)
    for _ in range(200):
        image = noise.randbytes(len(IMAGE))
        assert functions(image).of(FRAME) is None
        assert layout_of((3, 3), 1, START, image, MemoryImage(START, image)) is None


def test_stacks_without_an_end_are_left() -> None:
    context = struct.pack("<QQQ", START, 1 << 60, START + 8)
    around = (START).to_bytes(8, "little") * 64
    frames = frames_in(5, 56, lambda at, size: context if at == 5 else around[:size])
    assert len(frames) == FRAMES_MAX


def test_a_layout_is_what_the_programs_take() -> None:
    """The fields of bpf/stacks.h, by name; equality is tested where they run, test_code*.py."""
    source = (CODE.parents[2] / "bpf" / "stacks.h").read_text()
    body = source.split("struct ruby_layout {")[1].split("};")[0]
    names = [part.split(";")[0].split()[-1] for part in body.splitlines() if ";" in part]
    assert names == list(RubyLayout._fields)


# ------------------------------------------------------------ among the interpreter's functions

RUBY = "libruby-3.1.so.3.1.2"
F, G = (CodeFrame(name, RUBY, "/srv/app.rb", 1) for name in "fg")
SLEEP = CodeFrame("Kernel#sleep", RUBY, INTERNAL_FILE)
NAMELESS = CodeFrame(None, RUBY)
MEMCPY, MAIN = CodeFrame("memcpy", "libc.so.6"), CodeFrame("main", "ruby3.1")


def c(function: Optional[str], module: str = RUBY) -> CodeFrame:
    return CodeFrame(function, module)


@pytest.mark.parametrize(
    ("native", "ruby", "expected"),
    [
        ([NAMELESS, c("rb_vm_exec"), MAIN], [F, G], [F, G, MAIN]),
        ([MEMCPY, NAMELESS, c("rb_vm_exec"), MAIN], [F], [MEMCPY, F, MAIN]),
        ([c("rb_str_concat"), NAMELESS, c("rb_vm_exec")], [F], [c("rb_str_concat"), F]),
        ([c("gc_marks"), c("rb_gc"), c("vm_exec_core")], [F], [c("gc_marks"), c("rb_gc"), F]),
        ([c("rb_ary_each"), c("vm_call_cfunc"), c("vm_exec")], [F], [c("rb_ary_each"), F]),
        ([MEMCPY, c(None, "openssl.so"), NAMELESS, MAIN], [SLEEP, F], [MEMCPY, SLEEP, F, MAIN]),
        ([c(None, "[jit]"), c("vm_exec"), MAIN], [F], [F, MAIN]),
        ([c("f", "[jit]"), c("vm_exec"), MAIN], [F], [F, MAIN]),
        ([c("vm_exec"), NAMELESS, c("vm_exec"), MAIN], [F, SLEEP, G], [F, SLEEP, G, MAIN]),
        ([MEMCPY], [F], [MEMCPY, F]),
        ([], [F], [F]),
    ],
)
def test_functions_are_where_they_are_executed(
    native: List[CodeFrame], ruby: List[CodeFrame], expected: List[CodeFrame]
) -> None:
    assert merged(native, ruby, RUBY) == expected
