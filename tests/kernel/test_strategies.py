"""The strategies are ways of being called: whichever is taken, the same is counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import List

import pytest

from tests.kernel import tool
from tests.kernel.cases import Case, command, read_truth
from tests.kernel.conftest import Workload
from tests.kernel.live import answer

pytestmark = pytest.mark.root

CASES = [
    Case("requests", "unix-stream"),
    Case("requests_pieces", "tcp4"),
    Case("restarted", "unix-stream"),
    Case("handlers_nested", "unix-stream"),
    Case("handlers_nested_restarted", "tcp4"),
    Case("handler_on_own_stack", "udp4"),
    Case("jumped_to_reused", "tcp4"),
    Case("sendmmsg", "unix-dgram"),
]


@pytest.fixture(scope="module")
def strategies() -> List[str]:
    """Those that this kernel loads: two at least, or there is nothing to compare."""
    loaded = []
    refusals = []
    for name in ("tracepoint", "fentry", "bcc"):
        ended = answer(["run", "--strategy", name, "--json", "--", "true"])
        if ended.code == 0:
            loaded.append(name)
        else:
            assert ended.code == 4, ended.err
            refusals.append(ended.line)
    if len(loaded) < 2:
        pytest.skip("; ".join(refusals))
    return loaded


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_is_counted(
    case: Case, strategies: List[str], workload: Workload, tmp_path: Path
) -> None:
    for name in strategies:
        told, output = tmp_path / f"{name}.truth", tmp_path / f"{name}.json"
        argv = command(workload(64), case, told)
        report = tool.run(argv, output, options=["--strategy", name])
        truth = read_truth(told)
        assert report["probe"]["strategy"] == name
        assert tool.rows(report) == truth.rows
        if truth.requests is not None:
            assert report["requests"]["served"]["count"] == truth.requests


@pytest.mark.parametrize("strategy", ["tracepoint", "fentry", "bcc"])
def test_every_command_takes_the_one_asked_for(strategy: str, tmp_path: Path) -> None:
    recording = tmp_path / "a.udsprobe"
    whom = ["--strategy", strategy, "--duration", "0.2", "--pid", str(os.getpid()), "--no-follow"]
    ended = [
        answer(["attach", "--json", *whom]),
        answer(["record", "-o", str(recording), *whom]),
        answer(["export", "--bind", "127.0.0.1:0", *whom]),
    ]
    assert len({each.code for each in ended}) == 1, [each.err for each in ended]
    if ended[0].code == 0:
        replayed = json.loads(answer(["replay", "--json", str(recording)]).out)
        assert replayed["probe"]["strategy"] == strategy
    else:
        assert ended[0].line == ended[1].line == ended[2].line
