"""Names of code: programs whose dearest function is known, in several languages."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import pytest

from tests.conftest import Require
from tests.kernel import tool
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CODE = tool.REPOSITORY / "tests" / "workloads" / "code"
# Of a share, in standard deviations: one in some hundred thousand runs is further off.
SIGMAS = 4.5
SAMPLES = 200
Report = Dict[str, Any]


def built(source: str, folder: Path, require: Require, *options: str) -> List[str]:
    """The command of a program made from a source of `code/`."""
    target = folder / "hot"
    compiler = {"c": "gcc", "cpp": "g++", "go": "go"}[source.rpartition(".")[2]]
    argv = [require(compiler)[compiler], *options, "-o", str(target), str(CODE / source)]
    done = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "CGO_ENABLED": "0"}
    )
    assert done.returncode == 0, done.stderr
    return [str(target)]


@contextmanager
def spinning(argv: Sequence[str], folder: Optional[Path] = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "spins\n"
        yield process
    finally:
        process.kill()
        process.wait()


def observed(argv: Sequence[str], folder: Path, *options: str) -> Report:
    with spinning(argv) as process:
        return attach(process.pid, folder, *options)


def attach(pid: int, folder: Path, *options: str) -> Report:
    """The report of seconds in which a busy thread is sampled some hundred times."""
    output = folder / "report.json"
    argv = [*tool.UDSPROBE, "attach", "--pid", str(pid), "--duration", "4", *options]
    done = subprocess.run(
        [*argv, "--json", "--output", str(output)],
        cwd=tool.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return tool.read_report(output)


def places(report: Report) -> List[str]:
    """Function and callers of the first place that the verdict names."""
    verdict = report["verdict"]
    assert verdict["cause"] == "app-cpu"
    return list(verdict["code"][0]["stack"])


@pytest.mark.parametrize("frames", ["-fomit-frame-pointer", "-fno-omit-frame-pointer"])
@pytest.mark.parametrize("linked", ["-no-pie", "-pie"])
def test_c(frames: str, linked: str, tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2", frames, linked)
    report = observed(argv, tmp_path, "--stacks")
    verdict, stacks = report["verdict"], report["stacks"]
    assert places(report)[:2] == ["planted_dear (hot)", "planted_caller (hot)"]
    assert "planted_dear ← planted_caller (hot)" in verdict["summary"]
    # Its names are known: no way to get them is offered.
    assert not any("stripped" in action["say"] for action in verdict["actions"])
    assert stacks["samples"] >= SAMPLES and stacks["lost"] == 0
    # Met in a prologue, say, where no rule tells the caller.
    assert stacks["truncated"] <= stacks["samples"] / 20
    assert sum(each["samples"] for each in stacks["stacks"]) == stacks["samples"]


def test_shares_are_those_of_the_threads_own_clock(tmp_path: Path, require: Require) -> None:
    with spinning(built("hot.c", tmp_path, require, "-O2")) as process:
        report = attach(process.pid, tmp_path, "--stacks")
        truth = json.loads(process.communicate("end\n", timeout=PATIENCE_S)[0])
    found = {each["function"]: each["share_pct"] / 100 for each in report["stacks"]["functions"]}
    samples = report["stacks"]["samples"]
    for name, spent_ns in truth.items():
        share = spent_ns / sum(truth.values())
        tolerance = SIGMAS * math.sqrt(share * (1 - share) / samples)
        assert found[name] == pytest.approx(share, abs=tolerance)


def test_a_deleted_and_replaced_program(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    with spinning(argv) as process:
        Path(argv[0]).unlink()
        Path(argv[0]).write_text("another")
        report = attach(process.pid, tmp_path, "--stacks")
    assert report["verdict"]["code"][0]["function"] == "planted_dear"


def test_a_stripped_program_has_no_wrong_name(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.c", tmp_path, require, "-O2", "-s"), tmp_path, "--stacks")
    place = report["verdict"]["code"][0]
    assert (place["function"], place["module"]) == (None, "hot")
    assert any("stripped" in action["say"] for action in report["verdict"]["actions"])


def test_cpp_is_demangled(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.cpp", tmp_path, require, "-O2"), tmp_path, "--stacks")
    assert "planted::Verifier::digest(unsigned int)" in places(report)[0]


def test_go(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.go", tmp_path, require, "build")[:1], tmp_path, "--stacks")
    assert places(report)[0].startswith("main.plantedDigest")


def test_node_with_its_map_file(tmp_path: Path, require: Require) -> None:
    node = require("node")["node"]
    argv = [node, "--perf-basic-prof", "--interpreted-frames-native-stack", str(CODE / "hot.js")]
    # It writes a log of V8's where it is started.
    with spinning(argv, tmp_path) as process:
        report = attach(process.pid, tmp_path, "--stacks")
    Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    place = report["verdict"]["code"][0]
    assert place["function"].startswith("plantedDigest")
    assert place["file"].endswith("hot.js") and place["line"] == 2
    assert places(report)[1].startswith("plantedHandler (hot.js:8")


def test_node_without_one_is_told_how(tmp_path: Path, require: Require) -> None:
    report = observed([require("node")["node"], str(CODE / "hot.js")], tmp_path, "--stacks")
    assert not any("planted" in str(each["stack"]) for each in report["verdict"]["code"])
    says = [action["say"] for action in report["verdict"]["actions"]]
    assert any("--perf-basic-prof" in each for each in says)


def test_a_map_file_of_somebody_else_is_not_read(tmp_path: Path, require: Require) -> None:
    with spinning([require("node")["node"], str(CODE / "hot.js")]) as process:
        forged = Path(f"/tmp/perf-{process.pid}.map")
        forged.write_text("0 7fffffffffff forged\n")
        os.chown(forged, 65534, 65534)
        try:
            report = attach(process.pid, tmp_path, "--stacks")
        finally:
            forged.unlink()
    assert "forged" not in json.dumps(report["stacks"])


def test_stacks_come_once_the_verdict_is_app_cpu(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.c", tmp_path, require, "-O2"), tmp_path)
    assert places(report)[0] == "planted_dear (hot)"
    assert 0 < report["stacks"]["sampled_s"] < report["window"]["duration_s"]


def test_nobody_else_is_sampled(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    with spinning(argv) as process, spinning(argv):
        report = attach(process.pid, tmp_path, "--stacks")
    assert report["stacks"]["pids"] == [process.pid]


def test_never(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    report = observed(argv, tmp_path, "--no-stacks")
    assert report["stacks"] is None and report["verdict"]["code"] == []
    (state,) = [m for m in report["probe"]["measurements"] if m["name"] == "stacks"]
    assert (state["state"], state["reason"]) == ("off", "--no-stacks was given")


def test_a_recording_gives_them_to_other_tools(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    recording, folded, pprof = (tmp_path / name for name in ("a.udsprobe", "folded", "pprof"))
    with spinning(argv) as process:
        command = ["record", "-o", str(recording), "--pid", str(process.pid), "--duration", "3"]
        subprocess.run([*tool.UDSPROBE, *command, "--stacks"], check=True, timeout=PATIENCE_S)
    for form, written in (("--folded", folded), ("--pprof", pprof)):
        asked = ["report", str(recording), form, str(written)]
        subprocess.run([*tool.UDSPROBE, *asked], check=True, timeout=PATIENCE_S)
    told = subprocess.run(
        [*tool.UDSPROBE, "report", str(recording), "--json"],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    samples = json.loads(told.stdout)["stacks"]["samples"]
    lines = [line.rpartition(" ") for line in folded.read_text().splitlines()]
    assert sum(int(count) for _, _, count in lines) == samples
    dear = [int(count) for stack, _, count in lines if "planted_caller (hot);planted_dear" in stack]
    assert sum(dear) > samples / 2
    assert b"planted_dear" in gzip.decompress(pprof.read_bytes())
    go = require("go")["go"]
    raw = subprocess.run([go, "tool", "pprof", "-raw", str(pprof)], capture_output=True, text=True)
    assert raw.returncode == 0, raw.stderr
    counts = re.findall(r"^ +(\d+) +\d+: [\d ]+$", raw.stdout, re.MULTILINE)
    assert sum(map(int, counts)) == samples
