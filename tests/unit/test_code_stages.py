"""What ran in which stage of requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional, Tuple

import pytest

from tests.unit import reports
from tests.unit.test_code_places import APP, LIBC, line, reading, reports_sample
from tests.unit.test_report_page import line as told_over_time
from tests.unit.test_report_page import text_of
from udsprobe.model.code.stacks import stacks
from udsprobe.model.code.stages import with_stages
from udsprobe.model.report import Stacks
from udsprobe.sample import StackCounts
from udsprobe.views.fields import words
from udsprobe.views.html.report_page import render as render_page
from udsprobe.views.text.report_text import render

KERNEL = "[kernel]"
READS = ("main", APP), ("take", APP), ("read", LIBC), ("sock_read_iter", KERNEL)
SENDS = (
    ("main", APP),
    ("give", APP),
    ("writev", LIBC),
    ("__sock_sendmsg", KERNEL),
    ("memcpy", KERNEL),
)
WRITES = ("main", APP), ("save", APP), ("write", LIBC), ("vfs_write", KERNEL)


def ran(*frames: Tuple[str, str], samples: int, owing: Optional[int]) -> StackCounts:
    text = "\n".join(line(*frame) for frame in frames)
    return StackCounts(1, "cpu", text, samples, 0, owing_samples=owing)


def found(
    *counts: StackCounts, before: Tuple[StackCounts, ...] = (), sees_owing: bool = True
) -> Stacks:
    first, last = (
        replace(
            reports_sample(),
            stacks=replace(reading(*each), on_ns=on_ns, sees_owing=sees_owing),
        )
        for on_ns, each in ((0, before), (10**9, counts))
    )
    made = with_stages(stacks(first, last), first, last)
    assert made is not None
    return made


def samples(of: Stacks) -> Dict[str, int]:
    return {each.stage: each.samples for each in of.stages or ()}


def test_what_moves_bytes_is_told_by_the_kernel_s_functions_and_the_rest_by_who_owes() -> None:
    told = found(
        ran(*READS, samples=3, owing=0),
        ran(*SENDS, samples=5, owing=5),
        ran(*WRITES, samples=7, owing=7),
        ran(("main", APP), ("serve", APP), samples=20, owing=15),
    )
    assert samples(told) == {"receiving": 3, "processing": 22, "sending": 5, "none": 5}
    assert told.stages is not None
    assert told.stages[1].code[0].stack == ["serve (app)", "main (app)"]
    assert [each[0] for each in words.stages(told)] == list(words.STAGES.values())
    assert sum(part for _, part, _ in words.stages(told)) == pytest.approx(1.0)


def test_of_the_window_only_what_was_added() -> None:
    serve = ("main", APP), ("serve", APP)
    before = (ran(*serve, samples=10, owing=4),)
    assert samples(found(ran(*serve, samples=30, owing=20), before=before)) == {
        "processing": 16,
        "none": 4,
    }


@pytest.mark.parametrize(
    ("counts", "sees_owing"),
    [
        (ran(*READS, samples=3, owing=0), False),
        (ran(*READS, samples=3, owing=None), True),
        (ran(("main", APP), ("", KERNEL), samples=3, owing=3), True),
    ],
)
def test_what_is_not_known_is_not_told(counts: StackCounts, sees_owing: bool) -> None:
    told = found(counts, sees_owing=sees_owing)
    assert told.stages is None and words.stages(told) == []


def test_text_and_page_say_what_runs_while_requests_are_processed() -> None:
    serve = ran(("main", APP), ("serve", APP), samples=20, owing=15)
    report = replace(reports.measured(), stacks=found(serve))
    says = " ".join(render(report, 100).split())
    assert "75.0 % processed: serve (app) ← main (app)" in says
    assert "25.0 % none to be answered: serve (app) ← main (app)" in says
    page = text_of(render_page(report, told_over_time()))
    assert "processed75.0serve (app) ← main (app)" in page
