"""The time line of a replay: where we are, and where findings began, as text."""

from __future__ import annotations

from typing import List, Tuple

from udsprobe.rules.suspects.suspect import SEVERITIES
from udsprobe.views.dashboard.feed import Moment
from udsprobe.views.fields.escape import column, fit, visible

REPLAY_KEYS: Tuple[Tuple[str, str, str], ...] = (
    ("q", "quit", "app.leave"),
    ("Space", "play", "app.pause"),
    ("←→", "step", "app.step(1)"),
    ("[ ]", "min", "app.skip(60)"),
    ("-+", "speed", "app.speed(1)"),
    ("n", "finding", "app.finding(1)"),
    ("g", "go", "app.go"),
    ("Enter", "more", "app.details"),
    ("?", "help", "app.help"),
)

REPLAY_KEYS_HELP = (
    ("Space, p", "play or pause; at the end, play from the start"),
    ("→ ←", "the next or the previous sample"),
    ("] [", "a minute later or earlier; } and { ten minutes"),
    ("+ -", "faster or slower"),
    ("n N", "where the next or the previous finding began"),
    ("g", "go to a time: 03:12, 03:12:41, +10m after the start, -5m before the end"),
)

_MARKS = {"info": "·", "warning": "▪", "critical": "▲"}
_BAR_MIN = 10
_NOTE = 20


def state(moment: Moment) -> str:
    """The title's right end: playing or held, how fast, and the clock of this frame."""
    how = f"▶ replay {moment.speed:g}×" if moment.playing else "‖ PAUSED"
    return f"{how} · {visible(moment.clock)} "


def line(moment: Moment, width: int) -> str:
    """The time line: start, bar with findings (· info, ▪ warning, ▲ critical), end."""
    note = visible(moment.note) or _count(moment)
    left, right = f" {moment.starts} ", f" {moment.ends}  "
    room = width - len(left) - len(right)
    if room < _BAR_MIN:
        return fit(f" {moment.clock} {note}", width)
    # Of a fixed width: the bar does not move when the note does.
    bar = max(_BAR_MIN, room - _NOTE)
    return column(left + "".join(_bar(moment, bar)) + right + fit(note, room - bar), width)


def _bar(moment: Moment, width: int) -> List[str]:
    bar = ["━" if cell <= _cell(moment, moment.at, width) else "─" for cell in range(width)]
    for when, severity in sorted(moment.findings, key=lambda each: _rank(each[1])):
        bar[_cell(moment, when, width)] = _MARKS.get(severity, "·")
    bar[_cell(moment, moment.at, width)] = "●"
    return bar


def _cell(moment: Moment, when: float, width: int) -> int:
    whole = moment.end - moment.start
    part = (when - moment.start) / whole if whole > 0 else 0.0
    return max(0, min(width - 1, int(part * width)))


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def _count(moment: Moment) -> str:
    count = len(moment.findings)
    return f"{count} finding{'' if count == 1 else 's'}" if count else "no findings"
