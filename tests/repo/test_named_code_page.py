"""docs/named-code.md: enough culprits, and none that no test plants."""

from __future__ import annotations

from tests.kernel.named_code import NAMED, NOT_KNOWN, rows
from tests.repo.source_tree import ROOT

PLANTED_MIN, KNOWN_MIN = 30, 0.9
UNKNOWN_BY_NATURE = "## Where it has none"


def test_of_culprits_that_have_a_name_nine_in_ten_are_named() -> None:
    named, nameless = (rows(part) for part in page().split(UNKNOWN_BY_NATURE))
    assert len(named) >= PLANTED_MIN
    assert sum(row.outcome in NAMED for row in named) >= KNOWN_MIN * len(named)
    assert NOT_KNOWN not in {row.outcome for row in named}
    assert {row.outcome for row in nameless} == {NOT_KNOWN}


def test_each_is_planted_by_a_test() -> None:
    tests = "".join(each.read_text() for each in (ROOT / "tests" / "kernel").glob("test_code*.py"))
    for row in rows(page()):
        assert f'"{row.name}"' in tests, row


def page() -> str:
    return (ROOT / "docs" / "named-code.md").read_text(encoding="utf-8")
