"""Where threads are that have slept since before requests got stuck, and still do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Optional

from udsprobe.model.code.sleeps import is_parked
from udsprobe.model.report import Report, SleepCall, WaitNow
from udsprobe.rules.accounts.authors import thread_name
from udsprobe.rules.code.asleep import actions_in_code, without_sleep_looks
from udsprobe.rules.code.known_waits import known_of, with_known
from udsprobe.rules.code.sleep_calls import asleep_in, is_always_there, sleep_fact, waited_us
from udsprobe.rules.code.words import is_known, named
from udsprobe.rules.peers.owed import held_up, is_of_one_thread
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN

_LASTED = re.compile(r"has been .+? for [\d.,]+ \w+(?: or longer)?")
_NOT_A_CLIENT = ", of which none can be its client's"


def still_asleep(root: Suspect, report: Report) -> Optional[Suspect]:
    """The cause with the place of the wait that its headline tells of; None: it is not known."""
    waits = [wait for each in held_up(report) if each.pid in root.pids for wait in each.waits]
    first = next((wait for wait in waits if _is_told(wait, root.headline)), None)
    if first is None or (first.kind == "lock" and not is_of_one_thread(report, first.pid)):
        # Idle threads of a pool wait for locks, too: of one among others it is not told which.
        return None
    alike = [each for each in waits if (each.pid, each.call) == (first.pid, first.call)]
    asleep = [each for each in asleep_in(root, report) if each.pid == first.pid]
    calls = (call for each in asleep for call in each.calls)
    found = next((call for call in calls if call.call == first.call and call.code), None)
    if found is None or not _is_place_of(found, len(alike), report):
        return None
    return _at_place(root, found, report)


def still_asking(root: Suspect, report: Report) -> Optional[Suspect]:
    """The cause with the function in which its own requests have no answer; None: not known."""
    asked = sum(row.asking.count for row in report.requests.served_by or () if row.pid in root.pids)
    calls = [call for each in asleep_in(root, report) for call in each.calls]
    found = max((call for call in calls if call.asked_in), key=waited_us, default=None)
    if found is None or is_parked(found):
        return None
    place, least = found.asked_in[0], CODE_KIND_SHARE_MIN * asked
    if place.own is None or not is_always_there(place, found.total_us, report, least):
        return None
    return replace(
        root,
        headline=f"{root.headline}, in {place.own}",
        evidence=(sleep_fact(found, report), *root.evidence),
        code=tuple(found.asked_in),
    )


def _is_told(wait: WaitNow, headline: str) -> bool:
    return headline.startswith(f"{thread_name(wait.comm, wait.pid, wait.tid)} has been ")


def _at_place(root: Suspect, found: SleepCall, report: Report) -> Optional[Suspect]:
    lasted = _LASTED.search(root.headline)
    if lasted is None:
        return None
    begins, rest = root.headline[: lasted.end()], root.headline[lasted.end() :]
    if root.cause == "upstream-wait":
        # Its upstream is to be cured, and not the call that waits for it.
        known, actions = None, without_sleep_looks(root, found, report)
    else:
        known, actions = known_of(found), actions_in_code(root, found, report)
    if known is not None:
        told = with_known(replace(root, headline=begins), found, known, actions, report)
        # What it waits for is known, so it is no client.
        return replace(told, headline=f"{told.headline}{rest.replace(_NOT_A_CLIENT, '')}")
    return replace(
        root,
        headline=f"{begins}, in {named(found.code[0])}{rest}",
        evidence=(sleep_fact(found, report), *root.evidence),
        actions=tuple(actions),
        code=tuple(found.code),
    )


def _is_place_of(found: SleepCall, threads: int, report: Report) -> bool:
    """Most of these threads were in its first place all the time."""
    place, least = found.code[0], CODE_KIND_SHARE_MIN * threads
    return is_known(place.stack[0]) and is_always_there(place, found.total_us, report, least)
