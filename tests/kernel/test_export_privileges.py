"""`udsprobe export` without root: the capabilities of examples/fleet, each by trial."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Set

import pytest

from tests.conftest import Require
from tests.kernel.demo_server import Demo
from tests.kernel.exporting import Exporting
from tests.kernel.live import answer
from tests.kernel.tool import REPOSITORY

pytestmark = [pytest.mark.root]

UNIT = REPOSITORY / "examples/fleet/systemd/udsprobe-export.service"
ONLY_WITH_SYS_ADMIN = {
    "udsprobe_probe_bpf_cpu_seconds_total",
    "udsprobe_probe_bpf_measured_seconds_total",
}
PR_SET_MDWE = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def demo() -> Iterator[Demo]:
    with Demo() as served:
        Path(served.socket).parent.chmod(0o755)
        yield served


def units_capabilities() -> List[str]:
    """Of the unit, as setpriv names them."""
    (line,) = re.findall(r"^AmbientCapabilities=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert f"CapabilityBoundingSet={line}\n" in UNIT.read_text()
    return [name[len("CAP_") :].lower() for name in line.split()]


def as_nobody(setpriv: str, capabilities: List[str]) -> List[str]:
    """The prefix that runs a command as the unit would."""
    given = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return [
        *(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
        *(f"--inh-caps={given}", f"--bounding-set={given}", f"--ambient-caps={given}"),
    ]


def names(exporting: Exporting) -> Set[str]:
    return {name for name, _ in exporting.series()}


def test_the_units_capabilities_show_all_but_the_probes_own_time(
    demo: Demo, require: Require
) -> None:
    setpriv = require("setpriv")["setpriv"]
    selector = ["--listener", demo.socket]
    with Exporting(selector) as as_root:
        demo.load()
        everything = names(as_root)
        with Exporting(selector, prefix=as_nobody(setpriv, units_capabilities())) as exporting:
            assert exporting.end().code == 0
    with Exporting(selector, prefix=as_nobody(setpriv, units_capabilities())) as exporting:
        missing = everything - names(exporting)
    assert {name for name in missing if name.startswith("udsprobe_probe_")} == ONLY_WITH_SYS_ADMIN


@pytest.mark.parametrize("left_out", ["bpf", "perfmon", "sys_ptrace", "dac_read_search"])
def test_each_of_them_is_needed(demo: Demo, require: Require, left_out: str) -> None:
    setpriv = require("setpriv")["setpriv"]
    assert set(units_capabilities()) == {"bpf", "perfmon", "sys_ptrace", "dac_read_search"}
    fewer = [name for name in units_capabilities() if name != left_out]
    ended = answer(
        ["export", "--listener", demo.socket, "--bind", "127.0.0.1:0", "--duration", "1"],
        as_nobody(setpriv, fewer),
    )
    assert ended.code == 3
    slug = "not-root" if left_out in ("bpf", "perfmon") else "owner-hidden"
    assert ended.line.startswith(f"udsprobe: error[{slug}]: ")


def test_by_pid_two_are_enough(demo: Demo, require: Require) -> None:
    prefix = as_nobody(require("setpriv")["setpriv"], ["bpf", "perfmon"])
    with Exporting(["--pid", str(demo.pid)], prefix=prefix) as exporting:
        assert "udsprobe_target_open_fds" in names(exporting)
        assert exporting.end().code == 0


def test_no_memory_is_writable_and_executable(demo: Demo) -> None:
    """As MemoryDenyWriteExecute= of the unit has it; Linux 6.3 and later can be asked."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3):
        pytest.skip("prctl(PR_SET_MDWE) is of Linux 6.3")
    prefix = [sys.executable, "-c", PR_SET_MDWE]
    with Exporting(["--pid", str(demo.pid)], prefix=prefix) as exporting:
        assert exporting.text()
        assert exporting.end().code == 0


def allowed(analyze: str, words: List[str]) -> Set[str]:
    """The system calls that words of SystemCallFilter= name."""
    found: Set[str] = set()
    for word in words:
        if not word.startswith("@"):
            found.add(word)
            continue
        said = subprocess.run([analyze, "syscall-filter", word], capture_output=True, text=True)
        listed = [line.strip() for line in said.stdout.splitlines()[1:]]
        found |= allowed(analyze, [each for each in listed if each and each[0] != "#"])
    return found


def test_its_system_calls_pass_the_units_filter(
    demo: Demo, require: Require, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody takes what is pushed: the last attempt is not to last.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    found = require("strace", "systemd-analyze")
    trace = tmp_path / "trace"
    arguments = ["--listener", demo.socket, "--otlp", "grpc://127.0.0.1:9"]
    prefix = [found["strace"], "-f", "-qq", "-o", str(trace)]
    with Exporting(arguments, prefix=prefix) as exporting:
        exporting.wait_for_samples(3)
        demo.truth()  # it has ended, and so do we; strace keeps signals from us
        assert exporting.end(None).code == 0
    made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", trace.read_text(), re.MULTILINE))
    assert {"bpf", "accept4"} <= made
    (line,) = re.findall(r"^SystemCallFilter=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert made - allowed(found["systemd-analyze"], line.split()) == set()
