"""Shares as users write them: `1%`, `0.5 %`; a bare number is per cent."""

from __future__ import annotations

import re
from typing import Optional

import click

from udsprobe.errors import UsageError

_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%?")


def given_share(_: click.Context, option: click.Parameter, text: Optional[str]) -> float:
    """An option's share as a part of 1, above 0 and at most 1.

    Raises:
        UsageError: `usage`.
    """
    found = _SHARE.fullmatch((text or "").strip())
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise UsageError(
            "usage", f"{option.opts[0]} {text!r} is not a share", "give one such as 1% or 0.5%"
        )
    return share
