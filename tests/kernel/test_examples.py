"""Every example runs in its quick form, says that nothing is wrong, and leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = sorted((ROOT / "examples").glob("*/run"))
PATIENCE_S = 600

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.timeout(PATIENCE_S + 120),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where servers that are not root may go too, and with a short path, for sockets."""
    made = Path(tempfile.mkdtemp(prefix="examples-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def processes_of(folder: Path) -> List[str]:
    """Living processes whose command lines name something in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append(f"{process.name} {words!r}")
    return found


def test_there_are_examples() -> None:
    assert [run.parent.name for run in RUNS if not os.access(run, os.X_OK)] == []
    assert "nginx-node" in [run.parent.name for run in RUNS]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.parent.name)
def test_the_quick_form(run: Path, nothing_left_over: None, folder: Path) -> None:
    environment = {"TMPDIR": str(folder), "UDSPROBE_PYTHON": sys.executable}
    done = subprocess.run(
        [str(run), "--quick"],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "|---" in done.stdout, done.stdout
    assert [path.name for path in folder.iterdir()] == []
    assert processes_of(folder) == []
