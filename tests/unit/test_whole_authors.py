"""Authors of the waits of one request: named only where no other can have ended them."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional

import pytest

from tests.unit.kept import kept, story
from udsprobe.model.report import Author, Wait, WholeAuthor, WholeRequest
from udsprobe.model.requests.whole_authors import with_authors
from udsprobe.model.requests.whole_requests import whole_request
from udsprobe.views.fields.sequence import woken_by

# Of the request in `story`: its thread slept for a lock.
PID, TID, WAITED_US = 4711, 4712, 29_800.0
BEGAN_S, LATER_S = 0.0, 4e9


def request() -> WholeRequest:
    found = whole_request(kept(1, text=story()))
    assert (found.pid, found.tid, found.waits[0].total_us) == (PID, TID, WAITED_US)
    return found


def part(tid: int, total_us: float, by: str = "thread", was: str = "cpu") -> Author:
    return Author(by, PID, tid, "worker", True, was, None, total_us)


def wait(*authors: Author, kind: str = "lock", unknown_us: float = 0.0) -> Wait:
    whole_us = unknown_us + sum(each.total_us for each in authors)
    return Wait(PID, TID, "node", kind, 3, whole_us, 1.0, list(authors), unknown_us, [])


def author(*rows: Wait, began_s: float = BEGAN_S) -> Optional[WholeAuthor]:
    (found,) = with_authors([request()], rows, began_s)
    return found.waits[0].author


def test_the_only_one_that_ended_waits_of_its_thread() -> None:
    halves = part(1, WAITED_US / 2), part(1, WAITED_US / 2, was="disk")
    assert author(wait(*halves)) == WholeAuthor("thread", PID, 1, "worker", WAITED_US)


def test_what_others_ended_can_have_been_in_this_request() -> None:
    rows = wait(part(1, WAITED_US), part(2, 800.0), unknown_us=1_000.0)
    assert author(rows) == WholeAuthor("thread", PID, 1, "worker", WAITED_US - 1_800.0)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        # Two that may have; nobody knows; a timer; another kind; two kinds of one sleep.
        [wait(part(1, WAITED_US), part(2, WAITED_US))],
        [wait(part(1, WAITED_US), unknown_us=WAITED_US)],
        [wait(part(1, WAITED_US, by="timer"))],
        [wait(part(1, WAITED_US), kind="poll")],
        [wait(part(1, WAITED_US)), wait(part(2, WAITED_US), kind="file_lock")],
    ],
)
def test_otherwise_nobody_is_named(rows: List[Wait]) -> None:
    assert author(*rows) is None


def test_other_threads_tell_nothing() -> None:
    assert author(replace(wait(part(1, WAITED_US)), tid=TID + 1)) is None


def test_what_arrived_before_the_window_may_have_waited_before_it() -> None:
    assert author(wait(part(1, WAITED_US)), began_s=LATER_S) is None


def test_it_is_told_beside_the_drawing() -> None:
    (found,) = with_authors([request()], [wait(part(1, WAITED_US))], BEGAN_S)
    assert woken_by(found) == [
        "it waited 29.8 ms for a lock or work: woken by worker 4711/1",
    ]
    assert woken_by(request()) == []
