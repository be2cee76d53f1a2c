"""Where other threads of a process are all the time, while requests wait in its idle loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List

from udsprobe.model.code.sleeps import is_parked
from udsprobe.model.report import Report, SleepCall
from udsprobe.rules.code.sleep_calls import is_of, sleep_calls, sleep_fact
from udsprobe.rules.code.words import named
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import WAITING_MIN

# One alone may be at work of its own, as what reports figures now and then.
_THREADS_MIN = 2


@dataclass(frozen=True)
class _Held:
    """`threads`: so many are in the first place of `call` at any moment, on average."""

    call: SleepCall
    threads: float


def held_elsewhere(root: Suspect, report: Report) -> Suspect:
    """The cause with the function that several threads are in all the time: a pool that has no
    thread left, as where streams of gRPC hold each of its workers."""
    found = max(_held(root, report), key=lambda each: each.threads, default=None)
    if found is None:
        return root
    where = named(found.call.code[0])
    threads = f"{found.threads:.0f} of its threads"
    return replace(
        root,
        headline=f"{root.headline}; {threads} are all the time in {where}",
        evidence=(*root.evidence, sleep_fact(found.call, report)),
        actions=(*choice.held_threads(report, root.pids or None, where), *root.actions),
        code=tuple(found.call.code),
    )


def _held(root: Suspect, report: Report) -> List[_Held]:
    """In the program's own functions, and in no wait for events, peers or work."""
    sleeps = report.stacks.sleeps if report.stacks is not None else None
    if sleeps is None or not sleeps.watched_s:
        return []
    found = (
        _Held(call, call.code[0].share_pct / 100 * call.total_us / 1e6 / sleeps.watched_s)
        for call in sleep_calls(root, report)
        if is_of(call, None) and not is_parked(call) and call.code and call.code[0].own
    )
    return [each for each in found if each.threads >= WAITING_MIN * _THREADS_MIN]
