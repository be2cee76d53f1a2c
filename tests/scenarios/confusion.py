"""The table of the lab: expected cause by the verdict's cause. Pure text."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Sequence, Tuple

from tests.scenarios.case import CAUSES

Pair = Tuple[str, str]
TRANSPORT = "transport"


def matrix(pairs: Sequence[Pair], title: str) -> str:
    """Rows: what is true. Columns: what was said, by the numbers of the rows."""
    said_otherwise = sorted({said for _, said in pairs} - set(CAUSES))
    columns = [*CAUSES, *said_otherwise]
    cells = Counter(pairs)
    width = max(len(cause) for cause in columns) + 4
    heads = [f"{number:>3}" for number in range(1, len(CAUSES) + 1)]
    heads += [f" {said}" for said in said_otherwise]
    lines = [title, " " * width + "".join(heads)]
    for number, cause in enumerate(CAUSES, 1):
        row = "".join(f"{_cell(cells[(cause, said)], cause == said):>3}" for said in columns)
        lines.append(f"{number:>2} {cause:<{width - 3}}{row}")
    return "\n".join(lines) + "\n"


def _cell(count: int, right: bool) -> str:
    if not count:
        return "." if not right else "–"
    return str(count)


def scores(pairs: Sequence[Pair]) -> Dict[str, int]:
    """How many are right: the cause; whether it is the transport; and false alarms."""
    return {
        "cases": len(pairs),
        "right": sum(true == said for true, said in pairs),
        "transport_right": sum((true == TRANSPORT) == (said == TRANSPORT) for true, said in pairs),
        "false_alarms": sum(
            true in ("healthy", "unknown") and said not in ("healthy", "unknown", "–")
            for true, said in pairs
        ),
    }


def score_line(name: str, pairs: Sequence[Pair]) -> str:
    """One line of scores."""
    found = scores(pairs)
    return (
        f"{name:<9} cause right {found['right']}/{found['cases']}, "
        f"transport or not {found['transport_right']}/{found['cases']}, "
        f"false alarms {found['false_alarms']}\n"
    )


def errors(rows: Sequence[Tuple[str, str, str, str]]) -> List[str]:
    """Lines for the wrong ones among (case, true, said, summary)."""
    return [f"{name}: said {said}: {summary}" for name, true, said, summary in rows if true != said]
