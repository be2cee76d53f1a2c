"""Rules for all tests: what `root` needs, and when a missing prerequisite is a failure.

On a laptop a test that cannot run is skipped with its reason. With CI=true or
UDSPROBE_KERNEL_TESTS=1 the same is a failure: a run that was meant to load
BPF programs and did not is no success.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Union

import pytest

from udsprobe.kernel.objects.libbpf import LIBRARY, OWN

Require = Callable[..., Dict[str, str]]

_failed: Set[str] = set()

QUICK_STRIDE = 8
WITHOUT_KERNEL = ("unit", "repo")


def prerequisites_must_hold() -> bool:
    """Whether a missing prerequisite fails a test instead of skipping it."""
    return os.environ.get("CI") == "true" or os.environ.get("UDSPROBE_KERNEL_TESTS") == "1"


def missing_for_bpf() -> Optional[str]:
    """The first thing that keeps real BPF programs from being loaded here."""
    if os.geteuid() != 0:
        return "needs root: sudo scripts/test"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    try:
        ctypes.CDLL(str(OWN) if OWN.exists() else LIBRARY)
    except OSError as error:
        return f"libbpf is not installed ({error}): scripts/setup"
    return None


def give_up(reason: str) -> None:
    """Skip the running test, or fail it where prerequisites must hold."""
    if prerequisites_must_hold():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def without_package() -> Set[str]:
    """Programs that set-up found in no package of this release, such as Ubuntu's Chromium."""
    listed = Path(sys.prefix) / "programs-without-package"
    if os.environ.get("CI") == "true" or not listed.is_file():
        return set()
    return set(listed.read_text().split())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"no slow tests, and of those with real probes or servers each {QUICK_STRIDE}th",
    )
    parser.addoption("--failed-to", type=Path, help="write the tests that fail there, a line each")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: Optional[Path] = session.config.getoption("--failed-to")
    if path is not None and not hasattr(session.config, "workerinput"):
        path.write_text("".join(f"{without_group(each)}\n" for each in sorted(_failed)))


def without_group(test: str) -> str:
    """A test's id as it is without `-n`: some versions of xdist leave loadgroup's `@group`."""
    return re.sub(r"(\]|::\w+)@[^\]]*$", r"\1", test)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    quick = quick_ones(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in quick])
    items[:] = [item for item in items if item in quick]


def quick_ones(items: List[pytest.Item]) -> Set[pytest.Item]:
    """Some of each file with real probes or servers, all of the others."""
    files: Dict[Path, List[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("slow"):
            files.setdefault(item.path, []).append(item)
    return {
        item
        for path, each in files.items()
        for item in (each if path.parent.name in WITHOUT_KERNEL else each[::QUICK_STRIDE])
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root"):
        missing = missing_for_bpf()
        if missing:
            give_up(missing)


@pytest.fixture(scope="session")
def require() -> Require:
    """`require("nginx", "wrk")` → their paths; a missing one follows the rule above."""

    def paths_of(*programs: str) -> Dict[str, str]:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        found: Dict[str, Union[str, None]] = {p: shutil.which(p, path=path) for p in programs}
        missing = [program for program, where in found.items() if where is None]
        if missing and without_package().issuperset(missing):
            pytest.skip(f"this release has no package with {', '.join(missing)}")
        if missing:
            give_up(f"{', '.join(missing)} not installed: scripts/setup --for-tests")
        return {program: where for program, where in found.items() if where}

    return paths_of


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parent.parent
