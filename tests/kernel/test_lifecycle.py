"""However udsprobe ends, the kernel is as before; whatever is missing, it says so in a line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

from tests.conftest import Require
from tests.elf import section
from tests.kernel import leftovers
from tests.kernel.actor import Caller, sent
from tests.kernel.kernel_objects import left_of
from tests.kernel.live import Live, answer
from tests.kernel.tool import REPOSITORY, Report
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root

NOBODY = 65534


@pytest.fixture(scope="module", autouse=True)
def nothing_left_over_by_any(require: Require) -> Iterator[None]:
    require("bpftool")
    before = leftovers.loaded()
    yield
    assert not any(leftovers.left_over_since(before))


@pytest.fixture
def actor() -> Iterator[Caller]:
    with Caller() as started:
        yield started


def attach(actor: Caller, *options: str) -> List[str]:
    return ["attach", "--pid", str(actor.pid), "--json", *options]


# every way to end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_window_with_a_report(actor: Caller, tmp_path: Path, number: int) -> None:
    with Live(attach(actor), tmp_path) as live:
        objects = live.objects()
        calls = actor.does("call", 17)
        ended = live.end(number)
    assert all(objects.values())
    assert (ended.code, ended.err, sent(ended.report)) == (0, "", calls)
    assert left_of(objects) == {}


def test_sigkill_leaves_nothing_in_the_kernel(actor: Caller, tmp_path: Path) -> None:
    with Live(attach(actor), tmp_path) as live:
        objects = live.objects()
        ended = live.end(signal.SIGKILL)
    assert all(objects.values())
    assert (ended.code, ended.out) == (-signal.SIGKILL, "")
    assert left_of(objects) == {}


def test_the_time_is_up(actor: Caller, tmp_path: Path) -> None:
    with Live(attach(actor, "--duration", "2"), tmp_path) as live:
        objects = live.objects()
        ended = live.end(None)
    assert ended.code == 0
    assert ended.report["targets"][0]["state"] == "running"
    assert left_of(objects) == {}


def test_the_target_exits(actor: Caller, tmp_path: Path) -> None:
    with Live(attach(actor), tmp_path) as live:
        objects = live.objects()
        calls = actor.does("call", 5)
        actor.leave()
        ended = live.end(None)
    assert (ended.code, sent(ended.report)) == (0, calls)
    assert [target["state"] for target in ended.report["targets"]] == ["exited"]
    assert left_of(objects) == {}


def test_the_reader_of_stdout_leaves(actor: Caller, tmp_path: Path) -> None:
    with Live(attach(actor), tmp_path) as live:
        objects = live.objects()
        live.close_stdout()
        ended = live.end()
    assert ended.code == 70
    assert ended.line.startswith("udsprobe: error[stdout-closed]")
    assert left_of(objects) == {}


def test_an_error_after_the_probes_are_live(
    actor: Caller, tmp_path: Path, nothing_left_over: None
) -> None:
    ended = answer(attach(actor, "--ready-file", str(tmp_path / "missing" / "ready")))
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith("udsprobe: error[ready-file-not-writable]")


def test_an_earlier_ready_file_is_gone_before_the_probes_are_live(
    actor: Caller, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    ready.write_text("of an earlier run")
    arguments = attach(actor, "--ready-file", str(ready), "--duration", "0.2")
    assert answer(arguments, without_capabilities()).code == 3
    assert not ready.exists()
    assert answer(arguments).code == 0
    assert ready.read_text() == ""


def test_each_interval_is_a_line(actor: Caller, tmp_path: Path) -> None:
    output = tmp_path / "lines"
    arguments = ["attach", "--pid", str(actor.pid), "--jsonl", "--interval", "0.1"]
    with Live([*arguments, "--output", str(output)], tmp_path) as live:
        calls = actor.does("call", 7)
        while not output.exists() or output.read_text().count("\n") < 3:
            calls += actor.does("call", 7)
        ended = live.end()
    assert ended.code == 0
    assert sum(sent(json.loads(line)) for line in output.read_text().splitlines()) == calls


# targets


def test_a_pid_that_exits_during_attach_is_reported() -> None:
    # The process is there when it is looked up and gone when the probes are.
    script = (
        "import subprocess, sys\n"
        "from udsprobe import cli\n"
        "from udsprobe.observe import strategies\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "class Tracer(strategies.Tracer):\n"
        "    def __init__(self, **given):\n"
        "        child.kill(); child.wait()\n"
        "        super().__init__(**given)\n"
        "strategies.Tracer = Tracer\n"
        "from udsprobe.commands.options import selecting\n"
        "from udsprobe.kernel.proc.procfs import Procfs\n"
        "from udsprobe.kernel.selectors import Chosen\n"
        "one = Chosen(child.pid, Procfs().process(child.pid).start_ticks, 'selector', '')\n"
        "selecting.resolve = lambda _: (one,)\n"
        "sys.exit(cli.main(['attach', '--pid', str(child.pid), '--json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"state": "exited"' in done.stdout and '"comm": "sleep"' in done.stdout


def test_a_dead_pid_is_no_target() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    ended = answer(["attach", "--pid", str(child.pid)])
    assert (ended.code, ended.out) == (5, "")
    assert ended.line.startswith(f"udsprobe: error[no-such-pid]: there is no process {child.pid};")


def test_a_zombie_is_no_target() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ended = answer(["attach", "--pid", str(child.pid)])
    child.wait()
    assert ended.code == 5
    assert "has exited" in ended.line


def test_two_selectors_that_match_nothing_are_both_named() -> None:
    ended = answer(["attach", "--comm", "no-such-comm", "--listener", "@no-such-listener"])
    assert ended.code == 5
    assert ended.line.startswith("udsprobe: error[no-match]")
    assert "--comm no-such-comm, --listener @no-such-listener" in ended.line


@pytest.mark.parametrize("order", ["thread", "fork", "spawn", "exec"])
def test_what_a_target_becomes_is_followed(actor: Caller, tmp_path: Path, order: str) -> None:
    with Live(attach(actor), tmp_path) as live:
        calls = actor.does("call", 3) + actor.does(order, 0 if order == "exec" else 40)
        calls += actor.does("call", 2)
        report = live.end().report
    assert sent(report) == calls
    vias = [target["via"] for target in report["targets"]]
    assert vias.count("selector") == 1
    assert vias.count("fork") == (1 if order in ("fork", "spawn") else 0)


@pytest.mark.parametrize("order", ["fork", "spawn"])
def test_no_follow_leaves_children_alone(actor: Caller, tmp_path: Path, order: str) -> None:
    with Live(attach(actor, "--no-follow"), tmp_path) as live:
        calls = actor.does("call", 3)
        actor.does(order, 40)
        calls += actor.does("thread", 4)
        report = live.end().report
    assert sent(report) == calls
    assert [target["pid"] for target in report["targets"]] == [actor.pid]


def test_a_reused_pid_is_a_stranger(actor: Caller, tmp_path: Path) -> None:
    first = Caller()
    with Live(attach(actor, "--pid", str(first.pid)), tmp_path) as live:
        calls = actor.does("call", 3) + first.does("call", 4)
        first.leave()
        with Caller(pid=first.pid) as stranger:
            assert stranger.pid == first.pid
            stranger.does("call", 100)
            report = live.end().report
    assert sent(report) == calls
    states = {target["pid"]: target["state"] for target in report["targets"]}
    assert states == {actor.pid: "running", first.pid: "exited"}


def test_a_pid_reused_before_the_probes_are_live_is_a_stranger(actor: Caller) -> None:
    from udsprobe.kernel.proc.procfs import Procfs
    from udsprobe.kernel.tracer import Tracer

    process = Procfs().process(actor.pid)
    assert process is not None
    tracer = Tracer()
    try:
        tracer.seed({actor.pid: process.start_ticks - 1})
        assert tracer.counters.targets_alive() == 0
        tracer.seed({actor.pid: process.start_ticks})
        assert tracer.counters.targets_alive() == 1
    finally:
        tracer.close()


def settled_rows(report: Report) -> Dict[Tuple[str, str], Tuple[object, ...]]:
    """The table without `write`: the actor's last answer can be read before its write returns."""
    return {
        (row["name"], row["transport"]): (row["calls"], row["errors"], row["bytes"])
        for row in report["syscalls"]
        if row["calls"] and row["name"] != "write"
    }


