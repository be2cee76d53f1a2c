"""Processes and threads that sleep are not read again: what is said of them is still all true."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Set, Tuple

import pytest

from tests.kernel.at_rest import wait_until_asleep
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.observe.observation import Observer
from udsprobe.sample import Sample

pytestmark = [pytest.mark.root]
PROCESSES = 30
DESCRIPTORS = (0, 1, 60, 61, 130, 700)
LIMIT = 800
THREADED = """
import sys, threading
for _ in range(5):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def observer(*pids: int) -> Iterator[Observer]:
    """Of those processes alone."""
    procfs = Procfs()
    chosen = []
    for pid in pids:
        process = procfs.process(pid)
        assert process is not None
        chosen.append(Chosen(pid, process.start_ticks, "selector", "test"))
    with Observer(chosen, ObserverOptions(1.0, follow=True)) as observing:
        yield observing


def sleeper(descriptors: int, stack: ExitStack) -> int:
    """A process with so many more descriptors than it needs, and a limit of them."""
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(descriptors)]
    limits = (LIMIT + descriptors, LIMIT + 2 * descriptors)
    process = subprocess.Popen(
        ["sleep", "1000"],
        pass_fds=held,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
    )
    for descriptor in held:
        os.close(descriptor)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


@pytest.fixture(scope="module")
def crowd() -> Iterator[List[int]]:
    """Sleeping processes, one of which has several threads."""
    with ExitStack() as stack:
        wide = subprocess.Popen(
            [sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(wide.wait)
        stack.callback(wide.kill)
        assert wide.stdout is not None and wide.stdout.readline() == b"ready\n"
        counts = [DESCRIPTORS[at % len(DESCRIPTORS)] for at in range(PROCESSES)]
        pids = [wide.pid, *(sleeper(count, stack) for count in counts)]
        for pid in pids:
            wait_until_asleep(pid, [int(tid) for tid in os.listdir(f"/proc/{pid}/task")])
        yield pids


def assert_as_proc_has_them(sample: Sample) -> None:
    procfs = Procfs()
    for said in sample.targets:
        process = procfs.process(said.pid)
        assert process is not None
        assert (said.comm, said.threads) == (process.comm, process.threads)
        assert (said.parent, said.start_ticks) == (process.ppid, process.start_ticks)
        assert said.fds_open == len(os.listdir(f"/proc/{said.pid}/fd"))
        assert said.fds_limit == procfs.fds_limit(said.pid)
        assert (said.cmdline, said.cgroup) == (procfs.cmdline(said.pid), procfs.cgroup(said.pid))


def test_targets_are_as_proc_has_them_at_every_sample(crowd: List[int]) -> None:
    with observer(*crowd) as observing:
        for _ in range(3):
            observing.keep_up()
            assert {said.pid for said in observing.last.targets} == set(crowd)
            assert_as_proc_has_them(observing.last)
        assert {said.fds_open for said in observing.last.targets} >= {3, 4, 63, 64, 133, 703}


def test_what_sleeps_is_the_same_object(crowd: List[int]) -> None:
    with observer(*crowd) as observing:
        observing.keep_up()
        before = observing.last
        observing.keep_up()
        now = observing.last
    assert now.threads is not None and before.threads is not None
    assert [*map(id, now.targets)] == [*map(id, before.targets)]
    assert [*map(id, now.threads)] == [*map(id, before.threads)]


def test_a_limit_that_another_process_sets_is_seen_at_the_next_sample(crowd: List[int]) -> None:
    pid = crowd[-1]
    with observer(*crowd) as observing:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft - 7, hard))
        observing.keep_up()
        (said,) = (each for each in observing.last.targets if each.pid == pid)
        assert said.fds_limit == soft - 7
        assert_as_proc_has_them(observing.last)


def test_a_sleep_told_once_is_what_would_be_told_again(crowd: List[int]) -> None:
    """Of every thread, and the time until now is that of the clock."""
    with observer(*crowd) as observing:
        observing.keep_up()
        kept = observing.last
        counters = observing._tracer.counters
        counters._globals.set("tell_all", 1)
        told = {each.tid: each for each in counters.threads().readings}
        counters._globals.set("tell_all", 0)
    assert kept.threads is not None and observing.first.threads is not None
    assert {each.tid for each in kept.threads} == set(told) and len(told) > PROCESSES
    assert [told[each.tid].activities for each in kept.threads] == [*kept.threads]
    length_ns = kept.monotonic_ns - observing.first.monotonic_ns
    before = {each.tid: each for each in observing.first.threads}
    for each in kept.threads:
        spent = sum(each.until(kept.monotonic_ns).values())
        assert (
            spent - sum(before[each.tid].until(observing.first.monotonic_ns).values()) == length_ns
        )


def test_those_that_end_are_seen_to_end(crowd: List[int]) -> None:
    with ExitStack() as stack:
        pids = [sleeper(0, stack) for _ in range(3)]
        with observer(*crowd, *pids) as observing:
            os.kill(pids[1], signal.SIGKILL)
            os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
            observing.keep_up()
            states = {said.pid: said.state for said in observing.last.targets}
            assert states == {
                **dict.fromkeys([*crowd, pids[0], pids[2]], "running"),
                pids[1]: "exited",
            }


class Holder:
    """A child that holds our descriptors, and acts on one of them when it is told to."""

    def __init__(self, act: Callable[[], None]) -> None:
        orders, self._orders = os.pipe()
        self._done, done = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._orders)
            while os.read(orders, 1):
                act()
                os.write(done, b"y")
            os._exit(0)
        os.close(orders)
        os.close(done)

    def act(self) -> None:
        os.write(self._orders, b"x")
        assert os.read(self._done, 1) == b"y"

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._done)


def owners(sample: Sample, inode: int) -> Set[Tuple[int, ...]]:
    return {each.pids or () for each in sample.listeners or () if each.inode == inode}


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        yield made


def test_owners_of_a_listener_while_most_of_them_sleep(bound: socket.socket) -> None:
    """One that listens, one that only holds it, one that lets go of it later."""
    inode = os.fstat(bound.fileno()).st_ino
    pids: Dict[str, int] = {}
    with ExitStack() as stack:
        listens = Holder(lambda: bound.listen(5))
        stack.callback(listens.close)
        sleeps = Holder(lambda: None)
        stack.callback(sleeps.close)
        leaves = Holder(bound.close)
        stack.callback(leaves.close)
        pids = {"listens": listens.pid, "sleeps": sleeps.pid, "leaves": leaves.pid}
        with observer(*pids.values()) as observing:
            assert owners(observing.first, inode) == set()
            # The others did nothing since they were looked at, and hold it all the same.
            listens.act()
            assert seen(observing, inode) == [tuple(sorted(pids.values()))]
            assert seen(observing, inode) == [tuple(sorted(pids.values()))]
            leaves.act()
            left = tuple(sorted((listens.pid, sleeps.pid)))
            assert [seen(observing, inode) for _ in range(3)] == [[left]] * 3


def seen(observing: Observer, inode: int) -> Sequence[Tuple[int, ...]]:
    """Owners at the next sample, by /proc's word too."""
    observing.keep_up()
    found = list(owners(observing.last, inode))
    targets = [said.pid for said in observing.last.targets]
    assert found == [Procfs().owners([inode], targets).by_inode[inode]]
    return found
