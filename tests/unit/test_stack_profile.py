"""Sleeps of more threads than one stack tells apart."""

from __future__ import annotations

import os

import pytest

from udsprobe.kernel.stacks.raw_stacks import Came, RawStack, Registers, SleepBegan, SleepTime
from udsprobe.kernel.stacks.runtimes import Runtimes
from udsprobe.symbols import stack_profile
from udsprobe.symbols.stack_profile import THREADS_MAX, StackProfile

NS = 1_000


def began(tid: int) -> SleepBegan:
    stack = RawStack(os.getpid(), tid, (), (), Registers(0, 0, 0, 0), b"", -1, is_owing=False)
    return SleepBegan((tid, 1), False, stack)


def slept(tid: int, *, has_ended: bool) -> SleepTime:
    return SleepTime((tid, 1), NS * tid, has_ended)


def test_what_was_told_of_a_thread_only_grows() -> None:
    profile, tids = StackProfile(), range(1, THREADS_MAX + 10)
    profile.add(Came([began(tid) for tid in tids], []))
    before = profile.counts()[0]
    for done in (False, True):
        for tid in reversed(tids):
            profile.add(Came([slept(tid, has_ended=done)], []))
            (now,) = profile.counts()
            assert all(now.threads.get(tid, 0) >= ns for tid, ns in before.threads.items())
            before = now
    profile.close()
    assert before.slept_ns == NS * sum(tids)
    assert before.threads == {tid: NS * tid for tid in sorted(tids)[-THREADS_MAX:]}


def test_what_comes_in_parts_counts_as_much_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are counted before the interval is over, and all of them a few at a time."""
    whole, parts, tids = StackProfile(), StackProfile(), range(1, THREADS_MAX)
    events = [*map(began, tids), *(slept(tid, has_ended=tid % 2 == 0) for tid in tids)]
    whole.add(Came(list(events), []))
    monkeypatch.setattr(stack_profile, "AT_ONCE", 7)
    parts.add_some(Came(events[:20], []))
    parts.add_some(Came([], []))
    parts.add(Came(events[20:], []))
    assert parts.counts() == whole.counts()
    whole.close()
    parts.close()


def test_of_very_many_processes_not_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the same ones again and again: each would have to read what it has mapped."""
    monkeypatch.setattr(stack_profile, "PROCESSES_MAX", 2)
    profile = StackProfile()
    found = [profile.runtimes_of(pid) for pid in (os.getpid(), 0, os.getppid(), os.getpid())]
    profile.close()
    assert found[1:3] == [Runtimes(), None]
    assert found[0] == found[3] is not None and found[0].python is not None
