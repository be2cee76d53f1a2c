"""What the kernel matrix makes of what guests bring back, and its small file formats."""

from __future__ import annotations

import ast
import json
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest

from scripts.vm import userland
from scripts.vm.archive import ArchiveError
from scripts.vm.evidence import Case, Claim, Evidence, evidence
from scripts.vm.guest import Bounds, LostGuestError, _command
from scripts.vm.host import run_here, this_host
from scripts.vm.initramfs import initramfs
from scripts.vm.kernels import SUITES, Kernel, _keep_modules, processor_of
from scripts.vm.page import page
from scripts.vm.script import guest_script, host_script, selected_tests
from scripts.vm.userland import Share, Userland, this_machine_s
from tests.kernel.measured import MEASURED, measurement_of
from tests.scenarios import programs
from tests.workloads import cross
from udsprobe.kernel.abilities.plan import EVENT_PROGRAMS, measurements
from udsprobe.kernel.bcc.plan import bcc_measurements

ROOT = Path(__file__).resolve().parents[2]
ON = {"syscalls": Claim("on", None)}
ELSEWHERE = Userland(
    Path("busybox"),
    (Share("host", Path("/root folder"), "/"), Share("checkout", Path("/a b"), "/a b")),
    "/usr/bin/python3",
)
NAMES = {state.name for state in measurements(frozenset(p.name for p in EVENT_PROGRAMS))}


def outcome(measurement: str, what: str, words: str = "") -> Case:
    return Case(f"test_{what}", measurement, what, words)


@pytest.mark.parametrize(
    ("tests", "cell"),
    [
        ([], "not tested"),
        ([outcome("other", "passed")], "not tested"),
        ([outcome("syscalls", "skipped")], "not tested"),
        ([outcome("syscalls", "passed"), outcome("syscalls", "skipped")], "on"),
        (
            [outcome("syscalls", "passed"), outcome("syscalls", "failed")],
            "**failed** (test_failed)",
        ),
    ],
)
def test_on_is_what_ran_and_passed(tests: List[Case], cell: str) -> None:
    assert Evidence("tracepoint", ON, tuple(tests)).cell("syscalls") == cell


def test_what_is_not_on_says_why_whatever_passed() -> None:
    claims = {"stages": Claim("degraded", "late"), "verdict": Claim("off", "no")}
    found = Evidence("tracepoint", claims, (outcome("stages", "passed"),))
    assert found.cell("stages") == "degraded (late)"
    assert found.cell("verdict") == "off (no)"
    assert Evidence(None, {}, (), "refused").cell("stages") == "off (refused)"


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.kernel.test_calls" name="test_a[x]">
<properties><property name="measurement" value="syscalls"/></properties></testcase>
<testcase classname="tests.kernel.test_calls" name="test_b"><failure message="1 == 2"/></testcase>
<testcase classname="tests.kernel.test_calls" name="test_c"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def test_a_guests_files_are_read(tmp_path: Path) -> None:
    rows = [{"name": "syscalls", "state": "on", "rests_on": "x", "reason": None}]
    probe = {"strategy": "tracepoint", "measurements": rows}
    (tmp_path / "report.json").write_text(json.dumps({"probe": probe}))
    (tmp_path / "junit.xml").write_text(JUNIT)
    found = evidence(tmp_path)
    assert found.strategy == "tracepoint"
    assert found.tests == (
        Case("test_calls::test_a[x]", "syscalls", "passed", ""),
        Case("test_calls::test_b", None, "failed", "1 == 2"),
        Case("test_calls::test_c", None, "skipped", "why"),
    )
    assert found.cell("syscalls") == "on"


def test_a_guest_without_a_report_says_what_refused_it(tmp_path: Path) -> None:
    (tmp_path / "refusal").write_text("udsprobe: error[refused]: no\nmore\n")
    assert evidence(tmp_path).trouble == "udsprobe: error[refused]: no"


