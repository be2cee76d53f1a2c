"""The dashboard over a recording: the same panels, and a time line with its keys."""

from __future__ import annotations

from typing import ClassVar, List, Optional, Tuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding

from udsprobe.views.dashboard import chrome, timeline
from udsprobe.views.dashboard.app import Dashboard, Page
from udsprobe.views.dashboard.feed import Player
from udsprobe.views.dashboard.filter import FilterInput
from udsprobe.views.dashboard.pages import opened as pages
from udsprobe.views.dashboard.reader import Reader
from udsprobe.views.dashboard.widgets import Lines

_FREE_ONLY = frozenset({"filter", "pause", "step", "skip", "speed", "finding", "go"})


class ReplayDashboard(Dashboard):
    """Keys move the player's time; the frames it makes are painted as live ones are."""

    FOOTER_LINES = 3
    BINDINGS: ClassVar[List[Binding]] = [
        Binding("space", "pause", show=False),
        Binding("right", "step(1)", show=False),
        Binding("left", "step(-1)", show=False),
        Binding("right_square_bracket", "skip(60)", show=False),
        Binding("left_square_bracket", "skip(-60)", show=False),
        Binding("right_curly_bracket", "skip(600)", show=False),
        Binding("left_curly_bracket", "skip(-600)", show=False),
        Binding("plus,equals_sign", "speed(1)", show=False),
        Binding("minus", "speed(-1)", show=False),
        Binding("n", "finding(1)", show=False),
        Binding("N", "finding(-1)", show=False),
        Binding("g", "go", show=False, priority=True),
    ]

    def __init__(self, reader: Reader, interval_s: float, player: Player) -> None:
        super().__init__(reader, interval_s)
        self._player = player

    def _compose_footer(self) -> ComposeResult:
        yield Lines(id="timeline")
        yield FilterInput(self._go, asks="go to 03:12, 03:12:41, +10m, -5m …", id="go")
        yield from super()._compose_footer()

    def check_action(self, action: str, parameters: Tuple[object, ...]) -> Optional[bool]:
        """On a page and inside a text, keys that move time are letters and arrows."""
        if action in _FREE_ONLY:
            return self._is_free_for_keys()
        return super().check_action(action, parameters)

    def action_pause(self) -> None:
        self._player.toggle()

    def action_step(self, samples: int) -> None:
        self._player.step(samples)

    def action_skip(self, seconds: int) -> None:
        self._player.skip(seconds)

    def action_speed(self, by: int) -> None:
        self._player.faster(by)

    def action_finding(self, direction: int) -> None:
        self._player.next_finding(direction)

    def action_go(self) -> None:
        self._lines("timeline").display = False
        self.screen_stack[0].query_one("#go", FilterInput).open("")

    def _go(self, text: str, done: bool) -> None:
        if not done:
            return
        self._lines("timeline").display = True
        self.screen.set_focus(self._panel(self._state.filtered_panel))
        if text:
            self._player.go_to(text)

    def action_help(self) -> None:
        self.push_screen(Page(lambda width: pages.replay_help_page(self._painted, width)))

    def _paint(self) -> None:
        frame = self._painted
        moment = None if frame is None else frame.moment
        shown = "" if moment is None else timeline.line(moment, self.size.width)
        self._lines("timeline").show([Text(shown)])
        super()._paint()

    def _keys(self) -> Text:
        return chrome.keys(timeline.REPLAY_KEYS, self.size.width)
