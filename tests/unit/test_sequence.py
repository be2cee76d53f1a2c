"""One request drawn: rows to scale, in as many lines as asked for, and no hostile bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from tests.unit import reports
from tests.unit.feeds import frame
from tests.unit.kept import call, kept, story
from udsprobe.model.report import Report, WholeRequest
from udsprobe.model.requests.whole_requests import whole_request
from udsprobe.views.dashboard import tables
from udsprobe.views.dashboard.pages import opened as pages
from udsprobe.views.dashboard.pages.slow import slow_key
from udsprobe.views.dashboard.state import ViewState
from udsprobe.views.fields import sequence
from udsprobe.views.html import sequence_plot
from udsprobe.views.text.report_text import render


def row(**changes: Any) -> WholeRequest:
    return whole_request(kept(1, text=story(**changes)))


def with_slow(*slow: WholeRequest) -> Report:
    report = reports.busy()
    return replace(report, requests=replace(report.requests, slowest=list(slow), sampled=[]))


def many(count: int) -> WholeRequest:
    calls = [call("getppid", 60 + at, 1) for at in range(count)]
    return row(tid=4713, calls=[*calls, call("fsync", 1_000, 25_000, waits="disk", asleep=True)])


def test_rows_are_in_order_and_to_scale() -> None:
    lines = sequence.drawn(row(), 78)
    assert [cell_len(line) for line in lines] == [78] * 4
    lock = next(line for line in lines if line.startswith("futex (lock)"))
    assert lock.count("░") >= 35 and lock.endswith("29.8ms")
    assert [line.split()[0] for line in lines] == ["epoll_wait", "recvfrom", "futex", "sendto"]


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_short_neighbours_share_a_row_where_there_are_too_many(most: int) -> None:
    rows = sequence.steps(many(50), most)
    assert len(rows) == most
    assert sum(len(step.calls) for step in rows) == 51
    if most > 1:
        assert [step.calls for step in rows if "fsync" in step.calls] == [("fsync",)]


def test_without_calls_the_stages_are_drawn() -> None:
    found = row(calls=None, not_kept=None, not_kept_below_ns=None)
    assert [step.label for step in sequence.steps(found)] == ["receive", "the program", "send"]
    assert "calls are not kept" in sequence.remarks(found)[0]


def test_what_is_missing_is_said() -> None:
    found = row(not_kept=12, flags=["handed_over", "pipelined"])
    told = " ".join(sequence.remarks(found))
    assert "12 earlier calls are not kept, each below 1.00 ms" in told
    assert "another thread received it" in told and "not certain" in told


@pytest.mark.parametrize(
    ("not_kept", "below_ns", "says"),
    [
        (12, None, "earlier calls, not kept"),
        (None, None, "earlier calls, not kept"),
        (12, 1_000_000, "the program"),
        (0, None, "the program"),
    ],
)
def test_a_time_whose_calls_are_missing_is_not_the_program_s(
    not_kept: Any, below_ns: Any, says: str
) -> None:
    late = call("sendto", 20_000, 10)
    found = row(calls=[late], not_kept=not_kept, not_kept_below_ns=below_ns)
    first = sequence.steps(found)[0]
    assert first.label == says
    assert sequence_plot.sequence(found).count('class="notkept"') == (says != "the program")


def test_the_text_draws_the_slowest_in_ten_lines() -> None:
    text = render(with_slow(many(60), row()))
    lines = text.splitlines()
    begins = next(at for at, line in enumerate(lines) if "slowest request" in line)
    ends = next(at for at in range(begins + 1, len(lines)) if lines[at].startswith("── "))
    assert 6 <= ends - begins <= 10
    assert len(lines) <= 50 and max(map(cell_len, lines)) <= 80


def test_the_panel_lists_them_and_enter_draws_one() -> None:
    slow = [row(), many(60)]
    shown = frame(with_slow(*slow))
    table = tables.build(shown, ViewState(), 80, tall=False)["requests"]
    keys = [line.key for line in table.lines]
    assert keys[-2:] == [slow_key(each) for each in slow]
    page = pages.details("requests", keys[-1], shown, 80)
    text = "\n".join(line.text for line in page.lines)
    assert "fsync" in text and "futex" not in text and "░" in text
    gone = pages.details("requests", ("slow", "never"), shown, 80)
    assert "no longer among the slowest" in gone.lines[0].text


def test_hostile_names_act_on_nothing() -> None:
    hostile = row(comm="\x1b[31m<b>", local="/\x1b]0;x\x07<script>", peer_comm="\u202e</svg>")
    page = pages.details("requests", slow_key(hostile), frame(with_slow(hostile)), 80)
    text = render(with_slow(hostile)) + "\n".join(line.text for line in page.lines)
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    calls = [call("futex", 0, 10, whose="upstream", address="<script>\x1b")]
    plot = str(sequence_plot.sequence(row(calls=calls)))
    assert "<script>" not in plot and "\x1b" not in plot
