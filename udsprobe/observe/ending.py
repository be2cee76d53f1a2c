"""When an observation ends: a signal, its time, or the exit of all targets.

Waits without polling: signals arrive through a pipe, exits through pidfds.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType
from typing import Callable, Dict, Iterable, List, Optional, Tuple

# poll(2) counts milliseconds in an int.
POLL_MAX_S = 86_400.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_signals() -> None:
    """The exit code is decided: what comes while Python takes itself down changes it no more.

    Python gives a signal its default action again before it ends (CPython,
    `_PySignal_Fini`), which is to be killed by it; only an ignored one stays ignored.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Ending:
    """Watches for the reasons to stop.

    Args:
        duration_s: of the observation; None is until a signal or the targets' exit.
        targets_alive: how many targets have not exited.

    Use as a context manager. Behind it the process has its report to deliver: one signal
    more asks for the end that has come already and is passed over, unless one was seen
    before. It puts the earlier handlers back, as an error does.
    """

    def __init__(self, duration_s: Optional[float], targets_alive: Callable[[], int]) -> None:
        self._targets_alive = targets_alive
        self._deadline = None if duration_s is None else time.monotonic() + duration_s
        self._poll = select.poll()
        self._pidfds: Dict[int, int] = {}
        self._signalled = False
        self._handlers: List[Tuple[int, object]] = []
        self._wakeup_before = -1
        self._wakeup, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wakeup, select.POLLIN)

    def __enter__(self) -> Ending:
        for number in SIGNALS:
            self._handlers.append((number, signal.signal(number, self._on_signal)))
        # The kernel may give the signal to another thread, which does not end this one's poll().
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        if raised is None and not self._signalled:
            for number, _handler in self._handlers:
                signal.signal(number, self._put_back)
        else:
            self._put_back()
        for descriptor in (*self._pidfds.values(), self._wakeup, self._write_end):
            os.close(descriptor)

    def watch(self, pids: Iterable[int]) -> None:
        """Wake up when one of these exits; those already watched stay so."""
        for pid in set(pids) - set(self._pidfds):
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:  # gone already, or no more descriptors: the next interval sees it
                continue
            self._pidfds[pid] = descriptor
            self._poll.register(descriptor, select.POLLIN)

    def stop(self) -> None:
        """End the wait from another thread."""
        self._signalled = True
        self._wake()

    def reached(self) -> bool:
        """Whether there is a reason to stop now."""
        return self._signalled or self._time_is_up() or self._targets_alive() == 0

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; True when there is a reason to stop."""
        until = time.monotonic() + seconds
        if self._deadline is not None:
            until = min(until, self._deadline)
        while not self.reached():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            timeout_ms = min(left_s, POLL_MAX_S) * 1000 + 0.5
            self._forget([fd for fd, _ in self._poll.poll(timeout_ms)])
        return True

    def _time_is_up(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _forget(self, ready: Iterable[int]) -> None:
        exited = {fd: pid for pid, fd in self._pidfds.items()}
        for descriptor in ready:
            if descriptor in exited:
                self._poll.unregister(descriptor)
                os.close(descriptor)
                del self._pidfds[exited[descriptor]]
            elif descriptor == self._wakeup:
                os.read(self._wakeup, 64)

    def _put_back(self, *_: object) -> None:
        for number, handler in self._handlers:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        self._signalled = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            return
