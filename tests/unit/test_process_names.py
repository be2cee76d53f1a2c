"""Which function an address belongs to: by mapped files, and by what runtimes write down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Optional, Tuple

import pytest

from udsprobe.symbols.kernel_functions import mapped_vdso, own_vdso, vdso_function
from udsprobe.symbols.perf_map import code_name, entries
from udsprobe.symbols.process_names import ProcessNames
from udsprobe.symbols.target_images import TargetImages

SHARED = b"/dev/zero (deleted)"


def names(
    folder: Path, mapped: bytes, perf_map: bytes, where: bytes = b"r-xs 0 00:01 5"
) -> ProcessNames:
    """Of a process in a procfs."""
    process = folder / "77"
    (process / "root" / "tmp").mkdir(parents=True)
    (process / "maps").write_bytes(b"1000-2000 " + where + b" " + mapped + b"\n")
    (process / "status").write_text("Name:\tx\nNSpid:\t77\n")
    (process / "root" / "tmp" / "perf-77.map").write_bytes(perf_map)
    os.utime(process)
    return ProcessNames(77, TargetImages(None, str(folder)), str(folder))


def test_code_in_shared_memory_has_its_names_by_the_map(tmp_path: Path) -> None:
    """PHP makes its code for all processes of a pool."""
    known = names(tmp_path, SHARED, b"1100 100 JIT$planted\n")
    assert known.frame(0x1110)[:2] == ("planted", "[jit]")
    assert known.frame(0x1800)[:2] == (None, "[jit]")


@pytest.mark.parametrize(
    "path", [b"/memfd:vmem (deleted)", b"/anon_hugepage (deleted)", b"/SYSV00000000 (deleted)"]
)
def test_code_in_memory_that_is_mapped_twice_was_made_at_run_time(
    tmp_path: Path, path: bytes
) -> None:
    """Erlang writes it through one mapping, and runs it in the other; PHP shares it."""
    known = names(tmp_path, path, b"")
    assert known.frame(0x1110)[:2] == (None, "[jit]")


def test_code_in_memory_that_has_a_name_has_its_names_by_the_map(tmp_path: Path) -> None:
    """Ruby calls that of YJIT so, where the kernel lets it (PR_SET_VMA_ANON_NAME)."""
    own = b"[anon:Ruby:rb_yjit_reserve_addr_space]"
    known = names(tmp_path, own, b"1100 100 Shop#total\n", where=b"r-xp 0 00:00 0")
    assert known.frame(0x1110)[:2] == ("Shop#total", "[jit]")
    assert known.frame(0x1800)[:2] == (None, "[jit]")


@pytest.mark.parametrize(
    ("written", "function"),
    [
        (b"JIT$Shop\\Cart::total", "Shop\\Cart::total"),
        (b"JIT$$double_one", "JIT$$double_one"),
        (b"py::dump:/srv/app.py", "dump"),
        (b"LazyCompile:*verify /srv/app.js:12:8", "verify"),
    ],
)
def test_what_a_runtime_calls_a_function(written: bytes, function: str) -> None:
    assert code_name(written).function == function


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        # Memory of what was dropped is used again: from before it, within it, beyond its end.
        (("1000 100 old", "f80 100 new"), {0x1000: "new", 0x10F0: None}),
        (("1000 100 old", "1080 100 new"), {0x1000: None, 0x1170: "new"}),
        (("1000 20 a", "1040 20 b", "f00 200 new"), {0x1000: "new", 0x1040: "new"}),
        (("1000 100 old", "1020 10 a", "1040 10 b"), {0x1000: None, 0x1024: "a", 0x1044: "b"}),
        # The next one to it is another's.
        (("1000 10 a", "1010 10 b"), {0x100F: "a", 0x1010: "b"}),
    ],
)
def test_of_code_in_one_place_the_last_is_there(
    lines: Tuple[str, ...], names: Dict[int, Optional[str]]
) -> None:
    table = entries("\n".join(lines).encode())
    found = {address: table.at(address) for address in names}
    assert {
        address: each.name.decode() if each else None for address, each in found.items()
    } == names


def test_the_kernel_s_code_in_a_process_has_its_names() -> None:
    """The same bytes are mapped here; where a process has other ones, nothing is named."""
    images = TargetImages(None)
    own = ProcessNames(os.getpid(), images)
    mapping = mapped_vdso(Path("/proc/self/maps").read_bytes())
    assert mapping is not None
    elf = images.vdso(mapping).elf
    assert elf is not None
    found = {own.frame(mapping.start + at) for at in range(0, mapping.end - mapping.start, 16)}
    assert {each.module for each in found} == {"[vdso]"}
    assert "clock_gettime" in {each.function for each in found}
    assert {vdso_function(each) for each in (b"__vdso_time", b"__kernel_time", b"time")} == {
        b"time"
    }
    other = mapping._replace(end=mapping.end + 4096)
    assert images.vdso(other).elf is None
    images.close()
    assert images.vdso(mapping).elf is not None


def test_a_process_without_the_kernel_s_code(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "maps").write_bytes(b"1000-2000 r-xp 0 00:01 5 /bin/x\n")
    assert own_vdso(str(tmp_path)) is None
    assert own_vdso(str(tmp_path / "nowhere")) is None
