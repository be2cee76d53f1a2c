"""systemd's unit files: sections, settings, drop-ins and the two settings that matter here.

Syntax of systemd.syntax(7): `key=value`, comments, lines continued by a backslash;
an empty value forgets what came before. Knows no directories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Tuple

_LISTEN_KEYS = ("ListenStream", "ListenSequentialPacket")
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
Settings = Dict[Tuple[str, str], List[str]]
Limit = Tuple[Optional[int], Optional[int]]


@dataclass(frozen=True)
class UnitSettings:
    """What the files of one unit say together.

    Attributes:
        limit_nofile: (soft, hard), None for infinity; None altogether when not set.
        backlog: `Backlog=`. listens: stream and packet addresses.
        sockets: `Sockets=` of a service. service: `Service=` of a socket.
    """

    limit_nofile: Optional[Limit] = None
    backlog: Optional[int] = None
    listens: Tuple[str, ...] = ()
    sockets: Tuple[str, ...] = ()
    service: Optional[str] = None


def parse(text: str) -> Settings:
    """(section, key) → values in order; lines that are no settings are passed over."""
    found: Settings = {}
    section = ""
    for line in _joined(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            values = found.setdefault((section, key), [])
            if value:
                values.append(value)
            else:
                del values[:]
                values.append("")
    return found


def together(files: Iterable[str]) -> UnitSettings:
    """The settings of a unit file and its drop-ins, in the order systemd reads them."""
    merged: Settings = {}
    for text in files:
        for key, values in parse(text).items():
            so_far = merged.setdefault(key, [])
            if values[0] == "":
                del so_far[:]
            so_far.extend(value for value in values if value)
    last = {key: values[-1] for key, values in merged.items() if values}
    listens = [each for key in _LISTEN_KEYS for each in merged.get(("Socket", key), ())]
    return UnitSettings(
        limit_nofile=limit(last.get(("Service", "LimitNOFILE"), "")),
        backlog=_number(last.get(("Socket", "Backlog"), "")),
        listens=tuple(listens),
        sockets=tuple(
            name for value in merged.get(("Service", "Sockets"), ()) for name in value.split()
        ),
        service=last.get(("Socket", "Service")),
    )


def limit(text: str) -> Optional[Limit]:
    """`65536`, `1024:524288`, `64K` or `infinity` as (soft, hard); None when it is no limit."""
    parts = text.split(":")
    values = [_one_limit(part.strip()) for part in parts]
    if len(parts) > 2 or any(not known for known, _ in values):
        return None
    return values[0][1], values[-1][1]


def _one_limit(text: str) -> Tuple[bool, Optional[int]]:
    if text == "infinity":
        return True, None
    scale = _SIZES.get(text[-1:], 1)
    value = _number(text[:-1] if scale > 1 else text)
    return value is not None, None if value is None else value * scale


def _number(text: str) -> Optional[int]:
    plain = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if plain else None


def _joined(text: str) -> Iterable[str]:
    pending = ""
    for raw in text.split("\n"):  # systemd knows no other end of a line
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not pending):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield (pending + line).strip()
        pending = ""
    if pending:
        yield pending.strip()
