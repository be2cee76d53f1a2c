"""`docs/screen.md` says what the help page says: every key, mark and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import reports
from tests.unit.feeds import frame
from udsprobe.views.dashboard.pages.opened import KEYS_HELP, MARKS_HELP, VERDICT_HELP, help_page
from udsprobe.views.fields.columns import CONNECTIONS, FINDINGS, LISTENERS, SYSCALLS, TARGETS

PAGE = (Path(__file__).parents[2] / "docs" / "screen.md").read_text(encoding="utf-8")
TABLES = (LISTENERS, SYSCALLS, TARGETS, FINDINGS, CONNECTIONS)
COLUMNS = [column for table in TABLES for column in table.values()]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.key)
def test_every_column_is_explained_in_one_sentence(column: object) -> None:
    says = vars(column)["says"]
    assert says in PAGE
    assert says.endswith(".") and says.count(". ") == 0


@pytest.mark.parametrize(("name", "meaning"), [*KEYS_HELP, *MARKS_HELP, *VERDICT_HELP])
def test_every_key_and_mark_is_explained(name: str, meaning: str) -> None:
    assert name in PAGE and meaning in PAGE


def test_the_help_page_has_it_all_and_what_is_not_measured() -> None:
    lines = help_page(frame(reports.degraded()), 200).lines
    text = "\n".join(line.text for line in lines)
    for column in COLUMNS:
        assert column.says in text
    assert "no BTF" in text
