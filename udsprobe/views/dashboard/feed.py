"""What the dashboard is fed with: pairs of reports, from whoever measures."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol

from udsprobe.model.report import Report


class Frame(NamedTuple):
    """One picture: the last interval, for rates; and all since the start, for totals."""

    interval: Report
    window: Report


class Feed(Protocol):
    """Where frames come from; called from one thread that is not the screen's."""

    def next(self) -> Optional[Frame]:
        """Block until the next frame; None when the observation has ended."""

    def close(self) -> None:
        """The user quit. Any thread may call it, also twice; a blocked `next` returns None."""