def test_two_observers_count_the_same(actor: Caller, tmp_path: Path) -> None:
    with (
        Live(attach(actor), tmp_path, "one") as one,
        Live(attach(actor), tmp_path, "two") as two,
    ):
        calls = actor.does("call", 250) + actor.does("fork", 50) + actor.does("thread", 30)
        reports = one.end().report, two.end().report
    assert [sent(report) for report in reports] == [calls, calls]
    first, second = map(settled_rows, reports)
    assert first == second and len(first) > 2


# what is missing


def without_capabilities(*kept: str) -> List[str]:
    """root's uid, with only these capabilities."""
    bound = ",".join(["-all", *(f"+{name}" for name in kept)])
    return ["setpriv", "--inh-caps", "-all", "--bounding-set", bound]


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        ([], "CAP_BPF and CAP_PERFMON, which"),
        (["bpf"], "needs CAP_PERFMON, which"),
        (["perfmon"], "needs CAP_BPF, which"),
    ],
    ids=["none", "only CAP_BPF", "only CAP_PERFMON"],
)
def test_missing_capabilities_are_named(actor: Caller, kept: List[str], missing: str) -> None:
    ended = answer(attach(actor, "--duration", "0.2"), without_capabilities(*kept))
    assert (ended.code, ended.out) == (3, "")
    assert ended.line.startswith("udsprobe: error[not-root]") and missing in ended.line


