"""Which function a cause is in, where stacks were taken."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.code.frames import (
    IN_C,
    JIT,
    MODULES,
    NOT_KNOWN,
    bare,
    brief,
    is_beginning,
    is_script,
)
from udsprobe.model.code.sleeps import IN_LOOP, is_parked
from udsprobe.model.code.stacks import subject_pids
from udsprobe.model.report import CodePlace, Evidence, ProcessCode, ProcessSleep, Report, SleepCall
from udsprobe.rules.accounts.authors import AUTHOR_SHARE, locked_in_pool_us
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import Service, whole_service
from udsprobe.rules.code_kinds import with_kinds
from udsprobe.rules.harm import STUCK
from udsprobe.rules.peers.owed import is_of_one_thread
from udsprobe.rules.remedy import choice
from udsprobe.rules.remedy.goroutine_waits import ParkedWait, goroutine_wait, holder_does
from udsprobe.rules.remedy.known_sleeps import KnownSleep, called_from, known_sleep
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.remedy.task_waits import function_wait, task_wait
from udsprobe.rules.remedy.work import GOROUTINES_LOOK
from udsprobe.rules.servers import IN_GOROUTINES, language_of
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import (
    CODE_KIND_SHARE_MIN,
    CODE_LARGE_SHARE_MIN,
    CODE_SAMPLES_MIN,
    LOCK_HOLDER_SHARE_MIN,
    THREAD_BUSY_MIN,
    WAITED_TIMES_REQUESTS_MAX,
    WAITING_MIN,
)
from udsprobe.rules.turned_away.given_up import is_idle_beside
from udsprobe.rules.wording import (
    ACTIVITY_WORDS,
    IN_GO,
    IN_POLLER,
    IN_VIRTUAL,
    OWN_TIMER,
    count,
    duration,
    evidence,
    percent,
)
from udsprobe.sample import ASYNC_FUNCTION, GOROUTINE, TASK

_RUNNING, _ASLEEP = "app-cpu", "app-blocked"
# mm/memory.c: of a page that is not there, in a system call and outside of any.
_PAGE_FAULT = "handle_mm_fault ([kernel])"
_PROFILER, _WHERE_IT_SLEEPS = "sudo perf record", "sudo head -v /proc/"
_PYTHON_STACKS = "sudo py-spy dump"
_RUBY_STACKS = "sudo rbspy "
_LOOKS = (_WHERE_IT_SLEEPS, _PYTHON_STACKS)
# Of what sleeps Java's tells more: who holds the lock.
_JAVA_STACKS = re.compile(r"sudo jcmd \d+ Thread\.print")
# Calls in which a thread waits for others to speak: while requests wait, its rest.
_FOR_EVENTS = frozenset(
    (
        *("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"),
        "io_uring_enter",
    )
)
_FOR_PEERS = frozenset(
    (
        *("accept", "accept4", "connect", "recvfrom", "recvmsg", "recvmmsg", "sendto"),
        *("sendmsg", "sendmmsg"),
    )
)
_FOR_TIME = frozenset(("nanosleep", "clock_nanosleep"))
_FOR_LOCKS = frozenset(
    ("futex", "futex_wait", "futex_waitv", "flock", "fcntl", "semop", "semtimedop")
)
_PARKED = {GOROUTINE: "goroutines", TASK: "tasks", ASYNC_FUNCTION: "async functions"}
_IS_ASLEEP = re.compile(f"is ({'|'.join(map(re.escape, ACTIVITY_WORDS.values()))})")
_SLEEPS_ON = re.compile(r"sleeps (?:on|in) .*? while ")
# What to do about these is known without the function.
_TOLD_BY_CALL = ("event", "sleep")
# By the part of request time that it makes up (rules/accounts/request_time.py).
_CALLS: Mapping[str, FrozenSet[str]] = {"lock": _FOR_LOCKS, "timer": _FOR_EVENTS}
_WAIT_IN_GO = f"wait for {IN_GO} while "
# Of which the threads that carry them say nothing.
_WAIT_IN_VIRTUAL = f"wait for {IN_VIRTUAL} while "
_SLEEPS_IN_LOOP = f" sleeps on {IN_POLLER} while "
_Known = Tuple[KnownSleep, List[CodePlace]]
_PARTS = {f"app_{name}_us": name for name in ("lock", "disk", "timer", "sleep")}


def with_code(root: Suspect, report: Report) -> Suspect:
    """The cause with its functions, and the first of them in its headline."""
    if root.cause == _RUNNING:
        return _running(root, report)
    if root.cause != _ASLEEP:
        return root
    # A sleep that goes on is in no stack yet; those that are ended.
    goes_on = root.harm is not None and root.harm.kind == STUCK
    if goes_on:
        return _sleeps_again(root, report) or _left_waiting(root, report)
    if is_idle_beside(root, report):
        return _left_waiting(root, report)
    return _asleep(root, report)


def _running(root: Suspect, report: Report) -> Suspect:
    found = _process(root, report)
    if found is None:
        return root
    if found.samples - found.in_sockets < CODE_SAMPLES_MIN or not found.code:
        return root
    kept = (each for each in root.actions if not _profiles(each, found.pid, report))
    actions = (*kept, *_names(found, report))
    named = _told(root, found.code, _fact(found, report), actions)
    return with_kinds(named, root.headline, found, report)


def _asleep(root: Suspect, report: Report) -> Suspect:
    found = _sleep_of_most(root, report) or _sleep(root, report)
    if found is None or not found.code or _WAIT_IN_VIRTUAL in root.headline:
        return root
    if is_parked(found):
        begun = _parked_begin(root, found)
        if begun is None:
            return _left_waiting(root, report)
        return _parked(replace(root, headline=begun), found, report)
    known = _known_of(found)
    if (known is None or known[0].may_rest) and _is_mostly_idle(found, root, report):
        return root
    fact = _sleep_fact(found, report)
    if not any(is_known(each) for each in found.code[0].stack):
        # That its scheduler sleeps is no news of what its goroutines wait for.
        if language_of(report, _pid_of(found, report)) == "go":
            return root
        return replace(root, evidence=(fact, *root.evidence), code=tuple(found.code))
    actions = _in_code(root, found, report)
    if known is not None:
        return _with_known(root, found, known, actions, report)
    pid = _faults_of(found, root, report)
    if pid is None and _says_nothing(found, root):
        facts = (fact, *root.evidence)
        return replace(root, evidence=facts, actions=tuple(actions), code=tuple(found.code))
    if pid is None:
        told_of = _told(root, found.code, fact, actions)
        return _and_tasks(_and_beyond(told_of, found, report), report)
    headline = f"{root.headline}; page faults read its memory from the disk"
    return _told(
        replace(root, headline=headline), found.code, fact, (*remedies("memory", pid=pid), *actions)
    )


def _sleeps_again(root: Suspect, report: Report) -> Optional[Suspect]:
    """A process of one thread that owes a reply and sleeps time after time; else None."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    found = max(_sleep_calls(root, report), key=lambda each: each.total_us, default=None)
    if sleeps is None or found is None or found.call is None or not found.code:
        return None
    since_s = (root.harm.since_s or 0.0) if root.harm is not None else 0.0
    # What came before we did is in no count of requests, and is owed all the time.
    slept_us = found.total_us if since_s >= sleeps.watched_s else _waited_us(found)
    is_most = slept_us >= CODE_KIND_SHARE_MIN * sleeps.watched_s * 1e6
    pid = _pid_of(found, report)
    if not is_most or pid is None or not is_of_one_thread(report, pid):
        return None
    headline = _IS_ASLEEP.sub(f"sleeps in {found.call}", root.headline, count=1)
    if headline == root.headline:
        return None
    known, actions = _known_of(found), _in_code(root, found, report)
    if known is not None:
        return _with_known(root, found, known, actions, report)
    told_of = replace(root, headline=headline)
    return _told(told_of, found.code, _sleep_fact(found, report), actions)


