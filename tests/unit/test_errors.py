"""An error's line: always one, always visible, whatever it quotes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from udsprobe import errors
from udsprobe.errors import UdsprobeError

HOSTILE = st.text(st.characters(codec=None), max_size=60)


@given(HOSTILE, HOSTILE)
@example("a\nb", "c\r\td")
@example("\x1b]0;title\x07\x9b2J", "\u202egnp.exe\u2028")
@example(b"\xff\xfe".decode(errors="surrogateescape"), "\x00")
def test_line_is_one_visible_line(what: str, next_step: str) -> None:
    line = UdsprobeError("slug", what, next_step).line()
    assert line.isprintable()
    assert line.startswith("udsprobe: error[slug]: ")
    assert line.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1))
def test_visible_text_is_not_changed(text: str) -> None:
    assert UdsprobeError("s", text, "try again").line() == f"udsprobe: error[s]: {text}; try again"


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.UsageError, 2),
        (errors.NotPermittedError, 3),
        (errors.KernelCannotError, 4),
        (errors.NoTargetError, 5),
        (errors.RecordingError, 6),
        (errors.UdsprobeError, 70),
    ],
)
def test_exit_codes_are_the_contracts(kind: type[UdsprobeError], exit_code: int) -> None:
    assert kind("s", "what", "next").exit_code == exit_code


def test_detail_is_not_in_the_line() -> None:
    assert "verifier" not in UdsprobeError("s", "a", "b", detail="verifier").line()
