"""Names of strangers as text in which every character can be seen, and back.

A name is bytes: of a process, a path, an abstract socket, a control group. The
text has no control character, nothing invisible and no undecodable byte, and
no two names have the same text. docs/report.md has the rule for readers.
"""

from __future__ import annotations

import re
import unicodedata

# Control, format (text direction, zero width), surrogate, private use,
# unassigned, line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# What the rule writes for something else. systemd's own `\x2d` is not among it:
# its unit names stay as they are known.
_ESCAPE = re.compile(
    r"\\(?:x([01][0-9a-f]|40|5c|7f|[89a-f][0-9a-f])|u([0-9a-f]{4})|U([0-9a-f]{8}))"
)
_BACKSLASH = "\\x5c"


def printable(raw: bytes) -> str:
    """`raw` as text in which every character can be seen; `raw_name` is the way back.

    Bytes that are not UTF-8 become `\\xNN`, control and invisible characters
    `\\xNN` (ASCII), `\\uNNNN` or `\\UNNNNNNNN`, and a backslash that would begin
    such an escape `\\x5c`. Nothing else changes.
    """
    text = raw.decode("utf-8", "surrogateescape")
    if "\\" in text:
        text = _ESCAPE.sub(lambda found: _BACKSLASH + found.group()[1:], text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def raw_name(text: str) -> bytes:
    """The bytes that `printable` was given; text that it did not make, as it is."""
    parts = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts += [_encoded(text[end : found.start()]), _meant(found)]
        end = found.end()
    return b"".join([*parts, _encoded(text[end:])])


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category not in _INVISIBLE and (category != "Zs" or character == " "):
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _meant(found: re.Match[str]) -> bytes:
    byte, short, long = found.groups()
    if byte is not None:
        return bytes([int(byte, 16)])
    code = int(short or long, 16)
    if code > 0x10FFFF:  # no character: `printable` did not write it
        return found.group().encode()
    return chr(code).encode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
