"""Writes anew what every surface says of the recordings: `python -m tests.golden.write`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.golden import surfaces


def main() -> None:
    """Replace everything that is expected."""
    shutil.rmtree(surfaces.EXPECTED, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: surfaces.unpacked(name, Path(folder)) for name in surfaces.names()}
        for name, path in paths.items():
            surfaces.keep(name, surfaces.of_recording(path))
        for first, second in surfaces.PAIRS:
            shown = surfaces.of_pair(paths[first], paths[second])
            surfaces.keep(surfaces.pair_name(first, second), shown)


if __name__ == "__main__":
    main()
