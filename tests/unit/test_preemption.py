"""What a kernel says of preemption, in the words of kernel/sched/debug.c."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from udsprobe.kernel.abilities import preemption


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none (voluntary) full\n", False),
        ("(none) voluntary full\n", False),
        ("none voluntary (full)\n", True),
        ("full (lazy)\n", True),
        ("(full) lazy\n", True),
    ],
)
def test_the_mode_in_force(
    mode: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "preempt").write_text(mode)
    monkeypatch.setattr(preemption, "MODE", tmp_path / "preempt")
    assert preemption.preempts_kernel_code() is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1", True),
        ("#1 SMP PREEMPT_RT Debian 6.12.107-1", True),
        ("#1 SMP Debian 5.10.223-1", False),
    ],
)
def test_where_the_mode_cannot_be_read(
    version: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "MODE", tmp_path / "absent")
    monkeypatch.setattr(platform, "version", lambda: version)
    assert preemption.preempts_kernel_code() is expected
