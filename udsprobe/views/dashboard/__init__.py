"""The live screen. Shows what a feed hands over; knows no kernel, clock or file.

Importing this package is cheap: Textual is loaded by `run_dashboard`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from udsprobe.views.dashboard.feed import Feed, Frame, Moment, Player
from udsprobe.views.dashboard.reader import Reader

if TYPE_CHECKING:
    from textual.app import App

__all__ = ["Feed", "Frame", "Moment", "Player", "run_dashboard", "run_replay"]


def run_dashboard(feed: Feed, interval_s: float = 1.0) -> None:
    """Show `feed` until the user quits or it ends; the terminal is restored on return.

    When this returns the feed is closed and no thread is inside it any more.

    Raises:
        Whatever `feed.next()` raised; the terminal is restored first.
    """
    _run(feed, interval_s, None)


def run_replay(player: Player, interval_s: float) -> None:
    """The same with a time line, for a feed whose time can be moved.

    Raises:
        What `run_dashboard` raises.
    """
    _run(player, interval_s, player)


def _run(feed: Feed, interval_s: float, player: Optional[Player]) -> None:
    # The first interval passes while Textual is being imported.
    reader = Reader(feed)
    reader.start()
    try:
        _application(reader, interval_s, player).run()
    finally:
        reader.close()
    if reader.failure is not None:
        raise reader.failure


def _application(reader: Reader, interval_s: float, player: Optional[Player]) -> App[None]:
    if player is not None:
        from udsprobe.views.dashboard.replay import ReplayDashboard

        return ReplayDashboard(reader, interval_s, player)
    from udsprobe.views.dashboard.app import Dashboard

    return Dashboard(reader, interval_s)
