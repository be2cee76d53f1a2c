"""Which function a process sleeps in while requests wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from udsprobe.model.action import Action
from udsprobe.model.code.frames import is_script
from udsprobe.model.code.sleeps import is_parked
from udsprobe.model.code.stacks import subject_pids
from udsprobe.model.report import CodePlace, Report, SleepCall
from udsprobe.rules.accounts.authors import AUTHOR_SHARE, locked_in_pool_us
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.code.known_waits import (
    IS_ASLEEP,
    by_own_sleep,
    is_for_a_time,
    known_of,
    with_known,
)
from udsprobe.rules.code.looks import looks_for_sleep, tells_holders
from udsprobe.rules.code.parked import and_tasks, left_waiting, parked_begin, tells, with_parked
from udsprobe.rules.code.sleep_calls import (
    FOR_LOCKS,
    asleep_in,
    ended_in,
    is_always_there,
    is_of,
    kind_of,
    part_of,
    pid_of,
    service_of,
    sleep_calls,
    sleep_fact,
    waited_us,
    while_watched,
)
from udsprobe.rules.code.words import is_known, named, with_place
from udsprobe.rules.peers.owed import is_of_one_thread
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.known_sleeps import KnownSleep, sleeps_for_a_time
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import language_of
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import (
    CODE_KIND_SHARE_MIN,
    THREAD_BUSY_MIN,
    WAITED_TIMES_REQUESTS_MAX,
)
from udsprobe.rules.wording import HOLDS_BACK, IN_VIRTUAL
from udsprobe.sample import GOROUTINE

# mm/memory.c: of a page that is not there, in a system call and outside of any.
_PAGE_FAULT = "handle_mm_fault ([kernel])"
# What to do about these is known without the function.
_TOLD_BY_CALL = ("event", "sleep")
# Of which the threads that carry them say nothing.
_WAIT_IN_VIRTUAL = f"wait for {IN_VIRTUAL} while "


def asleep(root: Suspect, report: Report) -> Suspect:
    """The cause with where it sleeps, and what for."""
    found = _sleep_of_most(root, report) or _sleep(root, report)
    if found is None or not found.code or _WAIT_IN_VIRTUAL in root.headline:
        return root
    # That its loop waits for events is no news.
    if HOLDS_BACK in root.headline:
        return root
    if is_parked(found):
        begun = parked_begin(root, found)
        if begun is None:
            return left_waiting(root, report)
        return with_parked(replace(root, headline=begun), found, report)
    known = known_of(found)
    if (known is None or known[0].may_rest) and _is_mostly_idle(found, root, report):
        return root
    fact = sleep_fact(found, report)
    if not any(is_known(each) for each in found.code[0].stack):
        # That its scheduler sleeps is no news of what its goroutines wait for.
        if language_of(report, pid_of(found, report)) == "go":
            return root
        return replace(root, evidence=(fact, *root.evidence), code=tuple(found.code))
    if known is None:
        root = by_own_sleep(root, found)
    actions = actions_in_code(root, found, report)
    if known is not None:
        return with_known(root, found, known, actions, report)
    pid = _faults_of(found, root, report)
    if pid is None and _says_nothing(found, root):
        facts = (fact, *root.evidence)
        return replace(root, evidence=facts, actions=tuple(actions), code=tuple(found.code))
    if pid is None:
        told_of = with_place(root, found.code, fact, actions)
        return and_tasks(_and_beyond(told_of, found, report), report)
    headline = f"{root.headline}; page faults read its memory from the disk"
    return with_place(
        replace(root, headline=headline), found.code, fact, (*remedies("memory", pid=pid), *actions)
    )


def sleeps_again(root: Suspect, report: Report) -> Optional[Suspect]:
    """A process of one thread that owes a reply and sleeps time after time; else None."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    found = max(sleep_calls(root, report), key=lambda each: each.total_us, default=None)
    if sleeps is None or found is None or found.call is None or not found.code:
        return None
    since_s = (root.harm.since_s or 0.0) if root.harm is not None else 0.0
    # What came before we did is in no count of requests, and is owed all the time.
    slept_us = found.total_us if since_s >= sleeps.watched_s else waited_us(found)
    is_most = slept_us >= CODE_KIND_SHARE_MIN * sleeps.watched_s * 1e6
    pid = pid_of(found, report)
    if not is_most or pid is None or not is_of_one_thread(report, pid):
        return None
    headline = IS_ASLEEP.sub(f"sleeps in {found.call}", root.headline, count=1)
    if headline == root.headline:
        return None
    known, actions = known_of(found), actions_in_code(root, found, report)
    if known is not None:
        return with_known(root, found, known, actions, report)
    told_of = replace(root, headline=headline)
    return with_place(told_of, found.code, sleep_fact(found, report), actions)


def _sleep(root: Suspect, report: Report) -> Optional[SleepCall]:
    """The call that most of the time was slept in while requests waited, of the verdict's kind."""
    helpers = _helpers_sleep(root, report)
    if helpers is not None:
        return helpers
    all_calls = sleep_calls(root, report)
    calls = [call for call in all_calls if is_of(call, part_of(root))]
    parked = [call for call in calls if is_parked(call)]
    others = _for_a_time(root, all_calls) or [call for call in calls if not is_parked(call)]
    # Of tasks it may not be known which have requests; the loop's sleep is known all the same.
    known = [call for call in parked if call.call == GOROUTINE or tells(call, report)]
    return max(known or others, key=waited_us, default=None)