def test_the_page_has_each_reason_once() -> None:
    degraded = Evidence("tracepoint", {"stages": Claim("degraded", "a | b")}, ())
    text = page({("5.10", "tracepoint"): degraded, ("6.1", "tracepoint"): degraded})
    assert "| `stages` | degraded [1] | degraded [1] |" in text
    assert text.count("1. a \\| b") == 1


def measured_by(tests: List[str]) -> Set[str]:
    """Their measurements; every test exists."""
    covered = set()
    for test in tests:
        path, _, name = test.partition("::")
        function = name.partition("[")[0]
        tree = ast.parse((ROOT / path).read_text())
        assert not name or function in {getattr(node, "name", "") for node in tree.body}, test
        covered.add(measurement_of(Path(path).stem, function))
    return {measurement for measurement in covered if measurement is not None}


def test_the_selection_exists_and_covers_every_measurement_with_tests() -> None:
    assert measured_by(selected_tests()) == set(MEASURED.values())


def test_what_strategy_bcc_calls_on_is_in_its_selection() -> None:
    on = {each.name for each in bcc_measurements() if each.state == "on"}
    assert on & set(MEASURED.values()) <= measured_by(selected_tests("bcc"))


def test_measured_names_are_those_of_measurements_and_tests() -> None:
    assert set(MEASURED.values()) <= NAMES
    for place in MEASURED:
        module, _, function = place.partition("::")
        text = (ROOT / "tests" / "kernel" / f"{module}.py").read_text()
        assert not function or f"def {function}(" in text, place


def test_the_scripts_are_bash(tmp_path: Path) -> None:
    tests = ["tests/a.py::test[x y]"]
    for script in (
        guest_script(tmp_path, "tracepoint", tests, this_machine_s()),
        guest_script(tmp_path, "bcc", tests, this_machine_s(), tmp_path / "a b"),
        guest_script(tmp_path, "tracepoint", tests, ELSEWHERE),
        host_script(tmp_path, "tracepoint", tests, tmp_path / "a b"),
    ):
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_without_a_report_no_test_is_run(tmp_path: Path) -> None:
    script = host_script(ROOT, "no-such-strategy", ["tests/unit/test_numbers.py"], tmp_path)
    assert run_here(this_host(), script, tmp_path, Bounds()) == 2
    assert (tmp_path / "status").read_text() == "2\n"
    assert "no-such-strategy" in (tmp_path / "refusal").read_text()
    assert not (tmp_path / "junit.xml").exists()


def test_a_host_that_takes_too_long_is_lost(tmp_path: Path) -> None:
    with pytest.raises(LostGuestError):
        run_here(this_host(), "exec tail -f /dev/null", tmp_path, Bounds(seconds=1))
    assert not (tmp_path / "status").exists()


