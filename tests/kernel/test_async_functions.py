"""Async functions of Node that wait: in the report, and in the verdict of a server of HTTP."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import List, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.clients import asked, by_http
from tests.kernel.test_code import attach
from tests.unit.test_async_functions import standing

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CLIENTS = 12
SERVER = """
const http = require('http');
let last = Promise.resolve();
async function lock() {
  const before = last;
  let free;
  last = new Promise((resolve) => { free = resolve; });
  await before;
  return free;
}
async function put() {
  const free = await lock();
  await new Promise((resolve) => setTimeout(resolve, 20));
  free();
}
async function naps() { for (;;) await new Promise((resolve) => setTimeout(resolve, 100)); }
for (let at = 0; at < 20; at++) naps();
const server = http.createServer(async (request, response) => {
  await put();
  response.end('ok');
});
server.listen(process.argv[2], () => console.log('ready'));
"""


@pytest.mark.parametrize("thread", [(), ("worker",)], ids=["main", "worker"])
def test_all_that_wait_are_met_where_they_wait(
    require: Require, tmp_path: Path, thread: List[str]
) -> None:
    with standing(require("node")["node"], *thread) as there:
        report = attach(there.pid, tmp_path, "--stacks")
    expected: Counter[Tuple[str, ...]] = Counter()
    for (place, _), count in there.waits.items():
        expected[tuple(name for name, _, _ in place)] += count
    (calls,) = (each["calls"] for each in report["stacks"]["sleeps"]["processes"])
    (functions,) = (each for each in calls if each["call"] == "async function")
    found: Counter[Tuple[str, ...]] = Counter()
    for row in report["stacks"]["stacks"]:
        if all(re.search(r"\(async_functions\.js:\d+\)$", frame) for frame in row["frames"]):
            frames = (frame.partition(" (")[0] for frame in reversed(row["frames"]))
            found[tuple(frames)] += row["samples"]
    looks = functions["count"] // expected.total()
    assert looks >= 2
    assert found == {place: looks * count for place, count in expected.items()}
    owing = sum(count for (_, is_owing), count in there.waits.items() if is_owing)
    assert functions["owing_us"] / functions["total_us"] == pytest.approx(owing / expected.total())


def test_a_verdict_says_where_requests_wait(require: Require, tmp_path: Path) -> None:
    """Twenty functions that nap in the background are not what requests wait for."""
    path, program = str(tmp_path / "s"), tmp_path / "app.js"
    program.write_text(SERVER)
    argv = [require("node")["node"], str(program), path]
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            with asked(by_http(path), CLIENTS):
                report = attach(process.pid, tmp_path, seconds=6)
        finally:
            process.kill()
    verdict = report["verdict"]
    assert verdict["cause"] == "app-blocked"
    says = "async functions of node wait for a promise while requests wait for its reply"
    assert says in verdict["summary"] and "naps" not in verdict["summary"]
    assert verdict["code"][0]["own"] == "lock (app.js:4)"
