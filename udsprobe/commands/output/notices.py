"""A line for people beside the output of a command."""

from __future__ import annotations

import sys


def notice(what: str) -> None:
    """One line on stderr; none where there is no stderr: `print` would fall back to stdout."""
    if sys.stderr is not None:
        print(f"udsprobe: {what}", file=sys.stderr, flush=True)
