"""Somebody who was sent a recording: another user, without root and without BPF."""

from __future__ import annotations

import subprocess
import sys
from typing import List

from tests.kernel.tool import REPOSITORY


def as_anybody() -> List[str]:
    """What runs a command as nobody; without capabilities where Python is root's alone."""
    home = ["env", "HOME=/nonexistent", f"PYTHONPATH={REPOSITORY}"]
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    for prefix in ([*nobody, *home], ["setpriv", "--bounding-set=-all", *home]):
        check = [*prefix, sys.executable, "-c", "import textual, udsprobe"]
        if subprocess.run(check, cwd="/", capture_output=True).returncode == 0:
            return prefix
    raise AssertionError("nobody may run Python here")
