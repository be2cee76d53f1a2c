"""Values as nginx writes them: numbers, sizes, times, and how it was started."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20}
_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "M": 2_592_000_000,
    "y": 31_536_000_000,
}
_DIGITS_MAX = 18
_TITLE = "nginx: master process "
_OPTION = re.compile(r"-[cpge]")


@dataclass(frozen=True)
class StartedWith:
    """Options that choose the configuration; None when not given.

    Attributes:
        config: `-c`. prefix: `-p`. directives: `-g`.
    """

    config: Optional[str] = None
    prefix: Optional[str] = None
    directives: str = ""


def number(text: str) -> Optional[int]:
    """A plain decimal number; None when it is none."""
    plain = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if plain else None


def size_bytes(text: str) -> Optional[int]:
    """`64k` → 65536 (`ngx_parse_size`); None when it is no size."""
    unit = text[-1:].lower() if text[-1:].isalpha() else ""
    value = number(text[: len(text) - len(unit)])
    return None if value is None or unit not in _SIZES else value * _SIZES[unit]


def milliseconds(text: str) -> Optional[int]:
    """`1m 30s`, `75`, `500ms` (`ngx_parse_time`); None when it is no time."""
    parts = re.findall(r"([0-9]{1,12})(ms|[smhdwMy]?)\s*", text)
    if not parts or "".join(f"{count}{unit}" for count, unit in parts) != "".join(text.split()):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in parts)


def started_with(cmdline: bytes) -> StartedWith:
    """Options from /proc/PID/cmdline of a master.

    A daemon's title is one string, its arguments joined by single spaces
    (`ngx_master_process_cycle`); a process without a master has them as they were.
    """
    text = cmdline.decode("utf-8", "surrogateescape").rstrip("\0")
    if text.startswith(_TITLE):
        words = text[len(_TITLE) :].rstrip(" \0").split(" ")
    else:
        words = text.split("\0")
    given = _options(words[1:])
    return StartedWith(given.get("-c"), given.get("-p"), given.get("-g") or "")


def _options(words: Sequence[str]) -> Dict[str, str]:
    """Option → its value; a value goes on until the next option, as spaces are not told apart."""
    found: Dict[str, List[str]] = {}
    current: List[str] = []
    for word in words:
        if _OPTION.match(word):
            current = found.setdefault(word[:2], [])
            del current[:]
            current.extend([word[2:]] if word[2:] else [])
        elif re.fullmatch(r"-[tTqvVh?]+", word):
            current = []
        else:
            current.append(word)
    return {option: " ".join(value) for option, value in found.items() if value}


def version_of(executable: bytes) -> Optional[Tuple[int, int, int]]:
    """nginx's version from the bytes of its program (`NGINX_VER`): (1, 22, 1)."""
    found = re.search(rb"\b(?:nginx|openresty)/(\d{1,3})\.(\d{1,3})\.(\d{1,3})", executable)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def built_with(executable: bytes, option: str) -> Optional[str]:
    """A `--prefix` or `--conf-path` from the configure arguments that the program holds."""
    found = re.search(rb" --" + option.encode() + rb"=([^\s\0']{1,4000})", executable)
    return None if found is None else found[1].decode("utf-8", "surrogateescape")
