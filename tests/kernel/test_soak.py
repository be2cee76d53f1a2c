"""The soak of scripts/soak, briefly: nothing lost, nothing leaked, in less than a minute."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.patience import SLOWNESS
from tests.soak.soak import soak
from tests.workloads.build import BuildError
from tests.workloads.stages_program import program

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

SECONDS = 45.0


@pytest.mark.skipif(SLOWNESS > 1, reason="an emulated CPU makes no load")
def test_full_load_for_a_while() -> None:
    try:
        program("full_load")
    except BuildError as error:
        give_up(str(error))
    # A short path: it has the socket.
    with tempfile.TemporaryDirectory(prefix="udsprobe-") as folder:
        outcome = soak(SECONDS, Path(folder), os.cpu_count() or 1)
    assert outcome.wrong() == []
    assert outcome.account.seen >= 1_000_000
