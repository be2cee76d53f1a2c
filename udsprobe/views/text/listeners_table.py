"""`udsprobe listeners` as text: one line a listener, within the terminal's width.

Knows `Listener` and widths; reads nothing. No markup is interpreted here.
"""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Tuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from udsprobe.model.report import Listener
from udsprobe.views.fields.bars import limit_bar
from udsprobe.views.fields.escape import visible

_BAR_CELLS = 6
_WATCHED_BAR_CELLS = 14
_ROOMY = 100
_OWNERS_CELLS = 20
_ADDRESS_CELLS = 16
_HEADINGS = ("socket", "address", "queue", "now/limit", "backlog", "owners")
_WATCHED_HEADINGS = ("socket", "address", "queue", "now/limit", "max", "backlog", "owners")
_ADDRESS = 1
_RIGHT = (3, 4)
Cells = Tuple[str, ...]
Peaks = Mapping[int, int]


def print_table(
    console: Console,
    listeners: Sequence[Listener],
    comms: Mapping[int, str],
    peaks: Optional[Peaks] = None,
) -> None:
    """Prints the listeners, in the order given; arguments as of `table`."""
    for line in table(listeners, comms, console.width, peaks):
        console.print(line, soft_wrap=True, highlight=False)


def table(
    listeners: Sequence[Listener],
    comms: Mapping[int, str],
    width: int,
    peaks: Optional[Peaks] = None,
) -> List[Text]:
    """The headings and a line for each listener.

    Args:
        comms: names of owners by PID, as far as known.
        peaks: most connections seen by inode, for a column and a tick in the bar.
    """
    bar = _WATCHED_BAR_CELLS if peaks is not None and width >= _ROOMY else _BAR_CELLS
    rows = [_cells(one, comms, peaks, bar) for one in listeners]
    headings = _HEADINGS if peaks is None else _WATCHED_HEADINGS
    columns = _widths([headings, *rows], width)
    lines = [Text(_line(headings, columns), style="bold")]
    for listener, row in zip(listeners, rows):
        lines.append(Text(_line(row, columns), style="bold red" if _full(listener) else ""))
    return lines


def middle_cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, `…` in place of its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    kept = text[len(text) - tail :] if tail else ""
    while cell_len(kept) > tail:
        kept = kept[1:]
    return set_cell_size(text, width - 1 - cell_len(kept)).rstrip() + "…" + kept


def _cells(listener: Listener, comms: Mapping[int, str], peaks: Optional[Peaks], bar: int) -> Cells:
    depth, backlog = listener.depth, listener.backlog
    now = "–" if depth.now is None else str(depth.now)
    seqpacket = " seq" if listener.socket_type == "seqpacket" else ""
    peak = None if peaks is None else peaks.get(listener.inode)
    return (
        listener.transport + seqpacket,
        visible(listener.address) or "(no name)",
        limit_bar(depth.now or 0, depth.limit, bar, peak=peak),
        f"{now}/{depth.limit}" + (" FULL" if _full(listener) else ""),
        *([] if peaks is None else ["–" if peak is None else str(peak)]),
        f"{backlog.effective}" + ("=somaxconn" if backlog.equals_somaxconn else ""),
        _owners(listener, comms),
    )


def _owners(listener: Listener, comms: Mapping[int, str]) -> str:
    """`node:4711 +2`; of a name too long for the column the PID is kept."""
    if not listener.pids:
        return "–" if listener.pids is None else "none"
    first, others = listener.pids[0], len(listener.pids) - 1
    rest = f":{first}" + (f" +{others}" if others else "")
    return middle_cut(visible(comms.get(first, "?")), _OWNERS_CELLS - len(rest)) + rest


def _full(listener: Listener) -> bool:
    return listener.depth.now is not None and listener.depth.now >= listener.depth.limit


def _widths(rows: Sequence[Cells], total: int) -> List[int]:
    """Each column as wide as its widest cell; the address gets what is left."""
    widths = [max(map(cell_len, column)) for column in zip(*rows)]
    others = sum(widths) - widths[_ADDRESS] + len(widths) - 1
    widths[_ADDRESS] = max(_ADDRESS_CELLS, min(widths[_ADDRESS], total - others))
    return widths


def _line(cells: Cells, widths: Sequence[int]) -> str:
    right = _RIGHT if len(cells) > len(_HEADINGS) else _RIGHT[:1]
    shown = []
    for at, (cell, width) in enumerate(zip(cells, widths)):
        cut = middle_cut(cell, width) if at == _ADDRESS else cell
        padding = " " * (width - cell_len(cut))
        shown.append(padding + cut if at in right else cut + padding)
    return " ".join(shown).rstrip()
