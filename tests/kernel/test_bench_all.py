"""The one command behind docs/overhead.md: it writes page, plot and raw figures. No timing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.cost.document import BLOCK, NOT_MEASURED

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.slow]


@pytest.mark.timeout(700)
def test_a_quick_run_writes_all_of_it(tmp_path: Path) -> None:
    page = ROOT / "docs/overhead.md"
    before = page.read_bytes()
    command = [sys.executable, ROOT / "scripts/bench/all", "--quick", "--output", tmp_path]
    # Each of its five parts ends after 60 s, whether it is done or not.
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    assert page.read_bytes() == before
    written = (tmp_path / "overhead.md").read_text()
    assert written != page.read_text()
    raw = json.loads((tmp_path / "overhead.json").read_text())
    blocks = {found[2]: found[0] for found in BLOCK.finditer(written)}
    assert raw["machine"]["kernel"] in blocks["machine"]
    for name, part in (("tables", "peers"), ("scale", "scale"), ("first", "first_sample")):
        assert (NOT_MEASURED in blocks[name]) == (part not in raw)
