"""Tasks of asyncio that wait: so many in each place as the program says, in the report as well."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest

from tests.kernel.test_code import asked, attach
from tests.pythons import PYTHONS
from tests.unit.test_tasks import standing

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

BEGINS = re.compile(r"serve$|hears$|background$|main$|Store\.")
SERVER = """
import asyncio, sys
class Store:
    async def put(self):
        async with self.lock:
            await asyncio.sleep(0.02)
async def serve(reader, writer):
    while await reader.read(1):
        await store.put()
        writer.write(b"!")
async def naps():
    while True:
        await asyncio.sleep(0.1)
async def main():
    store.lock = asyncio.Lock()
    kept = [asyncio.create_task(naps()) for _ in range(20)]
    server = await asyncio.start_unix_server(serve, sys.argv[1])
    print("ready", flush=True)
    await server.serve_forever()
store = Store()
asyncio.run(main())
"""


def rows(stacks: Dict[str, Any]) -> Counter[Tuple[str, ...]]:
    """How often tasks were met, by their functions, the innermost first."""
    found: Counter[Tuple[str, ...]] = Counter()
    for row in stacks["stacks"]:
        frames = tuple(frame.partition(" (")[0] for frame in reversed(row["frames"]))
        if row["on"] == "off-cpu" and BEGINS.match(frames[-1]):
            found[frames] += row["samples"]
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_all_that_wait_are_met_where_they_wait(python: str, tmp_path: Path) -> None:
    """Apart from these, who waits for an upstream's answer; none that waits for its client."""
    with standing(python) as there:
        report = attach(there.pid, tmp_path, "--stacks")
    expected: Counter[Tuple[str, ...]] = Counter()
    for (place, _), count in there.stacks.items():
        expected[tuple(name for name, _, _ in place)] += count
    found = rows(report["stacks"])
    upstream = {place: found.pop(place) for place in [*found] if "Store.upstream" in place}
    looks = found.total() // expected.total()
    assert looks >= 2
    assert found == {place: looks * count for place, count in expected.items()}
    (calls,) = (each["calls"] for each in report["stacks"]["sleeps"]["processes"])
    (tasks,) = (each for each in calls if each["call"] == "task")
    (asking,) = (each for each in calls if each["call"] == "task for bytes")
    assert [*upstream.values()] == [asking["count"]] == [4 * looks]
    assert asking["owing_us"] == asking["total_us"]
    owing = sum(count for (_, is_owing), count in there.stacks.items() if is_owing)
    assert tasks["count"] == found.total()
    assert tasks["owing_us"] / tasks["total_us"] == pytest.approx(owing / expected.total())


@contextmanager
def serving(path: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", SERVER, path]
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_a_verdict_says_at_which_lock_requests_wait(tmp_path: Path) -> None:
    """Twenty tasks that nap in the background are not what requests wait for."""
    path = str(tmp_path / "s")
    with serving(path) as process, asked(path, 12):
        report = attach(process.pid, tmp_path, seconds=6)
    verdict = report["verdict"]
    assert verdict["cause"] == "app-blocked"
    assert " wait for a lock (asyncio.Lock) while requests wait for its reply" in verdict["summary"]
    assert "tasks of " in verdict["summary"] and "naps" not in verdict["summary"]
    assert verdict["code"][0]["stack"][0].startswith("Lock.acquire (locks.py")
    assert verdict["code"][0]["own"].startswith("Store.put (")
