"""Builds the lab's C programs for another processor: clang, and a root folder with its C library.

`python -m tests.scenarios.cross aarch64-linux-gnu ROOT FOLDER`
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.scenarios.programs import cross_built

if __name__ == "__main__":
    triple, root, folder = sys.argv[1:]
    for program in cross_built(triple, Path(root), Path(folder)):
        sys.stdout.write(f"{program}\n")
