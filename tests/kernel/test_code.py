"""Names of code: programs whose dearest function is known, in several languages."""

from __future__ import annotations

import gzip
import json
import math
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence

import pytest

from tests.conftest import Require
from tests.kernel import tool
from tests.kernel.clients import asked as clients_that_ask
from tests.kernel.named_code import assert_told
from tests.patience import PATIENCE_S
from tests.pythons import PYTHONS

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CODE = tool.REPOSITORY / "tests" / "workloads" / "code"
# Of a share, in standard deviations: one in some hundred thousand runs is further off.
SIGMAS = 4.5
SAMPLES = 100
# Two degrees of freedom: exceeded once in 100,000 times.
CHI_SQUARED_MAX = 23.0
Report = Dict[str, Any]
Beside = Callable[[], ContextManager[object]]


def built(
    source: str, folder: Path, require: Require, *options: str, cgo: bool = False
) -> List[str]:
    """The command of a program made from a source of `code/`."""
    target = folder / "hot"
    compiler = {"c": "gcc", "cpp": "g++", "go": "go", "rs": "rustc"}[source.rpartition(".")[2]]
    argv = [require(compiler)[compiler], *options, "-o", str(target), str(CODE / source)]
    done = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, "CGO_ENABLED": str(int(cgo))}
    )
    assert done.returncode == 0, done.stderr
    return [str(target)]


