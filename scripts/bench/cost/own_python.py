"""Benches start udsprobe by the Python that they run in: it has to be the checkout's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[3] / ".venv/bin/python"


def go_on_in_own_python() -> None:
    """Start this program again in `.venv`, unless it runs there.

    Raises:
        SystemExit: there is none.
    """
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} is missing; run scripts/setup --for-tests")
    if Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
