"""Readers of strangers' bytes, with inputs near to good ones; `scripts/fuzz` tries millions."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

Edit = Tuple[int, int, bytes]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.integers(0, 8),
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from(
                [b"\xff" * 12, b"\n", b"\r", b"\0", b'"', b"{", b"[", b"9" * 40, b"-1"]
            ),
        ),
    ),
    max_size=6,
)


def edited(seed: bytes, edits: List[Edit]) -> bytes:
    """Some bytes at some places replaced by others."""
    for at, length, put in edits:
        at %= len(seed) + 1
        seed = seed[:at] + put + seed[at + length :]
    return seed


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_good_is_taken(name: str) -> None:
    taken = [TARGETS[name].attempt(seed) for seed in TARGETS[name].seeds()]
    assert any(taken), "no seed reaches the end"


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(choice=st.integers(0, 9), edits=EDITS)
def test_what_is_not_is_refused_in_our_words(name: str, choice: int, edits: List[Edit]) -> None:
    seeds = TARGETS[name].seeds()
    TARGETS[name].attempt(edited(seeds[choice % len(seeds)], edits))
