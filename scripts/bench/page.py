#!/usr/bin/env python3
"""How fast the page of a recording opens: scripts/bench/page.py PAGE.html [--runs N].

Needs chromium; no root. Prints one JSON document: bytes, and the milliseconds from the start of the
navigation until the page is loaded and laid out, the median and each of several new browsers.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import List

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.cost.own_python import go_on_in_own_python
from tests.unit.chromium import CHROMIUM, Page

CLOCK = """<script>addEventListener('load', () => {
  document.body.getBoundingClientRect();
  document.title = performance.now();
})</script>"""
BAN_ON_SCRIPTS = re.compile(r"<meta http-equiv=[^>]*>")
REAL_TIME = [each for each in CHROMIUM if not each.startswith("--virtual-time")]


def loaded_ms(page: str, folder: Path) -> float:
    """Loaded and laid out, in a browser of its own."""
    timed = folder / "timed.html"
    timed.write_text(BAN_ON_SCRIPTS.sub("", page) + CLOCK, encoding="utf-8")
    command = ["chromium", *REAL_TIME, f"--user-data-dir={folder / 'profile'}", timed.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return float(Page(done.stdout).title)


def main() -> None:
    go_on_in_own_python()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("page", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    taken: List[float] = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            taken.append(loaded_ms(page, Path(folder)))
    answer = {"bytes": len(page.encode()), "loaded_ms": median(taken), "all_ms": sorted(taken)}
    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