def read_archive(raw: bytes) -> Dict[str, Tuple[int, bytes]]:
    """Name → (mode, content), read as the format's description says."""
    found, at = {}, 0
    while True:
        assert at % 4 == 0 and raw[at : at + 6] == b"070701"
        fields = [int(raw[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = raw[at + 110 : at + 109 + name_size].decode()
        body = at + (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, raw[body : body + size])
        at = body + (size + 3) // 4 * 4


def test_the_first_file_system_holds_what_was_put_in() -> None:
    raw = initramfs({"init": b"#!", "bin/busybox": b"elf"}, {"modules/a.ko": b"12345"})
    assert read_archive(raw) == {
        "bin": (0o40755, b""),
        "modules": (0o40755, b""),
        "init": (0o100755, b"#!"),
        "bin/busybox": (0o100755, b"elf"),
        "modules/a.ko": (0o100644, b"12345"),
    }


def test_a_guest_is_told_what_to_mount_and_the_emulator_offers_it(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "order").write_text("9p\n")
    (tmp_path / "busybox").write_bytes(b"elf")
    kernel = Kernel("6.1-arm64", "6.1.0-50-arm64", tmp_path, processor_of("6.1-arm64"))
    programs = replace(ELSEWHERE, busybox=tmp_path / "busybox")
    first = read_archive(kernel.initramfs(programs))
    assert first["shares"] == (0o100644, b"host /\ncheckout /a b\n")
    command = _command(kernel, programs, tmp_path / "first", tmp_path, Bounds())
    assert "qemu-system-aarch64" in command
    devices = [command[at + 1] for at, word in enumerate(command) if word == "-virtfs"]
    assert [word.split(",")[1] for word in devices] == ["id=host", "id=checkout", "id=results"]
    assert [word.endswith(",readonly=on") for word in devices] == [True, True, False]


def test_a_kernel_s_name_says_its_processor() -> None:
    by_machine = {name: processor_of(name).machine for name in SUITES}
    assert by_machine["6.1"] == "x86_64"
    assert by_machine["6.1-arm64"] == by_machine["6.12-arm64"] == "aarch64"


def test_programs_of_another_processor_are_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = []

    def unpack(_: object, packages: List[str], root: Path) -> None:
        unpacked.append(packages)
        (root / "etc").mkdir(parents=True)
        (root / "usr" / "lib" / "python3.11").mkdir(parents=True)
        (root / "usr" / "lib" / "python3.11" / "module.py").write_text("ONE = 1\n")

    monkeypatch.setattr(userland, "Archive", lambda *_: None)
    monkeypatch.setattr(userland, "_unpack", unpack)
    asked = (tmp_path / "cache", "bookworm", "arm64", ["python3", "bash"])
    root = userland.unpacked(*asked)
    assert userland.unpacked(*asked) == root
    assert unpacked == [["python3", "bash"]]
    assert (root / "etc" / "passwd").read_text().startswith("root:x:0:0:")
    assert list((root / "usr" / "lib" / "python3.11" / "__pycache__").iterdir())
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [root.name]
    (root / userland.MADE_OF).write_text("python3\n")
    userland.unpacked(*asked)
    assert len(unpacked) == 2


def test_a_python_that_no_suite_has_is_said() -> None:
    with pytest.raises(ArchiveError, match=r"Python 3\.4 "):
        userland.suite_of((3, 4))


def test_workloads_are_compiled_where_they_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def compile_one(program: Path, sources: List[Path], compiler: List[str], _: str) -> None:
        assert "--target=aarch64-linux-gnu" in compiler
        compiled.append(program.name)
        assert sources
        program.touch()

    monkeypatch.setattr(cross, "compiled", compile_one)
    asked = (64, "aarch64-linux-gnu", tmp_path, tmp_path / "bin")
    programs = cross.cross_build(*asked)
    assert sorted(compiled) == sorted(path.name for path in programs)
    assert {"workload64", "loops", "stages_server"} <= set(compiled)
    cross.cross_build(*asked)
    assert len(compiled) == len(programs)


def test_the_lab_s_programs_are_compiled_where_they_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def compile_one(source: Path, target: Path, compiler: List[str]) -> None:
        assert "--target=aarch64-linux-gnu" in compiler
        compiled.append(source.name)
        target.touch()

    monkeypatch.setattr(programs, "_compile", compile_one)
    for _ in range(2):
        built = programs.cross_built("aarch64-linux-gnu", tmp_path, tmp_path / "bin")
        assert [path.name for path in built] == ["client", "echo", "handover", "service"]
        assert compiled == ["client.c", "echo.c", "handover.c", "service.c"]
    (tmp_path / "bin" / "echo").unlink()
    monkeypatch.setattr(programs, "BIN", tmp_path / "bin")
    assert programs.compilers() == ["gcc"]
    programs.cross_built("aarch64-linux-gnu", tmp_path, tmp_path / "bin")
    assert programs.compilers() == []


def test_modules_follow_those_they_need(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree", tmp_path / "target"
    (tree / "kernel" / "fs").mkdir(parents=True)
    target.mkdir()
    wanted = lzma.compress(b"elf\0depends=net-core,base\0")
    (tree / "kernel" / "fs" / "9p.ko.xz").write_bytes(wanted)
    (tree / "kernel" / "net-core.ko").write_bytes(b"elf\0depends=\0")
    assert _keep_modules([tree], target) == ["net_core", "9p"]
    assert sorted(path.name for path in target.iterdir()) == ["9p.ko", "net_core.ko"]
