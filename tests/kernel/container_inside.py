"""Run inside a container: attaches to a process by the id that it has in there.

Starts an actor, has it called by another one that is no target, and prints what both did and the
report. Run as a program; knows nothing of what is expected.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from tests.kernel import tool
from tests.workloads.queue_process import Actor, unix

CONNECTS = 9


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Actor() as server, Actor() as client:
        address = unix(Path(folder) / "s")
        with tool.Attached(["--pid", str(server.pid)], Path(folder)) as watched:
            heard = server.listen(address, CONNECTS)
            client.connect(address, CONNECTS)
            server.do("accept", listener=heard["listener"], count=CONNECTS)
            children = server.do("connect_by_children", address=address, count=2)["pids"]
            server.do("accept", listener=heard["listener"], count=2)
            server.do("reap", pids=children)
        ids = {"server": server.pid, "client": client.pid, "children": children}
        said = {"ids": ids, "own": os.getpid(), "report": watched.report, "listener": heard}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
