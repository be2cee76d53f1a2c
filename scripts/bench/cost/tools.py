"""Who looks: udsprobe, its floor, and the tools it stands beside. Each attaches and is ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional, Sequence, Tuple

from scripts.bench.cost.processes import OnTerminal, cpu_s_of, end, wait_until
from scripts.bench.cost.programs import ROOT, empty_pair, missing

# tracefs is not mounted everywhere; the tools that need it get it for themselves alone.
WITH_TRACEFS = [
    *("unshare", "-m", "sh", "-c"),
    'mount -t tracefs none /sys/kernel/tracing 2>/dev/null; exec "$@"',
    "sh",
]
SECCOMP_CALLS = "read,write,readv,writev,sendto,recvfrom,sendmsg,recvmsg,accept,accept4,connect"
BPFTRACE = """
tracepoint:raw_syscalls:sys_enter /{chosen}/ {{ @began[tid] = nsecs; }}
tracepoint:raw_syscalls:sys_exit /@began[tid]/ {{
  @took[args->id] = hist(nsecs - @began[tid]); @calls[args->id] = count(); delete(@began[tid]);
}}
interval:ms:50 {{ printf("at work\\n"); }}
END {{ clear(@began); }}
"""
NUMBERS = {"sendto": 44, "recvfrom": 45}  # x86_64
WARM_UP_S = 0.3


@dataclass
class Account:
    """What a tool said at its end.

    Attributes:
        calls: system call → how many it counted; None when it does not say.
        lost: events that it says it lost; None when it does not say.
        own_cpu_s, wall_s: CPU time of its process while it looked, and for how long.
        attach_s, end_s: from the command until it looks; from the signal until it is gone.
    """

    calls: Optional[Dict[str, int]] = None
    lost: Optional[int] = None
    own_cpu_s: Optional[float] = None
    wall_s: Optional[float] = None
    attach_s: Optional[float] = None
    end_s: Optional[float] = None


@dataclass(frozen=True)
class Tool:
    """One arm of the comparison.

    Attributes:
        look: (folder, targets) → a context manager whose value is filled in at its end.
        prefix: folder → words before the target's own, for a tool that cannot attach.
        absent: the reason why it cannot run here; empty when it can.
        is_slow: its effect is so large that fewer rounds tell it.
        takes_one: process only.
        settle_s: under load before it is measured, where its cost changes at first.
    """

    name: str
    says: str
    look: Callable[[Path, Sequence[int]], Iterator[Account]]
    absent: Callable[[], str] = lambda: ""
    prefix: Optional[Callable[[Path], Sequence[str]]] = None
    is_slow: bool = False
    takes_one: bool = False
    settle_s: float = 0.0


def _nothing(_: Path, __: Sequence[int]) -> Iterator[Account]:
    yield Account()


def _empty(folder: Path, _: Sequence[int]) -> Iterator[Account]:
    from udsprobe.kernel.objects.probe_object import ProbeObject

    pair = ProbeObject(empty_pair(folder))
    try:
        pair.load()
        for name in ("sys_enter", "sys_exit"):
            pair.attach(name)
        yield Account()
    finally:
        pair.close()


def udsprobe(detail: str) -> Callable[[Path, Sequence[int]], Iterator[Account]]:
    """`udsprobe attach` with that detail."""
    return lambda folder, targets: _udsprobe(folder, targets, ("--detail", detail))


def _udsprobe(
    folder: Path, targets: Sequence[int], options: Sequence[str] = ()
) -> Iterator[Account]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        ready, report = Path(name) / "ready", Path(name) / "report.json"
        words = [sys.executable, "-m", "udsprobe", "attach", "--json", "--output", str(report)]
        # Stacks are measured by themselves (stacks.py): they are taken for ten seconds at most.
        words += ["--ready-file", str(ready), "--no-stacks", *options]
        for pid in targets:
            words += ["--pid", str(pid)]
        began = time.monotonic()
        process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        account = Account()
        try:
            wait_until(ready.exists, "udsprobe", process)
            account.attach_s = time.monotonic() - began
            with _own_cpu(process.pid, account):
                yield account
        finally:
            began = time.monotonic()
            end(process)
            account.end_s = time.monotonic() - began
        document = json.loads(report.read_text())
        # In detail auto they are those of its full windows.
        seen = None if document["probe"]["detail"] == "auto" else document["syscalls"]
        if seen is not None:
            account.calls = {}
        for row in seen or ():
            assert account.calls is not None
            account.calls[row["name"]] = account.calls.get(row["name"], 0) + row["calls"]
        account.lost = sum(document["probe"]["events_lost"].values())


@contextmanager
def _own_cpu(pid: int, account: Account) -> Iterator[None]:
    began, before_s = time.monotonic(), cpu_s_of(pid)
    yield
    account.wall_s = time.monotonic() - began
    account.own_cpu_s = cpu_s_of(pid) - before_s


def _on_terminal(
    words: Callable[[Sequence[int]], Sequence[str]],
    ready: Optional[bytes],
    read: Callable[[str], Account],
) -> Callable[[Path, Sequence[int]], Iterator[Account]]:
    """A tool that says when it is at work (`ready`), or opens perf events (None)."""

    def look(_: Path, targets: Sequence[int]) -> Iterator[Account]:
        began = time.monotonic()
        tool = OnTerminal([*WITH_TRACEFS, *words(targets)])
        account = Account()
        try:
            if ready is None:
                wait_until(lambda: _has_events(tool.process.pid), words(targets)[0], tool.process)
            else:
                tool.said(ready)
            account.attach_s = time.monotonic() - began
            with _own_cpu(tool.process.pid, account):
                yield account
        finally:
            began = time.monotonic()
            _, said = tool.close()
            account.end_s = time.monotonic() - began
        told = read(said)
        account.calls, account.lost = told.calls, told.lost

    return look


def _has_events(pid: int) -> bool:
    """It has perf events, each mapped into its memory."""
    return "[perf_event]" in Path(f"/proc/{pid}/maps").read_text()


def _launched(folder: Path, _: Sequence[int]) -> Iterator[Account]:
    account = Account()
    yield account
    account.calls = read_table((folder / "strace.txt").read_text(), name_at=-1, calls_at=3).calls


def read_table(said: str, *, name_at: int, calls_at: int) -> Account:
    """Rows of a table: the words at these places are a system call and how often it was made."""
    calls: Dict[str, int] = {}
    for line in said.splitlines():
        words = line.split()
        if len(words) > calls_at and words[calls_at].isdigit() and not words[name_at].isdigit():
            calls[words[name_at]] = calls.get(words[name_at], 0) + int(words[calls_at])
    return Account(calls)


def read_bpftrace(said: str) -> Account:
    """The counts of its map, and what it says was lost or found no room."""
    counted = {int(nr): int(calls) for nr, calls in re.findall(r"@calls\[(\d+)\]: (\d+)", said)}
    lost = sum(map(int, re.findall(r"Lost (\d+) events", said)))
    return Account({name: counted.get(nr, 0) for name, nr in NUMBERS.items()}, lost)


def read_perf(said: str) -> Account:
    """The rows of `perf trace -s`, and the events it says it lost."""
    account = read_table(said, name_at=0, calls_at=1)
    assert account.calls is not None
    account.calls.pop("LOST", None)
    account.lost = sum(map(int, re.findall(r"LOST (\d+) events", said)))
    return account


def _has(*programs: str) -> Callable[[], str]:
    return lambda: missing(("unshare", *programs))


def _bpf_summary_absent() -> str:
    absent = missing(("perf",))
    if absent:
        return absent
    done = subprocess.run(["perf", "trace", "-h"], capture_output=True, text=True, check=False)
    if "bpf-summary" in done.stdout + done.stderr:
        return ""
    version = subprocess.run(["perf", "--version"], capture_output=True, text=True, check=False)
    return f"{version.stdout.strip()} has no --bpf-summary (perf 6.16 and later)"


def _perf(*options: str) -> Callable[[Sequence[int]], Sequence[str]]:
    return lambda pids: [*["perf", "--no-pager", "trace", "-s"], *options, "-p", _joined(pids)]


def _joined(pids: Sequence[int]) -> str:
    return ",".join(map(str, pids))


def _bpftrace(pids: Sequence[int]) -> Sequence[str]:
    chosen = " || ".join(f"pid == {pid}" for pid in pids)
    return ["bpftrace", "-e", BPFTRACE.format(chosen=chosen)]


def _strace(pids: Sequence[int]) -> Sequence[str]:
    return ["strace", "-c", "-f", "-p", _joined(pids)]


def _seccomp_prefix(folder: Path) -> Sequence[str]:
    output = str(folder / "strace.txt")
    return ["strace", "--seccomp-bpf", "-c", "-f", "-o", output, "-e", f"trace={SECCOMP_CALLS}"]


def _read_strace(said: str) -> Account:
    return read_table(said, name_at=-1, calls_at=3)


def _read_syscount(said: str) -> Account:
    return read_table(said, name_at=0, calls_at=1)


TOOLS = (
    Tool("nothing", "nobody looks", _nothing),
    Tool("empty", "an empty program on each end of every call", _empty, _has("clang")),
    Tool("udsprobe", "`udsprobe attach`, everything on", _udsprobe),
    Tool(
        *("syscount", "libbpf-tools `syscount -L -p`: count and total by call"),
        _on_terminal(
            lambda pids: ["syscount", "-L", "-p", _joined(pids)], b"Tracing", _read_syscount
        ),
        *(_has("syscount"), None, False, True),
    ),
    Tool(
        *("bpftrace", "bpftrace, one histogram of time and a count by call"),
        *(_on_terminal(_bpftrace, b"at work", read_bpftrace), _has("bpftrace")),
    ),
    Tool(
        *("strace", "`strace -c -f`", _on_terminal(_strace, b"attached", _read_strace)),
        *(_has("strace"), None, True),
    ),
    Tool(
        *("strace-seccomp", "`strace --seccomp-bpf -c -f`, socket calls only; cannot attach"),
        *(_launched, _has("strace"), _seccomp_prefix, True),
    ),
    Tool(
        *("perf-trace", "`perf trace -s`", _on_terminal(_perf(), None, read_perf)),
        *(_has("perf"), None, True),
    ),
    Tool(
        *("perf-trace-bpf", "`perf trace -s --bpf-summary`"),
        *(_on_terminal(_perf("--bpf-summary"), None, read_perf), _bpf_summary_absent, None, True),
    ),
)


def chosen_tools(names: Optional[Sequence[str]]) -> Tuple[Tool, ...]:
    """Those of these names, or all; `nothing` is always among them.

    Raises:
        KeyError: there is none of a name.
    """
    known = {tool.name: tool for tool in TOOLS}
    if names is None:
        return TOOLS
    wanted = ["nothing", *(name for name in names if name != "nothing")]
    return tuple(known[name] for name in wanted)
