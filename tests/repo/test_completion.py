"""Completion in a real bash, with the one line that README.md gives."""

from __future__ import annotations

import os
import shutil
import socket
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
    assert completions(words, tmp_path, require) == completed


def completions(words: List[str], tmp_path: Path, require: Require) -> List[str]:
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
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_who_and_what_there_is(tmp_path: Path, require: Require) -> None:
    hostile = b"\0udsprobe-completion$(id)"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(str(tmp_path / "app.sock"))
        other.bind(hostile)
        one.listen()
        other.listen()
        path = ["udsprobe", "attach", "--listener", str(tmp_path / "a")]
        assert completions(path, tmp_path, require) == [str(tmp_path / "app.sock")]
        every = completions(["udsprobe", "attach", "--listener", ""], tmp_path, require)
    assert str(tmp_path / "app.sock") in every and not any("$(id)" in one for one in every)
    own = str(os.getpid())
    for command in ("attach", "listeners", "doctor"):
        assert own in completions(["udsprobe", command, "--pid", own], tmp_path, require)
    comm = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    found = completions(["udsprobe", "record", "--comm", comm[:3]], tmp_path, require)
    assert comm in found


def test_bash_completes_ports_and_addresses(tmp_path: Path, require: Require) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        ask = ["udsprobe", "attach", "--listener"]
        assert port in completions([*ask, port[:2]], tmp_path, require)
        assert f"127.0.0.1:{port}" in completions([*ask, "127.0."], tmp_path, require)


def test_readme_gives_this_line() -> None:
    line = COMPLETE.split("\n")[1]
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")
