"""`udsprobe listeners --watch`: the table in place, looked at again each interval.

Without BPF: what happens between two looks is not seen, and that is said.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from udsprobe.commands.listeners import fullest_first
from udsprobe.commands.live.keyboard import Asked, Keyboard
from udsprobe.errors import NoTargetError
from udsprobe.kernel.sockets.listening import ListenersSeen
from udsprobe.model.report import Listener
from udsprobe.sample import ListenerReading
from udsprobe.views.fields.numbers import span
from udsprobe.views.text.listeners_table import print_table, table

Look = Callable[[], ListenersSeen]
Rows = Tuple[List[Listener], Dict[int, str]]
Named = Callable[[Sequence[ListenerReading]], Rows]


class Watched:
    """What all looks so far have shown: the newest, the deepest, and each row's place."""

    def __init__(self) -> None:
        self.readings: List[ListenerReading] = []
        self.unseen: Tuple[str, ...] = ()
        self.peaks: Dict[int, int] = {}
        self._places: Dict[int, int] = {}

    def take(self, seen: ListenersSeen) -> None:
        """Note a look. Rows keep their place; one that was ever full moves up, once."""
        for reading in sorted(seen.listeners, key=fullest_first):
            self._places.setdefault(reading.inode, len(self._places))
            if reading.depth_now is not None:
                most = self.peaks.get(reading.inode, 0)
                self.peaks[reading.inode] = max(most, reading.depth_now)
        self.readings = sorted(seen.listeners, key=self._place)
        self.unseen = seen.unseen

    def _place(self, reading: ListenerReading) -> Tuple[bool, int]:
        was_full = self.peaks.get(reading.inode, 0) > reading.backlog_effective
        return not was_full, self._places[reading.inode]


def watch(look: Look, named: Named, interval_s: float) -> None:
    """Show the table until q, Ctrl-C or the end of all processes asked about.

    Leaves the last table in the scrollback, with the most seen.

    Raises:
        Whatever the first `look` raises; and a later one, but for
        `NoTargetError`, which ends the watch.
    """
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    watched = Watched()
    watched.take(look())
    with _ending_signals(), Keyboard() as keyboard:
        _show(console, watched, look, named, interval_s, keyboard)
    listeners, comms = named(watched.readings)
    print_table(console, listeners, comms, watched.peaks)
    console.print(Text(_honesty(interval_s)), soft_wrap=True)


def _show(
    console: Console,
    watched: Watched,
    look: Look,
    named: Named,
    interval_s: float,
    keyboard: Keyboard,
) -> None:
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_picture(console, watched, named, interval_s), refresh=True)
                asked = keyboard.wait(interval_s)
                if asked is Asked.QUIT:
                    return
                if asked is Asked.SUSPEND:
                    live.stop()
                    keyboard.suspend()
                    live.start()
                watched.take(look())
    except (KeyboardInterrupt, NoTargetError):
        return


def _picture(console: Console, watched: Watched, named: Named, interval_s: float) -> Group:
    width, height = console.size
    listeners, comms = named(watched.readings)
    lines = table(listeners, comms, width, watched.peaks)
    if not listeners:
        lines = [Text("no listeners")]
    room = max(1, height - 2)
    if len(lines) > room:
        hidden = len(lines) - room + 1
        lines = [
            *lines[: room - 1],
            Text(f"and {hidden} more: use a taller terminal or --pid to see them"),
        ]
    title = f"udsprobe listeners · {len(listeners)} · {time.strftime('%H:%M:%S')}"
    footer = f"q quit · {_honesty(interval_s)}"
    if watched.unseen:
        footer += f" · some may be missing: {watched.unseen[0]}"
    blank = [Text("")] * (room - len(lines))
    # Cropped, not wrapped: a second line would push the footer out.
    rows = [Text(title, style="bold"), *lines, *blank, Text(footer, style="dim")]
    for row in rows:
        row.truncate(width)
    return Group(*rows)


def _honesty(interval_s: float) -> str:
    return f"high-water sampled every {span(interval_s)}: shorter peaks are not seen"


@contextmanager
def _ending_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the watch as Ctrl-C does, and the terminal is restored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: Mapping[int, object] = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
