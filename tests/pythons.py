"""The interpreters of Python that are installed here, of versions whose frames are followed."""

from __future__ import annotations

import sys
from pathlib import Path

PLACES = ("/usr/bin", "/usr/local/bin", str(Path.home() / ".pyenv/versions/3.*/bin"))
# Every version keeps its frames elsewhere.
NAMES = {f"python3.{minor}" for minor in range(8, 16)}
PYTHONS = sorted(
    {
        str(path)
        for path in [
            *(path for place in PLACES for path in Path("/").glob(f"{place[1:]}/python3.*")),
            Path(sys.executable).resolve(),
        ]
        if path.name in NAMES
    }
)
