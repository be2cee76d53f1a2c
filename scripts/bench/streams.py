#!/usr/bin/env python3
"""What following the streams of HTTP/2 costs: this checkout and another one, in turns.

    sudo scripts/bench/streams.py --against DIR [--rounds 4] [--seconds 4]

A service of Node (HTTP/2 without TLS, a reply of six bytes) is asked by h2load (package
nghttp2-client) on four connections with ten streams each, while one of the checkouts is attached
to it. Prints one JSON document: of each, in the order of the rounds, the time of udsprobe's
programs per request, ns, by the kernel's own account, and the requests in a second. Take a quiet
machine, and build the other checkout's probes before (scripts/build_bpf.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.processes import end, wait_until  # noqa: E402
from udsprobe.kernel.objects.libbpf import STATS_RUN_TIME, libbpf  # noqa: E402

SERVER = """
const server = require('http2').createServer();
server.on('stream', (stream) => { stream.respond({':status': 200}); stream.end('hello\\n'); });
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"""
ATTACH = ("-m", "udsprobe", "attach", "--no-stacks", "--jsonl", "--interval", "1", "--pid")


def main() -> None:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--against", type=Path, required=True)
    asked.add_argument("--rounds", type=int, default=4)
    asked.add_argument("--seconds", type=int, default=4)
    options = asked.parse_args()
    trees = {"this": ROOT, "other": options.against.resolve()}
    found: Dict[str, List[Dict[str, float]]] = {name: [] for name in trees}
    for _ in range(options.rounds):
        for name, tree in trees.items():
            found[name].append(measured(tree, options.seconds))
    print(json.dumps(found, indent=2))


def measured(tree: Path, seconds: int) -> Dict[str, float]:
    """Of one attach from the checkout `tree`."""
    with node() as (pid, port), attached(tree, pid), statistics():
        before = programs_ns()
        load = ["h2load", "-D", str(seconds), "-c", "4", "-m", "10", f"http://127.0.0.1:{port}/"]
        said = subprocess.run(load, check=True, capture_output=True, text=True).stdout
        spent = programs_ns() - before
    answered = re.search(r"(\d+) succeeded", said)
    assert answered is not None, said
    count = int(answered[1])
    return {"programs_ns_per_request": spent / count, "requests_per_s": count / seconds}


@contextmanager
def node() -> Iterator[tuple[int, int]]:
    """Its process, and its port."""
    server = subprocess.Popen(["node", "-e", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.pid, int(server.stdout.readline())
    finally:
        server.kill()
        server.communicate()


@contextmanager
def attached(tree: Path, pid: int) -> Iterator[None]:
    """Every program is in place."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        argv = [sys.executable, *ATTACH, str(pid), "--ready-file", str(ready)]
        watching = subprocess.Popen(argv, cwd=tree, stdout=subprocess.DEVNULL)
        try:
            wait_until(ready.exists, "udsprobe", watching)
            yield
        finally:
            end(watching)


@contextmanager
def statistics() -> Iterator[None]:
    """The kernel accounts for each program's run time as long as this is open."""
    opened = libbpf().call("bpf_enable_stats", STATS_RUN_TIME)
    try:
        yield
    finally:
        os.close(opened)


def programs_ns() -> int:
    """Of all BPF programs on the host."""
    shown = subprocess.run(["bpftool", "-j", "prog", "show"], check=True, capture_output=True)
    return sum(each.get("run_time_ns", 0) for each in json.loads(shown.stdout))


if __name__ == "__main__":
    main()
