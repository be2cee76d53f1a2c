"""What documents say from the source is what the source says."""

from __future__ import annotations

import pytest

from tests.repo.pages import PAGES, threshold_rows
from tests.repo.source_tree import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_a_document_says_what_the_source_says(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert PAGES[name](text) == text, "python -m tests.repo.pages writes it anew"


def test_every_threshold_has_a_reason() -> None:
    assert [row for row in threshold_rows() if row.endswith("|  |")] == []
