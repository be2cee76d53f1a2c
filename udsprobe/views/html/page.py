"""Templates → pages. Every string is escaped twice over: made visible, then quoted for HTML.

Strings of other processes reach a page through `render` only. A template marks
nothing as safe but the style sheet and plots, which `markup` wraps.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from udsprobe import __version__
from udsprobe.views.fields.escape import visible


def render(template: str, **values: Any) -> str:
    """The page of a template in this directory; it extends `shell.html.jinja`.

    Args:
        values: what the template names. Strings may be hostile; `Markup` is
            taken as it is.
    """
    environment = Environment(
        loader=PackageLoader("udsprobe.views", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template)
    return page.render(style=_style(), version=__version__, **values) + "\n"


def markup(trusted: str) -> Markup:
    """Markup made here, in which no string of another process is."""
    return Markup(trusted)


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _style() -> Markup:
    sheet = resources.files("udsprobe.views.html").joinpath("style.css")
    return markup(sheet.read_text(encoding="utf-8"))
