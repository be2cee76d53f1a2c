"""Stacks of the window → what of them ran, and what slept."""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.code.frames import frames_of
from udsprobe.model.code.places import Row, by_self, places
from udsprobe.model.code.sleeps import of_threads, sleeping_processes
from udsprobe.model.counters import grown, grown_by_key
from udsprobe.model.report import CodeStack, ProcessCode, Report, Sleeps, Stacks
from udsprobe.sample import Sample, StackCounts, StackReading

STACKS_SHOWN_MAX = 200
CPU, OFF_CPU = "cpu", "off-cpu"
_MOVES = "sys_socket"
# Of the time that a thread slept: others waited for that long until it woke them.
_AWAITED_MIN = 0.5
_NS_PER_S, _NS_PER_US = 1_000_000_000, 1000


def stacks(first: Sample, last: Sample) -> Optional[Stacks]:
    """The stacks of the window; None when none were taken in it."""
    if last.stacks is None:
        return None
    before = first.stacks
    on_ns = grown("stacks on_ns", last.stacks.on_ns, 0 if before is None else before.on_ns)
    rows = _grown(before, last.stacks)
    if not on_ns and not rows:
        return None
    running = [row for row in rows if row.on == CPU]
    asleep = [row for row in rows if row.on == OFF_CPU]
    return Stacks(
        hz=last.stacks.hz,
        sampled_s=on_ns / _NS_PER_S,
        samples=sum(row.samples for row in running),
        lost=grown("stacks lost", last.stacks.lost, 0 if before is None else before.lost),
        truncated=sum(row.truncated for row in running),
        pids=sorted({row.pid for row in rows}),
        mapped_pids=list(last.stacks.mapped_pids),
        unwinds=last.stacks.unwinds,
        processes=_processes(running),
        functions=by_self(running),
        stacks=[*_most(running), *_most(asleep)],
        stacks_total=len(rows),
        sleeps=sleeps(before, last.stacks, asleep, _idle(first, last, asleep)),
    )


def _most(rows: Sequence[Row]) -> List[CodeStack]:
    ranked = sorted(rows, key=lambda row: (-row.weight, row.pid, row.text))
    return [_shown(row) for row in ranked[:STACKS_SHOWN_MAX]]


def sleeps(
    before: Optional[StackReading],
    after: StackReading,
    rows: Sequence[Row],
    moved_none: FrozenSet[int] = frozenset(),
) -> Optional[Sleeps]:
    """None when nobody watched for sleeps in the window.

    Args:
        moved_none: ids of the threads there that moved no byte of a socket in it.
    """
    watched_ns = grown(
        "stacks asleep_on_ns", after.asleep_on_ns, 0 if before is None else before.asleep_on_ns
    )
    if not watched_ns and not rows:
        return None
    lost = grown("sleeps lost", after.waits_lost, 0 if before is None else before.waits_lost)
    slept = of_threads(rows)
    return Sleeps(
        watched_s=watched_ns / _NS_PER_S,
        count=sum(row.samples for row in slept),
        lost=lost,
        truncated=sum(row.truncated for row in slept),
        total_us=_us(sum(row.slept_ns for row in slept)),
        processes=sleeping_processes(rows, sees_owing=after.sees_owing, moved_none=moved_none),
    )


def every_stack(first: Sample, last: Sample, on: str = CPU) -> List[CodeStack]:
    """All stacks of the window, not only those that a report shows; the dearest first."""
    if last.stacks is None:
        return []
    rows = [row for row in _grown(first.stacks, last.stacks) if row.on == on]
    return [_shown(row) for row in sorted(rows, key=lambda row: (-row.weight, row.text))]


def subject_pids(report: Report, subject: Optional[str]) -> FrozenSet[int]:
    """The process that a verdict's subject names; none where it names none."""
    if subject is None or report.time is None:
        return frozenset()
    threads = (t.pid for t in report.time.threads if subject == f"{t.comm} thread {t.tid}")
    processes = (p.pid for p in report.time.processes if subject == f"{p.comm} {p.pid}")
    return frozenset({*threads, *processes})


