"""The dashboard's feed: samples taken in its worker thread, at the pace of the interval."""

from __future__ import annotations

import time
from typing import Optional

from udsprobe.observe.ending import Ending
from udsprobe.observe.live_observer import LiveObserver
from udsprobe.views.dashboard.feed import Frame

# The first figures come early: an engineer on call is looking.
FIRST_SAMPLE_S = 0.1


class ScreenFeed:
    """Frames for the dashboard until the observation ends or the user quits."""

    def __init__(self, observer: LiveObserver, ending: Ending, interval_s: float) -> None:
        self._observer = observer
        self._ending = ending
        self._interval_s = interval_s
        self._wait_s: Optional[float] = None

    def next(self) -> Optional[Frame]:
        """The next frame, after the rest of the interval; None at the end."""
        if self._ending.wait(self._rest_of_first_s() if self._wait_s is None else self._wait_s):
            return None
        self._wait_s = self._interval_s
        interval = self._observer.interval()
        self._ending.watch(self._observer.alive_pids())
        return Frame(interval, self._observer.window(), recent=self._observer.recent())

    def _rest_of_first_s(self) -> float:
        # Counting began before Textual was imported and the screen drawn.
        counted_s = (time.monotonic_ns() - self._observer.first.monotonic_ns) / 1e9
        return max(min(FIRST_SAMPLE_S, self._interval_s) - counted_s, 0.0)

    def close(self) -> None:
        """The user quits: let a wait in progress end."""
        self._ending.stop()
