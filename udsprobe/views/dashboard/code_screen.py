"""The page of code: a tree of calls under a cursor, or the same as a flame graph."""

from __future__ import annotations

from typing import Callable, ClassVar, List, Optional, Set

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.code import NOTHING, Path, flame_page, tree_page
from udsprobe.views.dashboard.pages.lines import plain
from udsprobe.views.dashboard.table import Table
from udsprobe.views.dashboard.widgets import Panel


class CodeScreen(ModalScreen[None]):
    """Follows the frames beneath it; what was opened stays open."""

    AUTO_FOCUS = "#code"

    BINDINGS: ClassVar[List[Binding]] = [  # type: ignore[assignment]
        Binding("escape,q,c", "app.pop_screen", show=False),
        Binding("f", "flame", show=False),
    ]

    def __init__(self, frame: Callable[[], Optional[Frame]]) -> None:
        super().__init__()
        self._frame = frame
        self._turned: Set[Path] = set()
        self._is_flame = False

    def compose(self) -> ComposeResult:
        yield Panel(self._table(), id="code")

    def renew(self) -> None:
        self.query_one(Panel).put(self._table())

    def action_flame(self) -> None:
        """The one, and the other again."""
        self._is_flame = not self._is_flame
        self.query_one(Panel).to_top()
        self.renew()

    def on_panel_opened(self, message: Panel.Opened) -> None:
        """Open a call, or close it."""
        message.stop()
        if isinstance(message.key, tuple):
            self._turned ^= {message.key}
            self.renew()

    def on_resize(self) -> None:
        self.renew()

    def _table(self) -> Table:
        frame, width = self._frame(), self.app.size.width
        if frame is None:
            return Table("code (Esc leaves)", (plain(NOTHING),))
        if self._is_flame:
            return flame_page(frame.window, width)
        return tree_page(frame.window, self._turned, width)