def culprit_pids(report: Report) -> FrozenSet[int]:
    """The process that the verdict is about; all targets where it names none.

    Where it names who ends the waits of others, those that serve as well: what they wait for, their
    own stacks tell. Where these wait for an upstream, they are it.
    """
    verdict = report.verdict
    running = frozenset(each.pid for each in report.targets if each.state == "running")
    named = subject_pids(report, verdict.subject if verdict is not None else None)
    serving = running & {row.pid for row in report.requests.served_by or () if row.count}
    if verdict is not None and verdict.cause == "upstream-wait":
        return (serving - named) or running
    if not named or verdict is None or verdict.cause != "app-blocked":
        return named or running
    return named | serving


def ran(first: Sample, last: Sample) -> List[Row]:
    """What ran in the window."""
    rows = [] if last.stacks is None else _grown(first.stacks, last.stacks)
    return [row for row in rows if row.on == CPU]


def _grown(before: Optional[StackReading], after: StackReading) -> List[Row]:
    known: Dict[Tuple[int, str, str, str], StackCounts] = {
        _key(each): each for each in (before.stacks if before else ())
    }
    rows = [_row(known.get(_key(each)), each) for each in after.stacks]
    return [row for row in rows if row.samples or row.slept_ns]


def _key(counts: StackCounts) -> Tuple[int, str, str, str]:
    return counts.pid, counts.on, counts.call, counts.frames


def _row(was: Optional[StackCounts], now: StackCounts) -> Row:
    samples = grown("stack samples", now.samples, was.samples if was else 0)
    slept_ns = grown("stack time", now.slept_ns, was.slept_ns if was else 0)
    return Row(
        pid=now.pid,
        on=now.on,
        call=now.call,
        text=now.frames,
        frames=frames_of(now.frames),
        samples=samples,
        truncated=grown("stacks truncated", now.truncated, was.truncated if was else 0),
        slept_ns=slept_ns,
        owing_ns=grown("stack time", now.owing_ns, was.owing_ns if was else 0),
        weight=samples if now.on == CPU else slept_ns,
        owing=_owing(was, now),
        threads=grown_by_key("stack samples", now.threads, was.threads if was else {}),
        held_by=grown_by_key("waits for locks", now.held_by, was.held_by if was else {}),
    )


def _owing(was: Optional[StackCounts], now: StackCounts) -> Optional[int]:
    if now.owing_samples is None:
        return None
    return grown("stack samples", now.owing_samples, (was.owing_samples or 0) if was else 0)


def _processes(rows: Sequence[Row]) -> List[ProcessCode]:
    by_pid: Dict[int, List[Row]] = {}
    for row in rows:
        by_pid.setdefault(row.pid, []).append(row)
    return [
        ProcessCode(
            pid=pid,
            samples=sum(row.samples for row in own),
            truncated=sum(row.truncated for row in own),
            code=places(own),
        )
        for pid, own in sorted(by_pid.items(), key=lambda item: -sum(r.samples for r in item[1]))
    ]


def _shown(row: Row) -> CodeStack:
    return CodeStack(
        pid=row.pid,
        on=row.on,
        samples=row.samples,
        truncated=row.truncated > 0,
        frames=[frame.named() for frame in row.frames],
        total_us=None if row.on == CPU else _us(row.slept_ns),
    )


def _idle(first: Sample, last: Sample, rows: Sequence[Row]) -> FrozenSet[int]:
    """Threads that move no byte, and do not work for those that do: a request is handed to an
    executor's thread, which sleeps for it and wakes who replies."""
    before = {each.tid: each.activity_ns for each in first.threads or ()}
    moved_none = frozenset(
        each.tid
        for each in last.threads or ()
        if each.activity_ns.get(_MOVES, 0) <= before.get(each.tid, {}).get(_MOVES, 0)
    )
    slept: Counter[int] = Counter()
    for row in rows:
        slept.update(row.threads)
    ended = _ended_ns(first, last, moved_none)
    return frozenset(
        tid for tid in moved_none if not ended[tid] or ended[tid] < _AWAITED_MIN * slept[tid]
    )


def _ended_ns(first: Sample, last: Sample, moved_none: FrozenSet[int]) -> Counter[int]:
    """Thread that moved no byte → how long others, which did, waited until it woke them."""
    ended: Counter[int] = Counter()
    for sample, sign in ((last, 1), (first, -1)):
        for row in sample.waits or ():
            if row.author_tid in moved_none and row.tid not in moved_none:
                ended[row.author_tid] += sign * sum(part.total_ns for part in row.parts)
    return ended


def _us(ns: int) -> float:
    return ns / _NS_PER_US
