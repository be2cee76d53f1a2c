"""Rows of sleeps → in which calls, and called from where, processes sleep while requests wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Dict, FrozenSet, Iterable, List, Sequence, Tuple

from udsprobe.model.code.asked_in import asked_in
from udsprobe.model.code.at_rest import has_no_task
from udsprobe.model.code.frames import (
    KERNEL,
    Frame,
    as_called,
    as_parked,
    is_installed,
    is_languages,
    is_of_a_runtime,
    is_own,
)
from udsprobe.model.code.lock_holders import lock_holders
from udsprobe.model.code.places import HOT_PATH_MIN, Idle, Row, places
from udsprobe.model.report import CodePlace, ProcessSleep, SleepCall
from udsprobe.sample import (
    ASYNC_FUNCTION,
    GOROUTINE,
    GOROUTINE_FOR_BYTES,
    TASK,
    TASK_FOR_BYTES,
)

_NS_PER_US = 1000
_OF_GO = frozenset((GOROUTINE, GOROUTINE_FOR_BYTES))
IN_LOOP = frozenset((TASK, TASK_FOR_BYTES, ASYNC_FUNCTION))
"""What waits for one another in an event loop, whose thread sleeps for them."""

PARKED = _OF_GO | IN_LOOP
"""In place of a call: what waited is no thread."""

FOR_BYTES = frozenset((GOROUTINE_FOR_BYTES, TASK_FOR_BYTES))
"""Of these what has a request and waits for another program's answer to one of its own."""

FOR_ANSWERS = FOR_BYTES | {
    *("read", "readv", "recvfrom", "recvmsg", "poll", "ppoll", "select", "pselect6"),
    *(TASK, ASYNC_FUNCTION),
}
"""Calls in which what has a request may wait for the answer to one of its own."""

WAITS_FOR_WORK = frozenset(
    (
        *("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"),
        *("io_uring_enter", "futex", "accept", "accept4", "recvfrom", "recvmsg", "read"),
        *("clock_nanosleep", "nanosleep", "semop", "semtimedop", "rt_sigtimedwait", "wait4"),
    )
)
"""Calls that a program without anything to do sleeps in."""

# Of the time that requests waited: where they do so in a call, who serves them sleeps in it. One in
# the background that sleeps in it all the time tells how long that was.
_WAITED_IN_MIN = 0.1


def is_parked(call: SleepCall) -> bool:
    """Goroutines, tasks of asyncio or async functions waited there, and no thread."""
    return call.call in PARKED


def sleeping_processes(
    rows: Sequence[Row], *, sees_owing: bool, moved_none: FrozenSet[int] = frozenset()
) -> List[ProcessSleep]:
    """The processes that slept, those with requests to answer first.

    Of sleeps in one call those of threads that may serve are told, where there are any: a program
    has others in the background, which sleep all the time. One that has ended may have served.

    Args:
        moved_none: ids of the threads that are there and have moved no byte of a socket.
    """
    by_pid: Dict[int, List[Row]] = {}
    for row in rows:
        by_pid.setdefault(row.pid, []).append(row)
    idle = _idle(rows) if sees_owing else []
    found = [
        ProcessSleep(
            pid=pid,
            count=sum(row.samples for row in threads),
            total_us=_us(sum(row.slept_ns for row in threads)),
            owing_us=_us(sum(row.owing_ns for row in threads)) if sees_owing else None,
            calls=_calls(own, idle, moved_none, sees_owing=sees_owing),
        )
        for pid, own in sorted(by_pid.items())
        for threads in (of_threads(own),)
    ]
    return sorted(found, key=lambda each: (-_owing_us(each), -each.total_us))


def of_threads(rows: Sequence[Row]) -> List[Row]:
    """Without goroutines, tasks and the like that waited: these are none of the kernel's sleeps."""
    return [row for row in rows if row.call not in PARKED]


def _owing_us(process: ProcessSleep) -> float:
    return sum(call.owing_us or 0.0 for call in process.calls)


def _idle(rows: Iterable[Row]) -> List[List[Frame]]:
    """The innermost first, as the programs called them."""
    waits = [row for row in rows if row.call in WAITS_FOR_WORK and not row.owing_ns]
    return [list(reversed(as_called(row.frames))) for row in waits]


