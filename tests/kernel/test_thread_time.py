"""Thread time against the scheduler's own account, in /proc/PID/task/TID/schedstat."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel.at_rest import wait_until_asleep
from tests.patience import SLOWNESS
from tests.workloads import stages_program
from tests.workloads.build import BuildError
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.model.threads.thread_time import thread_time
from udsprobe.observe.collector import Collector, _Counted
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.observe.observation import Observer
from udsprobe.sample import Sample

pytestmark = [pytest.mark.root, pytest.mark.alone]

Activities = Dict[str, int]
NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
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
LARGE = {
    "lock": 60, "epoll": 40, "poll": 10, "select": 10, "recv": 30, "read": 4, "send": 4,
    "accept": 8, "connect": 4, "nap": 16,
}  # fmt: skip
RELATIVE = 0.02 * SLOWNESS
# The scheduler's clock is that of the wake-up, ours is read in the switch; and time in
# interrupts is in ours, and not in the scheduler's.
SLICE_NS = 10_000 * SLOWNESS
# Migrated while it still is on a run queue asleep (EEVDF keeps it there for a while), a
# thread gathers run delay until it is woken.
ASLEEP_ON_RUN_QUEUE_NS = 4_000_000 * SLOWNESS


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


def stolen_ns() -> int:
    """Time the hypervisor had the CPUs for others: left out of the scheduler's clock of a task
    (update_rq_clock_task), and in ours. Between the scheduler's look at its clock and the
    switch, where we look at ours, it is on a run queue for us and not for the scheduler."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) * NS_PER_TICK


def stolen_since(before_ns: int) -> int:
    """At most: it is told in ticks, of each CPU at its next one."""
    return stolen_ns() - before_ns + (os.cpu_count() or 1) * NS_PER_TICK


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
    with Observer([chosen], ObserverOptions(1.0, follow=True)) as observing:
        yield observing


def last_sample(observing: Observer) -> Sample:
    """The one that ended the window: probes are off by then."""
    observing.finish()
    return observing.last


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that burn a CPU each, for 6 s at most."""
    program = "import time\nend = time.time() + 6\nwhile time.time() < end: pass"
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def by_thread(sample: Sample) -> Dict[int, Activities]:
    now_ns = sample.monotonic_ns
    return {thread.tid: dict(thread.until(now_ns)) for thread in sample.threads or ()}


def spent(first: Sample, last: Sample) -> Dict[int, Activities]:
    """Of each living thread, in the window."""
    before = by_thread(first)
    return {
        tid: {name: ns - before.get(tid, {}).get(name, 0) for name, ns in times.items()}
        for tid, times in by_thread(last).items()
    }


def on_cpu(times: Activities) -> int:
    return sum(times[name] for name in CPU)


def whole(times: Activities) -> int:
    return sum(times.values())


class Window(NamedTuple):
    """One observation of a server, and the scheduler's account of the same time."""

    server: Server
    first: Sample
    last: Sample
    scheduler: Dict[int, Scheduler]
    stolen_ns: int
    readings: List[Tuple[int, int]]

    def length_ns(self) -> Tuple[int, int]:
        """Between the two readings of the counters, at least and at most: each takes a while,
        and long where others hold the CPU."""
        (first_begun, first_done), (last_begun, last_done) = self.readings[0], self.readings[-1]
        return last_begun - first_done, last_done - first_begun

    def spent(self) -> Dict[int, Activities]:
        return spent(self.first, self.last)


def observe(folder: Path, hogs_running: int, **modes: int) -> Window:
    """All threads sleep when the account is taken, before and after: both are of the same time."""
    with Server(folder, **modes) as server, hogs(hogs_running), read_moments() as readings:
        before, stolen_before_ns = scheduler_of(server.pid), stolen_ns()
        with observer(server.pid) as observing:
            server.act()
            last = last_sample(observing)
            after = scheduler_of(server.pid)
            account = {tid: after[tid].since(before[tid]) for tid in before if tid in after}
            stolen = stolen_since(stolen_before_ns)
            return Window(server, observing.first, last, account, stolen, readings)


@contextmanager
def read_moments() -> Iterator[List[Tuple[int, int]]]:
    """When each reading of the counters began and was done."""
    moments: List[Tuple[int, int]] = []
    plain = Collector._read_counters

    def timed(self: Collector) -> _Counted:
        begun_ns = time.monotonic_ns()
        counted = plain(self)
        moments.append((begun_ns, time.monotonic_ns()))
        return counted

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Collector, "_read_counters", timed)
        yield moments