def _for_a_time(root: Suspect, calls: Sequence[SleepCall]) -> List[SleepCall]:
    """Sleeps for a time that a runtime makes of its locks: they are timers, and where they are as
    long as half of what a loop slept beside them, no request waits in that loop's poller."""
    timed = [each for each in calls if each.call in FOR_LOCKS and is_for_a_time(each)]
    least_us = CODE_KIND_SHARE_MIN * max(map(waited_us, calls), default=0.0)
    return [each for each in timed if part_of(root) == "timer" and waited_us(each) >= least_us]


def _sleep_of_most(root: Suspect, report: Report) -> Optional[SleepCall]:
    """Where a library's function tells what most of the processes wait for, the longest of that.

    Who ends the waits of the others, and is the subject then, sleeps for something else itself.
    """
    calls = [call for each in asleep_in(root, report) for call in each.calls]
    calls = [call for call in calls if is_of(call, part_of(root))]
    spent: Dict[KnownSleep, List[SleepCall]] = {}
    for call in calls:
        known = known_of(call)
        if known is not None and known[0].library is None:
            spent.setdefault(known[0], []).append(call)
    most = max(spent.values(), key=lambda each: sum(map(waited_us, each)), default=[])
    if sum(map(waited_us, most)) < CODE_KIND_SHARE_MIN * sum(map(waited_us, calls)):
        return None
    return max(most, key=waited_us, default=None)


def _helpers_sleep(root: Suspect, report: Report) -> Optional[SleepCall]:
    """Of a process that serves nobody and keeps who serves waiting: the call that it did so in.

    In others it waits for work.
    """
    named = subject_pids(report, root.subject)
    if any(row.pid in named for row in report.requests.served_by or ()):
        return None
    return next(iter(ended_in(named, root, report)), None)


def _says_nothing(found: SleepCall, root: Suspect) -> bool:
    """Its function is not known, or is where a loop waits for whatever comes."""
    place = found.code[0]
    waits_in_loop = kind_of(root, found.call) == "event" and place.own is None
    return waits_in_loop or not is_known(place.stack[0])


def _is_mostly_idle(found: SleepCall, root: Suspect, report: Report) -> bool:
    """Threads slept there for far longer than requests wait for locks: where they wait for work."""
    service = service_of(root, report)
    if report.stacks is None or report.stacks.sleeps is None or part_of(root) != "lock":
        return False
    queued_us = service.stage_sums_us.get("recv_wait", 0.0)
    asked_us = while_watched(_locked_us(service) + queued_us, service, report)
    return waited_us(found) > WAITED_TIMES_REQUESTS_MAX * asked_us > 0


def _and_beyond(told_of: Suspect, found: SleepCall, report: Report) -> Suspect:
    """Of a lock, where somebody is at any moment who came the same way and has passed it."""
    first, service = found.code[0], service_of(told_of, report)
    if part_of(told_of) != "lock" or kind_of(told_of, found.call) != "lock" or first.own is None:
        return told_of
    # Not all sleeps have callers that tell where they are of: those of locks are many and short.
    locked_us = while_watched(_locked_us(service), service, report)
    for call in (each for each in sleep_calls(told_of, report) if not is_parked(each)):
        slept_us = max(waited_us(call), locked_us if call is found else 0.0)
        for place in call.code:
            is_beyond = first.own in place.stack[1:] and named(place) != named(first)
            if (
                is_beyond
                and not _is_same_wait(first, place, call)
                and is_always_there(place, slept_us, report, THREAD_BUSY_MIN)
            ):
                headline = f"{told_of.headline}; others meanwhile in {named(place)}"
                return replace(told_of, headline=headline)
    return told_of


def _is_same_wait(first: CodePlace, place: CodePlace, call: SleepCall) -> bool:
    """A script waits by its interpreter's functions; only some stacks have them."""
    is_behind = place.own == first.own and is_script(first.file) and not is_script(place.file)
    return is_behind and call.call in FOR_LOCKS and not sleeps_for_a_time(place.stack)


def _locked_us(service: Service) -> float:
    """Requests' waits for locks: what one thread receives and another answers is in no thread's
    account, and is told by who ended them."""
    return max(service.app_us("lock"), min(service.handed_us, locked_in_pool_us(service)))


def actions_in_code(root: Suspect, found: SleepCall, report: Report) -> List[Action]:
    """What the function of the sleep calls for, in place of the lines that would look for it."""
    pid = pid_of(found, report)
    looks = [each for each in root.actions if looks_for_sleep(each, pid, report)]
    kind, is_named = kind_of(root, found.call), is_known(found.code[0].stack[0])
    # What ends a wait for events is known; where nothing else is told to do, it is to look.
    if kind == "event" and any(each.metric == AUTHOR_SHARE for each in root.evidence):
        return without_sleep_looks(root, found, report) or list(root.actions)
    if not looks or not (is_named or kind in _TOLD_BY_CALL):
        return list(root.actions)
    where = named(found.code[0]) if is_named else found.call or ""
    instead = choice.sleeps_in(report, pid, kind, found.call, where)
    others = [each for each in root.actions if each not in looks]
    at = root.actions.index(looks[0])
    return [*others[:at], *instead, *tells_holders(looks, kind), *others[at:]]


def without_sleep_looks(root: Suspect, found: SleepCall, report: Report) -> List[Action]:
    """Its actions but those that would look for where it sleeps."""
    pid = pid_of(found, report)
    return [each for each in root.actions if not looks_for_sleep(each, pid, report)]


def _faults_of(found: SleepCall, root: Suspect, report: Report) -> Optional[int]:
    """The process that sleeps in page faults, where its wait for the disk is that; else None."""
    stacks, pid = report.stacks, pid_of(found, report)
    if stacks is None or found.call is not None or part_of(root) != "disk":
        return None
    asleep = (each for each in stacks.stacks if each.pid == pid and each.on == "off-cpu")
    return pid if any(_PAGE_FAULT in each.frames for each in asleep) else None