def _calls(
    rows: Sequence[Row], idle: Idle, moved_none: FrozenSet[int], *, sees_owing: bool
) -> List[SleepCall]:
    by_call: Dict[str, List[Row]] = {}
    rows = [each for each in rows if not has_no_task(each.frames)]
    # Where a runtime's own threads sleep, the program did not call; unless nothing else slept.
    for row in [each for each in rows if not is_of_a_runtime(each.frames)] or rows:
        by_call.setdefault(row.call, []).append(row)
    told = {call: _but_of(own, moved_none) for call, own in by_call.items()}
    found = [
        SleepCall(
            call=call or None,
            count=sum(row.samples for row in own),
            truncated=sum(row.truncated for row in own),
            total_us=_us(sum(row.slept_ns for row in own)),
            owing_us=_us(sum(row.owing_ns for row in own)) if sees_owing else None,
            code=code,
            held_by=lock_holders(called, code),
            asked_in=asked_in(called) if call in FOR_ANSWERS else [],
        )
        for call, own in sorted(told.items())
        for called in [_as_called(own)]
        for code in [_of_program(called, places(called, idle))]
    ]
    return sorted(found, key=lambda each: (-(each.owing_us or 0.0), -each.total_us))


def _of_program(rows: Sequence[Row], code: Sequence[CodePlace]) -> List[CodePlace]:
    """Of these the program's own function is none of an installed package, where there is one.

    Frameworks and clients of asyncio are such, and most of a task's stack are theirs.
    """
    if any(row.call not in IN_LOOP for row in rows):
        return list(code)
    own = {
        frame.named()
        for row in rows
        for frame in row.frames
        if is_own(frame) and frame.of_script and not is_installed(frame)
    }
    return [
        replace(each, own=next((name for name in each.stack if name in own), each.own))
        for each in code
    ]


def _but_of(rows: Sequence[Row], tids: FrozenSet[int]) -> Sequence[Row]:
    """The part of all other threads; all where no request waited in theirs. Of sleeps too many to
    be told one by one it is not known whose they are."""
    parts = [(row, sum(ns for tid, ns in row.threads.items() if tid not in tids)) for row in rows]
    if not any(ns for _, ns in parts):
        return rows
    others = [
        _part_of(row, ns) if row.threads else row for row, ns in parts if ns or not row.threads
    ]
    slept_owing_ns = sum(row.owing_ns for row in others)
    return others if slept_owing_ns >= _WAITED_IN_MIN * _longest_owing_ns(rows, tids) else rows


def _longest_owing_ns(rows: Sequence[Row], tids: FrozenSet[int]) -> float:
    """Of these threads' sleeps while requests waited, those of the one with most of them."""
    owing: Counter[int] = Counter()
    for row in rows:
        for tid, ns in row.threads.items():
            if tid in tids and row.slept_ns:
                owing[tid] += round(row.owing_ns * ns / row.slept_ns)
    return max(owing.values(), default=0)


def _part_of(row: Row, ns: int) -> Row:
    share = min(1.0, ns / row.slept_ns) if row.slept_ns else 1.0
    samples = max(1, round(row.samples * share))
    return row._replace(
        samples=samples,
        truncated=min(row.truncated, samples),
        slept_ns=round(row.slept_ns * share),
        owing_ns=round(row.owing_ns * share),
        weight=round(row.weight * share),
    )


def _as_called(rows: Sequence[Row]) -> List[Row]:
    """As the program called it, by the time in which requests waited where there is any."""
    owing = any(row.owing_ns for row in rows)
    weighed = [row._replace(weight=row.owing_ns if owing else row.slept_ns) for row in rows]
    if all(row.call in _OF_GO for row in weighed):
        return [row._replace(frames=as_parked(row.frames)) for row in weighed]
    if all(row.call in IN_LOOP for row in weighed):
        return weighed
    entries = _entries(weighed)
    return [row._replace(frames=_entered(as_called(row.frames), entries)) for row in weighed]


def _entries(rows: Iterable[Row]) -> Dict[Frame, Frame]:
    """Function of a language that sleeps → the one of it that is mostly called for that."""
    ways: Dict[Frame, Counter[Frame]] = {}
    for row in rows:
        own = [frame for frame in row.frames if frame.module != KERNEL]
        if len(own) > 1 and is_languages(own[-1]):
            ways.setdefault(own[-1], Counter())[as_called(row.frames)[-1]] += row.weight
    mostly = {sleeper: found.most_common(1)[0] for sleeper, found in ways.items()}
    return {
        sleeper: entry
        for sleeper, (entry, weight) in mostly.items()
        if weight and weight >= HOT_PATH_MIN * sum(ways[sleeper].values())
    }


def _entered(frames: Tuple[Frame, ...], entries: Dict[Frame, Frame]) -> Tuple[Frame, ...]:
    """Whose callers are not known got there as the others did."""
    return (entries.get(frames[0], frames[0]),) if len(frames) == 1 else frames


def _us(ns: int) -> float:
    return ns / _NS_PER_US
