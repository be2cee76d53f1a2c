"""The shell scripts: they parse, and they refuse what they cannot do with one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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


def as_stranger(command: List[str]) -> subprocess.CompletedProcess[str]:
    """Run it as somebody who owns nothing; as ourselves where we are not root."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    prefix = nobody if os.geteuid() == 0 else []
    return subprocess.run([*prefix, *command], capture_output=True, text=True)


@pytest.mark.parametrize("stale", ["nothing", "bpf/one.bpf.c", "pyproject.toml"])
def test_who_may_not_write_runs_it_or_gets_one_line(stale: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        checkout = Path(folder) / "checkout"
        for name in ("scripts", "bpf", ".venv/bin"):
            (checkout / name).mkdir(parents=True)
        for name in ("udsprobe", "environment.sh", "setup"):
            shutil.copy(ROOT / "scripts" / name, checkout / "scripts")
        for name in ("bpf/one.bpf.c", "pyproject.toml", "scripts/build_bpf.py"):
            (checkout / name).touch()
        for name, target in (("python", "/bin/true"), ("udsprobe", "/bin/echo")):
            (checkout / ".venv/bin" / name).symlink_to(target)
        stamp = checkout / ".venv/udsprobe-setup"
        stamp.write_text(f"{checkout}\nrun\n")
        later = stamp.stat().st_mtime + 10
        if stale != "nothing":
            os.utime(checkout / stale, (later, later))
        for place in (checkout, checkout / ".venv"):
            place.chmod(0o555)
        before = sorted(path.stat().st_mtime_ns for path in checkout.rglob("*"))
        done = as_stranger([str(checkout / "scripts/udsprobe"), "listeners"])
        assert sorted(path.stat().st_mtime_ns for path in checkout.rglob("*")) == before
        for place in (checkout, checkout / ".venv"):
            place.chmod(0o755)
    if stale == "pyproject.toml":
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("udsprobe: error[setup]: ") and done.stderr.count("\n") == 1
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "listeners\n", "")


def test_the_kernel_matrix_is_one_of_them() -> None:
    assert "kernel-matrix" in {path.name for path in shell_scripts()}
