"""Completion in a real bash, with the one line that README.md gives."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.conftest import Require
from tests.repo.source_tree import ROOT

COMPLETE = """
eval "$(_UDSPROBE_COMPLETE=bash_source udsprobe)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_udsprobe_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["udsprobe", "att"], ["attach"]),
        (["udsprobe", "li"], ["listeners"]),
        (["udsprobe", "attach", "--inter"], ["--interval"]),
    ],
)
def test_bash_completes(
    words: List[str], completed: List[str], tmp_path: Path, require: Require
) -> None:
    program = tmp_path / "udsprobe"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from udsprobe.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    bash = require("bash")["bash"]
    assert shutil.which("udsprobe", path=str(tmp_path)) == str(program)
    done = subprocess.run(
        [bash, "-c", COMPLETE, "bash", *words],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.split(), done.stderr) == (completed, "")


def test_readme_gives_this_line() -> None:
    line = COMPLETE.split("\n")[1]
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")
