"""Root only while loading: what a running udsprobe may still do, and that it goes on measuring."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.actor import Caller, sent
from tests.kernel.demo_server import Demo
from tests.kernel.exporting import Exporting
from tests.kernel.live import Live, answer
from tests.kernel.terminal import Terminal
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.workloads.queue_process import OWN_NETWORK, Actor, unix
from udsprobe.kernel.abilities.privileges import TO_LOOK

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

USER, GROUP = 1234, 1235
TO_LOAD = ["bpf", "perfmon"]
RECIPE = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search"
SERVED = re.compile(r"served +([\d,.]+)/s")
User = Optional[Tuple[int, int]]


@pytest.fixture(params=[None, (USER, GROUP)], ids=["root", "sudo"])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> User:
    """Who called sudo, in the environment as sudo leaves it; None: nobody did."""
    found: User = request.param
    for name, value in zip(("SUDO_UID", "SUDO_GID"), found or ()):
        monkeypatch.setenv(name, str(value))
    return found


@pytest.fixture
def folder(user: User) -> Iterator[Path]:
    """A directory of that user's: pytest's own are closed to him."""
    made = Path(tempfile.mkdtemp(prefix="udsprobe-"))
    os.chown(made, *(user or (0, 0)))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def sender() -> Iterator[Caller]:
    with Caller() as started:
        yield started


def statuses(pid: int) -> List[Dict[str, str]]:
    """Each thread's /proc/PID/task/TID/status."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return list(map(status_in, texts))


def status_in(text: str) -> Dict[str, str]:
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def is_least(pid: int, user: User) -> bool:
    """Whether all threads of the process hold the stated minimum, and no more."""
    uid, gid = user or (0, 0)
    wanted = {
        **dict.fromkeys(("CapPrm", "CapEff"), f"{TO_LOOK:016x}"),
        **dict.fromkeys(("CapInh", "CapBnd", "CapAmb"), f"{0:016x}"),
        "NoNewPrivs": "1",
        "Uid": "\t".join([str(uid)] * 4),
        "Gid": "\t".join([str(gid)] * 4),
    }
    found = statuses(pid)
    assert found
    return all({name: each[name] for name in wanted} == wanted for each in found)


# what is left of root, by command


def test_attach(sender: Caller, user: User, folder: Path) -> None:
    with Live(["attach", "--pid", str(sender.pid), "--json"], folder) as live:
        assert is_least(live.pid, user)
        assert live.end().code == 0


def test_attach_in_detail_auto(sender: Caller, user: User, folder: Path) -> None:
    """Windows are loaded anew: what that takes is kept, and nothing else."""
    options = ["--detail", "auto", "--json"]
    with Live(["attach", "--pid", str(sender.pid), *options], folder) as live:
        kept = f"{TO_LOOK | 1 << 38 | 1 << 39:016x}"
        found = statuses(live.pid)
        assert {each["CapPrm"] for each in found} == {each["CapEff"] for each in found} == {kept}
        assert {each["Uid"].split("\t")[1] for each in found} == {str((user or (0, 0))[0])}
        assert live.end().code == 0


def test_record(sender: Caller, user: User, folder: Path) -> None:
    path = folder / "a"
    with Live(["record", "-o", str(path), "--pid", str(sender.pid)], folder) as live:
        assert is_least(live.pid, user)
        assert {each.name for each in folder.iterdir()} == {"ready", "a", "a-wal", "a-shm"}
        assert live.end().code == 0
    assert {each.name for each in folder.iterdir()} == {"ready", "a"}
    for each in folder.iterdir():
        found = each.stat()
        assert (found.st_uid, found.st_gid) == (user or (0, 0))
        assert stat.S_IMODE(found.st_mode) == 0o600


@pytest.mark.parametrize("options", [[], ["--otlp", "grpc://127.0.0.1:9"]], ids=["scrape", "push"])
def test_export(
    sender: Caller, user: User, options: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody takes what is pushed: the last attempt is not to last.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with Exporting(["--pid", str(sender.pid), "--detail", "full", *options]) as exporting:
        assert exporting.text()
        assert is_least(exporting.pid, user)
        assert exporting.end().code == 0


def test_run_gives_the_command_all_that_it_had(user: User, folder: Path) -> None:
    """udsprobe's parent is root, and so is the command: as without udsprobe."""
    command = ["cat", "/proc/self/status"]
    ended = answer(["run", "--json", "--output", str(folder / "report"), "--", *command])
    theirs, (ours, *_) = status_in(ended.out), statuses(os.getpid())
    for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "Uid", "Groups"):
        assert theirs[name] == ours[name], name
    found = (folder / "report").stat()
    assert (found.st_uid, found.st_gid) == (user or (0, 0))


