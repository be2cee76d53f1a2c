"""The thread that asks the feed for frames, from before the screen exists until it is gone."""

from __future__ import annotations

from threading import Lock, Thread
from typing import Callable, List, Optional

from udsprobe.views.dashboard.feed import Feed, Frame

Taker = Callable[[Optional[Frame]], None]


class Reader:
    """Reads a feed in a thread of its own and keeps frames until somebody takes them."""

    def __init__(self, feed: Feed) -> None:
        self.failure: Optional[BaseException] = None
        self._feed = feed
        self._thread = Thread(target=self._read, name="udsprobe-feed", daemon=True)
        self._lock = Lock()
        self._kept: List[Optional[Frame]] = []
        self._taker: Optional[Taker] = None

    def start(self) -> None:
        self._thread.start()

    def hand_to(self, taker: Taker) -> None:
        """Give `taker` what was kept and, from the reading thread, all that follows.

        Args:
            taker: called with each frame, and with None after the last.
        """
        with self._lock:
            for frame in self._kept:
                taker(frame)
            self._kept.clear()
            self._taker = taker

    def close(self) -> None:
        """Close the feed and wait until the thread has left it."""
        self._feed.close()
        self._thread.join()

    def _read(self) -> None:
        try:
            frame = self._feed.next()
            while frame is not None:
                self._give(Frame(*frame))
                frame = self._feed.next()
        except BaseException as failure:  # raised again by whoever waits for the end
            self.failure = failure
        self._give(None)

    def _give(self, frame: Optional[Frame]) -> None:
        with self._lock:
            if self._taker is None:
                self._kept.append(frame)
            else:
                self._taker(frame)
