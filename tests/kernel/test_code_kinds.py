"""Kinds of code, of programs whose time goes to one kind by how they were made or started."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

import pytest

from tests.conftest import Require
from tests.kernel import busy, tool
from tests.kernel.test_code_servers import CODE, got, nginx_at, worker_of
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

SAMPLES = 50
Report = Dict[str, Any]
Process = Dict[str, Any]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Whose paths are short enough for a socket, and which other users may enter."""
    with busy.folder() as path:
        yield path


def attached(pids: List[int], folder: Path, *options: str, seconds: int) -> Report:
    output = folder / "report.json"
    argv = [*tool.UDSPROBE, "attach", "--pid", ",".join(map(str, pids)), *options]
    argv += ["--duration", str(seconds), "--json", "--output", str(output)]
    done = subprocess.run(
        argv, cwd=tool.REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return tool.read_report(output)


def observed(pids: Mapping[str, int], folder: Path) -> Dict[str, Process]:
    """What ran in each; for as many seconds as it takes for SAMPLES: the CPUs may be others'."""
    for seconds in (4, 12, 36):
        report = attached(list(pids.values()), folder, "--stacks", seconds=seconds)
        rows = {each["pid"]: each for each in report["stacks"]["processes"]}
        samples = {name: rows.get(pid, {"samples": 0})["samples"] for name, pid in pids.items()}
        if min(samples.values()) >= SAMPLES:
            break
    assert min(samples.values()) >= SAMPLES, samples
    return {name: rows[pid] for name, pid in pids.items()}


def assert_mostly(process: Process, kind: str, runtime: Optional[str] = None) -> None:
    first = process["kinds"][0]
    assert (first["kind"], first["runtime"]) == (kind, runtime), process
    assert first["share_pct"] >= 50, process
    assert first["threads"] and first["stack"]


# ------------------------------------------------------------ garbage


def python_with_symbols() -> Optional[str]:
    """Of the interpreter that runs this, where its collector's functions have names."""
    library = Path(sys.base_prefix) / "lib"
    files = [Path(sys.executable).resolve(), *library.glob("libpython3.*.so.*")]
    told = subprocess.run(
        ["nm", *map(str, files)], capture_output=True, text=True, errors="replace"
    ).stdout
    return sys.executable if " gc_collect_" in told else None


def test_collectors(short_folder: Path, require: Require) -> None:
    tools = require("node", "go")
    garbage = short_folder / "garbage"
    subprocess.run(
        [tools["go"], "build", "-o", str(garbage), str(CODE / "garbage.go")],
        check=True,
        env={**os.environ, "CGO_ENABLED": "0"},
        timeout=PATIENCE_S,
    )
    environment = {**os.environ, "GOGC": "1"}
    node = [tools["node"], "--max-old-space-size=40", str(CODE / "garbage.js"), "old"]
    commands = {"go": [str(garbage)], "node": node}
    python = python_with_symbols()
    if python is not None:
        commands["python"] = [python, str(CODE / "garbage.py")]
    with busy.started(*commands.values(), environment=environment) as running:
        pids = {name: each.pid for name, each in zip(commands, running)}
        told = observed(pids, short_folder)
    for name, process in told.items():
        assert_mostly(process, "garbage-collection", runtime=name)


def test_a_collector_of_short_lived_objects(short_folder: Path, require: Require) -> None:
    """By how often it copies them: more room for them makes it a smaller part."""
    node = require("node")["node"]
    script = [str(CODE / "garbage.js"), "young"]
    ways = {"small": "--max-semi-space-size=1", "large": "--max-semi-space-size=64"}
    with busy.started(*([node, option, *script] for option in ways.values())) as running:
        pids = {name: each.pid for name, each in zip(ways, running)}
        told = observed(pids, short_folder)
    share = {name: collected(process) for name, process in told.items()}
    assert share["small"] > 2 * share["large"], told
    first = next(each for each in told["small"]["kinds"] if each["kind"] == "garbage-collection")
    assert (first["runtime"], first["part"]) == ("node", "young")


def collected(process: Process) -> float:
    return sum(e["share_pct"] for e in process["kinds"] if e["kind"] == "garbage-collection")


@contextmanager
def asked(port: int) -> Iterator[None]:
    """Four clients that ask without end, each on its connection."""
    ends = threading.Event()

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        while not ends.is_set():
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            except (HTTPException, OSError):
                connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.alone
def test_a_java_heap_that_is_nearly_full(short_folder: Path, require: Require) -> None:
    """The thread that collects is the subject, and a larger heap the first remedy."""
    tools = require("java", "javac")
    subprocess.run(
        [tools["javac"], "-d", str(short_folder), str(CODE / "Garbage.java")], check=True
    )
    argv = [tools["java"], "-XX:+UseSerialGC", "-Xmx48m", "-cp", str(short_folder), "Garbage", "3"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as java:
        try:
            assert java.stdout is not None
            with asked(int(java.stdout.readline())):
                report = attached([java.pid], short_folder, "--slo", "1ms", seconds=8)
        finally:
            java.kill()
    verdict = report["verdict"]
    assert verdict["cause"] == "app-cpu", verdict
    assert verdict["subject"].startswith("VM Thread thread "), verdict
    assert "of its CPU time is garbage collection" in verdict["summary"]
    assert_mostly({"kinds": verdict["code_kinds"]}, "garbage-collection", runtime="java")
    assert verdict["code_kinds"][0]["threads"][0]["comm"] == "VM Thread"
    assert "-Xmx" in verdict["actions"][0]["say"]
    assert f"sudo jstat -gcutil {java.pid} 1000 5" in [a["run"] for a in verdict["actions"]]


# ------------------------------------------------------------ nginx


def test_nginx(short_folder: Path, require: Require) -> None:
    ways = {
        "compression": ("plain", "/text", False),
        "regular-expression": ("plain", f"/{'a' * 40}!", False),
        "tls-handshake": ("tls", "/pid", True),
    }
    pids, requests = {}, []
    with ExitStack() as stack:
        for name, (listener, uri, encrypted) in ways.items():
            folder = short_folder / name
            folder.mkdir()
            pids[name] = worker_of(stack.enter_context(nginx_at(folder, require)).pid)
            requests.append((str(folder / listener), uri, encrypted))
        stack.enter_context(got(requests))
        told = observed(pids, short_folder)
    for name, process in told.items():
        assert_mostly(process, name)


@pytest.mark.alone
def test_handshakes_lead_to_kept_connections(short_folder: Path, require: Require) -> None:
    with (
        nginx_at(short_folder, require, key_bits=4096) as server,
        got([(f"{short_folder}/tls", "/pid", True)] * 3),
    ):
        options = ("--slo", "500us", "--stacks")
        report = attached([worker_of(server.pid)], short_folder, *options, seconds=6)
    verdict = report["verdict"]
    assert verdict["cause"] == "app-cpu", verdict
    assert "of its CPU time is TLS handshakes: " in verdict["summary"]
    assert "keepalive_timeout" in verdict["actions"][0]["say"]
    (saves,) = (each for each in verdict["evidence"] if each["metric"] == "handshake_us")
    # A signature of RSA 4096 takes some milliseconds.
    assert 500 < saves["value"] < 100_000
    assert "connections that are kept would save" in saves["says"]


def test_small_files_are_sent_by_the_transport(short_folder: Path, require: Require) -> None:
    """writev to a socket is no code of nginx."""
    with nginx_at(short_folder, require) as server:
        worker = worker_of(server.pid)
        with got([(f"{short_folder}/plain", "/pid", False)] * 2):
            process = observed({"nginx": worker}, short_folder)["nginx"]
    assert 0 < process["in_sockets"] < process["samples"]
    said = " ".join(" ".join(place["stack"]) for place in process["code"])
    assert "sock_" not in said and "sys_sendto" not in said, process
