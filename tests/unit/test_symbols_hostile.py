"""Files that lie about the code of a target: bounded in time and memory, and no name of theirs."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
import tracemalloc
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Iterator, List

import pytest

from tests.conftest import Require
from tests.patience import PATIENCE_S
from udsprobe.symbols.elf_file import ElfFile, Segment
from udsprobe.symbols.elf_image import ElfImage
from udsprobe.symbols.frame_rules import MACHINES, FrameRules
from udsprobe.symbols.perf_map import ENTRIES_MAX, entries
from udsprobe.symbols.process_names import ProcessNames
from udsprobe.symbols.target_images import TargetImages

SECTIONS = 1 << 40


def test_millions_of_empty_lines_take_no_memory() -> None:
    text = b"\n" * (16 << 20)
    tracemalloc.start()
    assert len(entries(text)) == 0
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 64 << 20


def test_of_a_long_map_the_first_entries_are_read() -> None:
    text = b"".join(b"%x 1 f\n" % (16 * number) for number in range(ENTRIES_MAX + 10))
    assert len(entries(text)) == ENTRIES_MAX


def test_a_file_with_more_sections_than_bytes_is_refused_at_once() -> None:
    """The number of sections is in the first of them when there are too many for the header."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, 0, 0, 64, 0, 64, 56, 0, 64, 0, 0
    )
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, SECTIONS, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="not an ELF file, or damaged"):
        ElfImage(BytesIO(header + first))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Path]:
    """The folder of a process in a procfs: its /tmp is there, and nothing is mapped."""
    folder = tmp_path / "77"
    (folder / "root" / "tmp").mkdir(parents=True)
    (folder / "maps").write_bytes(b"1000-2000 r-xp 0 00:00 0\n")
    (folder / "status").write_text("Name:\tx\nNSpid:\t77\t5\n")
    yield folder


def name_of(process: Path) -> object:
    images = TargetImages(None, str(process.parent))
    return ProcessNames(77, images, str(process.parent)).frame(0x1010).function


def test_a_map_is_found_by_the_number_in_its_own_namespace(process: Path) -> None:
    (process / "root" / "tmp" / "perf-5.map").write_text("1000 100 planted\n")
    assert name_of(process) == "planted"


@pytest.mark.parametrize("what", ["fifo", "link", "folder", "somebody's"])
def test_what_is_no_file_of_its_own_is_not_read(what: str, process: Path, tmp_path: Path) -> None:
    place = process / "root" / "tmp" / "perf-5.map"
    if what == "fifo":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    elif what == "link":
        (tmp_path / "real").write_text("1000 100 planted\n")
        place.symlink_to(tmp_path / "real")
    else:
        if os.geteuid():
            pytest.skip("only root gives files away")
        place.write_text("1000 100 planted\n")
        os.chown(place, 65534, 65534)
    assert name_of(process) is None


TRIES = 3000
MANGLING = """
import random, sys
from io import BytesIO
from pathlib import Path
from udsprobe.symbols.elf_image import ElfImage

whole, chance = Path(sys.argv[1]).read_bytes(), random.Random(7)
said = {}
for _ in range(int(sys.argv[2])):
    lying = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
    for _ in range(chance.randrange(1, 9)):
        # Headers at the beginning and at the end; numbers of up to eight bytes.
        at = chance.choice([0, len(lying) - 2048, chance.randrange(len(lying) or 1)])
        at = max(0, at + chance.randrange(2048))
        lying[at : at + 8] = chance.getrandbits(64).to_bytes(8, "little")[: chance.randrange(1, 9)]
    try:
        image = ElfImage(BytesIO(bytes(lying)))
        image.functions.at(image.address_of(0x1100) or 0)
        said["read"] = said.get("read", 0) + 1
    except ValueError:
        said["refused"] = said.get("refused", 0) + 1
print(sorted(said))
"""


def test_damaged_files_are_read_or_refused(tmp_path: Path, require: Require) -> None:
    """In a process of its own: what reads them is a library in C."""
    source = tmp_path / "small.c"
    source.write_text("int planted(int a) { return a + 1; }\nint main(void) { return planted(1); }")
    program = str(tmp_path / "small")
    subprocess.run([require("gcc")["gcc"], "-g0", "-o", program, str(source)], check=True)
    argv = [sys.executable, "-c", MANGLING, program, str(TRIES)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "['read', 'refused']\n"), done.stderr


def test_what_was_forgotten_of_call_frames_is_read_again(tmp_path: Path) -> None:
    machine = MACHINES[platform.machine()]
    with open(sys.executable, "rb") as file:
        rules, again = (FrameRules(machine, file.fileno()) for _ in range(2))
        starts = [each.address + 64 * number for each in segments(file) for number in range(50)]
    for start in starts:
        rules.rest()
        rules.rest()
        assert rules.at(start) == again.at(start)
    assert any(again.at(start) for start in starts)
    rules.close()
    again.close()


def segments(file: BinaryIO) -> List[Segment]:
    with closing(ElfFile(file)) as elf:
        return [each for each in elf.segments if each.is_executable]
