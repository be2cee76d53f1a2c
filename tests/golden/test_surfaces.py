"""Recordings of earlier versions, as every surface shows them today: equal to what was kept.

After a change of words or of a figure that is meant:
`.venv/bin/python -m tests.golden.write`, and read the difference before it is committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import surfaces
from udsprobe.rules.causes import CAUSES


@pytest.mark.parametrize("name", surfaces.names())
def test_a_recording_reads_as_it_did(name: str, tmp_path: Path) -> None:
    shown = surfaces.of_recording(surfaces.unpacked(name, tmp_path))
    expected = surfaces.kept(name)
    assert shown.keys() == expected.keys()
    for surface, text in shown.items():
        assert text.splitlines() == expected[surface].splitlines(), f"{name}/{surface}"


@pytest.mark.parametrize(("first", "second"), surfaces.PAIRS)
def test_two_compare_as_they_did(first: str, second: str, tmp_path: Path) -> None:
    pair = [surfaces.unpacked(name, tmp_path) for name in (first, second)]
    shown = surfaces.of_pair(pair[0], pair[1])
    for surface, text in shown.items():
        expected = surfaces.kept(surfaces.pair_name(first, second))[surface]
        assert text.splitlines() == expected.splitlines(), surface


def test_there_is_a_recording_of_each_cause() -> None:
    assert {name.split(".")[0] for name in surfaces.names()} == set(CAUSES)
