"""Recordings of earlier versions, written by this one: the same samples, in no more bytes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.golden import surfaces
from udsprobe.recording import Recorder, open_recording


def bytes_of_blocks(path: Path) -> int:
    with closing(sqlite3.connect(path)) as store:
        (found,) = store.execute("SELECT sum(length(body)) FROM block").fetchone()
    return int(found)


@pytest.mark.parametrize("name", surfaces.names())
def test_a_kept_recording_that_is_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    former, again = surfaces.unpacked(name, tmp_path), tmp_path / "again"
    with open_recording(str(former)) as recording:
        observation, taken = recording.observation, list(recording.samples())
    with Recorder(str(again)) as recorder:
        recorder.begin(observation, taken[0])
        for sample in taken[1:]:
            recorder.add(sample, None)
        assert recorder.failure is None
    with open_recording(str(again)) as recording:
        assert recording.observation == observation
        assert list(recording.samples()) == taken
    assert bytes_of_blocks(again) <= bytes_of_blocks(former)
