"""Functions of PHP by the memory of real processes, which say themselves where they are."""

from __future__ import annotations

import platform
import random
import struct
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import pytest

from tests.conftest import Require
from tests.patience import PATIENCE_S
from tests.phps import PHPS, WAYS
from tests.unit.memory_image import MemoryImage
from tests.unit.open_files import opened
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.php_frames import PhpFrame, PhpLayout, mark_of, php_frames
from udsprobe.kernel.stacks.raw_stacks import Came, RawStack, Registers
from udsprobe.printable import printable
from udsprobe.symbols.php.functions import LETTERS_MAX, PhpFunction, PhpFunctions
from udsprobe.symbols.php.stacks import PhpStacks
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.stack_profile import StackProfile
from udsprobe.symbols.target_images import TargetImages

CODE = Path(__file__).resolve().parent.parent / "workloads" / "code"
NESTED = f"require '{CODE / 'nested.php'}';"


@dataclass(frozen=True)
class Waiting:
    """A process that waits in functions that it has told: name, file, first line."""

    pid: int
    told: List[List[str]]


def until_asleep(pid: int) -> None:
    """In the function that it has told last, where it waits for a line."""
    give_up_at = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < give_up_at, "it never waits"


@contextmanager
def waiting(*argv: str) -> Iterator[Waiting]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*argv, "-r", NESTED], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "\n"))
            until_asleep(process.pid)
            yield Waiting(process.pid, [line.rstrip("\n").split("\t") for line in lines])
        finally:
            process.kill()


@pytest.fixture(params=PHPS)
def php(request: pytest.FixtureRequest, require: Require) -> str:
    if platform.machine() != "x86_64":
        pytest.skip("where PHP keeps its calls is read in code of x86-64")
    return require(request.param)[request.param]


def looked_at(pid: int) -> Tuple[PhpStacks, ProcessMemory]:
    memory, images = ProcessMemory(pid), TargetImages(None)
    stacks = PhpStacks(pid, images, memory, lambda _: False)
    stacks.look(ProcessNames(pid, images).mapped)
    return stacks, memory


def frames_of(stacks: PhpStacks, memory: ProcessMemory) -> Tuple[PhpFrame, ...]:
    assert stacks.layout is not None
    frames = php_frames(stacks.layout, memory.read)
    memory.close()
    return frames


def row(frame: CodeFrame) -> List[str]:
    return [frame.function or "", (frame.file or "").replace("php:internal", ""), *line(frame)]


def line(frame: CodeFrame) -> List[str]:
    return ["" if frame.line is None else str(frame.line)]


