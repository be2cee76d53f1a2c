"""Tables of an example in Markdown, with what makes them repeatable. Measures nothing."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import List, Sequence

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; columns whose cells begin with a digit stand to the right, but for the first."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [at > 0 and all(_is_number(row[at]) for row in cells) for at in range(len(head))]
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "|".join("---:" if one else "---" for one in right) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join(lines) + "\n"


def document(tables: str, command: str) -> str:
    """Tables with the date, the kernel, the CPUs and the command that makes them."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    where = f"Linux {platform.release().split('-')[0]}, {os.cpu_count()} CPUs"
    return f"Measured {today}, {where}, by `{command}`.\n\n{tables}"


def replace_measured(readme: Path, text: str) -> None:
    """Put the text between the two marks of a README."""
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{text.strip()}\n{END}{after}")


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _is_number(text: str) -> bool:
    parts: List[str] = [*text.split()]
    return text == "–" or (bool(parts) and parts[0][0].isdigit())
