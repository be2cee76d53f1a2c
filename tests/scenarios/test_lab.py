"""The lab's own parts: what it has cases of, how it reads strace, how it counts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from tests.scenarios import auto, baseline, confusion, judge
from tests.scenarios.case import CAUSES, Subject, all_cases, chosen
from tests.scenarios.lab import main

# The table of a guide's example, as strace 6 prints it.
GUIDE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.32    0.841230           4    187442           epoll_wait
 22.18    0.304410           3    101231           sendmsg
 14.47    0.198320           2     98774       312 recvmsg
  2.03    0.027810          11      2431           accept4
------ ----------- ----------- --------- --------- ----------------
100.00    1.371770           3    389878       312 total
"""


def row(share_pct: float, usecs_per_call: float = 1.0, calls: int = 1000) -> baseline.Row:
    return baseline.Row(share_pct, usecs_per_call, calls)


def test_every_cause_has_cases_and_every_server_is_there() -> None:
    cases = all_cases()
    names = Counter(case.name for case in cases)
    assert {name: count for name, count in names.items() if count > 1} == {}
    assert len(cases) >= 40
    assert {case.cause for case in cases} == set(CAUSES)
    servers = {"Node", "asyncio", "gunicorn", "Go", "nginx", "Redis", "PostgreSQL", "Caddy"}
    assert {case.server for case in cases} >= {*servers, "memcached"}
    assert all(case.story for case in cases)


def test_the_causes_are_those_of_the_report(repository: Path) -> None:
    schema = (repository / "docs" / "report.schema.json").read_text()
    assert [cause for cause in CAUSES if f'"{cause}"' not in schema] == []


def test_cases_are_chosen_by_name_cause_server_and_pattern() -> None:
    cases = all_cases()
    assert {case.cause for case in chosen(cases, ["fd-limit"])} == {"fd-limit"}
    assert {case.server for case in chosen(cases, ["redis"])} == {"Redis"}
    assert all(re.search("/node.*-tcp$", case.name) for case in chosen(cases, ["*/node*-tcp"]))
    assert chosen(cases, []) == cases
    assert chosen(cases, ["no-such-case"]) == []


def test_the_table_of_strace_is_read() -> None:
    table = baseline.parse(GUIDE)
    assert list(table) == ["epoll_wait", "sendmsg", "recvmsg", "accept4"]
    assert table["recvmsg"] == baseline.Row(14.47, 2.0, 98774)
    assert baseline.recipe(table).cause == "transport"


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ({"epoll_pwait": row(61.0), "write": row(5.0, 50.0)}, "transport"),
        ({"epoll_pwait": row(59.0), "write": row(30.0, 10.1)}, "send-blocked"),
        ({"write": row(30.0, 2.0, 100), "accept4": row(30.0, 2.0, 11)}, "accept-queue-full"),
        (
            {"write": row(30.0, 2.0, 100), "read": row(21.0), "accept4": row(1.0, 1.0, 9)},
            "transport",
        ),
        ({"write": row(30.0), "futex": row(70.0)}, "app-cpu"),
        ({}, "unknown"),
    ],
)
def test_the_recipe_in_its_order(table: baseline.Table, cause: str) -> None:
    assert baseline.recipe(table).cause == cause


def test_the_matrix_counts_every_pair() -> None:
    pairs = [("app-cpu", "app-cpu"), ("app-cpu", "transport"), ("healthy", "app-cpu")]
    lines = confusion.matrix(pairs, "title").splitlines()
    cells = {line[3:].split()[0]: line[3:].split()[1:] for line in lines[2:]}
    column = CAUSES.index("app-cpu")
    assert cells["app-cpu"][column] == "1"
    assert cells["app-cpu"][CAUSES.index("transport")] == "1"
    assert cells["healthy"][column] == "1"
    assert sum(int(cell) for row in cells.values() for cell in row if cell.isdigit()) == 3
    found = confusion.scores(pairs)
    assert found == {"cases": 3, "right": 1, "transport_right": 2, "false_alarms": 1}


def test_a_verdict_must_name_its_subject() -> None:
    verdict = {"cause": "fd-limit", "summary": "1,024 of 1,024", "confidence": 1.0}
    said = judge.read({"verdict": verdict}, Subject([1], ["1024", "/run/app.sock"]))
    assert said.unnamed == ["/run/app.sock"]
    assert judge.read({"verdict": None}, Subject([1])).cause == judge.NO_VERDICT


def report(second: int, cause: Optional[str]) -> Dict[str, Any]:
    """As `attach --jsonl` writes one each second."""
    window = {"start": f"2026-11-25T10:00:{second:02}.000+00:00", "duration_s": 1.0}
    return {"window": window, "verdict": cause and {"cause": cause}}


def followed(case: str, *causes: Optional[str]) -> auto.Trial:
    one = next(one for one in all_cases() if one.name == case)
    return auto.followed(one, 1, (report(at, cause) for at, cause in enumerate(causes)))


ILL, WELL = "app-cpu/node-computes-unix", "healthy/node-moderate-unix"


def test_in_auto_an_ill_case_ends_when_two_reports_running_name_its_cause() -> None:
    said = (None, "app-cpu", "healthy", "app-cpu", "app-cpu", "healthy", "healthy")
    trial = followed(ILL, *said)
    assert trial.said == ["–", "app-cpu", "healthy", "app-cpu", "app-cpu"]
    assert (trial.right, trial.after_s, trial.alarms) == (True, 5.0, [])
    late = followed(ILL, "healthy", "app-cpu", "app-blocked")
    assert (late.right, late.after_s) == (False, 3.0)
    assert "WRONG" in auto.line_of(late)
    assert "healthy, app-cpu, app-blocked" in auto.line_of(late)


def test_in_auto_any_cause_of_a_healthy_case_is_a_false_alarm() -> None:
    trial = followed(WELL, "unknown", "healthy", "send-blocked", "healthy", "healthy")
    assert (trial.right, trial.alarms, trial.after_s) == (False, ["send-blocked"], 5.0)
    assert followed(WELL, "unknown", "healthy", "healthy").right
    assert not followed(WELL, "healthy", "unknown", "unknown").right


def test_the_summary_of_auto_counts_what_ran() -> None:
    trials = [
        followed(ILL, "app-cpu", "app-cpu"),
        followed(ILL, "healthy", "app-cpu", "app-cpu", "healthy"),
        followed(WELL, "app-cpu", "healthy", "healthy"),
        followed(ILL),
    ]
    lines = auto.summary_of(trials).splitlines()
    assert lines[-3:] == [
        "2 of 3 right, 1 wrong, 1 not run",
        "false alarms: 1 of 1 well cases",
        "until the verdict: median 2.5 s, max 3.0 s",
    ]


def test_waiting_for_strangers_is_of_the_time_in_which_it_was_measured() -> None:
    holders = [{"is_target": False, "pid": 7, "waited_us": 500_000.0}]
    measured: Dict[str, Any] = {"name": "cpu_holders", "coverage": None}
    document = {
        "window": {"duration_s": 1.0},
        "time": {"cpu_holders": holders},
        "probe": {"measurements": [measured]},
    }
    assert judge.waited_for_strangers(document, [8]) == 0.5
    measured["coverage"] = {"observed_s": 5.0}
    assert judge.waited_for_strangers(document, [8]) == 0.1
    assert judge.waited_for_strangers(document, [7]) == 0.0


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "fd-limit"]) == 0
    listed = capsys.readouterr().out
    assert "fd-limit/asyncio-limit-of-64-unix [asyncio, unix] (quick)" in listed
    assert main(["no-such-case"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["--detail", "auto", "--cure"])
