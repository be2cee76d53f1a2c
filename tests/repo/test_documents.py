"""The documents name files that exist, and every module has its place in the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.repo.source_tree import ROOT

LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
README_LINES_MAX = 150


def documents() -> List[Path]:
    """README, CONTRIBUTING, CHANGELOG and everything below docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def named_files() -> Iterator[str]:
    """Paths in the first column of how-it-works' table, short ones beside the one before."""
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    for row in re.findall(r"^\| (`.+`) \|", page, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            path = name if "/" in name else f"{folder}/{name}"
            folder = path.rstrip("/").rsplit("/", 1)[0]
            yield path


def test_the_table_names_files_that_exist() -> None:
    assert [name for name in named_files() if not (ROOT / name).exists()] == []


def test_every_kernel_file_is_in_the_table() -> None:
    written = set(named_files())
    files = [*(ROOT / "bpf").glob("*.[ch]"), *(ROOT / "udsprobe" / "kernel").rglob("[!_]*.py")]
    assert [p.name for p in files if str(p.relative_to(ROOT)) not in written] == []


def test_tests_that_reliability_names_exist() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert named and sorted(named - written) == []


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES_MAX
