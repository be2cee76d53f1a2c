"""From the kernel's events to the one cause: the shortest illness that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel import tool
from tests.workloads.queue_process import Actor, unix

pytestmark = [pytest.mark.root]

BACKLOG = 7
REFUSED = 50


def test_a_full_queue_that_nobody_empties_is_the_cause(folder: Path, tmp_path: Path) -> None:
    """A longer one would be full as well."""
    place = unix(folder / "s", "stream")
    with Actor() as server, Actor() as client:
        server.listen(place, BACKLOG)
        with tool.Attached(["--pid", str(server.pid)], tmp_path) as watched:
            tried = client.connect(place, BACKLOG + 1 + REFUSED, blocking=False)
    assert tried["results"] == {"OK": BACKLOG + 1, "EAGAIN": REFUSED}
    (listener,) = watched.report["listeners"]
    assert listener["refused"] == {"EAGAIN": REFUSED}
    verdict = watched.report["verdict"]
    assert (verdict["cause"], verdict["class"]) == ("accept-starved", "set-up")
    assert (verdict["harm"]["kind"], verdict["harm"]["count"]) == ("refused", REFUSED)
    assert str(folder / "s") in verdict["subject"]