def test_listeners_watch(require: Require, user: User, tmp_path: Path) -> None:
    with Terminal(require("tmux")["tmux"], tmp_path, columns=120) as terminal:
        terminal.type(f"cd {shlex.quote(str(REPOSITORY))}; clear; echo $$ >{tmp_path}/shell")
        with Actor() as server:
            server.listen(unix(b"\0udsprobe-least-%d" % os.getpid()), 3)
            arguments = ["listeners", "--watch", "--interval", "0.1", "--pid", str(server.pid)]
            terminal.type(f"exec {shlex.join([*UDSPROBE, *arguments])}")
            terminal.wait(lambda seen: "@udsprobe-least" in seen)
            assert is_least(int((tmp_path / "shell").read_text()), user)
            server.listen(unix(b"\0udsprobe-later-%d" % os.getpid()), 3)
            terminal.wait(lambda seen: "@udsprobe-later" in seen)


def test_it_can_be_refused(sender: Caller, user: User, folder: Path) -> None:
    arguments = ["attach", "--pid", str(sender.pid), "--json", "--keep-privileges"]
    with Live(arguments, folder) as live:
        ours, (theirs, *_) = statuses(os.getpid())[0], statuses(live.pid)
        assert all(theirs[name] == ours[name] for name in ("CapEff", "CapBnd", "Uid", "NoNewPrivs"))
        assert live.end().code == 0


# it goes on measuring


@pytest.mark.parametrize("order", ["fork", "spawn", "exec", "thread"])
def test_what_comes_later_is_followed(sender: Caller, user: User, folder: Path, order: str) -> None:
    with Live(["attach", "--pid", str(sender.pid), "--json"], folder) as live:
        assert is_least(live.pid, user)
        calls = sender.does("call", 3) + sender.does(order, 0 if order == "exec" else 40)
        report = live.end().report
    assert sent(report) == calls
    children = [target for target in report["targets"] if target["via"] == "fork"]
    assert len(children) == (order in ("fork", "spawn"))


def test_other_users_listeners_and_who_is_refused(user: User, folder: Path) -> None:
    """All that takes the two capabilities: a listener that comes later, in a directory of root's
    alone, handed to another process, and a client that fails to reach it."""
    place = folder / "closed"
    place.mkdir(mode=0o700)
    with Actor() as server, Actor() as other, Actor() as client:
        arguments = ["attach", "--pid", f"{server.pid},{other.pid}", "--json"]
        with Live([*arguments, "--interval", "0.1"], folder) as live:
            assert is_least(live.pid, user)
            heard = server.listen(unix(place / "s"), 1)
            server.hand_over(heard["listener"], other)
            assert client.connect(unix(place / "s"), 2)["results"] == {"OK": 2}
            failed = client.connect(unix(place / "s"), 7, blocking=False)["results"]
            report = live.end().report
    (row,) = [row for row in report["listeners"] if row["inode"] == heard["inode"]]
    assert failed == row["refused"] == {"EAGAIN": 7}
    assert sorted(row["pids"]) == sorted([server.pid, other.pid])
    assert {target["fds"]["open"] for target in report["targets"]} != {None}


def test_a_network_namespace_that_was_entered_stays_open(user: User, folder: Path) -> None:
    with Actor(*OWN_NETWORK) as server:
        server.do("write", path="/proc/sys/net/core/somaxconn", text="7")
        with Live(["attach", "--pid", str(server.pid), "--json"], folder) as live:
            assert is_least(live.pid, user)
            heard = server.listen(unix(b"\0s"), 100)
            server.do("write", path="/proc/sys/net/core/somaxconn", text="9")
            report = live.end().report
    (row,) = [row for row in report["listeners"] if row["inode"] == heard["inode"]]
    assert row["backlog"]["effective"] == 7
    (space,) = [each for each in report["namespaces"] if each["netns"] == row["netns"]]
    assert space["somaxconn"] == 9