def as_nobody(*capabilities: str) -> List[str]:
    """Another user, with these capabilities."""
    user = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    given = ",".join(f"+{name}" for name in capabilities)
    prefix = [*user, "--inh-caps", given, "--ambient-caps", given] if given else user
    importing = [*prefix, sys.executable, "-c", "import udsprobe"]
    if subprocess.run(importing, cwd=REPOSITORY, capture_output=True, check=False).returncode:
        pytest.skip("this checkout is closed to other users")
    return prefix


def test_not_root(actor: Caller) -> None:
    ended = answer(attach(actor, "--duration", "0.2"), as_nobody())
    assert ended.code == 3
    assert "CAP_BPF and CAP_PERFMON" in ended.line


def test_two_capabilities_suffice(actor: Caller) -> None:
    name = f"@udsprobe-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name[1:])
        listener.listen(5)
        pids = f"{actor.pid},{os.getpid()}"
        arguments = ["attach", "--pid", pids, "--json", "--duration", "0.2", "--no-follow"]
        ended = answer(arguments, as_nobody("bpf", "perfmon"))
    assert (ended.code, ended.err) == (0, "")
    assert {target["pid"] for target in ended.report["targets"]} == {actor.pid, os.getpid()}
    owners = {one["address"]: one["pids"] for one in ended.report["listeners"]}
    assert owners[name] == [os.getpid()]
    assert ended.report["probe"]["bpf_cpu_pct"] is None


def test_without_more_a_listeners_owner_is_hidden_and_it_is_said() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0udsprobe-test-hidden-{os.getpid()}")
        listener.listen(5)
        selector = f"@udsprobe-test-hidden-{os.getpid()}"
        ended = answer(["attach", "--listener", selector], as_nobody("bpf", "perfmon"))
    assert ended.code == 3
    assert ended.line.startswith("udsprobe: error[owner-hidden]")


