"""docs/named-code.md: planted culprits, and what is said of each."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, NamedTuple, Optional

from tests.kernel.tool import REPOSITORY

PAGE = REPOSITORY / "docs" / "named-code.md"
NAMED_WITHIN = 8
"""Functions of the first place's stack whose names are known; a verdict lists 13 at most."""

FIRST, OWN = "first", "first of its own"
CALLER, NOT_KNOWN = "among its callers", "not known"
OUTCOMES = (FIRST, OWN, CALLER, NOT_KNOWN)
NAMED = (FIRST, OWN)
"""What people are led to: named first, or as the program's own behind how it waits."""


_MODULE = re.compile(r" \((?:[^() ]| \(deleted\))*\)$")


class Row(NamedTuple):
    """One culprit.

    Attributes:
        planted: the function that the time goes to, by how the program is made.
        said: names of the first place's stack in their order; `…` stands for any number of others.
        outcome: where the planted function is in what is said, of OUTCOMES.
    """

    where: str
    name: str
    planted: str
    said: List[str]
    outcome: str


def rows(page: str) -> List[Row]:
    """Of its tables."""
    found = []
    for line in page.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 6 and cells[-1] in OUTCOMES:
            where, name, _, planted, said, outcome = cells
            found.append(Row(where, name, planted, said.split(" ← "), outcome))
    return found


def assert_told(where: str, places: Mapping[str, Mapping[str, Any]]) -> None:
    """What is said of these culprits is what the page has.

    Args:
        places: the first place of each, as in `verdict.code`.
    """
    by_name = {
        row.name: row for row in rows(PAGE.read_text(encoding="utf-8")) if row.where == where
    }
    for name, place in places.items():
        row, stack = by_name[name], [_function(each) for each in place["stack"]]
        assert _is_in(row.said, stack), (name, stack)
        told = _outcome(row.planted, stack, place["own"])
        # What is left out before it has a name, or half of the time, on some machines only.
        expected = set(NAMED) if row.said[0] == "…" else set()
        assert told in expected | {row.outcome}, (name, stack, place["own"])


def _outcome(planted: str, stack: List[str], own: Optional[str]) -> str:
    known = [each for each in stack if each != NOT_KNOWN][:NAMED_WITHIN]
    if planted not in known:
        return NOT_KNOWN
    if known[0] == planted:
        return FIRST
    return OWN if own is not None and _function(own) == planted else CALLER


def _function(named: str) -> str:
    """Without its module or file."""
    return _MODULE.sub("", named)


def _is_in(said: List[str], stack: List[str]) -> bool:
    """Each of these follows the one before, at once where no `…` is between."""
    if not said:
        return True
    if said[0] == "…":
        return any(_is_in(said[1:], stack[at:]) for at in range(len(stack) + 1))
    return bool(stack) and stack[0] == said[0] and _is_in(said[1:], stack[1:])
