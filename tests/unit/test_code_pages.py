"""The page of code: a tree of calls to open and close, and a flame graph of cells."""

from __future__ import annotations

from dataclasses import replace
from typing import List

from tests.unit import reports
from udsprobe.model.report import CodePlace, CodeStack, ProcessCode, Report, Sleeps, Stacks
from udsprobe.views.dashboard.pages.code import NOTHING, flame_lines, flame_page, tree_page


def stack(samples: int, *frames: str, total_us: float = -1) -> CodeStack:
    on, time = ("cpu", None) if total_us < 0 else ("off-cpu", total_us)
    return CodeStack(1, on, samples, truncated=False, frames=list(frames), total_us=time)


RUNNING = [stack(60, "main", "serve", "hash"), stack(30, "main", "serve"), stack(10, "idle")]
ASLEEP = [stack(3, "main", "save", "fsync", total_us=9e6), stack(900, "main", "poll", total_us=1e6)]


def report_of(stacks: List[CodeStack]) -> Report:
    sleeps = Sleeps(4.0, 903, 0, 0, 1e7, [])
    found = Stacks(99, 4.0, 100, 0, 0, [1], [], True, [], [], stacks, len(stacks), sleeps)
    return replace(reports.measured(), stacks=found)


def texts(report: Report, *turned: str) -> List[str]:
    return [line.text for line in tree_page(report, {tuple(turned)}, 100).lines]


def test_what_has_most_is_open_and_the_rest_is_counted_by_its_own_kind() -> None:
    lines = texts(report_of([*RUNNING, *ASLEEP]))
    assert [" ".join(line.split()) for line in lines if "%" in line] == [
        *("90.0 % █████████ ▾ main", "90.0 % █████████ ▾ serve", "60.0 % ██████ hash"),
        *("10.0 % █ idle", "100 % ██████████ ▾ main"),
        *("90.0 % █████████ ▾ save", "90.0 % █████████ fsync", "10.0 % █ poll"),
    ]


def test_enter_closes_what_is_open() -> None:
    lines = texts(report_of(RUNNING), "cpu", "main")
    assert "▸ main" in lines[1] and "idle" in lines[2] and len(lines) == 3


def test_the_program_s_own_function_is_marked() -> None:
    report = report_of(RUNNING)
    assert report.stacks is not None
    place = CodePlace("hash", None, None, None, 60.0, "cpu", ["hash", "serve"], "serve")
    processes = [ProcessCode(1, 100, 0, [place])]
    lines = texts(replace(report, stacks=replace(report.stacks, processes=processes)))
    assert [line.endswith("serve ◂ own code") for line in lines if "%" in line] == [
        *(False, True, False, False),
    ]


def test_a_name_that_is_no_text_is_shown_as_one() -> None:
    lines = texts(report_of([stack(1, "a\x1b[31m\u202e")]))
    assert "\x1b" not in lines[1] and "\\e[31m\\u202e" in lines[1]


def test_a_box_of_the_flame_graph_lies_below_its_caller() -> None:
    drawn = flame_lines(RUNNING, 100)
    assert drawn[0] == "▏main" + " " * 85 + "▏idle"
    assert drawn[1] == "▏serve" and drawn[2] == "▏hash"
    assert flame_lines([stack(1, "文" * 80)], 20) == ["▏" + "文" * 9]


def test_without_stacks_it_says_how_they_come() -> None:
    report = replace(reports.measured(), stacks=None)
    assert [line.text for line in tree_page(report, set(), 100).lines] == [NOTHING]
    assert [line.text for line in flame_page(report, 100).lines] == [NOTHING]
