"""Drawn systems in a folder: their truth, report and recording, for other rules to judge again.

A measured truth stays true when a rule changes, and measuring it is what takes the time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from tests.scenarios import drawn, judge
from tests.scenarios.drawn import Found
from tests.scenarios.systems import System, cures, draw

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
    for path in sorted(folder.rglob(f"*{TRUTH}")):
        kept = json.loads(path.read_text())
        recording, truths = path.with_name(path.name[: -len(TRUTH)] + RECORDING), truths_of(kept)
        if not truths or not recording.exists():
            continue
        said = judge.judge_again(recording)
        was, now = (is_right(kept, truths, cause) for cause in (kept["said"], said.cause))
        counts["judged"] += 1
        counts["before"] += was
        counts["now"] += now
        if not (was and now):
            mark, true = "ok   " if now else "WRONG", " or ".join(sorted(truths))
            lines.append(
                f"{mark} {kept['system']} was {kept['said']}, is {said.cause}, true {true}"
            )
            lines.append(f"      {said.summary}")
    lines.append("{now} of {judged} right, {before} before".format(**counts))
    return "\n".join(lines) + "\n"


def truths_of(kept: Dict[str, Any]) -> Set[str]:
    """What a verdict on a kept system may be; from what was measured, as it is read now."""
    seed, index = map(int, kept["system"].split(":"))
    system = draw(seed, index, noise="noise=1" in kept["parts"])
    known = {one.name: one for one in cures(system)}
    parts, behind = (
        {known[name]: part for name, part in kept.get(of, {}).items() if name in known}
        for of in ("removed", "removed_behind")
    )
    return drawn.truths_of(system, kept["harm"], parts, behind) if kept["attempts"] else set()


def is_right(kept: Dict[str, Any], truths: Set[str], said: str) -> bool:
    """Whether a cause is among the true ones of a kept system; few requests may be unknown."""
    few = said == "unknown" and "healthy" in truths and kept["attempts"] < drawn.FEW
    return said in truths or few


def _path(folder: Path, system: System, ending: str) -> Path:
    return folder / f"drawn.{system.seed}.{system.index}{ending}"
