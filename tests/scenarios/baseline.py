"""The baseline: what the tuning guides' recipe says, `strace -c` on the same server and load.

The recipe, in its order, each step read in the recipe's favour (a family of calls instead of the
one it names, which many servers never use):

1. epoll_wait above 60 % of system-call time: bound by I/O, the transport.
2. a send of more than 10 µs: buffers are full.
3. accepts that are not few beside sends: the accept queue.
4. sends and receives that dominate: the transport.
5. otherwise something else: the application.
"""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Sequence, Set

from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench, family_of
from tests.scenarios.case import Case, Subject
from tests.scenarios.judge import Judgement
from tests.scenarios.programs import program

POLL_SHARE_PCT = 60.0
SEND_US_PER_CALL = 10.0
# "Low relative to sendmsg": less than one accept for ten sends.
ACCEPTS_PER_SEND = 0.1
DOMINATES_PCT = 50.0

POLLS = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"}
SENDS = {"sendmsg", "sendto", "sendmmsg", "write", "writev", "sendfile"}
RECEIVES = {"recvmsg", "recvfrom", "recvmmsg", "read", "readv"}
ACCEPTS = {"accept", "accept4"}


@dataclass(frozen=True)
class Row:
    """One line of `strace -c`."""

    share_pct: float
    usecs_per_call: float
    calls: int


Table = Dict[str, Row]


def observe(case: Case, duration_s: float) -> Judgement:
    """Set the case up again, have strace count for `duration_s`, and apply the recipe."""
    with Bench(case.transport) as bench:
        subject = case.set_up(bench)
        table = parse(count(subject, duration_s, bench.folder / "strace.txt"))
    return recipe(table)


def count(subject: Subject, duration_s: float, output: Path) -> str:
    """The table `strace -c -f` prints for these processes and their children."""
    family = {one for first in subject.pids for one in family_of(first)}
    return trace(["-c", "-f"], sorted(family), duration_s, output)


def trace(options: Sequence[str], pids: Sequence[int], duration_s: float, output: Path) -> str:
    """What `strace OPTIONS` writes of these processes in so long, from when it has attached."""
    argv = [program("strace"), *options, "-o", str(output)]
    argv += [word for pid in pids for word in ("-p", str(pid))]
    said = output.with_suffix(".said")
    with said.open("wb") as words:
        strace = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words
        )
    give_up_at = time.monotonic() + PATIENCE_S
    # "Process 1 attached with 7 threads", or why it cannot attach to one.
    while said.read_bytes().count(b"attach") < len(pids) and strace.poll() is None:
        assert time.monotonic() < give_up_at, said.read_text()
        time.sleep(0.01)
    time.sleep(duration_s)  # the window itself
    strace.send_signal(signal.SIGINT)
    try:
        strace.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        strace.kill()
        strace.wait()
    return output.read_text() if output.exists() else ""


def parse(text: str) -> Table:
    """The rows by system call, without the total."""
    rows: Table = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 5 or not words[0].replace(".", "", 1).isdigit() or words[-1] == "total":
            continue
        rows[words[-1]] = Row(float(words[0]), float(words[2]), int(words[3]))
    return rows


def recipe(table: Table) -> Judgement:
    """The recipe's cause for a table."""
    polls, sends = _share(table, POLLS), _share(table, SENDS)
    moved = sends + _share(table, RECEIVES)
    slow = [name for name in SENDS & table.keys() if table[name].usecs_per_call > SEND_US_PER_CALL]
    accepts, calls = _calls(table, ACCEPTS), _calls(table, SENDS)
    if not table:
        return Judgement("unknown", "no system call was made")
    if polls > POLL_SHARE_PCT:
        return Judgement("transport", f"polls are {polls:.0f} % of system-call time")
    if slow:
        name = max(slow, key=lambda one: table[one].usecs_per_call)
        return Judgement("send-blocked", f"{table[name].usecs_per_call:.0f} µs for a {name}")
    if accepts > ACCEPTS_PER_SEND * calls:
        return Judgement("accept-queue-full", f"{accepts} accepts beside {calls} sends")
    if moved > DOMINATES_PCT:
        return Judgement("transport", f"sends and receives are {moved:.0f} % of system-call time")
    return Judgement("app-cpu", f"{moved:.0f} % sends and receives, {polls:.0f} % polls")


def _share(table: Table, names: Set[str]) -> float:
    return sum(row.share_pct for name, row in table.items() if name in names)


def _calls(table: Table, names: Set[str]) -> int:
    return sum(row.calls for name, row in table.items() if name in names)
