"""Lines of a remedy that would look for what the stacks have told."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.code.sleeps import IN_LOOP
from udsprobe.model.report import ProcessCode, Report, SleepCall
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.work import GOROUTINES_LOOK
from udsprobe.rules.suspects.suspect import Suspect

_PROFILER, _WHERE_IT_SLEEPS = "sudo perf record", "sudo head -v /proc/"
_PYTHON_STACKS = "sudo py-spy dump"
_RUBY_STACKS = "sudo rbspy "
_LOOKS = (_WHERE_IT_SLEEPS, _PYTHON_STACKS)
# Of what sleeps Java's tells more: who holds the lock.
_JAVA_STACKS = re.compile(r"sudo jcmd \d+ Thread\.print")


def names_of(found: ProcessCode, report: Report) -> Tuple[Action, ...]:
    """How to get the names of what a runtime makes, where it has written none."""
    if _is_named(found.pid, report):
        return ()
    return choice.code_names(report, found.pid, is_nameless=found.code[0].function is None)


def _is_named(pid: Optional[int], report: Report) -> bool:
    """What it makes at run time, or interprets, has names."""
    return report.stacks is not None and pid in report.stacks.mapped_pids


def profiles(action: Action, pid: int, report: Report) -> bool:
    """It would show once more what is known."""
    return (action.run or "").startswith(_PROFILER) or _asks_runtime(action, pid, report)


def looks_for_sleep(action: Action, pid: Optional[int], report: Report) -> bool:
    """The same of sleep."""
    asks = action.say.startswith(GOROUTINES_LOOK) or _asks_runtime(action, pid, report)
    return asks or (action.run or "").startswith(_WHERE_IT_SLEEPS)


def _asks_runtime(action: Action, pid: Optional[int], report: Report) -> bool:
    """For stacks of its threads, which are known."""
    run = action.run or ""
    asks = run.startswith((_PYTHON_STACKS, _RUBY_STACKS)) or _JAVA_STACKS.fullmatch(run) is not None
    return asks and _is_named(pid, report)


def tells_holders(looks: Sequence[Action], kind: str) -> List[Action]:
    """Who holds a lock Java tells itself."""
    return [each for each in looks if kind == "lock" and _JAVA_STACKS.fullmatch(each.run or "")]


def without_looks(root: Suspect, found: SleepCall) -> Tuple[Action, ...]:
    """What is told need not be looked for."""
    looks = _LOOKS if found.call in IN_LOOP else ()
    return tuple(
        each
        for each in root.actions
        if not each.say.startswith(GOROUTINES_LOOK) and not (each.run or "").startswith(looks)
    )
