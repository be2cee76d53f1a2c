"""Output on a terminal or a pipe whose encoding lacks some of our characters.

Bars, arrows and dashes become ASCII there, one cell for one where tables are aligned by
it; a letter of a name becomes its escape. Nothing that was to be said is lost.
"""

from __future__ import annotations

import codecs
import unicodedata
from typing import Optional, TextIO, Tuple

_HANDLER = "udsprobe.ascii"
# What Python sets by itself; a handler that somebody chose (PYTHONIOENCODING=ascii:replace) stays.
_DEFAULTS = ("strict", "surrogateescape", "backslashreplace")
_ASCII = {
    **dict(zip("µμ–—−…·×÷§", "uu---~.x/S")),
    **dict(zip("“”„‘’‖│╎", '"""\'\'|||')),
    **dict(zip("←→↑↓─━└├┌┐┘┤", "<>^v--`+....")),
    **dict(zip("▕▏▎▍▌▋▊▉█", "||:::::##")),
    **dict(zip("▁▂▃▄▅▆▇", "__..::|")),
    **dict(zip("░▒▓▪▲▶▸◂▾○●", ".:%.^>><vo*")),
    **dict(zip("±≤≥≈", ("+-", "<=", ">=", "~"))),
}


def never_lose(stream: Optional[TextIO]) -> None:
    """Let `stream` write an ASCII stand-in for what its encoding cannot say."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and getattr(stream, "errors", None) in _DEFAULTS:
        reconfigure(errors=_HANDLER)


def in_ascii(text: str) -> str:
    """`text` with a stand-in for each character that is not ASCII."""
    return text.encode("ascii", _HANDLER).decode("ascii")


def _stand_ins(error: UnicodeError) -> Tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_stand_in, lacking)), error.end


def _stand_in(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not text (os.fsdecode)
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) == "Zs":
        return " "
    return _ASCII.get(character) or character.encode("ascii", "backslashreplace").decode("ascii")


codecs.register_error(_HANDLER, _stand_ins)
