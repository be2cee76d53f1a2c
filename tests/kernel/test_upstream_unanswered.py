"""Own requests that nobody answers, against a client that knows what became of each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from tests.kernel.exporting import Exporting
from tests.kernel.leaving import Server
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import asking_client

pytestmark = [pytest.mark.root]

ENDED, ANSWERED = 23, 40


class Client:
    """The workload; `account` once it has ended."""

    def __init__(self, server: Server, folder: Path) -> None:
        argv = [sys.executable, asking_client.__file__, server.transport]
        argv.append(str(folder / server.transport))
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.account: Dict[str, int] = {}
        self._expect("ready\n")

    def ask(self, word: str, times: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word} {times}\n")
        self._process.stdin.flush()
        self._expect("done\n")

    def _expect(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line

    def end(self) -> None:
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        self.account = json.loads(said)


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    started = Server(str(request.param), folder, "close")
    yield started
    started.end()


def asked(server: Server, folder: Path, **times: int) -> Dict[str, Any]:
    """What the client says, with the report's row of the server as `row`."""
    client = Client(server, folder)
    with Attached(["--pid", str(client.pid)], folder) as watched:
        for word, number in times.items():
            client.ask(word, number)
    client.end()
    (row,) = watched.report["requests"]["upstream"]
    return {**client.account, "row": row, "verdict": watched.report["verdict"]}


def counts(row: Dict[str, Any]) -> Dict[str, int]:
    return {
        "answered": row["count"],
        "ended": row["dropped"]["count"],
        "given_up": row["given_up"]["count"],
    }


@pytest.mark.parametrize("word", ["drop", "fail", "exit", "kill"])
def test_those_that_the_other_end_drops(server: Server, folder: Path, word: str) -> None:
    found = asked(server, folder, answer=ANSWERED, **{word: ENDED})
    assert counts(found["row"]) == {name: found[name] for name in asking_client.counts}
    assert (found["answered"], found["ended"]) == (ANSWERED, ENDED)
    assert found["row"]["dropped_kept"] == 0


def test_those_that_it_gives_up_itself(server: Server, folder: Path) -> None:
    found = asked(server, folder, answer=ANSWERED, leave=ENDED)
    assert counts(found["row"]) == {name: found[name] for name in asking_client.counts}
    assert found["given_up"] == ENDED
    waited_us = found["row"]["given_up"]["waited_mean_us"]
    assert waited_us >= 1e6 * asking_client.WAITS_S * 0.9


def test_those_on_connections_that_were_closed_before(server: Server, folder: Path) -> None:
    found = asked(server, folder, answer=ANSWERED, stale=ENDED)
    assert counts(found["row"]) == {name: found[name] for name in asking_client.counts}
    assert found["ended"] == found["row"]["dropped_kept"] == ENDED
    assert found["answered"] == ANSWERED + ENDED


@pytest.mark.parametrize("word", ["bye", "tls", "terminate", "quit"])
def test_goodbyes_are_none(server: Server, folder: Path, word: str) -> None:
    """One of TLS, and those of databases, are waited for, until the other end is gone."""
    found = asked(server, folder, answer=ANSWERED, **{word: ENDED})
    assert counts(found["row"]) == {"answered": ANSWERED + ENDED, "ended": 0, "given_up": 0}


def test_who_does_not_look_for_an_answer_asked_for_none(server: Server, folder: Path) -> None:
    found = asked(server, folder, answer=ANSWERED, trigger=ENDED)
    assert counts(found["row"]) == {"answered": ANSWERED, "ended": 0, "given_up": 0}


def test_they_are_metrics(server: Server, folder: Path) -> None:
    client = Client(server, folder)
    options = ["--pid", str(client.pid), "--interval", "0.2", "--detail", "full"]
    with Exporting(options) as exporting:
        client.ask("drop", ENDED)
        client.ask("leave", ENDED - 1)
        exporting.wait_for_samples(2)
        found = exporting.series()
        assert exporting.end().code == 0
    client.end()
    by = {
        dict(labels)["ended_by"]: value
        for (name, labels), value in found.items()
        if name == "udsprobe_upstream_requests_unanswered_total"
    }
    assert by == {"upstream": client.account["ended"], "target": client.account["given_up"]}
    assert by == {"upstream": ENDED, "target": ENDED - 1}
