"""The line for a text: the filter's, and others that ask in its place."""

from __future__ import annotations

from typing import Callable, ClassVar, List

from textual.binding import Binding
from textual.widgets import Input

Changed = Callable[[str, bool], None]


class FilterInput(Input):
    """Tells every change, and whether it was the last; Enter keeps the text, Esc drops it.

    Always there and usually hidden: a line that had to be mounted first would
    miss what is typed in the meantime.
    """

    BINDINGS: ClassVar[List[Binding]] = [Binding("escape", "drop", show=False)]  # type: ignore[assignment]

    def __init__(
        self, changed: Changed, *, asks: str = "show rows that contain …", id: str = "filter"
    ) -> None:
        super().__init__(placeholder=asks, id=id, classes="asking")
        self._changed = changed
        self.display = False

    def open(self, text: str) -> None:
        """Show the line and take the very next key."""
        self.display = True
        self.value = text
        self.cursor_position = len(text)
        self.screen.set_focus(self)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self._changed(event.value, False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._finish(event.value)

    def action_drop(self) -> None:
        self._finish("")

    def _finish(self, text: str) -> None:
        self.display = False
        self._changed(text, True)
