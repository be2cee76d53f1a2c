"""Names of strangers as words of a shell's line."""

from __future__ import annotations

import shlex
import unicodedata

from udsprobe.printable import raw_name


def word(name: str) -> str:
    """`name`, as reports have it, as one word that stands for the bytes it was made of.

    Bytes that a line of text cannot hold are written in bash's `$'…'`.
    """
    raw = raw_name(name)
    text = raw.decode("utf-8", "replace")
    if text.isprintable() and text.encode() == raw and not any(map(unicodedata.combining, text)):
        return shlex.quote(text)
    return f"$'{''.join(map(_byte, raw))}'"


def _byte(value: int) -> str:
    character = chr(value)
    if character in "'\\":
        return f"\\{character}"
    return character if " " <= character <= "~" else f"\\x{value:02x}"
