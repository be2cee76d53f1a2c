"""A report in the form that was asked for; shared by what observes and what replays."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from udsprobe.commands.output.delivery import Outlet

if TYPE_CHECKING:
    from udsprobe.model.report import Report


def rendered(report: Report, form: str, outlet: Outlet, in_colour: bool = False) -> str:
    """One report as `json`, `jsonl` or text."""
    from udsprobe.views.documents.report_document import json_line, json_text

    if form == "json":
        return json_text(report)
    if form == "jsonl":
        return json_line(report)
    from udsprobe.views.text.report_text import render

    return render(report, outlet.columns(), colour=in_colour)


def wants_colour(outlet: Outlet) -> bool:
    """Asked before the dashboard runs: Textual may take NO_COLOR out of the environment."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return outlet.is_terminal and not plain


def follow_the_terminal() -> None:
    """Let the dashboard have the terminal's size: Textual prefers an exported one, which stays."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def can_draw() -> bool:
    """Whether the dashboard could read keys and draw, stdout being a terminal."""
    # The dashboard reads keys from stdin; it draws on stdout, and stderr may go anywhere.
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()
    return has_keyboard and os.environ.get("TERM", "dumb") != "dumb"