@pytest.fixture(scope="module", params=[0, 2], ids=["alone", "beside two hogs"])
def window(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Window:
    """A server of more than 200 threads."""
    return observe(tmp_path_factory.mktemp("s"), request.param, **LARGE, **ACTIVE)


def test_every_thread_is_somewhere_all_the_time(window: Window) -> None:
    """Those too that have slept since before we came."""
    times = window.spent()
    assert set(times) == {*window.server.modes, window.server.pid}
    assert len(times) > 200
    least_ns, most_ns = window.length_ns()
    found = {tid: whole(each) for tid, each in times.items()}
    wrong = {tid: ns for tid, ns in found.items() if not least_ns <= ns <= most_ns}
    assert wrong == {}, (least_ns, most_ns)
    time_of_threads = thread_time(window.first, window.last)
    assert time_of_threads is not None
    for row in time_of_threads.threads:
        assert sum(row.share.values()) == pytest.approx(1, abs=1e-9)
    assert sum(time_of_threads.total.values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("mode", AT_REST)
def test_a_sleeping_thread_waits_for_one_thing(window: Window, mode: str) -> None:
    times = window.spent()
    found = [times[tid] for tid, is_mode in window.server.modes.items() if is_mode == mode]
    assert len(found) == LARGE[mode]
    for each in found:
        assert each[AT_REST[mode]] == whole(each)


def active(window: Window) -> List[int]:
    return [tid for tid, mode in window.server.modes.items() if mode in ACTIVE]


def test_cpu_time_is_the_scheduler_s(window: Window) -> None:
    times, scheduler = window.spent(), window.scheduler
    for tid in active(window):
        assert on_cpu(times[tid]) == pytest.approx(
            scheduler[tid].cpu_ns,
            rel=RELATIVE,
            abs=SLICE_NS * scheduler[tid].slices + window.stolen_ns,
        )
    assert sum(on_cpu(times[tid]) for tid in active(window)) == pytest.approx(
        sum(scheduler[tid].cpu_ns for tid in active(window)), rel=RELATIVE, abs=window.stolen_ns
    )


def test_run_queue_time_is_the_scheduler_s(window: Window) -> None:
    times, scheduler = window.spent(), window.scheduler
    clocks_ns = ASLEEP_ON_RUN_QUEUE_NS + window.stolen_ns
    for tid in active(window):
        tolerance = SLICE_NS * scheduler[tid].slices + clocks_ns
        assert times[tid]["runq"] == pytest.approx(
            scheduler[tid].delay_ns, rel=RELATIVE, abs=tolerance
        )
    assert sum(times[tid]["runq"] for tid in active(window)) == pytest.approx(
        sum(scheduler[tid].delay_ns for tid in active(window)),
        rel=RELATIVE,
        abs=clocks_ns,
    )


def test_a_busy_thread_is_busy_with_what_it_does(window: Window) -> None:
    """And with nothing else while it was active; a share of CPU time, which hogs only shorten."""
    times = window.spent()
    by_mode = {mode: times[tid] for tid, mode in window.server.modes.items()}
    assert by_mode["spin"]["user"] > 0.98 * on_cpu(by_mode["spin"])
    assert by_mode["call"]["sys_other"] > 0.2 * on_cpu(by_mode["call"])
    assert by_mode["echo"]["sys_socket"] > 0.5 * on_cpu(by_mode["echo"])
    wake = by_mode["wake"]
    at_work = whole(wake) - wake["blocked_lock"] - wake["runq"]
    assert wake["blocked_other"] + on_cpu(wake) == pytest.approx(at_work, rel=0.01)
    for mode in ("spin", "call", "echo"):
        at_work = whole(by_mode[mode]) - by_mode[mode]["blocked_lock"]
        assert on_cpu(by_mode[mode]) + by_mode[mode]["runq"] > 0.99 * at_work


def test_waiting_for_a_disk(window: Window) -> None:
    """fsync() of a file: its thread sleeps nowhere else, if the disk lets it sleep at all."""
    disk = [window.spent()[tid] for tid, mode in window.server.modes.items() if mode == "disk"]
    for each in disk:
        asleep = {name: ns for name, ns in each.items() if name.startswith("blocked_") and ns}
        assert set(asleep) <= {"blocked_disk", "blocked_lock", "blocked_other"}
        assert asleep.get("blocked_other", 0) <= 0.1 * asleep.get("blocked_disk", 0)


def test_the_busiest_is_one_of_the_busy(window: Window) -> None:
    found = thread_time(window.first, window.last)
    assert found is not None
    assert found.busiest is not None
    assert window.server.modes[found.busiest.tid] in ("spin", "call", "echo")


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    """The ended are in the total, the newborn have shares of their own time."""
    server = Server(tmp_path, active_ms=400, ends=3, born=2, dead=3, recv=1)
    with server, observer(server.pid) as observing:
        began, stolen_before_ns = cpu_ticks(server.pid), stolen_ns()
        modes = server.act()
        last = last_sample(observing)
        ticks = cpu_ticks(server.pid) - began
        stolen = stolen_since(stolen_before_ns)
    found = thread_time(observing.first, last)
    assert found is not None
    shown = {row.tid: row.share for row in found.threads}
    assert set(shown) == {t for t in modes if modes[t] in ("born", "recv")} | {server.pid}
    window_ns = last.monotonic_ns - observing.first.monotonic_ns
    for tid, mode in modes.items():
        if mode == "born":
            assert whole(by_thread(last)[tid]) < window_ns
            assert sum(shown[tid].values()) == pytest.approx(1, abs=1e-9)
            assert shown[tid]["user"] > 0
    assert last.exited_activity_ns is not None
    before = by_thread(observing.first)
    ended = whole(dict(last.exited_activity_ns)) - sum(
        whole(before[tid]) for tid, mode in modes.items() if mode == "ends"
    )
    assert 6 * 400_000_000 <= ended <= 6 * window_ns
    lived = ended + sum(map(whole, spent(observing.first, last).values()))
    cpu_ns = sum(found.total[name] for name in CPU) * lived
    assert cpu_ns == pytest.approx(ticks * NS_PER_TICK, rel=RELATIVE, abs=2 * NS_PER_TICK + stolen)


def cpu_ticks(pid: int) -> int:
    """utime + stime of all threads, the ended ones included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
