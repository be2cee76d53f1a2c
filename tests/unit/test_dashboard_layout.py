"""Lines for each panel: nobody starves on a small screen, nothing is lost on a large one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from udsprobe.views.dashboard.layout import LEAST, allot, shown

ROWS = st.integers(min_value=2, max_value=200)
WANTED = st.fixed_dictionaries(dict.fromkeys(LEAST, ROWS))


@given(st.integers(min_value=0, max_value=100), WANTED)
def test_every_line_of_the_screen_is_given_away(room: int, wanted: dict[str, int]) -> None:
    heights = allot(room, wanted)
    assert sum(heights.values()) == room
    assert min(heights.values()) >= 0


@given(st.integers(min_value=20, max_value=100), WANTED)
def test_every_panel_gets_its_least_on_80_by_24(room: int, wanted: dict[str, int]) -> None:
    heights = allot(room, wanted)
    assert all(heights[name] >= min(LEAST[name], wanted[name]) for name in wanted)


def test_a_large_screen_shows_every_row() -> None:
    wanted = {"requests": 8, "listeners": 4, "system calls": 15, "targets": 5}
    heights = allot(56, wanted)
    assert all(heights[name] >= lines for name, lines in wanted.items())


def test_small_screens_have_no_room_for_findings_and_connections() -> None:
    wanted = dict.fromkeys(LEAST, 9)
    heights = allot(17, shown(wanted, 24))
    assert heights["findings"] == heights["connections"] == 0
    assert sum(heights.values()) == 17
    assert shown(wanted, 40) == wanted
