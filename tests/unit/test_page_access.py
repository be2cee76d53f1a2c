"""The pages by keyboard and to a screen reader, in a real Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Dict

import pytest

from tests.unit import recordings
from tests.unit.browser import WIDTHS_PX, shown, stops_by_tab, violations
from udsprobe.cli import main


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    """Of a recording, and of two compared."""
    folder = tmp_path_factory.mktemp("pages")
    first, second = folder / "a.udsprobe", folder / "b.udsprobe"
    recordings.recorded(first, 300, findings=(50, 51))
    recordings.recorded(second, 300)
    assert main(["report", str(first), "--html", str(folder / "report.html")]) == 0
    compared = ["compare", str(first), str(second), "--html", str(folder / "compare.html")]
    assert main(compared) == 0
    names = ("report", "compare")
    return {name: (folder / f"{name}.html").read_text(encoding="utf-8") for name in names}


@pytest.mark.parametrize("screen", sorted(WIDTHS_PX))
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "compare"])
def test_an_auditor_finds_nothing(
    pages: Dict[str, str], tmp_path: Path, chromium: str, name: str, colours: str, screen: str
) -> None:
    with shown(pages[name], tmp_path, chromium, colours, screen) as page:
        assert violations(page) == []


def test_the_auditor_does_find_what_is_wrong(
    pages: Dict[str, str], tmp_path: Path, chromium: str
) -> None:
    broken = re.sub(r' aria-label="[^"]*"', "", pages["report"]).replace(
        "--quiet: #5a6068", "--quiet: #eeeeee"
    )
    with shown(broken, tmp_path, chromium) as page:
        found = {each.split(":")[0] for each in violations(page)}
    assert {"role-img-alt", "color-contrast"} <= found


@pytest.mark.parametrize("name", ["report", "compare"])
def test_tab_visits_every_stop_once_in_order_and_shows_where(
    pages: Dict[str, str], tmp_path: Path, chromium: str, name: str
) -> None:
    with shown(pages[name], tmp_path, chromium, screen="phone") as page:
        stops = stops_by_tab(page)
    assert stops == [str(number) for number in range(len(stops))]
    assert stops


def test_keys_scroll_a_wide_table_and_open_what_is_folded(
    pages: Dict[str, str], tmp_path: Path, chromium: str
) -> None:
    with shown(pages["report"], tmp_path, chromium, screen="phone") as page:
        table = page.get_by_role("region", name=re.compile("^System calls of the targets"))
        table.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("at => at.scrollLeft > 0", arg=table.element_handle())
        folded = page.locator("details table").last
        assert not folded.is_visible()
        page.locator("summary", has_text="Percentiles of each interval").focus()
        page.keyboard.press("Enter")
        folded.wait_for(state="visible")


def test_a_screen_reader_is_told_the_verdict_and_what_each_plot_shows(
    pages: Dict[str, str], tmp_path: Path, chromium: str
) -> None:
    with shown(pages["report"], tmp_path, chromium) as page:
        told = page.locator("body").aria_snapshot()
        headings = [int(level) for level in re.findall(r"heading .*\[level=(\d)\]", told)]
        drawn = page.locator("figure svg").count()
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(headings, headings[1:]))
    assert told.index("NO BOTTLENECK") < told.index("[level=2]")
    assert drawn == len(re.findall(r'img "?\w', told.replace("'", ""))) > 3
    assert not re.search(r"- (table|region|img)( \"\")?:?$", told, re.MULTILINE), json.dumps(told)
