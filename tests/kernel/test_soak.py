"""The soak of scripts/soak, briefly: nothing lost, nothing leaked; in CI for five minutes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.patience import PATIENCE_S, SLOWNESS
from tests.soak.soak import CALLS, soak
from tests.workloads.build import BuildError
from tests.workloads.stages_program import program

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.usefixtures("nothing_left_over"),
]

SECONDS = float(os.environ.get("UDSPROBE_TEST_SOAK_S", "30"))
# As many as a machine makes that is slow a hundred times.
CALLS_MIN = 100_000
# In so short a time Python's heap still takes its shape, and the 2,000 different stacks that are
# kept still fill, with 2 KB each. scripts/soak, of half an hour, allows less.
DRIFT_MAX_BYTES = 8 << 20


@pytest.mark.timeout(SECONDS + 10 * PATIENCE_S)
@pytest.mark.skipif(SLOWNESS > 1, reason="an emulated CPU makes no load")
def test_full_load_for_a_while() -> None:
    try:
        program("full_load")
    except BuildError as error:
        give_up(str(error))
    # A short path: it has the socket.
    with tempfile.TemporaryDirectory(prefix="udsprobe-") as folder:
        outcome = soak(SECONDS, Path(folder), os.cpu_count() or 1)
    assert outcome.wrong(DRIFT_MAX_BYTES) == []
    calls = sum(outcome.truth[name] for name in CALLS)
    assert outcome.account.seen >= calls > CALLS_MIN
