"""What grew: functions' parts of the samples of two sides, and between which bounds."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any, Dict, Optional

import pytest

from tests.unit import reports
from udsprobe.compare import compare, run_of
from udsprobe.compare.comparison import CodeShare, Comparison
from udsprobe.compare.tally import NotAReport
from udsprobe.model.report import CodePlace, Stacks
from udsprobe.views.documents.report_document import document
from udsprobe.views.html import compare_page
from udsprobe.views.text import compare_text


def report(**samples: int) -> Dict[str, Any]:
    """A document in which functions were met so often."""
    whole = sum(samples.values())
    places = [
        CodePlace(name, "app", None, None, 100 * count / whole, "cpu", [f"{name} (app)"])
        for name, count in samples.items()
    ]
    found = Stacks(99, 4.0, whole, 0, 0, [1], [], True, [], places, [], 0)
    made: Dict[str, Any] = json.loads(
        json.dumps(document(replace(reports.measured(), stacks=found if whole else None)))
    )
    return made


def compared(a: Dict[str, int], b: Dict[str, int]) -> Comparison:
    return compare([run_of("a", [report(**a)])], [run_of("b", [report(**b)])])


def share_of(comparison: Comparison, name: str) -> CodeShare:
    return next(each for each in comparison.code if each.function == f"{name} (app)")


def test_what_grew_comes_first_with_its_bounds() -> None:
    found = compared({"hash": 100, "parse": 300}, {"hash": 300, "parse": 90, "rest": 10})
    assert [each.function for each in found.code] == ["parse (app)", "hash (app)", "rest (app)"]
    hash_ = share_of(found, "hash")
    assert (hash_.a_pct, hash_.b_pct, hash_.delta_pct) == (25.0, 75.0, 50.0)
    assert hash_.low_pct < 50 < hash_.high_pct and hash_.exceeds_noise
    text = compare_text.render(found)
    assert " 25.0 % →  75.0 %" in text and "hash (app)" in text
    assert "hash (app)" in compare_page.render(found)


def test_chance_is_no_change() -> None:
    found = compared({"hash": 20, "parse": 80}, {"hash": 24, "parse": 76})
    assert not any(each.exceeds_noise for each in found.code)
    assert "no function's part differs beyond chance" in compare_text.render(found)


@pytest.mark.parametrize("part", [0.02, 0.3])
def test_the_bounds_hold_what_is_true(part: float) -> None:
    """Of samples drawn from one distribution, 99 in 100 pairs at least cover no difference."""
    drawn = random.Random(7)

    def sample() -> Dict[str, int]:
        hits = sum(drawn.random() < part for _ in range(300))
        return {"hash": hits, "parse": 300 - hits}

    pairs = [share_of(compared(sample(), sample()), "parse") for _ in range(150)]
    assert sum(each.exceeds_noise for each in pairs) <= 5


@pytest.mark.parametrize("b", [{}, {"hash": 5}])
def test_without_samples_of_both_nothing_is_said(b: Dict[str, int]) -> None:
    assert compared({"hash": 100}, b).code == []


@pytest.mark.parametrize("stack", [None, [], [5]])
def test_a_place_without_its_function_is_no_report(stack: Optional[object]) -> None:
    made = report(hash=100)
    made["stacks"]["functions"][0]["stack"] = stack
    with pytest.raises(NotAReport):
        run_of("a", [made])
