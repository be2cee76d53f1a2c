"""Where threads are that have slept since before requests got stuck, and still do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional

from udsprobe.model.report import CodePlace, Report, SleepCall, WaitNow
from udsprobe.rules.accounts.authors import thread_name
from udsprobe.rules.code.asleep import actions_in_code
from udsprobe.rules.code.known_waits import known_of, with_known
from udsprobe.rules.code.sleep_calls import sleep_fact
from udsprobe.rules.code.words import is_known, named
from udsprobe.rules.peers.owed import held_up, is_of_one_thread
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN

_LASTED = re.compile(r"has been .+? for [\d.,]+ \w+(?: or longer)?")
_NOBODY = "; who will end that is not known yet"


def still_asleep(root: Suspect, report: Report) -> Optional[Suspect]:
    """The cause with the place of the wait that its headline tells of; None: it is not known."""
    waits = [wait for each in held_up(report) if each.pid in root.pids for wait in each.waits]
    first = next((wait for wait in waits if _is_told(wait, root.headline)), None)
    if first is None or (first.kind == "lock" and not is_of_one_thread(report, first.pid)):
        # Idle threads of a pool wait for locks, too: of one among others it is not told which.
        return None
    alike = [each for each in waits if (each.pid, each.call) == (first.pid, first.call)]
    found = _sleep(first, report)
    if found is None or _place(found, len(alike), report) is None:
        return None
    return _at_place(root, found, report)


def _is_told(wait: WaitNow, headline: str) -> bool:
    return headline.startswith(f"{thread_name(wait.comm, wait.pid, wait.tid)} has been ")


def _at_place(root: Suspect, found: SleepCall, report: Report) -> Optional[Suspect]:
    lasted = _LASTED.search(root.headline)
    if lasted is None:
        return None
    begins, rest = root.headline[: lasted.end()], root.headline[lasted.end() :]
    known, actions = known_of(found), actions_in_code(root, found, report)
    if known is not None:
        told = with_known(replace(root, headline=begins), found, known, actions, report)
        return replace(told, headline=f"{told.headline}{rest.replace(_NOBODY, '')}")
    return replace(
        root,
        headline=f"{begins}, in {named(found.code[0])}{rest}",
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
