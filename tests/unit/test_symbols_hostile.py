"""Files that lie about the code of a target: bounded in time and memory, and no name of theirs."""

from __future__ import annotations

import os
import struct
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Iterator

import pytest

from udsprobe.symbols.elf_image import ElfImage
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
    with pytest.raises(ValueError, match="sections"):
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
