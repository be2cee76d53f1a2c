"""Where the targets' threads spent the window: shares of wall time that sum to 1."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from udsprobe.model.counters import grown
from udsprobe.model.cpu_holders import cpu_holders
from udsprobe.model.loops import loop_busy_us, loop_rows
from udsprobe.model.report import ProcessTime, ThreadTime, Time
from udsprobe.sample import Sample, ThreadActivities

THREADS_SHOWN_MAX = 50
PROCESSES_SHOWN_MAX = 50
# Waiting for a CPU is being busy without one: the thread has work to do.
BUSY = ("user", "sys_socket", "sys_poll", "sys_other", "runq")

_NS_PER_S = 1_000_000_000

Times = Mapping[str, int]


class _Lived(NamedTuple):
    """A living thread and where its time in the window went, ns."""

    thread: ThreadActivities
    times: Times


def thread_time(first: Sample, last: Sample) -> Optional[Time]:
    """Shares by thread, busiest first, and of all threads together.

    A thread that was born or ended in the window has the shares of its own
    time; those that ended are only in the total. Busiest is who was busy the
    longest, not who has the highest share: a thread born a moment ago has
    done nothing but work. None when not measured.
    """
    if last.threads is None or last.exited_activity_ns is None:
        return None
    before = _known_before(first, last.threads)
    lived = [_Lived(t, _spent(t, before.get((t.pid, t.tid), {}))) for t in last.threads]
    lived = [each for each in lived if sum(each.times.values())]
    lived.sort(key=lambda each: (-sum(map(each.times.__getitem__, BUSY)), each.thread.tid))
    rows = [_row(each) for each in lived]
    ended = [t.activity_ns for t in first.threads or () if (t.pid, t.tid) not in before]
    total = _sum([*(each.times for each in lived), _spent_by_ended(first, last, _sum(ended))])
    return Time(
        threads=rows[:THREADS_SHOWN_MAX],
        processes=_processes(lived)[:PROCESSES_SHOWN_MAX],
        busiest=rows[0] if rows else None,
        total_s=sum(total.values()) / _NS_PER_S,
        total=shares(total),
        loops=loop_rows(first, last),
        loop_busy_us=loop_busy_us(first, last),
        cpu_holders=cpu_holders(first, last),
    )


def _row(lived: _Lived) -> ThreadTime:
    thread = lived.thread
    return ThreadTime(
        thread.pid, thread.tid, thread.comm, _seconds(lived.times), shares(lived.times)
    )


def _processes(lived: List[_Lived]) -> List[ProcessTime]:
    """In the order of their busiest threads."""
    grouped: Dict[int, List[_Lived]] = {}
    for each in lived:
        grouped.setdefault(each.thread.pid, []).append(each)
    return [_process(pid, threads) for pid, threads in grouped.items()]


def _process(pid: int, threads: List[_Lived]) -> ProcessTime:
    # The first thread has the process's number; its name is the program's.
    main = next((each for each in threads if each.thread.tid == pid), threads[0])
    times = _sum([each.times for each in threads])
    return ProcessTime(pid, main.thread.comm, len(threads), _seconds(times), shares(times))


def _seconds(times: Times) -> float:
    return sum(times.values()) / _NS_PER_S


def busy_share(share: Mapping[str, float]) -> float:
    """The part of a thread's time in which it had something to do, 0 to 1."""
    return sum(share.get(name, 0.0) for name in BUSY)


def shares(times: Times) -> Dict[str, float]:
    """ns by activity → parts of their sum; all zero when there was no time."""
    whole = sum(times.values())
    return {name: ns / whole if whole else 0.0 for name, ns in times.items()}


def _known_before(
    first: Sample, living: Iterable[ThreadActivities]
) -> Dict[Tuple[int, int], Times]:
    """Of the threads of `first` that live on, their time until then."""
    now = {(t.pid, t.tid): t.activity_ns for t in living}
    return {
        (t.pid, t.tid): t.activity_ns
        for t in first.threads or ()
        if _has_grown(now.get((t.pid, t.tid)), t.activity_ns)
    }


def _has_grown(times: Optional[Times], before: Times) -> bool:
    # Otherwise another thread has the number of one that ended.
    return times is not None and all(times.get(name, 0) >= ns for name, ns in before.items())


def _spent(thread: ThreadActivities, before: Times) -> Dict[str, int]:
    return _difference(f"thread {thread.tid}", thread.activity_ns, before)


def _spent_by_ended(first: Sample, last: Sample, until_first: Times) -> Dict[str, int]:
    """The sum of the ended holds what they had spent before the window, too."""
    ended = _difference("ended", last.exited_activity_ns or {}, first.exited_activity_ns or {})
    return {name: max(0, ns - until_first.get(name, 0)) for name, ns in ended.items()}


def _difference(name: str, last: Times, first: Times) -> Dict[str, int]:
    return {key: grown(f"{name} {key}", ns, first.get(key, 0)) for key, ns in last.items()}


def _sum(parts: List[Times]) -> Dict[str, int]:
    total: Dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            total[name] = total.get(name, 0) + ns
    return total