def _with_known(
    root: Suspect, found: SleepCall, known: _Known, actions: Sequence[Action], report: Report
) -> Suspect:
    """By what a library waits for, where that is most of it."""
    wait, places = known
    fact = _sleep_fact(found, report)
    if wait.library is not None:
        return _of_turn(root, found, fact, wait, report)
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


def _by_known(place: CodePlace, wait: KnownSleep) -> CodePlace:
    """With the library's function that tells what for, where one that it called would be named."""
    at = wait.found_in(place.stack)
    if at is None or place.own not in place.stack[:at]:
        return place
    return replace(place, own=place.stack[at])


def _known_of(found: SleepCall) -> Optional[_Known]:
    return _known(found.code[:1]) or _known(found.code[1:])


def _of_turn(
    root: Suspect, found: SleepCall, fact: Evidence, wait: KnownSleep, report: Report
) -> Suspect:
    """Its turn comes when another request is done: with what those others do."""
    first = found.code[0]
    called = called_from(wait, first.stack)
    where = " ← ".join(called) if called else named(first)
    headline = f"{_waits_for(wait.waits_for, root.headline)}: {told(first, where)}"
    others = (each for each in found.code if known_sleep(each.stack) is None and each.own)
    goes_on = next(
        (each for each in others if _is_always_there(each, _waited_us(found), report)), None
    )
    if goes_on is not None:
        headline = f"{headline}; others meanwhile in {named(goes_on)}"
    return replace(
        root,
        headline=headline,
        evidence=(fact, *root.evidence),
        actions=choice.turn(report, _pid_of(found, report), wait.kind, where),
        code=tuple(found.code),
    )


