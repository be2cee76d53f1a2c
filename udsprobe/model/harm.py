"""Who suffers from what a verdict is about: its part of the report document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Harm:
    """Who suffers, and how much.

    Attributes:
        kind: `refused`, `failed`, `stuck`, `slow`, `none`, or `unknown`.
        share_pct: of the connects or connections concerned; None: not told.
        count: how many of them; requests that were seen where they are slow.
        since_s: how long already, at least; None: not told.
        says: that in a few words, `99 % of connects refused`.
    """

    kind: str
    share_pct: Optional[float]
    count: Optional[int]
    since_s: Optional[float]
    says: str


NOT_SEEN = Harm("unknown", None, None, None, "whether clients are affected is not known")
