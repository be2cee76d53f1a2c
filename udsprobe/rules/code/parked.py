"""What waits inside a program, without a thread that sleeps for it: goroutines and the like."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence, Tuple

from udsprobe.model.code.sleeps import IN_LOOP, is_parked
from udsprobe.model.report import CodePlace, Evidence, Report, SleepCall
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.code.looks import without_looks
from udsprobe.rules.code.sleep_calls import (
    is_of,
    sleep_calls,
    sleep_fact,
    waited_us,
    while_watched,
)
from udsprobe.rules.code.words import named, told
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.goroutine_waits import ParkedWait, goroutine_wait, holder_does
from udsprobe.rules.remedy.task_waits import function_wait, task_wait
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import CODE_KIND_SHARE_MIN, LOCK_HOLDER_SHARE_MIN
from udsprobe.rules.wording import IN_GO, IN_POLLER, evidence, percent
from udsprobe.sample import ASYNC_FUNCTION, GOROUTINE, TASK

_PARKED = {GOROUTINE: "goroutines", TASK: "tasks", ASYNC_FUNCTION: "async functions"}
_WAIT_IN_GO = f"wait for {IN_GO} while "
_SLEEPS_IN_LOOP = f" sleeps on {IN_POLLER} while "


def parked_begin(root: Suspect, found: SleepCall) -> Optional[str]:
    """The headline as that of what waits inside; None: it tells another story.

    A loop that sleeps until an event or a timer sleeps for its tasks.
    """
    who, in_loop, goes_on = root.headline.partition(_SLEEPS_IN_LOOP)
    if in_loop:
        return f"{_PARKED[found.call or TASK]} of {who} {_WAIT_IN_GO}{goes_on}"
    return root.headline if _WAIT_IN_GO in root.headline else None


def with_parked(root: Suspect, found: SleepCall, report: Report) -> Suspect:
    """Goroutines, tasks or async functions, for which no thread sleeps."""
    first, *others = found.code
    wait = _wait_of(found)
    if wait is None:
        return replace(root, evidence=(sleep_fact(found, report), *root.evidence))
    holder = _holder(found)
    held = _held(holder)
    headline = root.headline.replace(_WAIT_IN_GO, f"{wait.does}{held} while ", 1)
    actions = (*choice.parked(wait, f"{named(first)}{held}"), *without_looks(root, found))
    # What it waits for is said: by which function of the language is in the evidence.
    headline = f"{headline}: {told(first, first.own)}"
    goes_on = next((each for each in others if each.own is not None), None)
    if wait.is_turn and goes_on is not None and holder is None:
        headline = f"{headline}; others meanwhile in {named(goes_on)}"
    return replace(
        root,
        headline=headline,
        evidence=(sleep_fact(found, report), *_held_fact(holder), *root.evidence),
        actions=actions,
        code=tuple(found.code),
    )


def left_waiting(root: Suspect, report: Report) -> Suspect:
    """Goroutines that go on waiting are met all the same."""
    parked = filter(is_parked, sleep_calls(root, report))
    found = next((call for call in parked if is_of(call, None)), None)
    wait = _wait_of(found) if found is not None and tells(found, report) else None
    if found is None or wait is None or found.code[0].share_pct < 100 * CODE_KIND_SHARE_MIN:
        return root
    first = found.code[0]
    holder = _holder(found)
    waits = f"its {_PARKED[found.call or GOROUTINE]} {wait.does}{_held(holder)}"
    return replace(
        root,
        headline=f"{root.headline}; {waits}: {told(first, first.own)}",
        evidence=(*root.evidence, sleep_fact(found, report), *_held_fact(holder)),
        actions=without_looks(root, found),
        code=tuple(found.code),
    )


def and_tasks(told_of: Suspect, report: Report) -> Suspect:
    """Where nothing of its own sleeps: a thread of a pool, say, that its tasks wait for."""
    has_tasks = any(call.call in IN_LOOP for call in sleep_calls(told_of, report))
    if told_of.code[0].own is not None or not has_tasks:
        return told_of
    return replace(left_waiting(told_of, report), code=told_of.code)


def tells(found: SleepCall, report: Report) -> bool:
    """It is known what it waits for, and that this is what requests wait for."""
    is_theirs = is_enough(found, request_time(whole_service(report)).sum_us("timer"), report)
    return _wait_of(found) is not None and is_theirs and not _may_be_for_bytes(found, report)


def is_enough(found: SleepCall, asleep_us: float, report: Report) -> bool:
    """What was met speaks for most of what requests waited in the loop. Async functions that V8
    moves meanwhile are missed, and of a few it may be the innermost ones.

    Args:
        asleep_us: that requests waited, in the whole window.
    """
    if found.call != ASYNC_FUNCTION:
        return True
    waited = while_watched(asleep_us, whole_service(report), report)
    return waited_us(found) >= CODE_KIND_SHARE_MIN * waited


def _wait_of(found: SleepCall) -> Optional[ParkedWait]:
    """None where it is not known; of those that have no request to answer many wait for work."""
    if not found.owing_us or not found.code or found.code[0].own is None:
        return None
    if found.call == TASK:
        return _task_wait(found.code)
    if found.call == ASYNC_FUNCTION:
        return function_wait(found.code[0].stack)
    return goroutine_wait(found.code[0].stack)


def _may_be_for_bytes(found: SleepCall, report: Report) -> bool:
    """Async functions wait for upstreams and for threads of a pool as for anything else: the first
    place is known to be another one where what they wait for otherwise is more than all of that.
    """
    if found.call != ASYNC_FUNCTION:
        return False
    time = request_time(whole_service(report))
    inside_us = time.total_us - time.queue_us
    others_us = inside_us - time.sum_us("timer")
    return found.code[0].share_pct / 100 * inside_us < 2 * others_us


def _task_wait(code: Sequence[CodePlace]) -> Optional[ParkedWait]:
    """By the function of a library, else of C: that is behind the function that awaits it."""
    first = code[0].stack[0]
    most = 100 * CODE_KIND_SHARE_MIN
    behind = (each for each in code[1:] if first in each.stack and each.share_pct >= most)
    return next(filter(None, (task_wait(each.stack) for each in (code[0], *behind))), None)


def _holder(found: SleepCall) -> Optional[CodePlace]:
    """Where most of the time those were that had the lock; None: not known."""
    likely = found.held_by[:1]
    return next((each for each in likely if each.share_pct >= 100 * LOCK_HOLDER_SHARE_MIN), None)


def _held(holder: Optional[CodePlace]) -> str:
    """Words to go on with; empty where it is not known."""
    if holder is None:
        return ""
    return f" held by a goroutine that {holder_does(holder.stack)} in {named(holder)}"


def _held_fact(holder: Optional[CodePlace]) -> Tuple[Evidence, ...]:
    if holder is None:
        return ()
    share = holder.share_pct / 100
    says = f"{percent(share)} of that time{_held(holder)}: from there it unlocks what they wait for"
    return (evidence("holder_share", share, "of 1", says),)