def _is_always_there(
    place: CodePlace, slept_us: float, report: Report, least: float = WAITING_MIN
) -> bool:
    """At any moment so many threads are in it, on average."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    watched_us = sleeps.watched_s * 1e6 if sleeps is not None else 0.0
    return place.share_pct / 100 * slept_us >= least * watched_us > 0


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


def _parked_begin(root: Suspect, found: SleepCall) -> Optional[str]:
    """The headline as that of what waits inside; None: it tells another story.

    A loop that sleeps until an event or a timer sleeps for its tasks.
    """
    who, in_loop, goes_on = root.headline.partition(_SLEEPS_IN_LOOP)
    if in_loop:
        return f"{_PARKED[found.call or TASK]} of {who} {_WAIT_IN_GO}{goes_on}"
    return root.headline if _WAIT_IN_GO in root.headline else None


def _parked(root: Suspect, found: SleepCall, report: Report) -> Suspect:
    """Goroutines, tasks or async functions, for which no thread sleeps."""
    first, *others = found.code
    wait = _wait_of(found)
    if wait is None:
        return replace(root, evidence=(_sleep_fact(found, report), *root.evidence))
    holder = _holder(found)
    held = _held(holder)
    headline = root.headline.replace(_WAIT_IN_GO, f"{wait.does}{held} while ", 1)
    actions = (*choice.parked(wait, f"{named(first)}{held}"), *_without_looks(root, found))
    # What it waits for is said: by which function of the language is in the evidence.
    headline = f"{headline}: {told(first, first.own)}"
    goes_on = next((each for each in others if each.own is not None), None)
    if wait.is_turn and goes_on is not None and holder is None:
        headline = f"{headline}; others meanwhile in {named(goes_on)}"
    return replace(
        root,
        headline=headline,
        evidence=(_sleep_fact(found, report), *_held_fact(holder), *root.evidence),
        actions=actions,
        code=tuple(found.code),
    )


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


def _wait_of(found: SleepCall) -> Optional[ParkedWait]:
    """None where it is not known; of those that have no request to answer many wait for work."""
    if not found.owing_us or not found.code or found.code[0].own is None:
        return None
    if found.call == TASK:
        return _task_wait(found.code)
    if found.call == ASYNC_FUNCTION:
        return function_wait(found.code[0].stack)
    return goroutine_wait(found.code[0].stack)


def _tells(found: SleepCall, report: Report) -> bool:
    """It is known what it waits for, and that this is what requests wait for."""
    return _wait_of(found) is not None and not _may_be_for_bytes(found, report)


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


def _left_waiting(root: Suspect, report: Report) -> Suspect:
    """Goroutines that go on waiting are met all the same."""
    found = next(filter(is_parked, _sleep_calls(root, report)), None)
    wait = _wait_of(found) if found is not None and _tells(found, report) else None
    if found is None or wait is None or found.code[0].share_pct < 100 * CODE_KIND_SHARE_MIN:
        return root
    first = found.code[0]
    holder = _holder(found)
    waits = f"its {_PARKED[found.call or GOROUTINE]} {wait.does}{_held(holder)}"
    return replace(
        root,
        headline=f"{root.headline}; {waits}: {told(first, first.own)}",
        evidence=(*root.evidence, _sleep_fact(found, report), *_held_fact(holder)),
        actions=_without_looks(root, found),
        code=tuple(found.code),
    )


def _and_beyond(told_of: Suspect, found: SleepCall, report: Report) -> Suspect:
    """Of a lock, where somebody is at any moment who came the same way and has passed it."""
    first, service = found.code[0], whole_service(report)
    if _part(told_of) != "lock" or _kind(told_of, found.call) != "lock" or first.own is None:
        return told_of
    # Not all sleeps have callers that tell where they are of: those of locks are many and short.
    locked_us = _while_watched(_locked_us(service), service, report)
    for call in (each for each in _sleep_calls(told_of, report) if not is_parked(each)):
        slept_us = max(_waited_us(call), locked_us if call is found else 0.0)
        for place in call.code:
            is_beyond = first.own in place.stack[1:] and named(place) != named(first)
            if is_beyond and _is_always_there(place, slept_us, report, THREAD_BUSY_MIN):
                headline = f"{told_of.headline}; others meanwhile in {named(place)}"
                return replace(told_of, headline=headline)
    return told_of


def _and_tasks(told_of: Suspect, report: Report) -> Suspect:
    """Where nothing of its own sleeps: a thread of a pool, say, that its tasks wait for."""
    has_tasks = any(call.call in IN_LOOP for call in _sleep_calls(told_of, report))
    if told_of.code[0].own is not None or not has_tasks:
        return told_of
    return replace(_left_waiting(told_of, report), code=told_of.code)


def _without_looks(root: Suspect, found: SleepCall) -> Tuple[Action, ...]:
    """What is told need not be looked for."""
    looks = _LOOKS if found.call in IN_LOOP else ()
    return tuple(
        each
        for each in root.actions
        if not each.say.startswith(GOROUTINES_LOOK) and not (each.run or "").startswith(looks)
    )


def _says_nothing(found: SleepCall, root: Suspect) -> bool:
    """Its function is not known, or is where a loop waits for whatever comes."""
    place = found.code[0]
    waits_in_loop = _kind(root, found.call) == "event" and place.own is None
    return waits_in_loop or not is_known(place.stack[0])


def _is_mostly_idle(found: SleepCall, root: Suspect, report: Report) -> bool:
    """Threads slept there for far longer than requests wait for locks: where they wait for work."""
    service = whole_service(report)
    if report.stacks is None or report.stacks.sleeps is None or _part(root) != "lock":
        return False
    queued_us = service.stage_sums_us.get("recv_wait", 0.0)
    asked_us = _while_watched(_locked_us(service) + queued_us, service, report)
    return _waited_us(found) > WAITED_TIMES_REQUESTS_MAX * asked_us > 0


def _locked_us(service: Service) -> float:
    """Requests' waits for locks: what one thread receives and another answers is in no thread's
    account, and is told by who ended them."""
    return max(service.app_us("lock"), min(service.handed_us, locked_in_pool_us(service)))


def _while_watched(us: float, service: Service, report: Report) -> float:
    """Of what is of the whole window, the part of the time in which stacks were taken."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    if sleeps is None or not service.duration_s:
        return 0.0
    return us * sleeps.watched_s / service.duration_s


