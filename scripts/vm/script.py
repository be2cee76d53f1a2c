"""What a guest runs: one observation for its report, then the tests.

Knows how this repository's tests are started, and nothing of virtual machines.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import List, Sequence

STRATEGIES = ("tracepoint", "fentry")
SELECTION = Path(__file__).with_name("selection.txt")
# An emulated processor that others want too: see tests/patience.py.
SLOWNESS = 8
TEST_SECONDS = 600
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def selected_tests() -> List[str]:
    """The tests of `selection.txt`."""
    lines = SELECTION.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def guest_script(root: Path, strategy: str, tests: Sequence[str]) -> str:
    """A bash script that leaves `report.json`, `refusal` and `junit.xml` in /results."""
    python = shlex.quote(sys.executable)
    observe = f"{python} -m udsprobe run --json --output /results/report.json -- true"
    pytest = f"{python} -m pytest -p no:cacheprovider -v --timeout {TEST_SECONDS}"
    return "\n".join(
        [
            f"export HOME=/root PATH={PLACES} TMPDIR=/run/tmp LC_ALL=C.UTF-8",
            f"export UDSPROBE_STRATEGY={strategy} UDSPROBE_SLOWNESS={SLOWNESS}",
            "export UDSPROBE_KERNEL_TESTS=1",
            f"cd {shlex.quote(str(root))} && export PYTHONPATH=$PWD",
            f"{observe} 2>/results/refusal",
            f"{pytest} --junitxml=/results/junit.xml {shlex.join(tests)}",
            "status=$?; dmesg | grep -iE 'bug|warn|oops' | head; exit $status\n",
        ]
    )