def in_own_mounts(change: str) -> List[str]:
    """A mount namespace in which `change` was done before the command runs."""
    return ["unshare", "--mount", "sh", "-c", f'{change} && exec "$@"', "sh"]


def test_no_btf(actor: Caller) -> None:
    hidden = in_own_mounts("mount -t tmpfs none /sys/kernel/btf")
    ended = answer(attach(actor), hidden)
    assert ended.code == 4
    assert ended.line.startswith("udsprobe: error[no-btf]")
    assert "udsprobe listeners" in ended.line


def test_empty_btf(actor: Caller) -> None:
    hidden = in_own_mounts("mount --bind /dev/null /sys/kernel/btf/vmlinux")
    ended = answer(attach(actor), hidden)
    assert ended.code == 4
    assert ended.line.startswith("udsprobe: error[no-btf]")


def test_no_libbpf_names_the_packages_and_listeners_still_work(actor: Caller) -> None:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    paths = [line.split("=> ")[1] for line in listed.splitlines() if "libbpf.so.1 " in line]
    assert paths
    hidden = in_own_mounts(" && ".join(f"mount --bind /dev/null {path}" for path in paths))
    ended = answer(attach(actor), hidden)
    assert ended.code == 4
    assert ended.line.startswith("udsprobe: error[no-libbpf]")
    for part in ("Debian", "Ubuntu", "apt install libbpf1", "Fedora", "Alpine"):
        assert part in ended.line
    assert answer(["listeners", "--json"], hidden).code == 0


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """A copy of the package whose sys_exit program reads a register nobody has written."""
    shutil.copytree(REPOSITORY / "udsprobe", tmp_path / "udsprobe")
    path = tmp_path / "udsprobe" / "_bpf" / f"tracepoint.{os.uname().machine}.bpf.o"
    raw = bytearray(path.read_bytes())
    begin = section(raw, "tp_btf/sys_exit").offset
    raw[begin : begin + 8] = bytes([0xBF, 0x90, 0, 0, 0, 0, 0, 0])  # r0 = r9
    path.write_bytes(raw)
    return tmp_path


def test_a_refused_program_is_named(actor: Caller, refused: Path, nothing_left_over: None) -> None:
    ended = answer(attach(actor), cwd=refused)
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[verifier]")
    assert "sys_exit" in ended.line and "--debug" in ended.line
    assert re.search(r"that clang \d+\.\d+\.\d+ built", ended.line)


def test_debug_shows_why_a_program_is_refused(actor: Caller, refused: Path) -> None:
    ended = answer(["--debug", *attach(actor)], cwd=refused)
    assert ended.code == 4
    assert ended.err.startswith("udsprobe: error[verifier]")
    assert "R9 !read_ok" in ended.err
    assert "Traceback" not in ended.err


def test_lockdown_is_named(actor: Caller, refused: Path, tmp_path: Path) -> None:
    """The errno path: programs are refused, and securityfs says confidentiality."""
    level = tmp_path / "lockdown"
    level.write_text("none integrity [confidentiality]\n")
    shown = "/sys/kernel/security"
    script = f"mount -t securityfs none {shown} && mount --bind {level} {shown}/lockdown"
    ended = answer(attach(actor), in_own_mounts(script), cwd=refused)
    assert (ended.code, ended.out) == (4, "")
    assert ended.line.startswith("udsprobe: error[lockdown]")
    assert "lockdown=integrity" in ended.line and "udsprobe listeners" in ended.line


def test_capabilities_of_a_user_namespace_are_none(actor: Caller) -> None:
    ended = answer(attach(actor), ["unshare", "--user", "--map-root-user"])
    assert (ended.code, ended.out) == (3, "")
    assert ended.line.startswith("udsprobe: error[not-root]")
    assert "CAP_BPF in the host's user namespace" in ended.line