def _waits_for(what: str, headline: str) -> str:
    """In place of the call that it sleeps in, which is any that waits for something."""
    said = _SLEEPS_ON.sub(f"waits for {what} while ", headline, count=1)
    said = _IS_ASLEEP.sub(f"waits for {what}", said, count=1)
    return said if said != headline else f"{headline}, for {what}"


def _in_code(root: Suspect, found: SleepCall, report: Report) -> List[Action]:
    """What the function calls for, in place of the lines that would look for it."""
    pid = _pid_of(found, report)
    looks = [each for each in root.actions if _looks_for_sleep(each, pid, report)]
    kind, is_named = _kind(root, found.call), is_known(found.code[0].stack[0])
    # What ends a wait for events is known.
    if kind == "event" and any(each.metric == AUTHOR_SHARE for each in root.evidence):
        return [each for each in root.actions if each not in looks]
    if not looks or not (is_named or kind in _TOLD_BY_CALL):
        return list(root.actions)
    where = named(found.code[0]) if is_named else found.call or ""
    instead = choice.sleeps_in(report, pid, kind, found.call, where)
    others = [each for each in root.actions if each not in looks]
    at = root.actions.index(looks[0])
    return [*others[:at], *instead, *_holders(looks, kind), *others[at:]]


def _holders(looks: Sequence[Action], kind: str) -> List[Action]:
    """Who holds a lock Java tells itself."""
    return [each for each in looks if kind == "lock" and _JAVA_STACKS.fullmatch(each.run or "")]


