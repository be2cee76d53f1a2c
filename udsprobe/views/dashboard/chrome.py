"""The lines around the panels: title, verdict, status and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Tuple

from rich.style import Style
from rich.text import Text

from udsprobe.model.report import Report
from udsprobe.views import numbers, words
from udsprobe.views.breakdown import time_lines
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.state import ViewState
from udsprobe.views.dashboard.widgets import STYLES
from udsprobe.views.escape import column as padded
from udsprobe.views.escape import fit, visible

KEYS: Tuple[Tuple[str, str, str], ...] = (
    ("q", "quit", "app.leave"),
    ("p", "pause", "app.pause"),
    ("s", "sort", "app.sort"),
    ("/", "filter", "app.filter"),
    ("Tab", "panel", "app.focus_next"),
    ("z", "zoom", "app.zoom"),
    ("Enter", "details", "app.details"),
    ("?", "help", "app.help"),
)


def title(frame: Optional[Frame], interval_s: float, paused_at: Optional[str], width: int) -> Text:
    """Whom, live or paused, how often, and the clock of the newest report."""
    every = numbers.span(interval_s)
    if paused_at is not None:
        right = f"‖ PAUSED at {paused_at}, still measuring "
    elif frame is None:
        right = f"○ starting · every {every} "
    else:
        right = f"● live · every {every} · {words.clock(frame.window.window)} "
    watched = "" if frame is None else _watched(frame.window)
    left = fit(f" udsprobe · {watched}".rstrip(" ·"), width - len(right) - 1)
    return Text(padded(left, width - len(right)) + right, style=Style(bold=True))


def _watched(report: Report) -> str:
    exited = f", {report.targets_exited} exited" if report.targets_exited else ""
    return words.who(report.targets, report.targets_exited) + exited


def verdict(frame: Optional[Frame], width: int, *, roomy: bool) -> List[Text]:
    """The verdict's two lines, one while there is none; then where the time goes.

    Args:
        roomy: with a line for what the stage `app` consisted of.
    """
    if frame is None:
        return [Text(" warming up: first numbers after the first interval", style=STYLES["dim"])]
    value = frame.window.verdict
    headline, second = words.verdict(value)
    style = STYLES["dim"] if value is None else Style(bold=True)
    lines = [Text(fit(f" {headline}", width), style=style)]
    if second:
        lines.append(Text(fit(f"   {second}", width)))
    bars = time_lines(frame.interval, width - 2, app=roomy)
    return [*lines, *(Text(f" {line}") for line in bars)]


def status(frame: Optional[Frame], state: ViewState, width: int) -> Text:
    """Own cost and losses, and what the user set: order and filter."""
    chosen = f"sorted by {state.sorted_by} " + (
        f"· filter {fit(state.filter, 20)} " if state.filter else ""
    )
    if frame is None:
        return Text(chosen.rjust(width), style=STYLES["dim"])
    probe = frame.window.probe
    alarm = STYLES["critical"] if words.lost(probe) or probe.turned_away else Style()
    now = frame.interval.probe
    if now.bpf_cpu_pct is None:  # measured now and then
        now = replace(now, bpf_cpu_pct=probe.bpf_cpu_pct)
    losses = words.losses(probe) + words.turned_away(probe)
    facts = f" {visible(probe.strategy)} · {losses} · {words.cost(now)}"
    left = fit(facts, max(0, width - len(chosen) - 1))
    return Text(padded(left, max(0, width - len(chosen))) + chosen, style=alarm)


def keys() -> Text:
    """The keys, each of which can also be clicked."""
    text = Text()
    for key, does, action in KEYS:
        click = Style(meta={"@click": action})
        text.append(f" {key}", style=Style(bold=True) + click)
        text.append(f" {does} ", style=click)
    return text
