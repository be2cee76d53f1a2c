"""The comparison's page, in a real Chromium: complete, quiet, and deaf to hostile names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Set, Tuple

from tests.unit.chromium import HOSTILE, opened
from tests.unit.compared import STAGES, listening, made, run, scattered
from udsprobe.compare import compare
from udsprobe.compare.comparison import Comparison
from udsprobe.views.fields import compare_rows
from udsprobe.views.html.compare_page import render
from udsprobe.views.text import compare_text

BYTES_MAX = 2 << 20


def comparison(names: Tuple[str, ...] = ()) -> Comparison:
    documents: Dict[str, Any] = {}
    for side, stages in (("a", STAGES), ("b", {**STAGES, "send": 6.0})):
        documents[side] = [listening(d, "unix", f"/run/{side}") for d in scattered(1, 8, stages)]
        for each in documents[side]:
            each["targets"] = [{"comm": name} for name in names or ("node",)]
            each["listeners"] += [
                {"transport": name, "address": name, "accepted": 1} for name in names
            ]
            each["host"]["hostname"] = "".join(names) or "host"
            calls = each["requests"]["syscalls_per_request"]["by_syscall"]
            calls.update(dict.fromkeys(names, 1.0))
    return compare([run(documents["a"], "".join(names) or "a.jsonl")], [run(documents["b"])])


def test_the_page_says_what_the_text_says(tmp_path: Path, chromium: str) -> None:
    found = comparison()
    html = render(found)
    page, console = opened(html, tmp_path, chromium)
    assert console == []
    assert len(html.encode()) < BYTES_MAX
    assert page.title == "udsprobe: A against B"
    assert found.summary in page.text
    for row in compare_rows.rows([*found.figures, *found.stages]):
        assert row.label in page.text and row.a in page.text and row.verdict in page.text
    assert page.tags.count("table") == page.tags.count("caption") == 3
    assert page.tags.count("svg") == 2
    assert len(page.ids) == len(set(page.ids))


def test_the_page_needs_nothing_else() -> None:
    html = render(comparison())
    addresses: Set[str] = set(re.findall(r"https?://[^\"'\s<]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    assert "default-src 'none'" in html


def test_a_page_without_anything_to_plot() -> None:
    bare = made()
    bare["requests"]["served"] = bare["requests"]["syscalls_per_request"] = None
    bare["time"] = bare["listeners"] = bare["syscalls"] = None
    html = render(compare([run([bare])], [run([bare])]))
    assert "<svg" not in html and "not measured in A" in html


def test_no_colour_of_the_plots_is_left_unnamed() -> None:
    html = render(comparison())
    assert html.count("var(--ink)") > 10
    for stand_in in ("#010203", "#020304", "#030405"):
        assert stand_in not in html


def test_hostile_names_stay_names(tmp_path: Path, chromium: str) -> None:
    html = render(comparison(HOSTILE))
    # Without the page's own ban on scripts: escaping has to be enough.
    bare = re.sub(r"<meta http-equiv=[^>]*>", "", html)
    assert bare != html
    page, console = opened(bare, tmp_path, chromium)
    assert console == []
    assert page.title == "udsprobe: A against B"
    assert not {"script", "img", "iframe", "object", "embed"} & set(page.tags)
    assert page.handlers == []
    assert HOSTILE[0] in page.text and "{{ 7*7 }}" in page.text
    assert "\x1b" not in page.text and "\u202e" not in page.text
    assert "\\e[31m\\u202egpj.exe" in page.text


def test_a_script_would_have_been_seen(tmp_path: Path, chromium: str) -> None:
    html = render(comparison())
    bare = re.sub(r"<meta http-equiv=[^>]*>", HOSTILE[0], html)
    page, console = opened(bare, tmp_path, chromium)
    assert page.title.startswith("ran") and len(console) == 1
    blocked, console = opened(html.replace("<main>", HOSTILE[0]), tmp_path, chromium)
    assert blocked.title == "udsprobe: A against B"
    assert len(console) == 1 and "Content Security Policy" in console[0]


def test_hostile_names_do_not_act_on_a_terminal() -> None:
    text = compare_text.render(comparison(HOSTILE))
    assert all(line.isprintable() for line in text.splitlines())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_colour_changes_no_word() -> None:
    found = comparison()
    coloured = compare_text.render(found, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == compare_text.render(found)
    assert coloured != compare_text.render(found)
