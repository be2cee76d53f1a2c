"""The Textual application: wires feed, state, tables and keys; formats nothing itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, ClassVar, Dict, List, Optional, Tuple

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.screen import ModalScreen

from udsprobe.views.dashboard import chrome, layout, tables
from udsprobe.views.dashboard.code_screen import CodeScreen
from udsprobe.views.dashboard.driver import StdoutDriver
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.filter import FilterInput
from udsprobe.views.dashboard.pages import opened as pages
from udsprobe.views.dashboard.reader import Reader
from udsprobe.views.dashboard.state import ViewState
from udsprobe.views.dashboard.table import Table
from udsprobe.views.dashboard.widgets import Lines, Panel, Sheet
from udsprobe.views.fields import words

_TITLE_LINES = 1

FILTERED = ("listeners", "system calls", "targets", "connections")

PageMaker = Callable[[int], Table]


class Page(ModalScreen[None]):
    """A full-screen page of text that follows the frames beneath it."""

    AUTO_FOCUS = "#page"

    BINDINGS: ClassVar[List[Binding]] = [  # type: ignore[assignment]
        Binding("escape,q,question_mark", "app.pop_screen", show=False),
        Binding("y", "copy", show=False),
        Binding("r", "rests_on", show=False),
    ]

    def __init__(self, make: PageMaker) -> None:
        super().__init__()
        self._make = make
        self._told = ""
        self._told_of: Optional[Tuple[int, str]] = None
        self._shows_probes = False

    def compose(self) -> ComposeResult:
        yield Sheet(self._table(), id="page")

    def renew(self) -> None:
        table, sheet = self._table(), self.query_one(Sheet)
        sheet.put(table)
        told = self._told if self._told and sheet.chosen == self._told_of else ""
        sheet.put(replace(table, name=table.name + told))

    def _table(self) -> Table:
        table = self._make(self.app.size.width)
        return replace(table, lines=table.behind, copies=()) if self._shows_probes else table

    def action_rests_on(self) -> None:
        """Which probes the page's figures come from, and back."""
        if self._make(self.app.size.width).behind:
            self._shows_probes = not self._shows_probes
            self.query_one(Sheet).to_top()
            self.renew()

    def action_copy(self) -> None:
        """The chosen remedy's command to the clipboard, where the terminal lets us (OSC 52)."""
        chosen = self.query_one(Sheet).chosen
        if chosen is None:
            return
        self._told_of, self._told = chosen, " · copied" if chosen[1] else " · no command to copy"
        if chosen[1]:
            self.app.copy_to_clipboard(chosen[1])
        self.renew()

    def on_resize(self) -> None:
        self.renew()