def _kind(root: Suspect, call: Optional[str]) -> str:
    """Of sleep: by what ends it where that is known, else by its call."""
    if (root.subject or "").startswith(OWN_TIMER) or call in _FOR_TIME:
        return "sleep"
    kinds = (("lock", _FOR_LOCKS), ("event", _FOR_EVENTS))
    return next((kind for kind, calls in kinds if call in calls), "call")


def _pid_of(found: SleepCall, report: Report) -> Optional[int]:
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    processes = sleeps.processes if sleeps is not None else ()
    return next((each.pid for each in processes if found in each.calls), None)


def _faults_of(found: SleepCall, root: Suspect, report: Report) -> Optional[int]:
    """The process that sleeps in page faults, where its wait for the disk is that; else None."""
    stacks, pid = report.stacks, _pid_of(found, report)
    if stacks is None or found.call is not None or _part(root) != "disk":
        return None
    asleep = (each for each in stacks.stacks if each.pid == pid and each.on == "off-cpu")
    return pid if any(_PAGE_FAULT in each.frames for each in asleep) else None


def _told(
    root: Suspect, code: Sequence[CodePlace], fact: Evidence, actions: Sequence[Action]
) -> Suspect:
    return replace(
        root,
        headline=f"{root.headline}: {told(code[0])}",
        evidence=(fact, *root.evidence),
        actions=tuple(actions),
        code=tuple(code),
    )


def _sleep(root: Suspect, report: Report) -> Optional[SleepCall]:
    """The call that most of the time was slept in while requests waited, of the verdict's kind."""
    helpers = _helpers_sleep(root, report)
    if helpers is not None:
        return helpers
    calls = [call for call in _sleep_calls(root, report) if _is_of(call, _part(root))]
    parked = [call for call in calls if is_parked(call)]
    others = [call for call in calls if not is_parked(call)]
    # Of tasks it may not be known which have requests; the loop's sleep is known all the same.
    tells = [call for call in parked if call.call == GOROUTINE or _tells(call, report)]
    return max(tells or others, key=_waited_us, default=None)


