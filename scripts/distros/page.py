"""Tables of docs/packaging.md that commands write, between two markers each."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "packaging.md"


def written(name: str, table: str) -> None:
    """Put a table, with the day and this kernel, where `<!-- NAME -->` … `<!-- /NAME -->` is.

    Raises:
        ValueError: the page has no such place.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    text = PAGE.read_text()
    before, _, rest = text.partition(begin)
    if end not in rest:
        raise ValueError(f"{PAGE.name} has no place for {name}")
    day = datetime.date.today().isoformat()
    release = os.uname().release.split("-")[0]
    caption = f"{day}; here: Linux {release}, {os.uname().machine}.\n\n"
    PAGE.write_text(before + begin + caption + table + "\n" + rest[rest.index(end) :])
