"""The interpreters of PHP that are installed here, and the ways in which they run code."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

# One at least: a machine without it says so.
PHPS = sorted(path.name for path in Path("/usr/bin").glob("php[78].[0-9]")) or ["php"]

_OPCACHE = ["-d", "zend_extension=opcache", "-d", "opcache.enable_cli=1"]
_MADE = [*_OPCACHE, "-d", "opcache.jit_buffer_size=16M", "-d"]
_AT_ONCE = ["opcache.jit_hot_func=1", "opcache.jit_hot_loop=1", "opcache.jit_hot_return=1"]
WAYS: Dict[str, List[str]] = {
    "interpreted": ["-n"],
    "kept": ["-n", *_OPCACHE, "-d", "opcache.jit=disable"],
    "made by function": ["-n", *_MADE, "opcache.jit=1205"],
    "made by trace": ["-n", *_MADE, "opcache.jit=tracing"]
    + [part for each in _AT_ONCE for part in ("-d", each)],
}
"""What they do with it, and the options for that; what makes code needs PHP 8."""
