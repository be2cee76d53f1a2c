"""Plots as inline SVG, drawn by matplotlib, that take the page's colours, light or dark.

No string of another process is drawn.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from io import StringIO
from typing import Any, Dict, Iterator

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure as Canvas

from udsprobe.views.html.page import markup

# Stand for the style sheet's colours while matplotlib draws.
_VARIABLES = {
    "#010203": "var(--ink)",
    "#020304": "var(--quiet)",
    "#030405": "var(--line)",
    **{f"#0405{level:02x}": f"var(--heat{level})" for level in range(1, 7)},
}
INK, QUIET, LINE, *HEAT = _VARIABLES
"""Colours that the style sheet decides; those of HEAT from few to many."""

STAGES = ("#999999", "#e69f00", "#cc79a7", "#009e73", "#56b4e9")
"""Told apart by colour-blind eyes, and on light as on dark paper (Okabe and Ito)."""

_SETTINGS: Dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}
_INCHES = 6.6


@contextmanager
def drawn_as(name: str, height_inches: float) -> Iterator[Canvas]:
    """A canvas as wide as the page; plots of one page differ by `name`."""
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        yield Canvas(figsize=(_INCHES, height_inches), layout="constrained")


def svg(canvas: Canvas) -> Markup:
    """The drawing alone: no prologue, metadata or size, and no ids but those it refers to."""
    out = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    canvas.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    whole = text
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if f"#{m[1]}" in whole else "", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 aria-hidden="true" focusable="false"', text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return markup(text)
