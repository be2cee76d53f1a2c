"""The README's picture is the dashboard, drawn from report documents."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from tests.patience import PATIENCE_S
from tests.unit import reports

PICTURE = Path(__file__).parents[2] / "scripts" / "picture"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_shows_the_report(tmp_path: Path) -> None:
    window, intervals, svg = (tmp_path / name for name in ("r.json", "i.jsonl", "picture.svg"))
    window.write_text(json.dumps(asdict(reports.hostile())))
    lines = [json.dumps(asdict(reports.busy(1.0, scale))) for scale in (0.5, 1.0)]
    intervals.write_text("\n".join(lines))
    command = [sys.executable, str(PICTURE), str(window), str(intervals), "--output", str(svg)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    texts = [element.text or "" for element in ElementTree.parse(svg).iter(f"{SVG}text")]
    assert "served 4,812/s" in texts
    assert any("\\e[31mred" in text for text in texts)