def test_the_dashboard(require: Require, user: User, tmp_path: Path) -> None:
    """In a real terminal, long enough for what happens every tenth sample."""
    with Demo() as demo, Terminal(require("tmux")["tmux"], tmp_path) as terminal:
        terminal.type(f"cd {shlex.quote(str(REPOSITORY))}; clear; echo $$ >{tmp_path}/shell")
        arguments = ["attach", "--pid", str(demo.pid), "--interval", "0.1"]
        terminal.type(f"exec {shlex.join([*UDSPROBE, *arguments])}")
        terminal.wait(lambda seen: "requests" in seen)
        assert is_least(int((tmp_path / "shell").read_text()), user)
        with demo.loaded():
            terminal.wait(served_some)
        terminal.wait(lambda seen: not served_some(seen))
        with demo.loaded():
            terminal.wait(served_some)
        assert is_least(int((tmp_path / "shell").read_text()), user)


def served_some(screen: str) -> bool:
    found = SERVED.search(screen)
    return found is not None and float(found[1].replace(",", "")) > 0


def test_the_probes_own_time_is_of_the_first_second(sender: Caller, tmp_path: Path) -> None:
    """CAP_SYS_ADMIN turns the kernel's statistics on; afterwards nothing is said, and not 0."""
    output = tmp_path / "lines"
    arguments = ["attach", "--pid", str(sender.pid), "--interval", "0.5"]
    with Live([*arguments, "--jsonl", "--output", str(output)], tmp_path) as live:
        while len(shown := own_shares(output)) < 2 or shown[-1] is not None:
            time.sleep(0.05)
        assert live.end().code == 0
    assert shown[0] is not None
    window = answer([*arguments, "--duration", "2.2", "--json"]).report
    assert window["probe"]["bpf_cpu_pct"] is not None


def own_shares(path: Path) -> List[Optional[float]]:
    """Of the complete lines so far."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["probe"]["bpf_cpu_pct"] for line in lines if line.endswith("\n")]


# where it cannot be


def test_roots_directories_need_roots_uid(
    sender: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made there later could not be made otherwise; the capabilities go all the same."""
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(GROUP))
    with Live(["attach", "--pid", str(sender.pid), "--json"], tmp_path) as live:
        assert is_least(live.pid, None)
        assert live.end().code == 0


LOOKING = ["sys_ptrace", "dac_read_search"]


def with_capabilities(kept: List[str]) -> List[str]:
    """The prefix that runs a command as another user with these capabilities."""
    given = ",".join(["-all", *(f"+{name}" for name in kept)])
    who = ["setpriv", "--reuid", str(USER), "--regid", str(GROUP), "--clear-groups"]
    return [*who, f"--inh-caps={given}", f"--ambient-caps={given}", f"--bounding-set={given}"]


@pytest.mark.parametrize(
    ("given", "left"),
    [(TO_LOAD, 0), ([*TO_LOAD, *LOOKING], TO_LOOK), ([*TO_LOAD, "net_admin", "sys_admin"], 0)],
    ids=["two", "four", "others"],
)
def test_without_root(require: Require, sender: Caller, given: List[str], left: int) -> None:
    require("setpriv")
    whom = ["--pid", str(sender.pid), "--detail", "full"]
    with Exporting(whom, prefix=with_capabilities(given)) as exporting:
        assert exporting.text()
        found = statuses(exporting.pid)
        assert exporting.end().code == 0
    assert {(each["CapPrm"], each["CapEff"]) for each in found} == {(f"{left:016x}",) * 2}
    assert {each["NoNewPrivs"] for each in found} == {"1"}


def test_a_program_with_file_capabilities(require: Require, sender: Caller) -> None:
    """The recipe of docs/privileges.md: an interpreter of its own that has them."""
    found = require("setpriv", "setcap")
    made = Path(tempfile.mkdtemp(prefix="udsprobe-"))
    try:
        made.chmod(0o755)
        venv.create(made / "venv", symlinks=False)
        (packages,) = made.glob("venv/lib/python*/site-packages")
        (packages / "all.pth").write_text("\n".join([str(REPOSITORY), *sys.path]))
        program = made / "venv/bin/python3"
        subprocess.run([found["setcap"], f"{RECIPE}=ep", program], check=True)
        user = ["setpriv", "--reuid", str(USER), "--regid", str(GROUP), "--clear-groups"]
        arguments = ["attach", "--pid", str(sender.pid), "--duration", "0.2", "--json"]
        done = subprocess.run(
            [*user, program, "-m", "udsprobe", *arguments], cwd="/", capture_output=True, text=True
        )
    finally:
        shutil.rmtree(made)
    assert (done.returncode, done.stderr) == (0, "")
    assert RECIPE in (REPOSITORY / "docs/privileges.md").read_text()
