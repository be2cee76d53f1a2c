"""The live screen. Shows what a feed hands over; knows no kernel, clock or file.

Importing this package is cheap: Textual is loaded by `run_dashboard`.
"""

from __future__ import annotations

from udsprobe.views.dashboard.feed import Feed, Frame
from udsprobe.views.dashboard.reader import Reader

__all__ = ["Feed", "Frame", "run_dashboard"]


def run_dashboard(feed: Feed, interval_s: float = 1.0) -> None:
    """Show `feed` until the user quits or it ends; the terminal is restored on return.

    When this returns the feed is closed and no thread is inside it any more.

    Raises:
        Whatever `feed.next()` raised; the terminal is restored first.
    """
    # The first interval passes while Textual is being imported.
    reader = Reader(feed)
    reader.start()
    try:
        from udsprobe.views.dashboard.app import Dashboard

        Dashboard(reader, interval_s).run()
    finally:
        reader.close()
    if reader.failure is not None:
        raise reader.failure
