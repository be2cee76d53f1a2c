"""Objects of other sources than a checkout has now are not loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.repo.source_tree import ROOT
from udsprobe.kernel.built_objects import is_stale


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the answer rests on, copied."""
    shutil.copytree(ROOT / "bpf", tmp_path / "bpf")
    for name in ("scripts/build_bpf.py", "udsprobe/_bpf/sources.sha256"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_objects_just_built_are_current(checkout: Path) -> None:
    """By the digest of scripts/build_bpf.py, which built them."""
    assert not is_stale(checkout)


@pytest.mark.parametrize("changed", ["bpf/udsprobe.h", "scripts/build_bpf.py"])
def test_a_changed_source_makes_them_stale(checkout: Path, changed: str) -> None:
    with (checkout / changed).open("a") as file:
        file.write("\n")
    assert is_stale(checkout)


def test_an_installed_package_has_no_sources_to_ask(checkout: Path) -> None:
    shutil.rmtree(checkout / "bpf")
    (checkout / "scripts/build_bpf.py").unlink()
    assert not is_stale(checkout)
