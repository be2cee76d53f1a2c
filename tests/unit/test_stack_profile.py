"""Sleeps of more threads than one stack tells apart."""

from __future__ import annotations

import os

from udsprobe.kernel.stacks.raw_stacks import Came, RawStack, Registers, SleepBegan, SleepTime
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
