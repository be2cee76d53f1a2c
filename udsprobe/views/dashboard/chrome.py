"""The lines around the panels: title, verdict, status and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from udsprobe.model.report import Report
from udsprobe.views.dashboard import timeline
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.state import ViewState
from udsprobe.views.dashboard.widgets import STYLES
from udsprobe.views.fields import numbers, words
from udsprobe.views.fields.breakdown import time_lines
from udsprobe.views.fields.escape import column as padded
from udsprobe.views.fields.escape import fit, fit_words, wrap
from udsprobe.views.fields.verdict import NOT_ENOUGH_SEEN, Said, said

_HINT_WIDTH = 100
_OPENS = Style(meta={"@click": "app.verdict"})

KEYS: Tuple[Tuple[str, str, str], ...] = (
    ("q", "quit", "app.leave"),
    ("v", "why", "app.verdict"),
    ("c", "code", "app.code"),
    ("p", "pause", "app.pause"),
    ("s", "sort", "app.sort"),
    ("/", "filter", "app.filter"),
    ("Tab", "panel", "app.focus_next"),
    ("z", "zoom", "app.zoom"),
    ("Enter", "open", "app.details"),
    ("?", "help", "app.help"),
)


def title(frame: Optional[Frame], interval_s: float, paused_at: Optional[str], width: int) -> Text:
    """Whom, live or paused, how often, and the clock of the newest report."""
    every = numbers.span(interval_s)
    if frame is not None and frame.moment is not None:
        right = timeline.state(frame.moment)
    elif paused_at is not None:
        right = f"‖ PAUSED at {paused_at}, still measuring "
    elif frame is None:
        right = f"○ starting · every {every} "
    else:
        right = f"● live · every {every} · {words.clock(frame.window.window)} "
    watched = "" if frame is None else _watched(frame.window)
    left = fit(f" udsprobe · {watched}".rstrip(" ·"), width - len(right) - 1)
    return Text(padded(left, width - len(right)) + right, style=Style(bold=True))


def _watched(report: Report) -> str:
    return words.who(report.targets, report.targets_exited)


def verdict(frame: Optional[Frame], width: int, *, roomy: bool) -> List[Text]:
    """The verdict of the last seconds, one line while there is none; then where the time goes.

    Four lines, of which two are its headline.

    Args:
        roomy: with a line for what the stage `app` consisted of.
    """
    if frame is None:
        return [Text(" warming up: first numbers after the first interval", style=STYLES["dim"])]
    told = said(frame.interval)
    bars = time_lines(frame.judged, width - 2, app=roomy)
    return [*_verdict(told, width), *(Text(f" {line}") for line in bars)]


def _verdict(told: Optional[Said], width: int) -> List[Text]:
    if told is None:
        return [Text(f" verdict: {words.NOT_IN_THIS_VERSION}", style=STYLES["dim"])]
    style = STYLES.get(told.severity, Style()) + _OPENS
    style += Style(dim=True) if told.name == NOT_ENOUGH_SEEN else Style(bold=True)
    culprit = ", ".join(filter(None, (told.cause, told.severity)))
    hint = "Enter/v: evidence, fix" if width >= _HINT_WIDTH else "v: fix"
    headline = (f"   {line}".rstrip() for line in _headline(told, width - 4))
    return [
        Text(_apart(f" {told.name}   {culprit}".rstrip(), told.sure, width), style=style),
        *(Text(line, style=Style(bold=True)) for line in headline),
        Text(_apart(f"   {told.transport}", hint, width), style=_OPENS),
    ]


def _headline(told: Said, width: int) -> List[str]:
    """Always as many lines, so that nothing below moves."""
    first, *rest = wrap(told.headline, width)
    second = fit_words(" ".join(rest), width)
    return [first, second]


def _apart(left: str, right: str, width: int) -> str:
    """One at each edge; of the left one as many words as there is room for."""
    room = width - cell_len(right) - (3 if right else 1)
    return padded(fit_words(left, room), width - cell_len(right) - 1) + right


def status(frame: Optional[Frame], state: ViewState, width: int) -> Text:
    """Own cost and losses, and what the user set: order and filter."""
    chosen = f"sorted by {state.sorted_by} " + (
        f"· filter {fit(state.filter, 20)} " if state.filter else ""
    )
    if frame is None:
        return Text(chosen.rjust(width), style=STYLES["dim"])
    probe = frame.window.probe
    alarm = STYLES["critical"] if words.is_incomplete(probe) else Style()
    now = frame.interval.probe
    if now.bpf_cpu_pct is None:  # measured now and then
        now = replace(now, bpf_cpu_pct=probe.bpf_cpu_pct)
    said_first = (words.way(probe), words.full_detail(frame.window), words.account(probe))
    facts = " " + " · ".join(filter(None, (*said_first, words.cost(now))))
    left = _whole(facts, max(0, width - len(chosen) - 1))
    return Text(padded(left, max(0, width - len(chosen))) + chosen, style=alarm)


def _whole(facts: str, width: int) -> str:
    """As many of them as fit, the first at least."""
    kept = facts.split(" · ")
    while len(kept) > 1 and cell_len(" · ".join(kept)) > width:
        kept.pop()
    return fit(" · ".join(kept), width)


def keys(known: Sequence[Tuple[str, str, str]], width: int) -> Text:
    """The keys, each of which can also be clicked; `?` lists those that there is no room for."""
    text = Text()
    for key, does, action in _that_fit(known, width):
        click = Style(meta={"@click": action})
        text.append(f" {key}", style=Style(bold=True) + click)
        text.append(f" {does} ", style=click)
    return text


def _that_fit(known: Sequence[Tuple[str, str, str]], width: int) -> Sequence[Tuple[str, str, str]]:
    """All, or as many as fit beside the last, which is help."""
    shown = list(known)
    while len(shown) > 1 and sum(len(key) + len(does) + 3 for key, does, _ in shown) > width + 1:
        shown.pop(-2)  # the last blank needs no cell
    return shown
