"""A few cases of the lab, really run: the verdict names the planted illness.

All of them: `scripts/scenarios`. Cases whose truth needs a CPU of their own are not among these.
"""

from __future__ import annotations

import pytest

from tests.conftest import Require
from tests.scenarios import baseline, judge
from tests.scenarios.bench import Bench
from tests.scenarios.case import CAUSES, Case, all_cases
from tests.scenarios.programs import compilers

DURATION_S = 5.0
# A noisy neighbour can make a healthy server ill.
ATTEMPTS = 3
QUICK = [case for case in all_cases() if case.quick]

pytestmark = [pytest.mark.root, pytest.mark.alone]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_the_verdict_names_the_illness(case: Case, require: Require) -> None:
    require(*compilers(), *case.needs)
    for _ in range(ATTEMPTS):
        said = judge.observe(case, DURATION_S)
        if (said.cause, said.unnamed) == (case.cause, []):
            return
    if said.disturbed:
        pytest.skip(f"others held the CPUs each time, and the verdict says: {said.summary}")
    raise AssertionError(f"{said.cause} ({said.unnamed} not named): {said.summary}")


def test_strace_counts_the_same_server(require: Require) -> None:
    require(*compilers(), "strace", "node")
    case = next(one for one in all_cases() if one.name == "healthy/node-moderate-unix")
    with Bench(case.transport) as bench:
        table = baseline.parse(baseline.count(case.set_up(bench), 2.0, bench.folder / "strace.txt"))
    assert table["epoll_pwait"].calls and table["read"].calls
    assert baseline.recipe(table).cause in CAUSES
