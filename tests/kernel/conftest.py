"""Fixtures of the tests that make real system calls."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.conftest import Require, give_up
from tests.kernel import leftovers
from tests.workloads import build

Workload = Callable[[int], Path]


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
