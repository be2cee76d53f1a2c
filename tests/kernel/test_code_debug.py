"""Names of C, C++ and Rust by debug information: inlined functions, files and lines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.conftest import Require
from tests.kernel.named_code import assert_told
from tests.kernel.test_code import (
    attach,
    build_id,
    built,
    code,
    of_recording,
    recorded,
    sampled,
    spinning,
)
from tests.unit.test_dwarf_files import LINES, SOURCE, STACK

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

NAMED = [f"{name} (inlined.c:{LINES[name]})" for name in STACK]
STEP, MIX, HANDLE = NAMED


def stacks_of(program: str, folder: Path) -> Dict[str, Any]:
    with spinning([program]) as process:
        return dict(sampled(process.pid, folder)["stacks"])


def shares(stacks: Dict[str, Any]) -> Dict[str, float]:
    """Of samples, by the functions that they are in."""
    whole = sum(each["samples"] for each in stacks["stacks"])
    names = {name for each in stacks["stacks"] for name in each["frames"]}
    inside = {
        name: sum(each["samples"] for each in stacks["stacks"] if name in each["frames"])
        for name in names
    }
    return {name: samples / whole for name, samples in inside.items()}


@pytest.mark.parametrize("compiler", ["-gdwarf-4", "-gdwarf-5"])
def test_what_is_inlined_is_named(compiler: str, tmp_path: Path, require: Require) -> None:
    """All that the program does is in one function, and in what is inlined in it."""
    (program,) = built("inlined.c", tmp_path, require, "-O2", compiler)
    stacks = stacks_of(program, tmp_path)
    place = code(stacks)[0]
    assert_told("C", {"inlined": place})
    assert (place["file"], place["module"]) == (SOURCE, "hot")
    assert place["line"] == LINES[place["function"]]
    found = shares(stacks)
    assert found[MIX] >= 0.95 and found[HANDLE] >= 0.95
    # Each is called by the one that it is inlined in.
    assert place["stack"][:3] == NAMED


@pytest.mark.alone
def test_the_verdict_says_where(tmp_path: Path, require: Require) -> None:
    (program,) = built("inlined.c", tmp_path, require, "-O2", "-g")
    with spinning([program]) as process:
        report = attach(process.pid, tmp_path, "--stacks")
    assert report["verdict"]["cause"] == "app-cpu"
    assert f"{STEP} ← {MIX}" in report["verdict"]["summary"]


def test_debug_information_of_another_mount_namespace(tmp_path: Path, require: Require) -> None:
    """The program is stripped; who tells of it is a file that udsprobe does not see at its path."""
    (program,) = built("inlined.c", tmp_path, require, "-O2", "-g", "-Wl,--build-id")
    objcopy, identity = require("objcopy")["objcopy"], build_id(Path(program), require)
    subprocess.run([objcopy, "--only-keep-debug", program, f"{program}.debug"], check=True)
    subprocess.run([objcopy, "--strip-all", program], check=True)
    place = f"/usr/lib/debug/.build-id/{identity[:2]}"
    script = f"""set -e
        mkdir -p /usr/lib/debug
        mount -t tmpfs tmpfs /usr/lib/debug
        mkdir -p {place}
        mv {program}.debug {place}/{identity[2:]}.debug
        exec {program}"""
    argv = [require("unshare")["unshare"], "--mount", "--propagation", "private", "sh", "-c"]
    with spinning([*argv, script]) as process:
        stacks = sampled(process.pid, tmp_path)["stacks"]
    assert shares(stacks)[HANDLE] >= 0.95


def test_other_tools_get_files_and_lines(tmp_path: Path, require: Require) -> None:
    recording = recorded(built("inlined.c", tmp_path, require, "-O2", "-g"), tmp_path)
    folded, pprof, page = (tmp_path / name for name in ("folded", "pprof", "page.html"))
    of_recording(recording, "--folded", str(folded))
    of_recording(recording, "--pprof", str(pprof))
    of_recording(recording, "--html", str(page))
    assert f"{HANDLE};{MIX}" in folded.read_text()
    assert f"inlined.c:{LINES['planted_mix']}" in page.read_text()
    argv = [require("go")["go"], "tool", "pprof", "-raw", str(pprof)]
    raw = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert f" {MIX} " in raw


def test_damaged_debug_information_leaves_the_symbols(tmp_path: Path, require: Require) -> None:
    (program,) = built("inlined.c", tmp_path, require, "-O2", "-g")
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.write_bytes(b"\xff" * 3000)
    argv = [require("objcopy")["objcopy"], "--update-section", f".debug_info={empty}"]
    subprocess.run([*argv, program, str(other)], check=True)
    shutil.move(str(other), program)
    place = code(stacks_of(program, tmp_path))[0]
    assert (place["function"], place["file"]) == ("planted_handle", None)


def test_rust(tmp_path: Path, require: Require) -> None:
    """Names of the standard library's functions that are inlined do not hide the program's."""
    place = code(stacks_of(built("hot.rs", tmp_path, require, "-O", "-g")[0], tmp_path))[0]
    assert place["own"].startswith("hot::planted::digest (hot.rs:")
    assert_told("Rust", {"function": place})
