"""Two widgets: lines that repaint only where they changed, and a panel with a cursor."""

from __future__ import annotations

from typing import ClassVar, List, Optional, Sequence, Tuple

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from udsprobe.views.dashboard.table import CRITICAL, DIM, WARNING, Line, Table, remedy_key
from udsprobe.views.fields.escape import column

STYLES = {
    DIM: Style(dim=True),
    WARNING: Style(color="yellow"),
    CRITICAL: Style(color="red", bold=True),
}
_BOLD = Style(bold=True)
_CURSOR = Style(reverse=True)
_WHEEL_LINES = 3


class Lines(Widget):
    """Text that is drawn as it is: one line each, cut at the edge, never wrapped."""

    ALLOW_SELECT = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lines: List[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines; only those that differ are painted again."""
        before, self._lines = self._lines, list(lines)
        for y in range(max(len(before), len(self._lines))):
            old = before[y] if y < len(before) else None
            new = self._lines[y] if y < len(self._lines) else None
            if not _same(old, new):
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width)
        text, console = self._lines[y], self.app.console
        # Rich leaves a text's own style out when it has no spans.
        style = console.get_style(text.style)
        segments = Segment.apply_style(text.render(console), style)
        return Strip(segments).adjust_cell_length(width)


def _same(one: Optional[Text], other: Optional[Text]) -> bool:
    if one is None or other is None:
        return one is other
    return one.plain == other.plain and one.style == other.style and one.spans == other.spans


class Panel(Lines, can_focus=True):
    """A table with its name on a rule, a cursor, and more rows than may be visible."""

    BINDINGS: ClassVar[List[Binding]] = [  # type: ignore[assignment]
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """The user asks what a row rests on."""

        def __init__(self, panel: str, key: object) -> None:
            super().__init__()
            self.panel = panel
            self.key = key

    def __init__(self, table: Table, *, id: str, selectable: bool = True) -> None:
        super().__init__(id=id)
        self._table = table
        self._selectable = selectable
        self._cursor = 0
        self._top = 0
        self._was_moved = False

    @property
    def table(self) -> Table:
        return self._table

    @property
    def wanted_height(self) -> int:
        asked = self._table.asks_for
        return 1 + (len(self._table.lines) if asked is None else asked)

    def put(self, table: Table) -> None:
        """Show new content; a cursor that was moved stays on its row wherever that is now.

        One that was not stays at the top, with the rows that matter most.
        """
        key = self._key() if self._was_moved else None
        keys = [line.key for line in table.lines]
        self._table = table
        if key is not None and (self._cursor >= len(keys) or keys[self._cursor] != key):
            self._cursor = keys.index(key) if key in keys else self._cursor
        self._redraw()

    def to_top(self) -> None:
        """Show the first rows, of what else is about to be put here."""
        self._cursor = self._top = 0

    def action_move(self, rows: int) -> None:
        self._move(rows)

    def action_page(self, direction: int) -> None:
        self._move(direction * max(1, self.size.height - 2))

    def action_open(self) -> None:
        if self._selectable:
            self.post_message(self.Opened(self._table.name, self._key()))

    def watch_has_focus(self, focused: bool) -> None:
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._move(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._move(-_WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = self._top + event.y - 1
        if event.y < 1 or index >= len(self._table.lines):
            return
        again = index == self._cursor and event.chain > 1
        self._cursor, self._was_moved = index, True
        self._redraw()
        if again:
            self.action_open()

    def _key(self) -> object:
        lines = self._table.lines
        return lines[self._cursor].key if self._cursor < len(lines) else None

    def _move(self, rows: int) -> None:
        self._was_moved = True
        if self._selectable:
            self._cursor += rows
        else:
            self._top += rows
        self._redraw()

    def _redraw(self) -> None:
        rows, count = max(0, self.size.height - 1), len(self._table.lines)
        self._cursor = max(0, min(self._cursor, count - 1))
        if self._selectable:
            self._top = min(self._top, self._cursor)
            self._top = max(self._top, self._cursor - rows + 1)
        self._top = max(0, min(self._top, count - rows))
        visible = self._table.lines[self._top : self._top + rows]
        drawn = [self._row(line, self._top + y) for y, line in enumerate(visible)]
        self.show([self._rule(rows, count), *drawn])

    def _row(self, line: Line, index: int) -> Text:
        chosen = self._selectable and self.has_focus and index == self._cursor
        style = STYLES.get(line.severity, Style())
        if chosen and line.key is not None:
            return Text(column("▸ " + line.text, self.size.width), style=style + _CURSOR)
        return Text("  " + line.text, style=style)

    def _rule(self, rows: int, count: int) -> Text:
        stroke = "━" if self.has_focus else "─"
        name = self._table.name
        if 0 < rows < count:
            name += f" {self._top + 1}–{self._top + rows} of {count}"
        left = f"{stroke * 2} {name} "
        titles = self._table.titles
        room = (self._table.titles_at - 1) if titles else self.size.width
        text = Text(left + stroke * max(0, room - len(left)), style=_BOLD)
        if titles:
            text.append(" " * max(0, self._table.titles_at - text.cell_len) + titles)
        return text


class Sheet(Panel):
    """A page of text that scrolls; up and down choose among its remedies first."""

    def __init__(self, table: Table, *, id: str) -> None:
        self._number = 0
        super().__init__(table, id=id, selectable=False)

    @property
    def chosen(self) -> Optional[Tuple[int, str]]:
        """The remedy, by its number, and its command; None where there is no remedy."""
        copies = self._table.copies
        number = min(self._number, len(copies) - 1)
        return (number, copies[number]) if copies else None

    def action_move(self, rows: int) -> None:
        chosen = self.chosen
        wanted = chosen[0] + rows if chosen is not None else -1
        if not 0 <= wanted < len(self._table.copies):
            super().action_move(rows)
            return
        self._number = wanted
        self._reveal()

    def _reveal(self) -> None:
        keys = [line.key for line in self._table.lines]
        first = keys.index(remedy_key(self._number))
        marked = [i for i, key in enumerate(keys) if i > first and key is not None]
        last = min([*marked, len(keys)]) - 1
        rows = max(1, self.size.height - 1)
        self._top = min(max(self._top, min(last, first + rows - 1) - rows + 1), first)
        self._redraw()

    def _row(self, line: Line, index: int) -> Text:
        chosen = self.chosen
        if chosen is None or line.key != remedy_key(chosen[0]):
            return super()._row(line, index)
        return Text(column("▸ " + line.text, self.size.width), style=_CURSOR)
