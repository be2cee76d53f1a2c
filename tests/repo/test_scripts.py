"""The shell scripts: they parse, and they refuse what they cannot do with one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

from tests.repo.source_tree import ROOT


def shell_scripts() -> List[Path]:
    """Every file of scripts/ and .ci/ that bash reads."""
    files = [path for folder in ("scripts", ".ci") for path in (ROOT / folder).iterdir()]
    return sorted(path for path in files if path.is_file() and is_shell(path))


def is_shell(path: Path) -> bool:
    return path.suffix == ".sh" or path.read_bytes().startswith(b"#!/usr/bin/env bash\n")


@pytest.mark.parametrize("script", shell_scripts(), ids=lambda path: path.name)
def test_script_parses(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_scripts_are_checked() -> None:
    names = {path.name for path in shell_scripts()}
    assert names >= {"setup", "udsprobe", "demo", "test", "run", "environment.sh"}


def test_setup_refuses_an_unknown_option() -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "setup"), "--nonsense"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("udsprobe: error[setup]: unknown option --nonsense;")


def test_an_environment_is_current_until_a_source_is_newer(tmp_path: Path) -> None:
    checkout = tmp_path / "check out"
    for folder in ("scripts", "bpf", ".venv/bin"):
        (checkout / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "environment.sh", checkout / "scripts")
    program = checkout / "bpf" / "one.bpf.c"
    program.touch()
    (checkout / ".venv/bin/python").symlink_to("/bin/true")

    def is_current(scope: str) -> bool:
        script = f'. "{checkout}/scripts/environment.sh"; environment_is_current {scope}'
        return subprocess.run(["bash", "-c", script]).returncode == 0

    assert not is_current("run")
    stamp = checkout / ".venv/udsprobe-setup"
    stamp.write_text(f"{checkout.resolve()}\nrun\n")
    later = stamp.stat().st_mtime + 10
    assert is_current("run")
    assert not is_current("tests")
    stamp.write_text(f"{checkout.resolve()}\ntests\n")
    assert is_current("run")
    assert is_current("tests")
    os.utime(program, (later, later))
    assert not is_current("run")
    stamp.write_text("/elsewhere\nrun\n")
    os.utime(program, (0, 0))
    assert not is_current("run")


def test_the_kernel_matrix_is_one_of_them() -> None:
    assert "kernel-matrix" in {path.name for path in shell_scripts()}