@contextmanager
def spinning(argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    # Node leaves a log where it is started.
    with tempfile.TemporaryDirectory() as folder:
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


def attach(pid: int, folder: Path, *options: str, seconds: int = 4) -> Report:
    """The report of seconds in which a busy thread is sampled some hundred times."""
    output = folder / "report.json"
    argv = [*tool.UDSPROBE, "attach", "--pid", str(pid), "--duration", str(seconds), *options]
    done = subprocess.run(
        [*argv, "--json", "--output", str(output)],
        cwd=tool.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return tool.read_report(output)


def sampled(pid: int, folder: Path, beside: Optional[Beside] = None) -> Report:
    """The same of as many seconds as it takes for SAMPLES: the CPUs may be others'.

    Args:
        beside: what goes on meanwhile, begun anew for each attempt.
    """
    for seconds in (4, 12, 36):
        with beside() if beside is not None else nullcontext():
            report = attach(pid, folder, "--stacks", seconds=seconds)
        if report["stacks"]["samples"] >= SAMPLES:
            break
    return report


def code(stacks: Report) -> List[Dict[str, Any]]:
    """Where the one process's samples are."""
    (process,) = stacks["processes"]
    return list(process["code"])


def places(stacks: Report) -> List[str]:
    """Function and callers of the place that most of the one process's samples are in.

    Not by the verdict: who is held up by other programs is not named for its own code.
    """
    return list(code(stacks)[0]["stack"])


@pytest.mark.parametrize("frames", ["-fomit-frame-pointer", "-fno-omit-frame-pointer"])
@pytest.mark.parametrize("linked", ["-no-pie", "-pie"])
def test_c(frames: str, linked: str, tmp_path: Path, require: Require) -> None:
    with spinning(built("hot.c", tmp_path, require, "-O2", frames, linked)) as process:
        stacks = sampled(process.pid, tmp_path)["stacks"]
    assert places(stacks)[:2] == ["planted_dear (hot)", "planted_caller (hot)"]
    name = "frame-pointers" if frames.startswith("-fno-") else "no-frame-pointers"
    assert_told("C", {name: code(stacks)[0]})
    assert stacks["samples"] >= SAMPLES and stacks["lost"] == 0
    # Met in a prologue, say, where no rule tells the caller.
    assert stacks["truncated"] <= stacks["samples"] / 20
    assert sum(each["samples"] for each in running(stacks)) == stacks["samples"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its assembly is x86-64's")
def test_assembly_that_finds_its_frame_by_any_register(tmp_path: Path, require: Require) -> None:
    with spinning(built("assembly.c", tmp_path, require, "-O2")) as process:
        stacks = sampled(process.pid, tmp_path)["stacks"]
    assert places(stacks)[:2] == ["planted_assembly (hot)", "planted_caller (hot)"]
    assert stacks["truncated"] <= stacks["samples"] / 20


def test_the_kernel_s_code_in_a_process(tmp_path: Path, require: Require) -> None:
    """The vdso has names and unwind tables of its own: who reads the clock is known."""
    with spinning(built("clock.c", tmp_path, require, "-O2")) as process:
        stacks = sampled(process.pid, tmp_path)["stacks"]
    vdso = [each for each in stacks["stacks"] if any("([vdso])" in f for f in each["frames"])]
    # A sample may come in an interrupt of it.
    last = {[f for f in each["frames"] if "([kernel])" not in f][-1] for each in vdso}
    assert last == {"clock_gettime ([vdso])"}
    called = [each["samples"] for each in vdso if "planted_reader (hot)" in each["frames"]]
    assert sum(called) >= 0.95 * sum(each["samples"] for each in vdso)
    assert sum(called) >= stacks["samples"] / 5


@pytest.mark.alone
def test_app_cpu_ends_with_the_function(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.c", tmp_path, require, "-O2"), tmp_path)
    verdict, stacks = report["verdict"], report["stacks"]
    assert verdict["cause"] == "app-cpu"
    assert "planted_dear ← planted_caller (hot)" in verdict["summary"]
    # Its names are known: no way to get them is offered.
    assert not any("stripped" in action["say"] for action in verdict["actions"])
    assert 0 < stacks["sampled_s"] < report["window"]["duration_s"]
    # Nobody asked where it sleeps.
    assert stacks["sleeps"] is None


@pytest.mark.alone
def test_names_follow_the_verdict_within_two_intervals(tmp_path: Path, require: Require) -> None:
    """Of 1 s. Where others take the CPU there are few samples: up to three times are looked at."""
    output = tmp_path / "lines"
    for _ in range(3):
        with spinning(built("hot.c", tmp_path, require, "-O2")) as process:
            argv = [*tool.UDSPROBE, "attach", "--pid", str(process.pid), "--duration", "7"]
            argv += ["--interval", "1", "--jsonl", "--output", str(output)]
            subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
        verdicts = [json.loads(each)["verdict"] for each in output.read_text().splitlines()]
        mine = [each for each in verdicts if each["cause"] == "app-cpu"]
        named = [number for number, each in enumerate(mine) if each["code"]]
        if named and named[0] <= 2:
            break
    assert named and named[0] <= 2, verdicts
    assert mine[named[0]]["code"][0]["function"] == "planted_dear"


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


def test_shares_are_those_of_perf(tmp_path: Path, require: Require) -> None:
    """Of the same seconds, by chi-squared: two samples of one thing."""
    perf, recorded = require("perf")["perf"], tmp_path / "perf.data"

    @contextmanager
    def perf_beside() -> Iterator[None]:
        argv = [perf, "record", "-q", "-e", "cpu-clock", "-F", "99", "-p", str(process.pid)]
        with subprocess.Popen([*argv, "-o", str(recorded)], stderr=subprocess.DEVNULL) as other:
            yield
            other.send_signal(signal.SIGINT)

    with spinning(built("hot.c", tmp_path, require, "-O2")) as process:
        report = sampled(process.pid, tmp_path, perf_beside)
    asked = [perf, "script", "-i", str(recorded), "-F", "ip,sym"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    theirs = Counter(each.split()[1] for each in told.splitlines() if len(each.split()) > 1)
    stacks = report["stacks"]
    ours = {
        each["function"]: round(each["share_pct"] / 100 * stacks["samples"])
        for each in stacks["functions"]
    }
    counts = [
        [of.get("planted_dear", 0), of.get("planted_cheap", 0), sum(of.values())]
        for of in (ours, theirs)
    ]
    for row in counts:
        row[2] -= row[0] + row[1]
    assert min(sum(row) for row in counts) >= SAMPLES / 2
    assert chi_squared(counts) < CHI_SQUARED_MAX


def chi_squared(rows: Sequence[Sequence[int]]) -> float:
    """How far samples in classes are from having come from one distribution."""
    whole = sum(map(sum, rows))
    sums = [sum(column) for column in zip(*rows)]
    expected = [[sum(row) * column / whole for column in sums] for row in rows]
    return sum(
        (seen - wanted) ** 2 / wanted
        for row, expects in zip(rows, expected)
        for seen, wanted in zip(row, expects)
        if wanted
    )


def test_a_deleted_and_replaced_program(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    with spinning(argv) as process:
        Path(argv[0]).unlink()
        Path(argv[0]).write_text("another")
        report = attach(process.pid, tmp_path, "--stacks")
    assert_told("C", {"deleted": code(report["stacks"])[0]})


def test_a_stripped_program_has_no_wrong_name(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.c", tmp_path, require, "-O2", "-s"), tmp_path, "--stacks")
    place = code(report["stacks"])[0]
    assert (place["function"], place["module"]) == (None, "hot")
    assert_told("C", {"stripped": place})


def parted(source: str, folder: Path, require: Require, *options: str) -> Path:
    """A program without symbols, which tells where they are: in `hot.debug` beside it."""
    objcopy = require("objcopy")["objcopy"]
    folder.mkdir(exist_ok=True)
    (whole,) = built(source, folder, require, "-O2", "-Wl,--build-id", *options)
    debug, program = folder / "hot.debug", Path(whole)
    for argv in (
        ["--only-keep-debug", whole, str(debug)],
        ["--strip-all", f"--add-gnu-debuglink={debug}", whole],
    ):
        subprocess.run([objcopy, *argv], check=True)
    return program


def moved_to(folder: Path, debug: Path) -> None:
    folder.mkdir(parents=True)
    debug.rename(folder / debug.name)


def test_symbols_by_a_debug_link(tmp_path: Path, require: Require) -> None:
    program = parted("hot.c", tmp_path / "a", require)
    moved_to(tmp_path / "a" / ".debug", tmp_path / "a" / "hot.debug")
    report = observed([str(program)], tmp_path, "--stacks")
    assert places(report["stacks"])[:2] == ["planted_dear (hot)", "planted_caller (hot)"]


def test_symbols_of_another_build_are_not_taken(tmp_path: Path, require: Require) -> None:
    program = parted("hot.c", tmp_path / "a", require)
    parted("hot.c", tmp_path / "b", require, "-DOTHER", "-O1")
    (tmp_path / "a" / "hot.debug").unlink()
    moved_to(tmp_path / "a" / ".debug", tmp_path / "b" / "hot.debug")
    report = observed([str(program)], tmp_path, "--stacks")
    assert code(report["stacks"])[0]["function"] is None


def build_id(program: Path, require: Require) -> str:
    argv = [require("readelf")["readelf"], "-n", str(program)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    (found,) = re.findall(r"Build ID: ([0-9a-f]+)", told)
    return found


def test_program_and_symbols_are_in_another_mount_namespace(
    tmp_path: Path, require: Require
) -> None:
    """Neither is a file at its path as udsprobe sees it."""
    program = parted("hot.c", tmp_path / "made", require)
    identity = build_id(program, require)
    inside = tmp_path / "inside"
    inside.mkdir()
    place = f"/usr/lib/debug/.build-id/{identity[:2]}"
    script = f"""set -e
        mount -t tmpfs tmpfs {inside}
        cp {program} {inside}/hot
        mkdir -p /usr/lib/debug
        mount -t tmpfs tmpfs /usr/lib/debug
        mkdir -p {place}
        mv {tmp_path}/made/hot.debug {place}/{identity[2:]}.debug
        exec {inside}/hot"""
    argv = [require("unshare")["unshare"], "--mount", "--propagation", "private"]
    with spinning([*argv, "sh", "-c", script]) as process:
        assert not list(inside.iterdir())
        report = attach(process.pid, tmp_path, "--stacks")
    assert places(report["stacks"])[:2] == ["planted_dear (hot)", "planted_caller (hot)"]


def test_cpp_is_demangled(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.cpp", tmp_path, require, "-O2"), tmp_path, "--stacks")
    assert_told("C++", {"method": code(report["stacks"])[0]})


def test_go_without_symbols(tmp_path: Path, require: Require) -> None:
    argv = built("hot.go", tmp_path, require, "build", "-ldflags=-s")
    stacks = observed(argv, tmp_path, "--stacks")["stacks"]
    assert_told("Go", {"no-symbols": code(stacks)[0]})


def test_go_that_is_linked_with_c(tmp_path: Path, require: Require) -> None:
    """Its file has unwind tables, of the parts in C alone."""
    options = ("build", "-ldflags=-linkmode=external -s")
    argv = built("hot.go", tmp_path, require, *options, cgo=True)
    stacks = observed(argv, tmp_path, "--stacks")["stacks"]
    assert places(stacks)[:2] == ["main.plantedDigest (hot.go:13)", "main.main (hot.go:19)"]
    assert stacks["truncated"] <= stacks["samples"] / 20


def test_go(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.go", tmp_path, require, "build")[:1], tmp_path, "--stacks")
    assert_told("Go", {"function": code(report["stacks"])[0]})


def test_rust(tmp_path: Path, require: Require) -> None:
    report = observed(built("hot.rs", tmp_path, require, "-O"), tmp_path, "--stacks")
    assert_told("Rust", {"function": code(report["stacks"])[0]})


def test_java_with_its_map_file(tmp_path: Path, require: Require) -> None:
    tools = require("java", "javac", "jcmd")
    subprocess.run([tools["javac"], "-d", str(tmp_path), str(CODE / "Hot.java")], check=True)
    argv = [tools["java"], "-XX:+PreserveFramePointer", "-cp", str(tmp_path), "Hot"]
    with spinning(argv) as process:
        asked = [tools["jcmd"], str(process.pid), "Compiler.perfmap"]
        subprocess.run(asked, check=True, capture_output=True, timeout=PATIENCE_S)
        report = attach(process.pid, tmp_path, "--stacks")
    Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    assert places(report["stacks"])[0] == "Hot.plantedDigest (Hot.java:6)"
    assert_told("Java", {"map": code(report["stacks"])[0]})


def with_map_files(require: Require) -> str:
    """A Python that knows -X perf."""
    others = sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    for python in (sys.executable, "python3.12", "python3.13", "python3.14", *others):
        with suppress(OSError):
            asked = "import sys; sys.exit(sys._xoptions.get('perf') and sys.version_info < (3, 12))"
            if not subprocess.run(
                [python, "-X", "perf", "-c", asked], capture_output=True
            ).returncode:
                return python
    return require("python3.12 that knows -X perf")["python3"]


HOT_PYTHON = ["planted_dear (hot.py:6)", "planted_caller (hot.py:13)", "<module> (hot.py:1)"]


def test_python_with_its_map_file(tmp_path: Path, require: Require) -> None:
    """Of 3.12 and later, started with -X perf: what it calls for each function is no other one."""
    with spinning([with_map_files(require), "-X", "perf", str(CODE / "hot.py")]) as process:
        report = attach(process.pid, tmp_path, "--stacks")
    Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    assert places(report["stacks"])[:3] == HOT_PYTHON
    assert "[jit]" not in json.dumps(report["stacks"])
    assert_told("Python", {"map": code(report["stacks"])[0]})


@pytest.mark.parametrize("python", PYTHONS)
def test_python_as_it_is(python: str, tmp_path: Path) -> None:
    report = observed([python, str(CODE / "hot.py")], tmp_path, "--stacks")
    place = code(report["stacks"])[0]
    assert place["stack"][:3] == HOT_PYTHON
    assert (place["file"], place["line"]) == (str(CODE / "hot.py"), 6)
    assert report["stacks"]["mapped_pids"] == report["stacks"]["pids"]
    assert_told("Python", {"function": place})


HOT_NODE = ["plantedDigest (hot.js:2)", "plantedHandler (hot.js:15)"]


def test_node_with_its_map_file(tmp_path: Path, require: Require) -> None:
    node = require("node")["node"]
    argv = [node, "--perf-basic-prof", "--interpreted-frames-native-stack", str(CODE / "hot.js")]
    with spinning(argv) as process:
        report = attach(process.pid, tmp_path, "--stacks")
    Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    place = code(report["stacks"])[0]
    assert place["stack"][:2] == HOT_NODE
    assert_told("Node", {"map": place})


def test_node_as_it_is(tmp_path: Path, require: Require) -> None:
    report = observed([require("node")["node"], str(CODE / "hot.js")], tmp_path, "--stacks")
    place = code(report["stacks"])[0]
    assert place["stack"][:2] == HOT_NODE
    assert (place["file"], place["line"]) == (str(CODE / "hot.js"), 2)
    assert report["stacks"]["mapped_pids"] == report["stacks"]["pids"]
    assert_told("Node", {"function": place})


def test_functions_that_v8_inlines_have_their_shares(tmp_path: Path, require: Require) -> None:
    with spinning([require("node")["node"], str(CODE / "inlined.js")]) as process:
        stacks = sampled(process.pid, tmp_path)["stacks"]
        truth = json.loads(process.communicate("end\n", timeout=PATIENCE_S)[0])
    found = {name: innermost(stacks, f"{name} (inlined.js:{line})") for name, line in INLINED}
    samples = sum(found.values())
    assert samples >= 0.9 * sum(each["samples"] for each in running(stacks))
    for name, spent_ns in truth.items():
        share = spent_ns / sum(truth.values())
        tolerance = SIGMAS * math.sqrt(share * (1 - share) / samples)
        # What they compute themselves, without a call, is the function's that they are in.
        assert found[name] / samples == pytest.approx(share, abs=tolerance + 0.03)


INLINED = (("hashes", 9), ("digests", 13), ("sorts", 17))


def running(stacks: Report) -> List[Dict[str, Any]]:
    return [each for each in stacks["stacks"] if each["on"] == "cpu"]


def innermost(stacks: Report, frame: str) -> int:
    """Samples in which it is the innermost of the program's own file."""
    return sum(
        each["samples"]
        for each in running(stacks)
        if [f for f in each["frames"] if "(inlined.js:" in f][-1:] == [frame]
    )


def test_javascript_of_each_kind(tmp_path: Path, require: Require) -> None:
    """Asleep in the C library, which keeps no frame pointer; letters of one and of two bytes."""
    report = observed([require("node")["node"], str(CODE / "frames.js")], tmp_path, "--stacks")
    asleep = [each for each in report["stacks"]["stacks"] if each["on"] == "off-cpu"]
    longest = max(
        (each for each in asleep if any("AtomicsWait" in frame for frame in each["frames"])),
        key=lambda each: each["total_us"],
    )
    assert [frame for frame in longest["frames"] if "(frames.js:" in frame] == [
        *("(anonymous) (frames.js:46)", "generates (frames.js:40)", "many (frames.js:18)"),
        *("(anonymous) (frames.js:34)", "arrow (frames.js:14)", "метод (frames.js:9)"),
        "waits (frames.js:4)",
    ]


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


def test_nobody_else_is_sampled(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    with spinning(argv) as process, spinning(argv):
        report = attach(process.pid, tmp_path, "--stacks")
    assert report["stacks"]["pids"] == [process.pid]


# Of a request that is received in more than 64 calls nobody says any more that it is owed.
REQUEST_BYTES = 1 << 20
PLANTED = {
    "receiving": "planted_receive",
    "processing": "planted_process",
    "sending": "planted_send",
    "none": "planted_between",
}


def transfer(path: str, requests: int) -> None:
    """One client that sends a request, and takes the reply before the next."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        for _ in range(requests):
            client.sendall(bytes(REQUEST_BYTES))
            left = REQUEST_BYTES
            while left:
                left -= len(client.recv(left))


def test_what_runs_in_which_stage_of_requests(tmp_path: Path, require: Require) -> None:
    path, program = str(tmp_path / "s"), str(tmp_path / "stages")
    argv = [require("gcc")["gcc"], "-O2", "-o", program, str(CODE / "stages.c")]
    subprocess.run(argv, check=True)
    with spinning([program, path]) as process:
        with tool.Attached(["--pid", str(process.pid), "--stacks"], tmp_path) as attached:
            transfer(path, 1500)
        truth = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    stacks = attached.report["stacks"]
    found = {each["stage"]: each for each in stacks["stages"]}
    samples = sum(each["samples"] for each in found.values())
    assert samples == stacks["samples"] >= SAMPLES
    for stage, function in PLANTED.items():
        share = truth[stage] / sum(truth.values())
        tolerance = SIGMAS * math.sqrt(share * (1 - share) / samples)
        # What a call does before and after it gets to its socket is no part of its stage.
        assert found[stage]["samples"] / samples == pytest.approx(share, abs=tolerance + 0.02)
        assert function in json.dumps(found[stage]["code"])
    assert PLANTED["none"] not in json.dumps(found["processing"])
    assert PLANTED["processing"] not in json.dumps(found["none"])


# ------------------------------------------------------------ asleep


@pytest.fixture(scope="module")
def asleep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the program that sleeps in known functions."""
    target = tmp_path_factory.mktemp("asleep") / "asleep"
    argv = ["gcc", "-O2", "-pthread", "-o", str(target), str(CODE / "asleep.c")]
    subprocess.run(argv, check=True)
    return str(target)


def calls(report: Report) -> Dict[str, Any]:
    """The sleeps of the one process by system call."""
    (process,) = report["stacks"]["sleeps"]["processes"]
    return {each["call"]: each for each in process["calls"]}


@pytest.mark.parametrize(
    ("how", "call", "stack"),
    [
        ("disk", "fsync", ["fsync (libc.so.6)", "planted_dump (asleep)"]),
        ("lock", "futex", ["pthread_mutex_lock (libc.so.6)", "planted_entry (asleep)"]),
        ("timer", "clock_nanosleep", ["nanosleep (libc.so.6)", "planted_long (asleep)"]),
    ],
)
def test_where_it_sleeps(
    how: str, call: str, stack: List[str], asleep: str, tmp_path: Path, require: Require
) -> None:
    report = observed([asleep, how], tmp_path, "--stacks")
    assert calls(report)[call]["code"][0]["stack"][:2] == stack
    assert calls(report)[call]["code"][0]["on"] == "off-cpu"
    assert_told("C", {how: calls(report)[call]["code"][0]})


def test_a_rare_long_sleep_among_many_short_ones(asleep: str, tmp_path: Path) -> None:
    """All are in one system call, at one address: only what called it tells them apart."""
    with spinning([asleep, "rare"]) as process:
        report = attach(process.pid, tmp_path, "--stacks")
        truth = json.loads(process.communicate("end\n", timeout=PATIENCE_S)[0])
    sleeps = calls(report)["clock_nanosleep"]
    assert sleeps["code"][0]["stack"][1] == "planted_long (asleep)"
    assert sleeps["count"] > 1000
    long = sum(
        each["total_us"]
        for each in report["stacks"]["stacks"]
        if each["on"] == "off-cpu" and "planted_long (asleep)" in each["frames"]
    )
    share = truth["first_ns"] / (truth["first_ns"] + truth["second_ns"])
    # Some of the long ones are not told, none of the short ones is told as a long one.
    assert 0.5 * share < long / sleeps["total_us"] < 1.1 * share


def test_sleeps_in_turn_are_told_by_their_time(asleep: str, tmp_path: Path) -> None:
    """Not all stacks can be taken: those behind the longer sleep are taken no more often."""
    with spinning([asleep, "turns"]) as process:
        report = attach(process.pid, tmp_path, "--stacks", "--duration", "6")
        truth = json.loads(process.communicate("end\n", timeout=PATIENCE_S)[0])
    sleeps = calls(report)["clock_nanosleep"]
    assert sleeps["truncated"] > 0.3 * sleeps["count"]
    spent = {"planted_first": 0.0, "planted_second": 0.0}
    for each in report["stacks"]["stacks"]:
        for name in spent.keys() & {frame.partition(" (")[0] for frame in each["frames"]}:
            spent[name] += each["total_us"] or 0.0
    share = truth["first_ns"] / (truth["first_ns"] + truth["second_ns"])
    assert spent["planted_first"] / sum(spent.values()) == pytest.approx(share, abs=0.025)


def test_all_sleep_is_counted_by_its_time(asleep: str, tmp_path: Path) -> None:
    """It is what the threads' account has: neither on a CPU nor waiting for one."""
    with spinning([asleep, "timer"]) as process:
        report = attach(process.pid, tmp_path, "--stacks")
    sleeps = report["stacks"]["sleeps"]
    (thread,) = report["time"]["threads"]
    blocked = sum(v for name, v in thread["share"].items() if name.startswith("blocked"))
    assert sleeps["lost"] == 0
    assert sleeps["total_us"] / 1e6 / sleeps["watched_s"] == pytest.approx(blocked, abs=0.02)


def compiled(folder: Path, name: str, source: str) -> str:
    """A program that is called so, whose functions are all there."""
    (folder / f"{name}.c").write_text(source)
    program = str(folder / name)
    argv = ["gcc", "-O1", "-fno-inline", "-pthread", "-o", program, f"{program}.c"]
    subprocess.run(argv, check=True)
    return program


def test_a_sleep_that_began_before_and_does_not_end(tmp_path: Path) -> None:
    source = "#include <unistd.h>\n#include <stdio.h>\n"
    source += "void planted_wait(void) { pause(); sleep(1); }\n"
    source += 'int main(void) { puts("spins"); fflush(stdout); planted_wait(); return 0; }\n'
    report = observed([compiled(tmp_path, "stuck", source)], tmp_path, "--stacks")
    sleeps = report["stacks"]["sleeps"]
    assert calls(report)["pause"]["code"][0]["stack"][:2] == [
        "pause (libc.so.6)",
        "planted_wait (stuck)",
    ]
    assert sleeps["total_us"] / 1e6 == pytest.approx(sleeps["watched_s"], rel=0.02)


def test_all_threads_that_have_slept_since_before_are_told(tmp_path: Path) -> None:
    """More than the reader's buffer has room for at once."""
    threads = 40
    source = "#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n"
    source += "static void *planted_wait(void *unused) { for (;;) pause(); }\n"
    source += f"int main(void) {{ pthread_t t; for (int i = 1; i < {threads}; i++)\n"
    source += "pthread_create(&t, 0, planted_wait, 0);\n"
    source += 'puts("spins"); fflush(stdout); planted_wait(0); return 0; }\n'
    report = observed([compiled(tmp_path, "many", source)], tmp_path, "--stacks")
    found, watched_s = calls(report)["pause"], report["stacks"]["sleeps"]["watched_s"]
    assert found["total_us"] / 1e6 == pytest.approx(threads * watched_s, rel=0.02)
    assert {each["stack"][1] for each in found["code"]} == {"planted_wait (many)"}


def asked(path: str, clients: int = 1) -> ContextManager[None]:
    """By clients that ask again as soon as they have their answers."""

    def ask(ends: threading.Event) -> None:
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(path)
            while not ends.is_set():
                client.send(b"?")
                client.recv(1)

    return clients_that_ask(ask, clients)


@pytest.mark.parametrize("options", [(), ("--stacks",)])
def test_app_blocked_ends_with_what_sleeps(
    options: Sequence[str], asleep: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "s")
    with spinning([asleep, "lock", path]) as process, asked(path):
        report = attach(process.pid, tmp_path, *options)
    verdict = report["verdict"]
    assert verdict["cause"] == "app-blocked"
    assert "pthread_mutex_lock ← planted_entry (asleep)" in verdict["summary"]
    assert verdict["code"][0]["on"] == "off-cpu"
    (finding,) = [each for each in report["findings"] if each["id"] == "app-blocked"]
    assert finding["code"] == verdict["code"]
    # Requests wait for these sleeps, and nobody's for those of the other thread.
    assert calls(report)["futex"]["owing_us"] == pytest.approx(
        calls(report)["futex"]["total_us"], rel=0.05
    )


def test_never(tmp_path: Path, require: Require) -> None:
    argv = built("hot.c", tmp_path, require, "-O2")
    report = observed(argv, tmp_path, "--no-stacks")
    assert report["stacks"] is None and report["verdict"]["code"] == []
    (state,) = [m for m in report["probe"]["measurements"] if m["name"] == "stacks"]
    assert (state["state"], state["reason"]) == ("off", "--no-stacks was given")


def recorded(argv: Sequence[str], folder: Path) -> str:
    """The path of a recording with stacks."""
    recording = str(folder / "a.udsprobe")
    with spinning(argv) as process:
        command = ["record", "-o", recording, "--pid", str(process.pid), "--duration", "3"]
        subprocess.run([*tool.UDSPROBE, *command, "--stacks"], check=True, timeout=PATIENCE_S)
    return recording


def of_recording(recording: str, *options: str) -> str:
    """What `report` says of it."""
    argv = [*tool.UDSPROBE, "report", recording, *options]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout


def raw_counts(pprof: Path, require: Require) -> List[List[int]]:
    """The values of each stack, as Go's own reader of the format has them."""
    argv = [require("go")["go"], "tool", "pprof", "-raw", str(pprof)]
    raw = subprocess.run(argv, capture_output=True, text=True)
    assert raw.returncode == 0, raw.stderr
    rows = re.findall(r"^ +(\d+) +(\d+): [\d ]+$", raw.stdout, re.MULTILINE)
    return [list(map(int, row)) for row in rows]


def test_a_recording_gives_them_to_other_tools(tmp_path: Path, require: Require) -> None:
    recording = recorded(built("hot.c", tmp_path, require, "-O2"), tmp_path)
    folded, pprof = tmp_path / "folded", tmp_path / "pprof"
    of_recording(recording, "--folded", str(folded))
    of_recording(recording, "--pprof", str(pprof))
    samples = json.loads(of_recording(recording, "--json"))["stacks"]["samples"]
    lines = [line.rpartition(" ") for line in folded.read_text().splitlines()]
    assert sum(int(count) for _, _, count in lines) == samples
    dear = [int(count) for stack, _, count in lines if "planted_caller (hot);planted_dear" in stack]
    assert sum(dear) > samples / 2
    assert b"planted_dear" in gzip.decompress(pprof.read_bytes())
    assert sum(count for count, _ in raw_counts(pprof, require)) == samples


def test_and_those_of_sleep_by_their_time(asleep: str, tmp_path: Path, require: Require) -> None:
    recording = recorded([asleep, "lock"], tmp_path)
    folded, pprof = tmp_path / "folded", tmp_path / "pprof"
    of_recording(recording, "--folded", str(folded), "--asleep")
    of_recording(recording, "--pprof", str(pprof), "--asleep")
    sleeps = json.loads(of_recording(recording, "--json"))["stacks"]["sleeps"]
    stacks, times = zip(*(each.rsplit(" ", 1) for each in folded.read_text().splitlines()))
    # Each is rounded to 1 µs.
    assert sum(map(int, times)) == pytest.approx(sleeps["total_us"], abs=len(times))
    assert any("planted_entry (asleep);pthread_mutex_lock" in each for each in stacks)
    counts = raw_counts(pprof, require)
    assert sum(count for count, _ in counts) == sleeps["count"]
    assert sum(ns for _, ns in counts) == pytest.approx(sleeps["total_us"] * 1000, abs=len(counts))


HOSTILE = b"\x1b[31m<script>alert(1)</script>;a\n\tb\xff" + b"x" * 60_000


def test_a_function_s_name_does_no_harm(tmp_path: Path, require: Require) -> None:
    """A symbol that a terminal, a page or a reader of another format would act on."""
    (program,) = built("hot.c", tmp_path, require, "-O2")
    placeholder = "P" * len(HOSTILE)
    rename = [require("objcopy")["objcopy"], "--redefine-sym", f"planted_dear={placeholder}"]
    subprocess.run([*rename, program], check=True)
    whole = Path(program).read_bytes()
    assert whole.count(placeholder.encode()) == 1
    Path(program).write_bytes(whole.replace(placeholder.encode(), HOSTILE))
    recording = recorded([program], tmp_path)
    page, folded, pprof = (tmp_path / name for name in ("page.html", "folded", "pprof"))
    of_recording(recording, "--html", str(page))
    of_recording(recording, "--folded", str(folded))
    of_recording(recording, "--pprof", str(pprof))
    shown = of_recording(recording), page.read_text(), folded.read_text()
    for text in (*shown, of_recording(recording, "--json")):
        assert "\x1b" not in text and "\\x1b" in text
        assert "x" * 1000 not in text
    assert "<script>alert" not in page.read_text()
    # The format has `;` between frames and one stack a line.
    lines = folded.read_text().splitlines()
    assert all("planted_caller (hot);\\x1b[31m" in each for each in lines if "alert" in each)
    assert any("alert(1)</script>:a" in each for each in lines)
    assert raw_counts(pprof, require)
