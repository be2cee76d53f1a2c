"""Which function a cause is in, where stacks were taken."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Tuple

from udsprobe.model.action import Action
from udsprobe.model.code import subject_pids
from udsprobe.model.report import CodePlace, Evidence, ProcessCode, Report
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspect import Suspect
from udsprobe.rules.thresholds import CODE_SAMPLES_MIN
from udsprobe.rules.wording import count, evidence, percent

_CAUSES = frozenset({"app-cpu"})
_PROFILER = "sudo perf record"


def with_code(root: Suspect, report: Report) -> Suspect:
    """The cause with its functions, and the first of them in its headline."""
    if root.cause not in _CAUSES:
        return root
    found = _process(root, report)
    if found is None or found.samples < CODE_SAMPLES_MIN or not found.code:
        return root
    says = told(found.code[0])
    return replace(
        root,
        headline=f"{root.headline}: {says}",
        evidence=(_fact(found, report), *root.evidence),
        actions=(*(each for each in root.actions if not _profiles(each)), *_names(found, report)),
        code=tuple(found.code),
    )


def _names(found: ProcessCode, report: Report) -> Tuple[Action, ...]:
    """How to get the names of what a runtime makes, where it has written none."""
    mapped = report.stacks is not None and found.pid in report.stacks.mapped_pids
    if mapped:
        return ()
    return choice.code_names(report, found.pid, is_nameless=found.code[0].function is None)


def _profiles(action: Action) -> bool:
    """It would show once more what is known."""
    return action.run is not None and action.run.startswith(_PROFILER)


def told(place: CodePlace) -> str:
    """`71 % in pbkdf2Sync ← verify (auth.js:12)`."""
    # The module is said of the last one only, unless it is all there is to say.
    names = place.stack[:2]
    if len(names) == 2 and place.function is not None and place.file is None:
        names[0] = place.function
    return f"{percent(place.share_pct / 100)} in {' ← '.join(names)}"


def _process(root: Suspect, report: Report) -> Optional[ProcessCode]:
    stacks = report.stacks
    if stacks is None:
        return None
    asked: List[ProcessCode] = [
        each for each in stacks.processes if not root.pids or each.pid in root.pids
    ]
    named = subject_pids(report, root.subject)
    return next((each for each in asked if each.pid in named), asked[0] if asked else None)


def _fact(found: ProcessCode, report: Report) -> Evidence:
    place = found.code[0]
    lacking = f", outer callers of {found.truncated:,} not found" if found.truncated else ""
    lost = report.stacks.lost if report.stacks is not None else 0
    lacking += f", {lost:,} more lost" if lost else ""
    says = f"{told(place)}, of {count(found.samples, 'sample')}{lacking}"
    return evidence("code_share", place.share_pct / 100, "of 1", says)
