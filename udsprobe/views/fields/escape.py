"""Hostile bytes made visible: what a process calls itself must not act on the terminal.

Process names, command lines and socket addresses are chosen by whoever runs
them. Everything printed from them passes through here: control characters,
line and paragraph separators, text-direction overrides, invisible characters
and undecodable bytes become escapes one can read. Markup is not interpreted
by anyone: views build `rich.text.Text` from plain strings.
"""

from __future__ import annotations

import unicodedata
from typing import List

from rich.cells import cell_len, set_cell_size

# Control, format (direction overrides, zero-width), surrogate, private use,
# unassigned, line separator, paragraph separator.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}
_MAX_COMBINING = 2
_LONG_WORD = 24
_UNBROKEN = "\ue000"  # for private use: no visible text has it


def visible(text: str) -> str:
    """`text` with every character that is not plainly visible written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    written = []
    combining = 0
    for character in text:
        combining = combining + 1 if unicodedata.combining(character) else 0
        # Stacked combining marks paint over the neighbouring rows.
        hidden = combining > _MAX_COMBINING or _hidden(character)
        written.append(_escaped(character) if hidden else character)
    return "".join(written)


def fit(text: str, width: int, *, keep: str = "start") -> str:
    """`visible(text)` cut to `width` terminal cells, with `…` where something is missing.

    Args:
        keep: `start`, `end` (paths: the last part tells them apart) or `middle`.
    """
    shown = visible(text)
    if cell_len(shown) <= width:
        return shown
    if width <= 1:
        return "…"[:width]
    if keep == "start":
        return _head(shown, width - 1) + "…"
    if keep == "end":
        return "…" + _tail(shown, width - 1)
    head = (width - 1) // 2
    return _head(shown, head) + "…" + _tail(shown, width - 1 - head)


def fit_words(text: str, width: int) -> str:
    """`fit`, cut between words where that loses no more than one of them."""
    shown = visible(text)
    if cell_len(shown) <= width:
        return shown
    kept = fit(shown, width)[:-1]
    between, _, part = kept.rpartition(" ")
    is_whole = shown[len(kept) : len(kept) + 1] == " "
    whole = between if between and not is_whole and len(part) < _LONG_WORD else kept
    return whole.rstrip(" ,:;·(") + "…"


def wrap(text: str, width: int) -> List[str]:
    """`visible(text)` in lines of at most `width` cells, broken between words if it can be."""
    lines = [""]
    for word in visible(text).replace(" %", _UNBROKEN + "%").split(" "):
        for index, piece in enumerate(_pieces(word, max(1, width))):
            joined = f"{lines[-1]} {piece}" if lines[-1] else piece
            if index or cell_len(joined) > width:
                lines.append(piece)
            else:
                lines[-1] = joined
    return [line.replace(_UNBROKEN, " ") for line in lines]


def wrap_commands(text: str, width: int) -> List[str]:
    """`wrap`, broken after `;` first, so that no command is in two lines that fits one."""
    lines: List[str] = []
    for command in visible(text).replace("; ", ";\n").split("\n"):
        joined = f"{lines[-1]} {command}" if lines else command
        if cell_len(joined) <= width:
            lines[-1:] = [joined]
        else:
            lines += wrap(command, width)
    return lines


def _pieces(word: str, width: int) -> List[str]:
    pieces = []
    while cell_len(word) > width:
        head = _head(word, width) or word[:1]
        pieces.append(head)
        word = word[len(head) :]
    return [*pieces, word]


def column(text: str, width: int, *, right: bool = False) -> str:
    """`text`, already visible and short enough, padded to exactly `width` cells."""
    missing = width - cell_len(text)
    if missing < 0:
        return set_cell_size(text, width)
    return " " * missing + text if right else text + " " * missing


def _hidden(character: str) -> bool:
    category = unicodedata.category(character)
    return category in _INVISIBLE or (category == "Zs" and character != " ")


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8 (os.fsdecode)
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _head(text: str, width: int) -> str:
    return set_cell_size(text, width).rstrip(" ") if width else ""


def _tail(text: str, width: int) -> str:
    start = len(text)
    used = 0
    while start and used + cell_len(text[start - 1]) <= width:
        start -= 1
        used += cell_len(text[start])
    return text[start:]
