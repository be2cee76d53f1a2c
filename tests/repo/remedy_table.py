"""The table of remedies as a page, for docs/remedies.md."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from udsprobe.rules.remedy.row import Row
from udsprobe.rules.remedy.table import KINDS, Kind
from udsprobe.rules.servers import GENERIC, SERVERS

BEGIN = "<!-- made by python -m tests.repo.pages -->"
END = "<!-- end -->"


def tables() -> str:
    """All rows, a section for each kind of trouble; ends in a newline."""
    return "\n".join(line for name in KINDS for line in _section(name, KINDS[name])) + "\n"


def _section(name: str, kind: Kind) -> Iterator[str]:
    yield f"### {name}: {kind.about}"
    yield ""
    yield f"Cause `{kind.cause}`."
    yield ""
    yield "| server | effect | say | run | undo |"
    yield "|---|---|---|---|---|"
    for server, row in _rows(kind):
        cells = (server, row.effect, row.say, _line(row.run), _line(row.undo))
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _rows(kind: Kind) -> List[Tuple[str, Row]]:
    first = [("every", row) for row in kind.first]
    every = "any other" if len(kind.by_server) > 1 else "every"
    named = [
        (every if server == GENERIC else SERVERS[server], row)
        for server in SERVERS
        for row in kind.by_server.get(server, ())
    ]
    return [*first, *named]


def _line(template: Optional[str]) -> str:
    return "–" if template is None else f"`{template}`"


def _cell(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}").replace("|", "\\|")
