"""An incident of the scenario lab: observed, recorded, and opened by a colleague elsewhere."""

from __future__ import annotations

import html
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.colleague import as_anybody
from tests.kernel.live import Ended, answer
from tests.scenarios.bench import Bench
from tests.scenarios.case import Subject, all_cases

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

ATTEMPTS = 3
CASE = next(each for each in all_cases() if each.name.endswith("/node-backlog-of-8-unix"))


@pytest.fixture
def incident(require: Require) -> Iterator[Subject]:
    """Node with a backlog of 8, and 96 clients that connect at once, again and again."""
    require("gcc", "setpriv", *CASE.needs)
    with Bench(CASE.transport) as bench:
        yield CASE.set_up(bench)


def observe(incident: Subject, folder: Path, form: str) -> Tuple[Ended, Path]:
    """`attach --record` until it shows the illness, three times at most: who shares the CPUs
    can keep the clients from coming at once. Then the file is the colleague's."""
    for attempt in range(ATTEMPTS):
        recording = folder / f"{attempt}.udsprobe"
        done = observe_once(incident, recording, form)
        if '"cause":"accept-queue-full"' in done.out.replace(" ", ""):
            break
    if "--reuid" in as_anybody():
        os.chown(recording, 65534, 65534)
    return done, recording


def observe_once(incident: Subject, recording: Path, form: str) -> Ended:
    pids = [word for pid in incident.pids for word in ("--pid", str(pid))]
    options = ["--duration", "4", "--interval", "0.5", "--record", str(recording), form]
    done = answer(["attach", *options, *pids])
    assert done.code == 0, done.err
    return done


def colleague(arguments: Sequence[str], folder: Path) -> Ended:
    """The answer to another user, in a directory of theirs."""
    done = answer(arguments, as_anybody(), folder)
    assert (done.code, done.err) == (0, "")
    return done


def refused(document: Dict[str, Any]) -> int:
    """Connects that failed, at any listener."""
    return sum(sum((each["refused"] or {}).values()) for each in document["listeners"])


def test_the_report_of_an_incident_is_the_live_one(
    incident: Subject, reachable: Path, elsewhere: Path
) -> None:
    ended, recording = observe(incident, reachable, "--json")
    live = ended.report
    assert live["verdict"]["cause"] == "accept-queue-full"
    assert incident.names[0] in live["verdict"]["subject"]
    told = colleague(["report", str(recording), "--json"], elsewhere).report
    assert told == live

    colleague(["report", str(recording), "--html", "page.html"], elsewhere)
    page = html.unescape((elsewhere / "page.html").read_text())
    assert "is full at 9/9" in page and f"{refused(live):,} connections refused" in page
    assert f"{live['requests']['served']['count']:,}" in page
    assert all(each["do"] in page for each in live["verdict"]["actions"])


def test_each_moment_of_an_incident_is_replayed(
    incident: Subject, reachable: Path, elsewhere: Path
) -> None:
    ended, recording = observe(incident, reachable, "--jsonl")
    live = ended.out
    told = colleague(["replay", str(recording), "--jsonl"], elsewhere).out
    assert told == live
    moments: List[Dict[str, Any]] = [json.loads(line) for line in live.splitlines()]
    causes = [each["verdict"]["cause"] for each in moments]
    assert "accept-queue-full" in causes
    with closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as store:
        kept = store.execute("SELECT cause, requests, refused FROM moments ORDER BY sequence")
        assert kept.fetchall() == [
            (
                each["verdict"]["cause"],
                each["requests"]["served"]["count"],
                refused(each),
            )
            for each in moments
        ]
