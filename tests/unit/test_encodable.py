"""What a stream cannot encode is written by stand-ins; nothing is lost."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest

import udsprobe
from tests.unit.reports import busy
from udsprobe.encodable import in_ascii, never_lose
from udsprobe.views.text.report_text import render

PACKAGE = Path(udsprobe.__file__).parent


def test_every_character_that_our_sources_print_has_a_stand_in() -> None:
    """But for letters' escapes, which are for names of strangers."""
    written = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    ours = {one for one in written if ord(one) > 127}
    assert "µ" in ours and "█" in ours
    assert {one: in_ascii(one) for one in ours if "\\" in in_ascii(one)} == {}


def test_what_stands_in_a_table_keeps_its_width() -> None:
    for one in "µ–−…·×─│└▕▏▎▍▌▋▊▉█╎▁▂▃▄▅▆▇░▒▓▪▲▶▸○●→←":
        assert len(in_ascii(one)) == 1, one


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "koi8-r", "utf-8"])
def test_a_whole_report_is_written(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    never_lose(stream)
    text = render(busy())
    stream.write(text)
    stream.flush()
    written = raw.getvalue().decode(encoding)
    assert written == text if encoding == "utf-8" else len(written) >= len(text)
    assert re.findall(r"[A-Za-z0-9]+", in_ascii(written)) == re.findall(
        r"[A-Za-z0-9]+", in_ascii(text)
    )


def test_a_name_is_shown_by_its_escapes_and_bytes_stay_bytes() -> None:
    assert in_ascii("/run/straße-\udcff") == "/run/stra\\xdfe-\\xff"
    assert in_ascii("日本") == "\\u65e5\\u672c"


def test_a_handler_that_the_user_chose_stays() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    never_lose(stream)
    assert stream.errors == "replace"


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}], ids=str
)
def test_a_command_ends_well(environment: Dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "udsprobe", "listeners"],
        env={**os.environ, **environment},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.strip()


def test_an_error_is_one_line_there_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "udsprobe", "attach", "--pid", "x…y"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"x~y` is not a process ID" in done.stderr and done.stderr.count(b"\n") == 1
