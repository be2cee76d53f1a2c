"""The reasons to stop: a signal, the time, the exit of all targets. Nothing here sleeps."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Iterator

import pytest

from udsprobe.observe.ending import SIGNALS, Ending

FOREVER_S = 3600.0


@pytest.fixture(autouse=True)
def handlers_kept() -> Iterator[None]:
    """A process ends behind its `Ending`; this one does not. Who was started in the background by
    a shell ignores SIGINT; Python's own handler is what is meant here."""
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before:
        signal.signal(number, handler)


def one() -> int:
    return 1


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its stdin is closed."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.communicate()


class Targets:
    """Counts down when its processes are collected."""

    def __init__(self, *processes: subprocess.Popen[bytes]) -> None:
        self._processes = processes

    def alive(self) -> int:
        return sum(process.poll() is None for process in self._processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait(number: signal.Signals) -> None:
    with Ending(None, one) as ending:
        assert not ending.reached()
        os.kill(os.getpid(), number)
        assert ending.wait(FOREVER_S)
        assert ending.reached()


def test_a_signal_of_another_process_ends_the_wait() -> None:
    with Ending(None, one) as ending:
        sender = subprocess.Popen(["kill", "-TERM", str(os.getpid())])
        assert ending.wait(FOREVER_S)
        sender.wait()


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    """The kernel chooses: any that does not block it."""
    main = Path(f"/proc/self/task/{threading.get_native_id()}/wchan")

    def when_it_waits() -> None:
        while "poll" not in main.read_text(encoding="ascii"):
            os.sched_yield()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with Ending(None, one) as ending:
        other = threading.Thread(target=when_it_waits)
        other.start()
        assert ending.wait(FOREVER_S)
        other.join()
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_are_put_back_by_a_signal_behind_the_end() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with Ending(None, one):
        assert all(signal.getsignal(n) not in before for n in numbers)
    os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in numbers] == before


def test_handlers_are_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), Ending(None, one):
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) == before


def test_no_descriptor_is_left_open(child: subprocess.Popen[bytes]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Ending(None, one) as ending:
        ending.watch([child.pid])
        assert len(set(os.listdir("/proc/self/fd")) - before) == 3
    assert set(os.listdir("/proc/self/fd")) <= before


def test_the_deadline_ends_the_wait() -> None:
    with Ending(0.0, one) as ending:
        assert ending.reached()
        assert ending.wait(FOREVER_S)


def test_the_interval_is_no_reason_to_stop() -> None:
    with Ending(None, one) as ending:
        assert not ending.wait(0.0)
        assert not ending.wait(0.001)


def test_a_wait_is_cut_at_the_deadline() -> None:
    with Ending(0.01, one) as ending:
        while not ending.wait(FOREVER_S):
            pass
        assert ending.reached()


def test_no_target_left_is_a_reason() -> None:
    with Ending(None, lambda: 0) as ending:
        assert ending.wait(FOREVER_S)


def test_the_exit_of_a_watched_process_ends_the_wait(child: subprocess.Popen[bytes]) -> None:
    with Ending(None, Targets(child).alive) as ending:
        ending.watch([child.pid])
        child.kill()
        assert ending.wait(FOREVER_S)


def test_an_exit_during_the_wait_ends_it(child: subprocess.Popen[bytes]) -> None:
    with Ending(None, Targets(child).alive) as ending:
        ending.watch([child.pid])
        killer = threading.Thread(target=child.kill)
        killer.start()
        assert ending.wait(FOREVER_S)
        killer.join()


def test_one_of_two_exits_and_the_wait_goes_on(child: subprocess.Popen[bytes]) -> None:
    other = subprocess.Popen(["true"])
    with Ending(None, Targets(child, other).alive) as ending:
        ending.watch([child.pid, other.pid])
        other.wait()
        assert not ending.wait(0.01)
        child.kill()
        assert ending.wait(FOREVER_S)


def test_watching_again_takes_no_second_descriptor(child: subprocess.Popen[bytes]) -> None:
    with Ending(None, one) as ending:
        ending.watch([child.pid])
        before = len(os.listdir("/proc/self/fd"))
        ending.watch([child.pid, child.pid])
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_is_gone_cannot_be_watched_and_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Ending(None, one) as ending:
        ending.watch([gone.pid])
        assert not ending.wait(0.0)


def test_stop_from_another_thread_ends_the_wait() -> None:
    with Ending(None, one) as ending:
        stopper = threading.Thread(target=ending.stop)
        stopper.start()
        assert ending.wait(FOREVER_S)
        stopper.join()


def test_more_stops_than_the_pipe_holds_block_nobody() -> None:
    with Ending(None, one) as ending:
        for _ in range(100_000):
            ending.stop()
        assert ending.wait(0.0)


@pytest.mark.parametrize("seconds", [1e7, 1e30])
def test_a_wait_longer_than_poll_can_count(seconds: float) -> None:
    with Ending(0.01, one) as ending:
        ending.wait(seconds)
    with Ending(None, one) as ending:
        stopper = threading.Thread(target=ending.stop)
        stopper.start()
        assert ending.wait(seconds)
        stopper.join()


def test_a_signal_behind_the_end_is_passed_over_once() -> None:
    with Ending(0.0, one):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_signal_is_meant() -> None:
    with pytest.raises(KeyboardInterrupt):
        with Ending(None, one):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
