"""Feeds of made-up frames, for the dashboard's tests and for looking at it by hand."""

from __future__ import annotations

import threading
from typing import Iterable, Iterator, List, Optional

from udsprobe.model.report import Report
from udsprobe.views.dashboard import Frame


class ListFeed:
    """Hands over the given frames at once, then blocks until it is closed."""

    def __init__(self, frames: Iterable[Frame], *, ends: bool = False) -> None:
        self._frames: Iterator[Frame] = iter(frames)
        self._ends = ends
        self._closed = threading.Event()

    def next(self) -> Optional[Frame]:
        frame = next(self._frames, None)
        if frame is None and not self._ends:
            self._closed.wait()
        return None if self._closed.is_set() else frame

    def close(self) -> None:
        self._closed.set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()


class FailingFeed(ListFeed):
    """Fails as a kernel that refuses the programs would."""

    def __init__(self, failure: Exception) -> None:
        super().__init__([])
        self._failure = failure

    def next(self) -> Optional[Frame]:
        raise self._failure


def frame(report: Report) -> Frame:
    return Frame(report, report)


def frames(*reports: Report) -> List[Frame]:
    return [frame(report) for report in reports]
