"""The build of the BPF objects: current ones need no compiler, a missing one is named."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import Require
from tests.repo.source_tree import ROOT

PROGRAM = "int nothing(void) { return 0; }\n"


def load_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_bpf", ROOT / "scripts" / "build_bpf.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_bpf = load_build()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "bpf").mkdir()
    (tmp_path / "udsprobe").mkdir()
    (tmp_path / "bpf" / "one.bpf.c").write_text(PROGRAM)
    (tmp_path / "bpf" / "one.h").write_text("")
    return tmp_path


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CLANG", raising=False)


def test_one_object_per_architecture(tree: Path, require: Require) -> None:
    require("clang")
    built = build_bpf.build(tree)
    assert [path.name for path in built] == ["one.x86_64.bpf.o", "one.aarch64.bpf.o"]
    for path in built:
        assert path.read_bytes()[:4] == b"\x7fELF"
        assert str(tree).encode() not in path.read_bytes()


def test_current_objects_need_no_compiler(
    tree: Path, require: Require, request: pytest.FixtureRequest
) -> None:
    require("clang")
    built = build_bpf.build(tree)
    before = [path.stat().st_mtime_ns for path in built]
    request.getfixturevalue("without_tools")
    assert [path.stat().st_mtime_ns for path in build_bpf.build(tree)] == before


@pytest.mark.parametrize("changed", ["one.bpf.c", "one.h"])
def test_a_changed_source_is_compiled_again(
    tree: Path, require: Require, request: pytest.FixtureRequest, changed: str
) -> None:
    require("clang")
    build_bpf.build(tree)
    (tree / "bpf" / changed).write_text(PROGRAM + "\n")
    request.getfixturevalue("without_tools")
    with pytest.raises(build_bpf.BuildError, match="clang 13 or later is not installed"):
        build_bpf.build(tree)


def test_a_missing_object_is_compiled_again(tree: Path, require: Require) -> None:
    require("clang")
    _, second = build_bpf.build(tree)
    second.unlink()
    build_bpf.build(tree)
    assert second.is_file()


def test_objects_of_removed_programs_go(tree: Path, require: Require) -> None:
    require("clang")
    (tree / "bpf" / "two.bpf.c").write_text(PROGRAM)
    assert len(build_bpf.build(tree)) == 4
    (tree / "bpf" / "two.bpf.c").unlink()
    assert len(build_bpf.build(tree)) == 2
    objects = sorted(path.name for path in (tree / "udsprobe" / "_bpf").glob("*.o"))
    assert objects == ["one.aarch64.bpf.o", "one.x86_64.bpf.o"]


@pytest.mark.usefixtures("without_tools")
def test_a_missing_compiler_names_the_packages(tree: Path) -> None:
    with pytest.raises(build_bpf.BuildError) as caught:
        build_bpf.build(tree)
    line = str(caught.value)
    assert "\n" not in line
    for package in ("apt install clang libbpf-dev", "libbpf-devel", "apk add clang"):
        assert package in line


def test_a_wrong_program_fails_with_the_compilers_words(tree: Path, require: Require) -> None:
    require("clang")
    (tree / "bpf" / "one.bpf.c").write_text("int broken(\n")
    with pytest.raises(build_bpf.BuildError, match=r"one\.bpf\.c does not compile") as caught:
        build_bpf.build(tree)
    assert "error:" in caught.value.detail
    assert not (tree / "udsprobe" / "_bpf" / "sources.crc32").exists()


def test_a_tree_without_programs_is_refused(tree: Path) -> None:
    shutil.rmtree(tree / "bpf")
    with pytest.raises(build_bpf.BuildError, match="complete checkout"):
        build_bpf.build(tree)