@pytest.mark.parametrize("way", WAYS)
def test_a_process_is_in_the_functions_that_it_says(php: str, way: str) -> None:
    """The same names, files and first lines: methods, closures, generators, eval() and others."""
    with waiting(php, *WAYS[way]) as there:
        stacks, memory = looked_at(there.pid)
        frames = frames_of(stacks, memory)
        named = stacks.merged([], [], frames)
    assert [row(each) for each in named] == there.told
    assert stacks.has_named and stacks.is_whole(frames)
    assert [name for name, _, _ in there.told] == [
        *("fgets", "Größe\\waits", there.told[2][0], "array_map", "Größe\\Wächter::wächst"),
        *("Größe\\Wächter::__get", there.told[6][0], "Größe\\値段", "Größe\\begins", "eval"),
        *("Größe\\sorts", "usort", "include", "{main}"),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_by_php_is_told_from_one_by_c(php: str, way: str) -> None:
    with waiting(php, *WAYS[way]) as there:
        stacks, memory = looked_at(there.pid)
        frames = [each for each in frames_of(stacks, memory) if each.function]
    called_by_c = [at for at, each in enumerate(frames) if each.is_top]
    names = [there.told[at][0].rpartition("\\")[2] for at in called_by_c]
    assert names == ["{closure}", "Wächter::__get", "値段", "sorts", "{main}"] or names == [
        *("Wächter::{closure}", "Wächter::__get", "値段", "sorts", "{main}"),
    ]


def test_nothing_stays_open(php: str) -> None:
    with waiting(php, "-n") as there:
        profile = StackProfile()
        runtimes = profile.runtimes_of(there.pid)
        assert runtimes is not None and runtimes.php is not None
        memory = ProcessMemory(there.pid)
        frames = php_frames(runtimes.php, memory.read)
        memory.close()
        stack = RawStack(there.pid, there.pid, (), (), Registers(0, 0, 0, 0), b"", php=frames)
        profile.add(Came([stack], []))
        (told,) = profile.counts()
        innermost_last = [each.split("\t")[0] for each in told.frames.split("\n")]
        assert innermost_last == [name for name, _, _ in reversed(there.told)]
        assert told.truncated == 0 and profile.names_code_of(there.pid)
        assert f"/proc/{there.pid}/mem" not in opened()
        profile.close()


def test_a_process_without_php_has_none() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        stacks, _ = looked_at(process.pid)
        process.kill()
    assert stacks.layout is None
    native = [CodeFrame("read", "libc.so.6")]
    assert stacks.merged([], native, [PhpFrame(16, 16, True)]) == native
    assert not stacks.is_whole([PhpFrame(16, 16, True)])


# ------------------------------------------------------------ memory of any kind


START = 0x7F00_0000_0000
LAYOUT = PhpLayout(START - 8, 152)
FILE, FIRST, LAST = b"/srv/app.php", 12, 14


def djbx33a(text: bytes) -> int:
    found = 5381
    for letter in struct.unpack(f"{len(text)}b", text):
        found = (found * 33 + letter) % (1 << 64)
    return found | 1 << 63


def string(text: bytes, known: Optional[int] = None) -> bytes:
    """A `zend_string`, at a multiple of 8 bytes; known: its hash."""
    header = struct.pack("<IIQQ", 1, 0x16, djbx33a(text) if known is None else known, len(text))
    raw = header + text + b"\0"
    return raw.ljust(-(-len(raw) // 8) * 8, b"\0")


def image_of(
    name: bytes, kind: int = 2, of_class: bytes = b"", known: Optional[int] = None
) -> bytes:
    """A function, its class, its strings."""
    parts = [string(name, known), string(FILE), string(of_class)]
    at = [START + 512 + sum(map(len, parts[:number])) for number in range(3)]
    image = bytearray(512)
    struct.pack_into("<B7xQQ", image, 0, kind, at[0] if name else 0, START + 256 if of_class else 0)
    struct.pack_into("<QII", image, LAYOUT.function_file, at[1], FIRST, LAST)
    struct.pack_into("<Q", image, 256 + 8, at[2])
    return bytes(image) + b"".join(parts)


def frame_of(image: bytes) -> PhpFrame:
    return PhpFrame(START, mark_of(LAYOUT, START, MemoryImage(START, image).read), False)


def functions(image: bytes) -> Tuple[PhpFunctions, MemoryImage]:
    memory = MemoryImage(START, image)
    return PhpFunctions(LAYOUT, memory), memory


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (image_of(b"verify"), "verify"),
        (image_of(b"verify", 4), "verify"),
        (image_of(b"verify", 2, b"App\\Auth"), "App\\Auth::verify"),
        (image_of(b"f", 2, b"class@anonymous\0/srv/app.php:12$0"), "class@anonymous::f"),
        (image_of(b"{closure:/srv/app.php:12}"), "{closure}"),
        (image_of(b"App\\{closure:App\\f():12}"), "App\\{closure}"),
        (image_of(b"App\\handler", known=0), "App\\handler"),
        (image_of(b"f", known=0), "f"),
        (image_of(b""), None),
    ],
)
def test_functions_have_the_names_that_people_know(image: bytes, name: Optional[str]) -> None:
    found = functions(image)[0].of(frame_of(image))
    assert found == PhpFunction(name, FILE.decode(), FIRST, False)


def test_functions_in_c_have_no_file() -> None:
    image = image_of(b"preg_match", 1)
    assert functions(image)[0].of(frame_of(image)) == PhpFunction("preg_match", None, None, True)


def test_another_function_in_its_place_is_not_named_as_that() -> None:
    """As requests make them, where no opcache keeps them: known again when it was read once."""
    one, other = image_of(b"verify_a"), image_of(b"verify_b")
    found, memory = functions(one)
    assert found.of(frame_of(other)) is None
    memory.image = other
    assert found.of(frame_of(other)) is None, "looked at once in each round"
    found.begin_round()
    named = [found.of(frame_of(image)) for image in (one, other)]
    assert [each and each.name for each in named] == ["verify_a", "verify_b"]
    memory.image = b""
    found.begin_round()
    assert found.of(frame_of(one)) is not None


def test_names_that_php_has_not_hashed_are_told_apart() -> None:
    one, other = (image_of(name, known=0) for name in (b"App\\save_one", b"App\\save_two"))
    assert frame_of(one).mark != frame_of(other).mark


@pytest.mark.parametrize(
    "image",
    [
        image_of(b"verify", 3),
        image_of(b"verify", 0),
        image_of(b"verify", known=5),
        image_of(b"x" * (LETTERS_MAX + 1)),
        image_of(b"verify").replace(b"verify\0", b"verify!"),
        image_of(b"verify").replace(struct.pack("<II", FIRST, LAST), struct.pack("<II", 14, 12)),
    ],
)
def test_what_is_no_function_has_no_name(image: bytes) -> None:
    assert functions(image)[0].of(frame_of(image)) is None


@pytest.mark.parametrize("name", ["a\tb\nc", "\x1b[31m"])
def test_names_cannot_forge_lines(name: str) -> None:
    image = image_of(name.encode())
    found = functions(image)[0].of(frame_of(image))
    assert found is not None and found.name == printable(name.encode())
    assert not set(found.name) & set("\t\n\x1b")


def test_memory_that_lies_does_no_harm() -> None:
    """Each bit of it, once the other way, and noise: no name, or one that can be printed."""
    image = image_of(b"verify", 2, b"App\\Auth")
    frame = frame_of(image)
    for bit in range(8 * len(image)):
        changed = bytearray(image)
        changed[bit // 8] ^= 1 << bit % 8
        found = functions(bytes(changed))[0].of(frame)
        assert found is None or found == PhpFunction(
            "App\\Auth::verify", FILE.decode(), FIRST, False
        )
    noise = random.Random(1)
    for _ in range(200):
        found_in = functions(noise.randbytes(len(image)))[0]
        found_in.begin_round()
        assert found_in.of(frame) is None


def test_lists_without_an_end_are_left() -> None:
    around = struct.pack("<Q", START) * 64
    assert len(php_frames(LAYOUT, lambda at, size: around[:size])) == 128


def test_a_layout_is_what_the_programs_take() -> None:
    """The fields of bpf/stacks.h, by name; equality is tested where they run, test_code*.py."""
    source = (CODE.parents[2] / "bpf" / "stacks.h").read_text()
    body = source.split("struct php_layout {")[1].split("};")[0]
    names = [part.split(";")[0].split()[-1] for part in body.splitlines() if ";" in part]
    assert names == [*PhpLayout._fields, "unused"]
