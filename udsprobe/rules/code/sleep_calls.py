"""The calls that processes slept in, as far as a verdict is about them."""

from __future__ import annotations

from typing import Container, FrozenSet, List, Mapping, Optional

from udsprobe.model.code.sleeps import FOR_BYTES, IN_LOOP, is_parked
from udsprobe.model.code.stacks import subject_pids
from udsprobe.model.report import CodePlace, Evidence, ProcessSleep, Report, SleepCall
from udsprobe.rules.accounts.service import Service, services, whole_service
from udsprobe.rules.code.words import told
from udsprobe.rules.servers import IN_GOROUTINES
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import WAITING_MIN
from udsprobe.rules.wording import OWN_TIMER, count, duration, evidence
from udsprobe.sample import GOROUTINE

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
FOR_LOCKS = frozenset(
    ("futex", "futex_wait", "futex_waitv", "flock", "fcntl", "semop", "semtimedop")
)
"""Calls in which a thread waits for a lock."""

# By the part of request time that it makes up (rules/accounts/request_time.py).
_CALLS: Mapping[str, FrozenSet[str]] = {"lock": FOR_LOCKS, "timer": _FOR_EVENTS}
_PARTS = {f"app_{name}_us": name for name in ("lock", "disk", "timer", "sleep")}


def asleep_in(root: Suspect, report: Report) -> List[ProcessSleep]:
    """Of the service that the verdict is about."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    processes = sleeps.processes if sleeps is not None else ()
    return [each for each in processes if not root.pids or each.pid in root.pids]


def sleep_calls(root: Suspect, report: Report) -> List[SleepCall]:
    """Of the process that the verdict is about."""
    asked = asleep_in(root, report)
    named = subject_pids(report, root.subject)
    mine = [each for each in asked if each.pid in named] or asked[:1]
    return [call for each in mine for call in each.calls]


def ended_in(pids: Container[Optional[int]], root: Suspect, report: Report) -> List[SleepCall]:
    """The call in which threads of these processes slept most until they ended others' waits."""
    ended = [each for row in report.waits or () for each in (*row.roots, *row.authors)]
    did = [each for each in ended if each.pid in pids and each.by == "thread" and each.call]
    most = max(did, key=lambda each: each.total_us, default=None)
    calls = sleep_calls(root, report) if most is not None else []
    return [call for call in calls if most is not None and call.call == most.call][:1]


def service_of(root: Suspect, report: Report) -> Service:
    """Of a chain of servers the one that it is about; else all targets."""
    chain = (each for each in services(report) if root.pids and each.pids == root.pids)
    return next(chain, whole_service(report))


def while_watched(us: float, service: Service, report: Report) -> float:
    """Of what is of the whole window, the part of the time in which stacks were taken."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    if sleeps is None or not service.duration_s:
        return 0.0
    return us * sleeps.watched_s / service.duration_s


def part_of(root: Suspect) -> Optional[str]:
    """Of request time that the cause is about: the first that its evidence tells."""
    return next((_PARTS[each.metric] for each in root.evidence if each.metric in _PARTS), None)


def is_of(call: SleepCall, part: Optional[str]) -> bool:
    """It is of that part of request time; None: of any part that is a wait."""
    name = call.call or ""
    if call.call in FOR_BYTES:
        return False
    if call.call in IN_LOOP:
        return part is None or part == "timer"
    if is_parked(call):
        return part is None or part in IN_GOROUTINES
    if part is not None and part in _CALLS:
        return name in _CALLS[part]
    others = _FOR_EVENTS | _FOR_PEERS | (FOR_LOCKS if part is not None else frozenset())
    return name not in others


def kind_of(root: Suspect, call: Optional[str]) -> str:
    """Of sleep: by what ends it where that is known, else by its call."""
    if (root.subject or "").startswith(OWN_TIMER) or call in _FOR_TIME:
        return "sleep"
    kinds = (("lock", FOR_LOCKS), ("event", _FOR_EVENTS))
    return next((kind for kind, calls in kinds if call in calls), "call")


def pid_of(found: SleepCall, report: Report) -> Optional[int]:
    """The process that slept so; None: it is not known."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    processes = sleeps.processes if sleeps is not None else ()
    return next((each.pid for each in processes if found in each.calls), None)


def waited_us(call: SleepCall) -> float:
    """While requests waited, in µs; where that is not known, all."""
    return call.total_us if call.owing_us is None else call.owing_us


def sleep_fact(found: SleepCall, report: Report) -> Evidence:
    """How much of it was in its first place."""
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


def is_always_there(
    place: CodePlace, slept_us: float, report: Report, least: float = WAITING_MIN
) -> bool:
    """At any moment so many threads are in it, on average."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    watched_us = sleeps.watched_s * 1e6 if sleeps is not None else 0.0
    return place.share_pct / 100 * slept_us >= least * watched_us > 0
