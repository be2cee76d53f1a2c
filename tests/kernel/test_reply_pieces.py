"""Replies in pieces, and their pauses, against both ends' own clocks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest

from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import pieces

pytestmark = [pytest.mark.root]

NS_PER_US = 1000
NO_REPLIES = [
    "events",
    "noted events",
    "idle, then 408",
    "chunked events",
    "another protocol",
    "no HTTP",
    "replication",
    "binlog",
]


class End:
    """The server or the client, from its first line on."""

    def __init__(self, role: str, kind: str, folder: Path) -> None:
        argv = [sys.executable, "-m", pieces.__name__, role, kind, str(folder / kind)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._expect("ready\n")

    def ask(self, names: Sequence[str]) -> None:
        """On one connection."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(names)) + "\n")
        self._process.stdin.flush()
        self._expect("done\n")

    def _expect(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line

    def known(self) -> Dict[str, Any]:
        out, _ = self._process.communicate(timeout=PATIENCE_S)
        known: Dict[str, Any] = json.loads(out)
        return known


@pytest.fixture(params=["unix", "tcp"])
def ends(request: pytest.FixtureRequest, folder: Path) -> Iterator[List[End]]:
    """The server and its client."""
    yield [End("serve", request.param, folder), End("ask", request.param, folder)]


def both(ends: Sequence[End], folder: Path, *connections: Sequence[str]) -> List[Dict[str, Any]]:
    """`in_pieces` of the server and of what the client asks it."""
    pids = [part for each in ends for part in ("--pid", str(each.pid))]
    with Attached(pids, folder) as watched:
        for names in connections:
            ends[1].ask(names)
    requests = watched.report["requests"]
    (served,) = [row for row in requests["served_by"] if row["count"]]
    (upstream,) = requests["upstream"]
    return [served["in_pieces"], upstream["in_pieces"]]


def within(counted: Dict[str, Any], known: Dict[str, Any], name: str) -> bool:
    """What was counted lies between the bounds that the program's own clock gives."""
    total_ns = counted[f"{name}_mean_us"] * counted["count"] * NS_PER_US
    # The mean is rounded to a nanosecond.
    slack_ns = counted["count"]
    least, most = (known[bound][name] for bound in ("least", "most"))
    return bool(least - slack_ns <= total_ns <= most + slack_ns)


def test_transfers_and_pauses(ends: List[End], folder: Path) -> None:
    mixed = ["one", "two", "five", "no HTTP", "two", "one", "five"]
    served, upstream = both(ends, folder, [*mixed, "close"], [*["five"] * 9, "close"])
    server, client = (each.known() for each in ends)
    assert served["count"] == server["in_pieces"] == 13
    assert upstream["count"] == client["in_pieces"]
    for name in ("transfer", "paused"):
        assert within(served, server, name)
    assert within(upstream, client, "transfer")
    assert served["paused_mean_us"] >= pieces.PAUSE_S * 1e6
    spent = served["paused_time_pct"]
    assert max(spent, key=spent.get) == "other"


def test_a_reply_that_says_where_it_ends_counts_at_once(ends: List[End], folder: Path) -> None:
    http, postgres = ["chunked"] * 5, ["ready", *["rows"] * 3]
    mysql = [*["a change"] * 9, *["columns", "columns, EOF"] * 3, "leave"]
    served, upstream = both(
        ends,
        folder,
        [*http, "leave"],
        [*postgres, "leave"],
        ["described rows", "rows", "leave"],
        mysql,
    )
    server, client = (each.known() for each in ends)
    assert served["count"] == server["in_pieces"] == 16
    assert upstream["count"] == client["in_pieces"]
    assert within(served, server, "transfer") and within(served, server, "paused")


def test_a_client_that_leaves_may_have_left_a_stream(ends: List[End], folder: Path) -> None:
    served, _ = both(ends, folder, ["five", "leave"], ["five", "two", "leave"])
    assert served["count"] == 1
    for each in ends:
        each.known()


@pytest.mark.parametrize("name", NO_REPLIES)
def test_what_has_no_end_is_no_reply_in_pieces(ends: List[End], folder: Path, name: str) -> None:
    served, upstream = both(
        ends,
        folder,
        ["one", name, "close"],
        ["ready", name, name, "close"],
        ["a change", name, "one", "close"],
    )
    assert (served["count"], upstream["count"]) == (0, 0)
    assert served["transfer_mean_us"] is served["paused_mean_us"] is None
    for each in ends:
        each.known()


def test_a_reader_that_sleeps_is_no_pause(ends: List[End], folder: Path) -> None:
    served, _ = both(ends, folder, ["large", "one", "close"])
    server, _ = (each.known() for each in ends)
    assert served["count"] == server["in_pieces"] == 1
    assert within(served, server, "transfer")
    assert served["transfer_mean_us"] - served["paused_mean_us"] >= pieces.HELD_S * 1e6
