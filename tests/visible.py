"""What a character is to a reader: for tests that look at every one of an output."""

from __future__ import annotations

import unicodedata
from typing import Set

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def invisible(text: str, allowed: str = "") -> Set[str]:
    """The characters of `text` that act on a terminal, or cannot be seen."""
    return {
        each
        for each in set(text) - set(allowed)
        if unicodedata.category(each) in _INVISIBLE
        or (unicodedata.category(each) == "Zs" and each != " ")
    }
