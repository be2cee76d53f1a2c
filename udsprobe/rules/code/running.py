"""Which function the CPU time goes to."""

from __future__ import annotations

from typing import List, Optional

from udsprobe.model.code.stacks import subject_pids
from udsprobe.model.report import Evidence, ProcessCode, Report
from udsprobe.rules.code.looks import names_of, profiles
from udsprobe.rules.code.processes import own_samples, together
from udsprobe.rules.code.words import told, with_place
from udsprobe.rules.code_kinds import with_kinds
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_SAMPLES_MIN
from udsprobe.rules.wording import count, evidence


def running(root: Suspect, report: Report) -> Suspect:
    """The cause with what runs."""
    found = _process(root, report)
    if found is None:
        return root
    if own_samples(found) < CODE_SAMPLES_MIN or not found.code:
        return root
    kept = (each for each in root.actions if not profiles(each, found.pid, report))
    actions = (*kept, *names_of(found, report))
    named = with_place(root, found.code, _fact(found, report), actions)
    return with_kinds(named, root.headline, found, report)


def _process(root: Suspect, report: Report) -> Optional[ProcessCode]:
    """The one that the verdict names; where it names a program, or too little of that one was
    met, all processes of the program."""
    stacks = report.stacks
    if stacks is None:
        return None
    asked: List[ProcessCode] = [
        each for each in stacks.processes if not root.pids or each.pid in root.pids
    ]
    named = subject_pids(report, root.subject)
    one = next((each for each in asked if each.pid in named), None)
    if not asked or (one is not None and own_samples(one) >= CODE_SAMPLES_MIN):
        return one
    programs = {target.pid: target.comm for target in report.targets}
    program = programs.get(asked[0].pid)
    same = [each for each in asked[1:] if program and programs.get(each.pid) == program]
    return together([asked[0], *same])


def _fact(found: ProcessCode, report: Report) -> Evidence:
    place = found.code[0]
    lacking = f", outer callers of {found.truncated:,} not found" if found.truncated else ""
    lost = report.stacks.lost if report.stacks is not None else 0
    lacking += f", {lost:,} more lost" if lost else ""
    lacking += f", {found.in_sockets:,} more in socket calls" if found.in_sockets else ""
    own = own_samples(found)
    says = f"{told(place)}, of {count(own, 'sample')}{lacking}"
    return evidence("code_share", place.share_pct / 100, "of 1", says)
