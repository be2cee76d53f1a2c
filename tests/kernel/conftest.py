"""Fixtures of the tests that make real system calls."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Callable

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workloads"))

import build  # noqa: E402


def lacking(what: str) -> None:
    """Skip on a laptop that lacks `what`; fail where the tests are required."""
    if os.environ.get("UDSPROBE_KERNEL_TESTS") == "1":
        pytest.fail(f"{what} (UDSPROBE_KERNEL_TESTS=1 forbids skipping)")
    pytest.skip(what)


def need_command(*names: str) -> None:
    """Skip or fail unless all these programs are installed."""
    for name in names:
        if not shutil.which(name):
            lacking(f"{name} is not installed")


@pytest.fixture(scope="session")
def workload() -> Callable[[int], Path]:
    """The workload program for a width in bits."""

    def built(bits: int = 64) -> Path:
        try:
            return build.build(bits)
        except build.BuildError as error:
            lacking(f"workloads for {bits} bits do not build: {error}")
            raise AssertionError("unreachable") from error

    return built