class Dashboard(App[None]):
    """The screen over one feed, which somebody else starts and closes."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#system-calls"
    CSS = """
    Screen, Page, CodeScreen { overflow: hidden; background: ansi_default; color: ansi_default; }
    Lines { height: 1; }
    #page, #code { height: 1fr; }
    .asking { height: 1; border: none; padding: 0 1; background: ansi_default; }
    """
    BINDINGS: ClassVar[List[Binding]] = [  # type: ignore[assignment]
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("p", "pause", show=False),
        Binding("s", "sort", show=False),
        Binding("slash", "filter", show=False, priority=True),
        Binding("z", "zoom", show=False),
        Binding("v,enter", "verdict", show=False),
        Binding("c", "code", show=False),
        Binding("question_mark", "help", show=False),
        Binding("escape", "reset", show=False),
    ]

    FOOTER_LINES: ClassVar[int] = 2

    class Arrived(Message):
        """A frame to show."""

        def __init__(self, frame: Frame) -> None:
            super().__init__()
            self.frame = frame

    class Ended(Message):
        """There are no more frames."""

    def __init__(self, reader: Reader, interval_s: float) -> None:
        super().__init__(driver_class=StdoutDriver, ansi_color=True)
        self._reader = reader
        self._interval_s = interval_s
        self._state = ViewState()
        self._newest: Optional[Frame] = None
        self._painted: Optional[Frame] = None
        self._paused_at: Optional[str] = None
        self._zoomed: Optional[str] = None
        self._wanted: Dict[str, int] = {}

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        yield Lines(id="verdict")
        for name in tables.PANELS:
            yield Panel(Table(name, ()), id=_id(name))
        yield from self._compose_footer()

    def _compose_footer(self) -> ComposeResult:
        yield Lines(id="status")
        yield FilterInput(self._set_filter)
        yield Lines(id="keys")

    def on_mount(self) -> None:
        self._paint()
        self.app_resume_signal.subscribe(self, self._resumed)
        self._reader.hand_to(self._take)

    def _resumed(self, _: object) -> None:
        """The shell has written over the screen: draw what has not changed, too."""
        for lines in self.screen.query(Lines):
            lines.refresh()

    def on_resize(self) -> None:
        self._wanted.clear()
        # Textual notes the new size after this handler.
        self.call_later(self._paint)

    def on_dashboard_arrived(self, message: Arrived) -> None:
        self._newest = message.frame
        self._state.take(message.frame)
        if self._paused_at is None:
            self._painted = message.frame
            self._paint()

    def on_dashboard_ended(self) -> None:
        self.exit()

    def on_panel_opened(self, message: Panel.Opened) -> None:
        self._open(message.panel, message.key)

    def action_leave(self) -> None:
        self.exit()

    def action_pause(self) -> None:
        if self._newest is None:
            return
        if self._paused_at is None:
            self._paused_at = words.clock(self._newest.window.window)
            self._state.freeze()
        else:
            self._paused_at, self._painted = None, self._newest
            self._state.thaw()
        self._paint()

    def action_sort(self) -> None:
        if self._painted is not None:
            self._state.next_sort(self._painted.window.syscalls or [])
            self._paint()

    def action_zoom(self) -> None:
        focused = self.screen.focused
        if self._zoomed is None and isinstance(focused, Panel):
            self._zoomed = focused.table.name
        else:
            self._zoomed = None
        self._paint()

    def action_details(self) -> None:
        focused = self.screen.focused
        if isinstance(focused, Panel):
            focused.action_open()

    def action_verdict(self) -> None:
        if len(self.screen_stack) == 1:
            self._open("verdict", "verdict")

    def action_code(self) -> None:
        if len(self.screen_stack) == 1:
            self.push_screen(CodeScreen(lambda: self._painted))

    def action_help(self) -> None:
        self.push_screen(Page(lambda width: pages.help_page(self._painted, width)))

    def action_reset(self) -> None:
        self._state.filter = ""
        self._zoomed = None
        self._paint()

    def check_action(self, action: str, parameters: Tuple[object, ...]) -> Optional[bool]:
        """`/` begins a filter, except on a page and inside the filter's own text."""
        if action == "filter":
            return self._is_free_for_keys()
        return super().check_action(action, parameters)

    def _is_free_for_keys(self) -> bool:
        return len(self.screen_stack) == 1 and not any(
            line.display for line in self.screen_stack[0].query(FilterInput)
        )

    def action_filter(self) -> None:
        focused = self.screen.focused
        if isinstance(focused, Panel) and focused.table.name in FILTERED:
            self._state.filtered_panel = focused.table.name
        self._lines("keys").display = False
        self._filter_line().open(self._state.filter)

    def _filter_line(self) -> FilterInput:
        return self.screen_stack[0].query_one("#filter", FilterInput)

    def _set_filter(self, text: str, done: bool) -> None:
        self._state.filter = text
        if done:
            self._lines("keys").display = True
            self.screen.set_focus(self._panel(self._state.filtered_panel))
        self._paint()

    def _open(self, panel: str, key: object) -> None:
        if self._painted is None:
            return

        def make(width: int) -> Table:
            assert self._painted is not None
            return pages.details(panel, key, self._painted, width)

        self.push_screen(Page(make))

    def _take(self, frame: Optional[Frame]) -> None:
        self.post_message(self.Ended() if frame is None else self.Arrived(frame))

    def _paint(self) -> None:
        width, height = self.size
        frame = self._painted
        verdict = chrome.verdict(frame, width, roomy=layout.is_roomy(width, height))
        self._lines("title").show([self._title(width)])
        self._lines("verdict").show(verdict)
        self._lines("status").show([chrome.status(frame, self._state, width)])
        self._lines("keys").show([self._keys()])
        content = tables.build(frame, self._state, width, tall=layout.is_tall(height))
        for name, table in content.items():
            self._panel(name).put(table)
        self._arrange(height - _TITLE_LINES - len(verdict) - self.FOOTER_LINES, len(verdict))
        if isinstance(self.screen, (Page, CodeScreen)):
            self.screen.renew()

    def _title(self, width: int) -> Text:
        return chrome.title(self._painted, self._interval_s, self._paused_at, width)

    def _keys(self) -> Text:
        return chrome.keys(chrome.KEYS, self.size.width)

    def _arrange(self, room: int, verdict_lines: int) -> None:
        for name in tables.PANELS:
            wanted = self._panel(name).wanted_height
            self._wanted[name] = max(wanted, self._wanted.get(name, 0))
        heights = layout.allot(room, layout.shown(self._wanted, self.size.height))
        if self._zoomed is not None:
            heights = {name: room if name == self._zoomed else 0 for name in heights}
        heights_of = {_id(name): lines for name, lines in heights.items()}
        heights_of["verdict"] = verdict_lines
        for identity, lines in heights_of.items():
            widget = self._lines(identity)
            if widget.styles.height is None or widget.styles.height.value != lines:
                widget.styles.height = lines
                widget.display = lines > 0

    def _lines(self, identity: str) -> Lines:
        return self.screen_stack[0].query_one(f"#{identity}", Lines)

    def _panel(self, name: str) -> Panel:
        return self.screen_stack[0].query_one(f"#{_id(name)}", Panel)


def _id(name: str) -> str:
    return name.replace(" ", "-")
