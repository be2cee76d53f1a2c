"""Whatever a process calls itself, it cannot act on the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from udsprobe.views.fields.escape import column, fit, fit_words, visible, wrap, wrap_commands

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("node", "node"),
        ("\x1b[31mred", "\\e[31mred"),
        ("a\nb\tc\0", "a\\nb\\tc\\0"),
        ("\x9b1m\x7f", "\\u009b1m\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("\U000e0041", "\\U000e0041"),
        ("line\u2028break", "line\\u2028break"),
        ("漢字 é [bold]", "漢字 é [bold]"),
        ("e" + "\u0301" * 4, "e\u0301\u0301\\u0301\\u0301"),
    ],
)
def test_visible(raw: str, shown: str) -> None:
    assert visible(raw) == shown


@given(ANY_TEXT)
def test_nothing_invisible_is_left(raw: str) -> None:
    kinds = {unicodedata.category(character) for character in visible(raw)}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    visible(raw).encode("utf-8")


@given(
    ANY_TEXT, st.integers(min_value=0, max_value=40), st.sampled_from(["start", "end", "middle"])
)
def test_fit_never_exceeds_its_width(raw: str, width: int, keep: str) -> None:
    assert cell_len(fit(raw, width, keep=keep)) <= width


@given(ANY_TEXT, st.integers(min_value=0, max_value=40))
def test_column_is_exactly_as_wide_as_asked(raw: str, width: int) -> None:
    assert cell_len(column(fit(raw, width), width)) == width


def test_fit_keeps_the_end_that_tells_paths_apart() -> None:
    assert fit("/run/very/long/app.sock", 12, keep="end") == "…ng/app.sock"
    assert fit("/run/very/long/app.sock", 12) == "/run/very/l…"
    assert fit("/run/very/long/app.sock", 12, keep="middle") == "/run/…p.sock"


@given(ANY_TEXT, st.integers(min_value=1, max_value=40))
def test_fit_words_never_exceeds_its_width(raw: str, width: int) -> None:
    assert cell_len(fit_words(raw, width)) <= width


def test_fit_words_cuts_between_words_unless_one_is_very_long() -> None:
    assert fit_words("accept queue of it is full at 129", 24) == "accept queue of it is…"
    assert fit_words("the queue is full: refused", 19) == "the queue is full…"
    assert fit_words("at " + "x" * 60, 40) == "at " + "x" * 36 + "…"
    assert fit_words("short", 24) == "short"


@given(ANY_TEXT, st.integers(min_value=2, max_value=40))
def test_wrapped_lines_fit_and_lose_nothing(raw: str, width: int) -> None:
    lines = wrap(raw, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).replace(" ", "") == visible(raw).replace(" ", "")


def test_wrap_does_not_part_a_number_from_its_percent() -> None:
    assert wrap("would save at most 1.2 %.", 22) == ["would save at most", "1.2 %."]


def test_commands_that_fit_a_line_are_on_one() -> None:
    text = "prlimit --pid 1 --nofile=9:9; for good: set LimitNOFILE=9"
    assert wrap_commands(text, 30) == [
        "prlimit --pid 1 --nofile=9:9;",
        "for good: set LimitNOFILE=9",
    ]
    assert wrap_commands("one; two", 30) == ["one; two"]
    assert wrap_commands("a command that is too long", 12) == ["a command", "that is too", "long"]
