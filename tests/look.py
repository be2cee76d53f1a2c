"""Look at the dashboard with made-up numbers: `python -m tests.look [SECONDS_PER_FRAME]`."""

from __future__ import annotations

import math
import sys
import threading
from typing import Optional

from tests.unit import reports
from udsprobe.views.dashboard import Frame, run_dashboard
from udsprobe.views.text.report_text import render


class WavingFeed:
    """A service whose load and queue rise and fall."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._frames = 0
        self.last: Optional[Frame] = None

    def next(self) -> Optional[Frame]:
        if self._frames and self._closed.wait(self._interval_s):
            return None
        self._frames += 1
        wave = 1 + 0.4 * math.sin(self._frames / 3)
        queue = int(65 + 64 * math.sin(self._frames / 4))
        self.last = Frame(
            reports.busy(self._interval_s, wave, queue),
            reports.busy(self._interval_s * self._frames, 1.0, queue),
        )
        return self.last

    def close(self) -> None:
        self._closed.set()


def main() -> None:
    interval_s = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    feed = WavingFeed(interval_s)
    run_dashboard(feed, interval_s)
    if feed.last is not None:
        print(render(feed.last.window), end="")


if __name__ == "__main__":
    main()
