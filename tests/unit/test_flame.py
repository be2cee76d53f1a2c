"""The flame graph: boxes as wide as their samples, and names that stay names."""

from __future__ import annotations

import pytest

from tests.unit.chromium import HOSTILE
from udsprobe.model.report import CodeStack
from udsprobe.views.fields.call_tree import WIDTH, Box, boxes
from udsprobe.views.html.flame import flame


def stack(samples: int, *frames: str) -> CodeStack:
    return CodeStack(pid=1, on="cpu", samples=samples, truncated=False, frames=list(frames))


STACKS = [stack(60, "main", "serve", "hash"), stack(30, "main", "serve"), stack(10, "idle")]


def test_a_box_is_as_wide_as_its_samples_and_below_its_caller() -> None:
    assert boxes(STACKS) == [
        Box("main", 0, 0.0, 900.0, 90),
        Box("serve", 1, 0.0, 900.0, 90),
        Box("hash", 2, 0.0, 600.0, 60),
        Box("idle", 0, 900.0, 100.0, 10),
    ]


def test_what_is_too_narrow_to_be_seen_keeps_its_room() -> None:
    found = boxes([stack(9_990, "a"), stack(6, "b"), stack(4, "c")])
    assert [box.name for box in found] == ["a"] and found[0].width == pytest.approx(0.999 * WIDTH)


def test_no_samples_no_drawing() -> None:
    assert flame([]) == "" and boxes([stack(0, "main")]) == []


def test_every_box_says_its_share() -> None:
    drawn = flame(STACKS)
    assert "<title>hash: 60.0 %, 60 samples</title>" in drawn
    assert drawn.count("<rect") == drawn.count("<title>") == 4


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(name: str) -> None:
    drawn = flame([stack(5, name)])
    assert "<script" not in drawn and "<img" not in drawn and "\x1b" not in drawn
