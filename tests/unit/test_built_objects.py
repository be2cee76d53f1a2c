"""Built objects: of the sources that a checkout has now, and small enough for old kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.bpf_stack import deepest_chain, deepest_walk
from tests.repo.source_tree import ROOT
from udsprobe.kernel.abilities.built_objects import is_stale

OBJECTS = sorted((ROOT / "udsprobe" / "_bpf").glob("*.bpf.o"))
STACK_BYTES = 512  # MAX_BPF_STACK, of all functions that call each other together


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the answer rests on, copied."""
    shutil.copytree(ROOT / "bpf", tmp_path / "bpf")
    for name in ("scripts/build_bpf.py", "udsprobe/_bpf/sources.crc32"):
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


@pytest.mark.parametrize("built", OBJECTS, ids=lambda path: path.name)
def test_no_chain_of_calls_takes_more_stack_than_there_is(built: Path) -> None:
    """The newest kernels allow more: only older ones refuse to load what does not fit."""
    stack_bytes, functions = deepest_chain(built.read_bytes())
    assert stack_bytes <= STACK_BYTES, functions


@pytest.mark.parametrize("built", OBJECTS, ids=lambda path: path.name)
def test_a_walk_takes_no_more_stack_than_there_is(built: Path) -> None:
    """Early kernels and the object of stacks have none."""
    stack_bytes, functions = deepest_walk(built.read_bytes())
    assert stack_bytes <= STACK_BYTES, functions
    assert bool(functions) == built.name.startswith(("tracepoint.", "fentry."))


def test_there_are_objects_to_look_at() -> None:
    assert len(OBJECTS) == 8
