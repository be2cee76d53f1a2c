"""Threads that get what others received: they move no byte, and sleep for requests all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from tests.unit import reports
from tests.unit.test_code_places import (
    JAVA_NAP,
    LOCK,
    found,
    in_futex,
    line,
    reading,
    reports_sample,
    suspect,
)
from tests.unit.test_model_waits import ended
from udsprobe.model.action import by_hand
from udsprobe.model.code.stacks import stacks
from udsprobe.rules.accounts.authors import AUTHOR_SHARE
from udsprobe.rules.code_places import with_code
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.sample import StackCounts, ThreadActivities

SERVING, EXECUTOR = 5, 98
NAP = replace(in_futex(JAVA_NAP, 900), threads={EXECUTOR: 900_000_000})
TURN = replace(in_futex([line(*frame) for frame in LOCK], 300), threads={SERVING: 300_000_000})


def told(ended_ms: int) -> Tuple[str, ...]:
    """Where the process sleeps; the executor's thread ended so much of what the other waited."""
    woken = ended(SERVING, by=EXECUTOR, lock=ended_ms * 1000)
    first, last = (
        replace(
            reports_sample(),
            stacks=replace(reading(NAP, TURN), asleep_on_ns=ns),
            waits=(woken,),
            threads=tuple(
                ThreadActivities(1, tid, "x", {"sys_socket": ns if tid == SERVING else 7})
                for tid in (SERVING, EXECUTOR)
            ),
        )
        for ns in (0, 10**9)
    )
    nothing = replace(first, stacks=replace(reading(), asleep_on_ns=0), waits=())
    made = stacks(nothing, last)
    assert made is not None and made.sleeps is not None
    (call,) = made.sleeps.processes[0].calls
    return tuple(each.function for each in call.code)


@pytest.mark.parametrize(("ended_ms", "expected"), [(100, False), (700, True)])
def test_who_wakes_those_that_reply_sleeps_for_their_requests(
    ended_ms: int, expected: bool
) -> None:
    assert ("java.lang.Thread.sleep" in told(ended_ms)) is expected


def polling(ms: int) -> StackCounts:
    select = "sun.nio.ch.SelectorImpl.select\t[jit]\tSelectorImpl.java\t139"
    poller = "org.apache.tomcat.util.net.NioEndpoint$Poller.run\t[jit]\tNioEndpoint.java\t745"
    return replace(in_futex((poller, select), ms), call="epoll_wait")


def asleep(nap_ms: int, polling_ms: int) -> Suspect:
    one = replace(
        suspect("app-blocked", "app_timer_us"),
        headline="java sleeps on a timer, or an event in its poller while requests wait",
    )
    told_of = found(polling(polling_ms), in_futex(JAVA_NAP, nap_ms))
    report = replace(reports.measured(), stacks=told_of, targets=[reports.target(1, "java")])
    return with_code(one, report)


def test_a_sleep_of_an_executor_is_told_and_not_the_poller_beside_it() -> None:
    """Tomcat's poller sleeps meanwhile; that Java's sleep is a wait for a futex is no matter."""
    where = "java.lang.Thread.sleep (Thread.java) ← Shop.pay (Shop.java:6)"
    one = asleep(nap_ms=8_000, polling_ms=5_000)
    assert one.headline == f"java sleeps on a timer (futex) while requests wait: 100 % in {where}"
    assert "Thread.sleep" not in asleep(nap_ms=1_000, polling_ms=5_000).headline


def test_a_wait_for_events_keeps_the_only_thing_to_do() -> None:
    """Who ended it is known, and nothing more to do: a loop of R, which its own thread wakes."""
    looks = remedies("sleeps", pid=1)
    one = replace(suspect("app-blocked", "app_timer_us", AUTHOR_SHARE), actions=looks)
    report = replace(reports.measured(), stacks=found(polling(5_000)))
    assert with_code(one, report).actions == looks
    raised = by_hand("raise the number of workers", "they wait")
    assert with_code(replace(one, actions=(*looks, raised)), report).actions == (raised,)
