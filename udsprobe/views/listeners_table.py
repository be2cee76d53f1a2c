"""`udsprobe listeners` as text: one line a listener, within the terminal's width.

Knows `Listener` and widths; reads nothing. Everything it is given has been
escaped by `udsprobe.kernel`, and no markup is interpreted here.
"""

from __future__ import annotations

from typing import List, Mapping, Sequence, Tuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from udsprobe.model.report import Listener

_BAR_CELLS = 6
_EIGHTHS = "▏▎▍▌▋▊▉"
_OWNERS_CELLS = 20
_ADDRESS_CELLS = 16
_HEADINGS = ("socket", "address", "queue", "now/limit", "backlog", "owners")
_ADDRESS, _QUEUE = 1, 3
Cells = Tuple[str, ...]


def print_table(
    console: Console,
    listeners: Sequence[Listener],
    at_somaxconn: Sequence[bool],
    comms: Mapping[int, str],
) -> None:
    """Prints the listeners, in the order given.

    Args:
        at_somaxconn: for each, whether its backlog equals its namespace's limit.
        comms: names of owners by PID, as far as known.
    """
    rows = [_cells(one, at, comms) for one, at in zip(listeners, at_somaxconn)]
    widths = _widths([_HEADINGS, *rows], console.width)
    _print(console, _line(_HEADINGS, widths), "bold")
    for listener, row in zip(listeners, rows):
        _print(console, _line(row, widths), "bold red" if _full(listener) else "")


def middle_cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, `…` in place of its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    kept = text[len(text) - tail :] if tail else ""
    while cell_len(kept) > tail:
        kept = kept[1:]
    return set_cell_size(text, width - 1 - cell_len(kept)).rstrip() + "…" + kept


def _cells(listener: Listener, at_somaxconn: bool, comms: Mapping[int, str]) -> Cells:
    depth = listener.depth
    now = "–" if depth.now is None else str(depth.now)
    seqpacket = " seq" if listener.socket_type == "seqpacket" else ""
    return (
        listener.transport + seqpacket,
        listener.address or "(no name)",
        _bar(depth.now or 0, depth.limit),
        f"{now}/{depth.limit}" + (" FULL" if _full(listener) else ""),
        f"{listener.backlog.effective}" + ("=somaxconn" if at_somaxconn else ""),
        _owners(listener, comms),
    )


def _owners(listener: Listener, comms: Mapping[int, str]) -> str:
    """`node:4711 +2`; of a name too long for the column the PID is kept."""
    if not listener.pids:
        return "–" if listener.pids is None else "none"
    first, others = listener.pids[0], len(listener.pids) - 1
    rest = f":{first}" + (f" +{others}" if others else "")
    return middle_cut(comms.get(first, "?"), _OWNERS_CELLS - len(rest)) + rest


def _full(listener: Listener) -> bool:
    return listener.depth.now is not None and listener.depth.now >= listener.depth.limit


def _bar(now: int, limit: int) -> str:
    """Never empty when something waits, never full before the limit."""
    inner = _BAR_CELLS - 2
    eighths = min(inner * 8, max(now * inner * 8 // limit, 1 if now else 0))
    part = _EIGHTHS[eighths % 8 - 1] if eighths % 8 else ""
    return "▕" + ("█" * (eighths // 8) + part).ljust(inner) + "▏"


def _widths(rows: Sequence[Cells], total: int) -> List[int]:
    """Each column as wide as its widest cell; the address gets what is left."""
    widths = [max(map(cell_len, column)) for column in zip(*rows)]
    others = sum(widths) - widths[_ADDRESS] + len(widths) - 1
    widths[_ADDRESS] = max(_ADDRESS_CELLS, min(widths[_ADDRESS], total - others))
    return widths


def _line(cells: Cells, widths: Sequence[int]) -> str:
    shown = []
    for at, (cell, width) in enumerate(zip(cells, widths)):
        cut = middle_cut(cell, width) if at == _ADDRESS else cell
        padding = " " * (width - cell_len(cut))
        shown.append(padding + cut if at == _QUEUE else cut + padding)
    return " ".join(shown).rstrip()


def _print(console: Console, line: str, style: str) -> None:
    console.print(Text(line, style=style), soft_wrap=True, highlight=False)
