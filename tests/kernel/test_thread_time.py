"""Thread time against the scheduler's own account, in /proc/PID/task/TID/schedstat."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel.tool import Attached
from tests.workloads import stages_program
from tests.workloads.build import BuildError
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.model.thread_time import shares
from udsprobe.observe import Observer
from udsprobe.sample import Sample

pytestmark = [pytest.mark.root]

Activities = Dict[str, int]
TIMEOUT_S = 30
ACTIVE_MS = 1500
CPU = ("user", "sys_socket", "sys_poll", "sys_other")
# What each thread at rest does nothing but wait for.
AT_REST = {
    "lock": "blocked_lock",
    "epoll": "blocked_poll",
    "poll": "blocked_poll",
    "select": "blocked_poll",
    "recv": "blocked_recv",
    "read": "blocked_other",
    "send": "blocked_send",
    "accept": "blocked_accept",
    "connect": "blocked_connect",
    "nap": "blocked_other",
}
ACTIVE = {"spin": 1, "call": 1, "mix": 4, "wake": 4, "echo": 2, "disk": 2}
# The promise, and what the scheduler's clock and ours differ by at each switch.
RELATIVE = 0.02
SUM_ERROR = 0.005


class Scheduler(NamedTuple):
    """What the kernel says of one thread: ns on a CPU, ns runnable without one, switches."""

    cpu_ns: int
    delay_ns: int
    slices: int

    def since(self, before: Scheduler) -> Scheduler:
        return Scheduler(*(now - then for now, then in zip(self, before)))


def scheduler_of(pid: int) -> Dict[int, Scheduler]:
    """Thread id → its account."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        path = task / "schedstat"
        if not path.exists():
            give_up("this kernel has no /proc/PID/task/TID/schedstat (CONFIG_SCHED_INFO)")
        found[int(task.name)] = Scheduler(*map(int, path.read_text().split()))
    return found


def wait_until_asleep(pid: int, tids: List[int]) -> None:
    """Until each sleeps and has not run between two looks."""
    give_up_at = time.monotonic() + TIMEOUT_S
    before: List[str] = []
    while True:
        assert time.monotonic() < give_up_at, "its threads never came to rest"
        folders = [Path(f"/proc/{pid}/task/{tid}") for tid in tids]
        states = [(f / "stat").read_text().rpartition(") ")[2][0] for f in folders]
        switches = [(f / "schedstat").read_text() for f in folders]
        if set(states) == {"S"} and switches == before:
            return
        before = switches
        time.sleep(0.02)


class Server:
    """A `threads_server` whose threads are all where they belong."""

    def __init__(self, folder: Path, active_ms: int = ACTIVE_MS, **modes: int) -> None:
        arguments = [str(folder), str(active_ms), *stages_program.options(**modes)]
        try:
            self._program = stages_program.Program("threads_server", *arguments)
        except BuildError as error:
            give_up(str(error))
            raise
        self.pid = self._program.pid

    def __enter__(self) -> Server:
        self.modes = self._read()
        wait_until_asleep(self.pid, list(self.modes))
        return self

    def __exit__(self, *raised: object) -> None:
        self._program.__exit__(*raised)

    def act(self) -> Dict[int, str]:
        """Let the active ones work; returns when all are at rest again."""
        self._program.go()
        found = self._read()
        wait_until_asleep(self.pid, [tid for tid in found if found[tid] not in ("ends", "dead")])
        return found

    def _read(self) -> Dict[int, str]:
        return {int(tid): mode for tid, mode in self._program.document().items()}


@contextmanager
def observer(pid: int) -> Iterator[Observer]:
    process = Procfs().process(pid)
    assert process is not None
    chosen = Chosen(pid, process.start_ticks, "selector", "test")
    with Observer([chosen], interval_s=1.0, follow=True) as observing:
        yield observing


def last_sample(observing: Observer) -> Sample:
    observing.finish()
    return observing._last


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that burn a CPU each, for 6 s at most."""
    command = [sys.executable, "-c", "import time\ne = time.time() + 6\nwhile time.time() < e: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def by_thread(sample: Sample) -> Dict[int, Activities]:
    return {thread.tid: dict(thread.activity_ns) for thread in sample.threads or ()}


def spent(first: Sample, last: Sample) -> Dict[int, Activities]:
    before = by_thread(first)
    return {
        tid: {name: ns - before.get(tid, {}).get(name, 0) for name, ns in times.items()}
        for tid, times in by_thread(last).items()
    }


def on_cpu(times: Activities) -> int:
    return sum(times[name] for name in CPU)


if __name__ == "__main__":
    import tempfile
    n = int(sys.argv[1]); work = dict(lock=60, epoll=40, poll=10, select=10, recv=30, read=4, send=4, accept=8, connect=4, nap=16, **ACTIVE)
    with Server(Path(tempfile.mkdtemp()), **work) as server, hogs(n):
        tb = scheduler_of(server.pid)
        with observer(server.pid) as o:
            server.act()
            last = last_sample(o)
        ta = scheduler_of(server.pid)
        window = last.monotonic_ns - o.first.monotonic_ns
        for tid, times in spent(o.first, last).items():
            if tid not in tb: continue
            t = ta[tid].since(tb[tid]); m = server.modes.get(tid, "main")
            tot = sum(times.values())
            if m not in AT_REST:
                print(f"{m:8} n={t.slices:6} cpu {on_cpu(times)/1e6:9.3f} {t.cpu_ns/1e6:9.3f} {on_cpu(times)/max(1,t.cpu_ns):.4f}  runq {times['runq']/1e6:9.3f} {t.delay_ns/1e6:9.3f} {times['runq']/max(1,t.delay_ns):.4f} sum {tot/window:.5f}", {k:round(v/1e6,1) for k,v in times.items() if v>1e5})
            elif abs(tot/window-1)>.001 or times[AT_REST[m]]/tot < .9999: print(m, tot/window, times)
