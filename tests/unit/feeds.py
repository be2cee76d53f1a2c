"""Feeds of made-up frames, for the dashboard's tests."""

from __future__ import annotations

import queue
import threading
from typing import List, Optional

from tests.patience import PATIENCE_S
from udsprobe.model.report import Report
from udsprobe.views.dashboard import Frame


class ListFeed:
    """Hands over what it is given, and blocks in between until it is closed."""

    def __init__(self, *frames: Frame) -> None:
        self._frames: queue.Queue[Optional[Frame]] = queue.Queue()
        self._drained = threading.Condition()
        self._given = 0
        self._asked = 0
        self.closed = False
        self.give(*frames)

    def give(self, *frames: Optional[Frame]) -> None:
        """Add frames; None ends the feed."""
        self._given += len(frames)
        for frame in frames:
            self._frames.put(frame)

    def next(self) -> Optional[Frame]:
        with self._drained:
            self._asked += 1
            self._drained.notify_all()
        return self._frames.get()

    def close(self) -> None:
        self.closed = True
        self._frames.put(None)

    def wait_until_drained(self) -> None:
        """Return once the dashboard has posted all frames and asks for another."""
        with self._drained:
            assert self._drained.wait_for(lambda: self._asked > self._given, timeout=PATIENCE_S)


class FailingFeed(ListFeed):
    """Fails as a kernel that refuses the programs would."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    def next(self) -> Optional[Frame]:
        raise self._failure


def frame(report: Report) -> Frame:
    return Frame(report, report)


def frames(*reports: Report) -> List[Frame]:
    return [frame(report) for report in reports]
