"""Fixtures of the tests that make real system calls."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.conftest import Require, give_up
from tests.kernel import leftovers, measured
from tests.workloads import build

HERE = Path(__file__).resolve().parent
Workload = Callable[[int], Path]


# Before xdist's own hook, which reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """With `-n` the tests of a file run in one process: they share what they have started."""
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Groups that are not kept would run beside themselves: they share ports and processes."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    if any("@" not in item.nodeid for item in session.items if item.path.is_relative_to(HERE)):
        raise pytest.UsageError("this pytest-xdist keeps no groups with this pytest")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this kernel cannot measure, and leave in junit.xml what was measured."""
    name = getattr(item, "originalname", item.name)
    measurement = measured.measurement_of(item.path.stem, name)
    if measurement is None:
        return
    item.user_properties.append(("measurement", measurement))
    reason = measured.absence(measurement)
    if reason:
        pytest.skip(reason)
    unreliable = measured.unreliable(measurement)
    if unreliable:
        item.add_marker(pytest.mark.xfail(strict=False, reason=unreliable))


@pytest.fixture(scope="session")
def strace_installed(require: Require) -> str:
    """The path of strace."""
    return require("strace")["strace"]


@pytest.fixture(scope="session")
def workload() -> Workload:
    """The workload program for a width in bits, compiled when it is stale."""

    def built(bits: int = 64) -> Path:
        try:
            return build.build(bits)
        except build.BuildError as error:
            give_up(f"no workloads of {bits} bits: {error}")
            raise

    return built


@pytest.fixture
def nothing_left_over(require: Require) -> Iterator[None]:
    """Fails the test when BPF programs or links survive it."""
    require("bpftool")
    before = leftovers.loaded()
    yield
    assert not any(leftovers.left_over_since(before))


@pytest.fixture
def as_root() -> None:
    """For tests that load nothing and take root all the same."""
    if os.geteuid() != 0:
        give_up("needs root: sudo scripts/test")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A path that fits into sun_path."""
    made = Path(tempfile.mkdtemp(prefix="udsprobe-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that everybody may search: pytest's own are for their owner alone."""
    made = Path(tempfile.mkdtemp(prefix="udsprobe-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def elsewhere(reachable: Path) -> Path:
    """A directory that anybody may write to."""
    made = reachable / "elsewhere"
    made.mkdir()
    made.chmod(0o777)
    return made
