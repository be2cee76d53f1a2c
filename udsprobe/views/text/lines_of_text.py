"""Styled lines as text for a terminal or a file."""

from __future__ import annotations

from io import StringIO
from typing import Iterable

from rich.console import Console
from rich.text import Text


def printed(lines: Iterable[Text], width: int, *, colour: bool) -> str:
    """One line each, ending in a newline, never wrapped; ANSI styles only with `colour`."""
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        for line in lines:
            line.rstrip()
            console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
    return capture.get()