def _sleep_of_most(root: Suspect, report: Report) -> Optional[SleepCall]:
    """Where a library's function tells what most of the processes wait for, the longest of that.

    Who ends the waits of the others, and is the subject then, sleeps for something else itself.
    """
    calls = [call for each in _asleep_in(root, report) for call in each.calls]
    calls = [call for call in calls if _is_of(call, _part(root))]
    spent: Dict[KnownSleep, List[SleepCall]] = {}
    for call in calls:
        known = _known_of(call)
        if known is not None and known[0].library is None:
            spent.setdefault(known[0], []).append(call)
    most = max(spent.values(), key=lambda each: sum(map(_waited_us, each)), default=[])
    if sum(map(_waited_us, most)) < CODE_KIND_SHARE_MIN * sum(map(_waited_us, calls)):
        return None
    return max(most, key=_waited_us, default=None)


def _asleep_in(root: Suspect, report: Report) -> List[ProcessSleep]:
    """Of the service that the verdict is about."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    processes = sleeps.processes if sleeps is not None else ()
    return [each for each in processes if not root.pids or each.pid in root.pids]


def _helpers_sleep(root: Suspect, report: Report) -> Optional[SleepCall]:
    """Of a process that serves nobody and keeps who serves waiting: the call that it did so in.

    In others it waits for work.
    """
    named = subject_pids(report, root.subject)
    if any(row.pid in named for row in report.requests.served_by or ()):
        return None
    ended = [each for row in report.waits or () for each in (*row.roots, *row.authors)]
    did = [each for each in ended if each.pid in named and each.by == "thread" and each.call]
    most = max(did, key=lambda each: each.total_us, default=None)
    if most is None:
        return None
    return next((call for call in _sleep_calls(root, report) if call.call == most.call), None)


def _sleep_calls(root: Suspect, report: Report) -> List[SleepCall]:
    """Of the process that the verdict is about."""
    asked = _asleep_in(root, report)
    named = subject_pids(report, root.subject)
    mine = [each for each in asked if each.pid in named] or asked[:1]
    return [call for each in mine for call in each.calls]


def _part(root: Suspect) -> Optional[str]:
    """Of request time that the cause is about: the first that its evidence tells."""
    return next((_PARTS[each.metric] for each in root.evidence if each.metric in _PARTS), None)


def _is_of(call: SleepCall, part: Optional[str]) -> bool:
    name = call.call or ""
    if call.call in IN_LOOP:
        return part is None or part == "timer"
    if is_parked(call):
        return part is None or part in IN_GOROUTINES
    if part is not None and part in _CALLS:
        return name in _CALLS[part]
    others = _FOR_EVENTS | _FOR_PEERS | (_FOR_LOCKS if part is not None else frozenset())
    return name not in others


def _waited_us(call: SleepCall) -> float:
    return call.total_us if call.owing_us is None else call.owing_us


def _sleep_fact(found: SleepCall, report: Report) -> Evidence:
    place = found.code[0]
    if is_parked(found):
        one = f"waiting {(found.call or GOROUTINE)}"
        says = f"{told(place)}, of {count(found.count, one)} met"
        return evidence("code_share", place.share_pct / 100, "of 1", says)
    where = "" if found.call is None else f" in {found.call}()"
    lacking = f", outer callers of {found.truncated:,} not found" if found.truncated else ""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    lacking += f", {sleeps.lost:,} more lost" if sleeps is not None and sleeps.lost else ""
    says = (
        f"{told(place)}, of {count(found.count, 'sleep')}{where}, "
        f"{duration(found.owing_us or found.total_us)} together{lacking}"
    )
    return evidence("code_share", place.share_pct / 100, "of 1", says)


def _names(found: ProcessCode, report: Report) -> Tuple[Action, ...]:
    """How to get the names of what a runtime makes, where it has written none."""
    if _is_named(found.pid, report):
        return ()
    return choice.code_names(report, found.pid, is_nameless=found.code[0].function is None)


def _is_named(pid: Optional[int], report: Report) -> bool:
    """What it makes at run time, or interprets, has names."""
    return report.stacks is not None and pid in report.stacks.mapped_pids


def _profiles(action: Action, pid: int, report: Report) -> bool:
    """It would show once more what is known."""
    return (action.run or "").startswith(_PROFILER) or _asks_runtime(action, pid, report)


def _looks_for_sleep(action: Action, pid: Optional[int], report: Report) -> bool:
    """The same of sleep."""
    return (action.run or "").startswith(_WHERE_IT_SLEEPS) or _asks_runtime(action, pid, report)


def _asks_runtime(action: Action, pid: Optional[int], report: Report) -> bool:
    """For stacks of its threads, which are known."""
    run = action.run or ""
    asks = run.startswith((_PYTHON_STACKS, _RUBY_STACKS)) or _JAVA_STACKS.fullmatch(run) is not None
    return asks and _is_named(pid, report)


def told(place: CodePlace, name: Optional[str] = None) -> str:
    """`71 % in pbkdf2Sync ← verify (auth.js:12)`; a small part is not all there is.

    Args:
        name: of the function; None: as `named` has it.
    """
    said = f"{percent(place.share_pct / 100)} in {name or named(place)}"
    is_small = place.share_pct < 100 * CODE_LARGE_SHARE_MIN
    return f"{said}, the rest in many others" if is_small else said


def named(place: CodePlace) -> str:
    """`pbkdf2Sync ← verify (auth.js:12)`."""
    if place.function is None and place.module == JIT:
        caller = f" ← {place.own}" if place.own in place.stack[1:] else ""
        return f"code made at run time, without names{caller}"
    # The module is said of the last one only, unless it is all there is to say.
    names = [*place.stack[:1], *_caller(place)]
    if len(names) > 1 and place.function is not None and not _has_source(place):
        names[0] = brief(place.function)
    if not is_known(names[0]):
        names[0] = f"a function that is {names[0]}"
    return " ← ".join(names)


def _has_source(place: CodePlace) -> bool:
    """It is in a script, or in a source file of the program's own."""
    is_own = place.file is not None and place.own == place.stack[0]
    return is_own or (is_script(place.file) and place.file not in IN_C)


def _caller(place: CodePlace) -> Tuple[str, ...]:
    """The program's own function, or where that is the place the nearest caller that is known;
    `…` stands for those between.
    """
    outwards = place.stack[1:]
    # The C library's way to the kernel's code in the process has its name, too.
    if outwards and outwards[0] != place.stack[0] and place.function == bare(outwards[0]):
        outwards = outwards[1:]
    told_of = (each for each in outwards if is_known(each) and not _is_below_all(bare(each)))
    known = next(told_of, None)
    if place.own is not None and place.own in outwards:
        known = place.own
    if known is None:
        return tuple(each for each in outwards[:1] if bare(each) not in MODULES)
    return (known,) if known == outwards[0] else ("…", known)


def _is_below_all(function: str) -> bool:
    return is_beginning(function) or function in MODULES


def is_known(named: str) -> bool:
    """Whether a function of a stack has a name."""
    return not named.startswith(NOT_KNOWN)


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
    lacking += f", {found.in_sockets:,} more in socket calls" if found.in_sockets else ""
    own = found.samples - found.in_sockets
    says = f"{told(place)}, of {count(own, 'sample')}{lacking}"
    return evidence("code_share", place.share_pct / 100, "of 1", says)
