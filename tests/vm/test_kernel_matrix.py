"""Debian's kernels, booted under emulation with this checkout: their own tests pass there.

Each takes some minutes with the short selection, so only where asked for:
`UDSPROBE_TEST_KERNELS=5.10,6.1 scripts/test tests/vm`. `scripts/kernel-matrix` is the whole of it,
in every strategy, and writes docs/support-matrix.md. They begin before a time that
`UDSPROBE_TEST_KERNELS_BEFORE` gives (seconds since 1970), or not.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ASKED = "UDSPROBE_TEST_KERNELS"
BEFORE = "UDSPROBE_TEST_KERNELS_BEFORE"
KERNELS = [each for each in os.environ.get(ASKED, "").split(",") if each]
GUEST_S = 2400
JOBS = 2
OUTCOME = re.compile(
    r"^- (?P<version>\d+\.\d+)\S*?(?P<other>-arm64)? `auto`: "
    r"(?P<passed>\d+) passed, (?P<failed>\d+) failed",
    re.MULTILINE,
)
# Of the selection's tests, which measure what this kernel has; the others are skipped there.
# Without 6.1-arm64: it refuses the first strategy of `auto`, which tests/kernel/measured.py takes
# for the one in use. `scripts/kernel-matrix --kernel 6.1-arm64` names its strategy.
PASSED_MIN = {"5.10": 6, "6.1": 6, "6.12": 6, "7.2": 6, "6.12-arm64": 6}


@pytest.fixture(scope="module")
def in_time() -> None:
    """On a slow machine all else comes first."""
    before = os.environ.get(BEFORE)
    if before and time.time() > float(before):
        pytest.skip(f"emulated kernels begin before {BEFORE}={before}, which is over")


@pytest.fixture(scope="module")
def outcomes(in_time: None, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Tuple[int, int]]:
    """Kernel → how many tests passed and failed in it."""
    logs: Path = tmp_path_factory.mktemp("matrix")
    chosen: List[str] = [word for each in KERNELS for word in ("--kernel", each)]
    command = [str(REPOSITORY / "scripts" / "kernel-matrix"), "--strategy", "auto", *chosen]
    command += ["--short", "--jobs", str(JOBS), "--seconds", str(GUEST_S), "--logs", str(logs)]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stderr[-20000:])
    return {
        found["version"] + (found["other"] or ""): (int(found["passed"]), int(found["failed"]))
        for found in OUTCOME.finditer(done.stdout)
    }


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(GUEST_S * len(KERNELS) + 600)
@pytest.mark.skipif(not KERNELS, reason=f"emulated kernels take minutes: {ASKED}=5.10,6.1,6.12,7.2")
@pytest.mark.parametrize("kernel", KERNELS or sorted(PASSED_MIN))
def test_the_kernel_tests_pass_in(kernel: str, outcomes: Dict[str, Tuple[int, int]]) -> None:
    passed, failed = outcomes[kernel]
    assert failed == 0
    assert passed >= PASSED_MIN[kernel]
