"""Names of strangers in a shell's line stand for the bytes they were made of, and nothing else."""

from __future__ import annotations

import subprocess
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udsprobe.printable import printable
from udsprobe.rules import shell


def meant(names: List[str]) -> List[bytes]:
    """What bash takes these words for."""
    line = "printf '%s\\0' " + " ".join(map(shell.word, names))
    assert "\n" not in line and line.isprintable()
    return subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.split(
        b"\0"
    )[:-1]


@pytest.mark.parametrize(
    "raw",
    [
        b"/run/app.sock",
        b"/run/a b;$(id)`id`.sock",
        b"/run/'\n\x1b[31m\"\\.sock",
        b"/\xff\x80x",
        b"",
    ],
)
def test_a_word_is_the_name(raw: bytes) -> None:
    assert meant([printable(raw)]) == [raw]


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\0", b"")), max_size=40))
@settings(max_examples=25, deadline=None)
def test_any_bytes(raws: List[bytes]) -> None:
    raws = [*raws, "/run/\u202ea\u0301\u0301 €".encode()]
    assert meant([printable(raw) for raw in raws]) == raws
