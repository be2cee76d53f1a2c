"""The filter's input line."""

from __future__ import annotations

from typing import Callable, ClassVar, List

from textual.binding import Binding
from textual.widgets import Input

Changed = Callable[[str, bool], None]


class FilterInput(Input):
    """Tells every change, and whether it was the last; Enter keeps the text, Esc drops it."""

    BINDINGS: ClassVar[List[Binding]] = [Binding("escape", "drop", show=False)]  # type: ignore[assignment]

    def __init__(self, text: str, changed: Changed) -> None:
        super().__init__(text, placeholder="show rows that contain …", id="filter")
        self._changed = changed

    def on_mount(self) -> None:
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._changed(event.value, False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._finish(event.value)

    def action_drop(self) -> None:
        self._finish("")

    def _finish(self, text: str) -> None:
        self.remove()
        self._changed(text, True)
