"""Names of strangers: every character visible, no two names alike, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.visible import invisible
from udsprobe.kernel.sockets.sock_diag import unix_address
from udsprobe.printable import printable, raw_name

# Names that imitate the escapes of others.
TRICKS = st.lists(
    st.sampled_from(
        [
            *(
                b"\\",
                b"x",
                b"u",
                b"U",
                b"0",
                b"1",
                b"5",
                b"c",
                b"9b",
                b"0000",
                b"x2d",
                b"X1B",
                b"@",
            ),
            *(b"\x1b", b"\x9b", b"\xc2\x9b", b"\xff", b"\n", b"\0"),
            *("é".encode(), "\u202e".encode()),
        ]
    ),
    max_size=12,
).map(b"".join)
NAMES = st.one_of(st.binary(max_size=40), TRICKS, st.text(max_size=20).map(str.encode))


@given(NAMES)
@example("\U000e0041".encode())
@example(b"\\u0000\\U0000dc80\\ud800")
def test_printable_hides_nothing_and_can_be_taken_back(name: bytes) -> None:
    shown = printable(name)
    assert not invisible(shown)
    assert raw_name(shown) == name


@given(NAMES)
def test_any_text_can_be_taken_for_a_name(name: bytes) -> None:
    raw_name(name.decode("utf-8", "surrogateescape"))
    raw_name("\\U00110000\\Uffffffff")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"\x1b", rb"\x1b"),
        (b"\x85", "\x85".encode()),
        ("\u202e".encode(), rb"\u202e"),
        (b"\\", rb"\x5c"),
        (rb"\\x5c", rb"\x5c\x5c"),
    ],
)
def test_no_two_names_look_alike(one: bytes, other: bytes) -> None:
    assert printable(one) != printable(other)


@pytest.mark.parametrize(
    "name", [rb"dev-disk-by\x2duuid.device", "/run/é 漢.sock".encode(), b"C:\\u"]
)
def test_what_can_be_seen_stays(name: bytes) -> None:
    assert printable(name) == name.decode()


def test_an_abstract_name_and_a_path_are_told_apart() -> None:
    assert unix_address(b"\0x") == "@x"
    assert unix_address(b"@x") == "\\x40x"
    assert raw_name(unix_address(b"@x")) == b"@x"
    assert unix_address(rb"\x40x") == r"\x5cx40x"
