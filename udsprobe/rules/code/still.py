"""Where threads are that have slept since before requests got stuck, and still do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional, Sequence

from udsprobe.model.report import CodePlace, Report, SleepCall, WaitNow
from udsprobe.rules.code.asleep import actions_in_code
from udsprobe.rules.code.known_waits import known_of, with_known
from udsprobe.rules.code.sleep_calls import sleep_fact
from udsprobe.rules.code.words import is_known, named
from udsprobe.rules.peers.owed import held_up, is_of_one_thread
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN

_LASTED = re.compile(r"has been .+? for [\d.,]+ \w+(?: or longer)?")


def still_asleep(root: Suspect, report: Report) -> Optional[Suspect]:
    """The cause with the place of the wait that its headline tells of; None: it is not known."""
    for each in held_up(report):
        if each.pid in root.pids and _is_told(each.waits[0], report):
            return _at_place(root, each.waits, report)
    return None


def _is_told(wait: WaitNow, report: Report) -> bool:
    """Idle threads of a pool wait for locks, too: of one among others it is not told which."""
    return wait.kind != "lock" or is_of_one_thread(report, wait.pid)


def _at_place(root: Suspect, waits: Sequence[WaitNow], report: Report) -> Optional[Suspect]:
    found = _sleep(waits[0], report)
    place = None if found is None else _place(found, len(waits), report)
    lasted = _LASTED.search(root.headline)
    if found is None or place is None or lasted is None:
        return None
    known, actions = known_of(found), actions_in_code(root, found, report)
    if known is not None:
        return with_known(root, found, known, actions, report)
    at = lasted.end()
    return replace(
        root,
        headline=f"{root.headline[:at]}, in {named(place)}{root.headline[at:]}",
        evidence=(sleep_fact(found, report), *root.evidence),
        actions=tuple(actions),
        code=tuple(found.code),
    )


def _sleep(wait: WaitNow, report: Report) -> Optional[SleepCall]:
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    processes = sleeps.processes if sleeps is not None else ()
    calls = [call for each in processes if each.pid == wait.pid for call in each.calls]
    return next((each for each in calls if each.call == wait.call and each.code), None)


def _place(found: SleepCall, threads: int, report: Report) -> Optional[CodePlace]:
    """The first one, where most of these threads were in it all the time."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    watched_us = sleeps.watched_s * 1e6 if sleeps is not None else 0.0
    place = found.code[0]
    slept_us = place.share_pct / 100 * found.total_us
    is_most = slept_us >= CODE_KIND_SHARE_MIN * threads * watched_us > 0
    return place if is_most and is_known(place.stack[0]) else None
