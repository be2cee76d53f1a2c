"""Names of C++ and Rust functions as their programmers wrote them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Callable, Optional

from udsprobe.printable import printable

NAME_BYTES_MAX = 1000
"""A longer one is shown as it is: what expands without end is not expanded."""

SHOWN_MAX = 200
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_MANGLED = (b"_Z", b"_R", b"__Z", b"___Z")
_VERSION = re.compile(rb"@@?[A-Za-z0-9_.]+$")


def _demangler() -> Optional[Callable[[str], str]]:
    try:
        from pydemumble import demangle
    except ImportError:  # no wheel for this machine: names stay as they are
        return None
    return demangle  # type: ignore[no-any-return]


@lru_cache(maxsize=20_000)
def function_name(raw: bytes) -> str:
    """Printable, without the version of a symbol and the hash of Rust; at most 200 characters."""
    plain = _VERSION.sub(b"", raw)
    text = printable(plain)
    demangle = _demangler()
    if demangle is not None and plain.startswith(_MANGLED) and len(plain) <= NAME_BYTES_MAX:
        # What it makes of letters beyond ASCII can be invisible.
        text = printable(_RUST_HASH.sub("", demangle(text) or text).encode())
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"
