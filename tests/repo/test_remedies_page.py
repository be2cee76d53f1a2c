"""docs/remedies.md has the table as it is in the code."""

from __future__ import annotations

from tests.repo.source_tree import ROOT
from udsprobe.rules.remedy import page


def test_the_page_has_the_table_as_it_is() -> None:
    text = (ROOT / "docs" / "remedies.md").read_text(encoding="utf-8")
    shown = text.split(page.BEGIN)[1].split(page.END)[0]
    again = "python -m udsprobe.rules.remedy.page shows what belongs there"
    assert shown.strip() == page.tables().strip(), again
