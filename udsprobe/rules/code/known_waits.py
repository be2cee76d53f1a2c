"""What a library's function tells of a wait."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.report import CodePlace, Evidence, Report, SleepCall
from udsprobe.rules.code.sleep_calls import (
    ended_in,
    is_always_there,
    pid_of,
    sleep_fact,
    waited_us,
)
from udsprobe.rules.code.words import named, told
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.known_sleeps import (
    KnownSleep,
    called_from,
    known_sleep,
    sleeps_for_a_time,
)
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN
from udsprobe.rules.wording import ACTIVITY_WORDS, OWN_TIMER

IS_ASLEEP = re.compile(f"is ({'|'.join(map(re.escape, ACTIVITY_WORDS.values()))})")
_SLEEPS_ON = re.compile(r"sleeps (?:on|in) .*? while ")
_Known = Tuple[KnownSleep, List[CodePlace]]


def with_known(
    root: Suspect, found: SleepCall, known: _Known, actions: Sequence[Action], report: Report
) -> Suspect:
    """By what a library waits for, where that is most of it."""
    wait, places = known
    fact = sleep_fact(found, report)
    if wait.library is not None:
        told_of = _of_turn(root, found, fact, wait, report)
        # Of a condition it is known who meets it, and what that calls for.
        kept = tuple(each for each in actions if each in root.actions) if wait.is_native else ()
        return replace(told_of, actions=(*kept, *told_of.actions))
    # Where an interpreter's script is before it, the script's function says where.
    is_inside = found.code[0].stack[0] in places[0].stack
    first = _by_known(found.code[0] if is_inside else places[0], wait)
    share_pct = min(100.0, sum(each.share_pct for each in places))
    headline = _waits_for(wait.waits_for, root.headline)
    return replace(
        root,
        headline=f"{headline}: {told(replace(first, share_pct=share_pct))}",
        evidence=(fact, *root.evidence),
        actions=(*remedies(wait.kind), *actions),
        code=tuple(found.code),
    )


def by_own_sleep(root: Suspect, found: SleepCall) -> Suspect:
    """What it sleeps on is a time, where most of a call is such a sleep of its language's."""
    if not is_for_a_time(found):
        return root
    timer = f"{OWN_TIMER}{found.call})"
    headline = _SLEEPS_ON.sub(f"sleeps on {timer} while ", root.headline, count=1)
    return replace(root, headline=headline, subject=timer) if headline != root.headline else root


def is_for_a_time(found: SleepCall) -> bool:
    """Most of a call is a sleep that the program asks for, by a function of its language."""
    timed_pct = sum(each.share_pct for each in found.code if sleeps_for_a_time(each.stack))
    return timed_pct >= 100 * CODE_KIND_SHARE_MIN


def known_of(found: SleepCall) -> Optional[_Known]:
    """What most of a call waits for, by a library's function, with its places; None: not known."""
    behind = _known(found.code[1:])
    return _known(found.code[:1]) or (None if behind and behind[0].is_native else behind)


def _by_known(place: CodePlace, wait: KnownSleep) -> CodePlace:
    """With the library's function that tells what for, where one that it called would be named."""
    at = wait.found_in(place.stack)
    if at is None or place.own not in place.stack[:at]:
        return place
    return replace(place, own=place.stack[at])


def _of_turn(
    root: Suspect, found: SleepCall, fact: Evidence, wait: KnownSleep, report: Report
) -> Suspect:
    """Its turn comes when another request is done: with what those others do."""
    first = found.code[0]
    called = called_from(wait, first.stack)
    is_nearest = tuple(called) == tuple(first.stack[:2])
    where = " ← ".join(called) if called and not is_nearest else named(first)
    headline = f"{_waits_for(wait.waits_for, root.headline)}: {told(first, where)}"
    others = (
        each
        for call in (found, *ended_in((pid_of(found, report),), root, report))
        for each in call.code
        if known_sleep(each.stack) is None and each.own
        if is_always_there(each, waited_us(call), report)
    )
    goes_on = next(others, None)
    if goes_on is not None:
        headline = f"{headline}; others meanwhile in {named(goes_on)}"
    return replace(
        root,
        headline=headline,
        evidence=(fact, *root.evidence),
        actions=choice.turn(report, pid_of(found, report), wait.kind, where),
        code=tuple(found.code),
    )


def _known(code: Sequence[CodePlace]) -> Optional[_Known]:
    """What most of it waits for, by a library's function, and the places of that.

    An interpreter's script is the first place: the library that it called is behind it.
    """
    waits: Dict[KnownSleep, List[CodePlace]] = {}
    for place in code:
        wait = known_sleep(place.stack)
        if wait is not None:
            waits.setdefault(wait, []).append(place)
    most = 100 * CODE_KIND_SHARE_MIN
    found = (each for each in waits.items() if sum(one.share_pct for one in each[1]) >= most)
    return next(found, None)


def _waits_for(what: str, headline: str) -> str:
    """In place of the call that it sleeps in, which is any that waits for something."""
    said = _SLEEPS_ON.sub(f"waits for {what} while ", headline, count=1)
    said = IS_ASLEEP.sub(f"waits for {what}", said, count=1)
    return said if said != headline else f"{headline}, for {what}"
