"""A dashboard on a terminal that is not there: run it, press keys, read its lines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import AsyncIterator, List, Sequence, Tuple

from textual.pilot import Pilot
from textual.strip import Strip

from tests.unit.feeds import ListFeed
from udsprobe.views.dashboard import Frame
from udsprobe.views.dashboard.app import Dashboard
from udsprobe.views.dashboard.reader import Reader
from udsprobe.views.dashboard.tables import PANELS

Size = Tuple[int, int]
SIZES: Sequence[Size] = ((80, 24), (120, 40), (200, 60))


class Screenful:
    """The running dashboard and the feed beneath it."""

    def __init__(self, app: Dashboard, feed: ListFeed, pilot: Pilot[None]) -> None:
        self.app = app
        self.feed = feed
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def give(self, *frames: Frame) -> None:
        """Hand frames over, and wait until the screen has taken the last."""
        self.feed.give(*frames)
        await asyncio.to_thread(self.feed.wait_until_drained)
        await self.settle()

    async def settle(self) -> None:
        """Wait until what was changed is laid out, and what follows from that too."""
        await self.pilot.pause()
        await self.pilot.pause()

    def strips(self) -> List[Strip]:
        width, height = self.app.size
        rows = [Strip.blank(width)] * height
        for widget in self.app.screen.children:
            for y in range(widget.size.height if widget.display else 0):
                rows[widget.region.y + y] = widget.render_line(y)
        return rows

    def lines(self) -> List[str]:
        return [strip.text.rstrip() for strip in self.strips()]

    def text(self) -> str:
        return "\n".join(self.lines())

    def row(self, *words: str) -> str:
        """The first line that holds all of `words`."""
        return next(line for line in self.lines() if all(word in line for word in words))

    def rule(self, panel: str) -> str:
        """The line that begins a panel."""
        return next(line for line in self.lines() if line[:1] in "─━" and f" {panel} " in line)

    def below(self, panel: str) -> str:
        """The panel's first row."""
        lines = self.lines()
        return lines[lines.index(self.rule(panel)) + 1]


@asynccontextmanager
async def dashboard(*frames: Frame, size: Size = (80, 24)) -> AsyncIterator[Screenful]:
    feed = ListFeed()
    reader = Reader(feed)
    reader.start()
    app = Dashboard(reader, 1.0)
    try:
        async with app.run_test(size=size) as pilot:
            screen = Screenful(app, feed, pilot)
            await screen.give(*frames)
            yield screen
    finally:
        reader.close()


async def focus(screen: Screenful, panel: str) -> None:
    """Press Tab until a panel has the focus."""
    for _ in PANELS:
        if screen.rule(panel).startswith("━"):
            return
        await screen.press("tab")
    raise AssertionError(f"Tab does not reach {panel}")
