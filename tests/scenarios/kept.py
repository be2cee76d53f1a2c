"""Drawn systems in a folder: their truth, report and recording, for other rules to judge again.

A measured truth stays true when a rule changes, and measuring it is what takes the time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from tests.scenarios import drawn, judge
from tests.scenarios.drawn import Found
from tests.scenarios.systems import System

TRUTH, RECORDING = ".truth.json", ".udsprobe"


def recording_of(system: System, folder: Optional[Path]) -> Optional[Path]:
    """Where to record; None without a folder."""
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return _path(folder, system, RECORDING)


def keep(found: Found, folder: Optional[Path]) -> None:
    """Write the report document, and what is true of it."""
    if folder is None:
        return
    report = json.dumps(found.verdict.report, indent=1)
    _path(folder, found.system, ".json").write_text(report)
    truth = json.dumps(drawn.document_of(found), indent=1, ensure_ascii=False)
    _path(folder, found.system, TRUTH).write_text(truth + "\n")


def judged_again(folder: Path) -> str:
    """A line for each verdict that is wrong now or was before, and the counts."""
    lines: List[str] = []
    counts = {"before": 0, "now": 0, "judged": 0}
    for path in sorted(folder.glob(f"*{TRUTH}")):
        truth = json.loads(path.read_text())
        recording = path.with_name(path.name[: -len(TRUTH)] + RECORDING)
        if not truth["true"] or not recording.exists():
            continue
        said = judge.judge_again(recording)
        was, now = (is_right(truth, cause) for cause in (truth["said"], said.cause))
        counts["judged"] += 1
        counts["before"] += was
        counts["now"] += now
        if not (was and now):
            true = " or ".join(truth["true"])
            mark = "ok   " if now else "WRONG"
            lines.append(
                f"{mark} {truth['system']} was {truth['said']}, is {said.cause}, true {true}"
            )
            lines.append(f"      {said.summary}")
    lines.append("{now} of {judged} right, {before} before".format(**counts))
    return "\n".join(lines) + "\n"


def is_right(truth: Dict[str, Any], said: str) -> bool:
    """Whether a cause is among the true ones of a kept system; few requests may be unknown."""
    few = said == "unknown" and "healthy" in truth["true"] and truth["attempts"] < drawn.FEW
    return said in truth["true"] or few


def _path(folder: Path, system: System, ending: str) -> Path:
    return folder / f"drawn.{system.seed}.{system.index}{ending}"
