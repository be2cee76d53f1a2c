"""Capabilities, from the text of /proc/PID/status."""

from __future__ import annotations

from typing import List

import pytest

from udsprobe.kernel.abilities.privileges import effective_set, missing_among, missing_capabilities

STATUS = "Name:\tpython\nCapInh:\t0000000000000000\nCapPrm:\tffffffffffffffff\nCapEff:\t{}\n"


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        ("000001ffffffffff", []),
        ("0000000000000000", ["CAP_BPF", "CAP_PERFMON"]),
        ("0000000000200000", []),  # CAP_SYS_ADMIN alone holds both
        ("0000008000000000", ["CAP_PERFMON"]),
        ("0000004000000000", ["CAP_BPF"]),
        ("000000c000000000", []),
    ],
)
def test_missing(shown: str, missing: List[str]) -> None:
    assert missing_among(effective_set(STATUS.format(shown))) == missing


def test_only_the_effective_set_counts() -> None:
    assert effective_set(STATUS.format("00000000000000ff")) == 0xFF


def test_a_status_without_capabilities_has_none() -> None:
    assert effective_set("Name:\tx\n") == 0


def test_our_own_can_be_read() -> None:
    assert set(missing_capabilities()) <= {"CAP_BPF", "CAP_PERFMON"}
