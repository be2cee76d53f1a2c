"""What udsprobe says that it did not see, made to happen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kernel.tool import run

pytestmark = [pytest.mark.root]

PROGRAM = Path(__file__).resolve().parents[1] / "workloads" / "unmapped_messages.py"
SECOND_BYTES = 55


def test_a_message_whose_length_is_out_of_reach(tmp_path: Path) -> None:
    """It is in no `bytes`, and said so; the call and its other message are counted."""
    report = run([sys.executable, str(PROGRAM)], tmp_path / "report.json")
    (row,) = [row for row in report["syscalls"] if row["name"] == "recvmmsg"]
    assert (row["calls"], row["errors"], row["bytes"]) == (1, {}, SECOND_BYTES)
    assert report["probe"]["unread_messages"] == 1
    assert report["probe"]["unplaced_failures"] >= 0  # anybody's
