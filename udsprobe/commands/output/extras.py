"""What to install for an option that needs more than udsprobe itself."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from typing import List

_OF_EXTRA = re.compile(r"([\w.-]+).*;.*\bextra *== *['\"]([\w-]+)['\"]")


def install_command(extra: str) -> str:
    """The line that installs the packages of an extra into this Python.

    By their own names: udsprobe is on no index, so its name there would be somebody else's.
    """
    return f"{sys.executable} -m pip install {' '.join(_packages(extra))}"


def _packages(extra: str) -> List[str]:
    try:
        needed = requires("udsprobe") or []
    except PackageNotFoundError:  # run from a folder that was never installed
        needed = []
    found = (_OF_EXTRA.match(line) for line in needed)
    names = sorted({one[1] for one in found if one is not None and one[2] == extra})
    return names or [f"'.[{extra}]'"]
