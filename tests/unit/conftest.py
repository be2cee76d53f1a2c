"""Fixtures that several of the unit tests take."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import Require, give_up
from tests.elf import section
from udsprobe.kernel.objects.btf import Btf

# A busy machine is slow and not wrong.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")


@pytest.fixture(scope="session")
def chromium(require: Require) -> str:
    """The path of Chromium."""
    return require("chromium")["chromium"]


@pytest.fixture
def built_btf(repository: Path) -> Btf:
    """The layouts of a built object."""
    path = repository / "udsprobe" / "_bpf" / "tracepoint.x86_64.bpf.o"
    if not path.exists():
        give_up(f"{path.name} is not built: scripts/build_bpf.py")
    return Btf(section(path.read_bytes(), ".BTF").content)
