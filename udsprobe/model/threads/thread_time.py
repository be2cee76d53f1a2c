"""Where the targets' threads spent the window: shares of wall time that sum to 1."""

from __future__ import annotations

from itertools import islice
from typing import Dict, List, Mapping, NamedTuple, Optional, Union

from udsprobe.model.counters import UnsoundError, grown
from udsprobe.model.report import ProcessTime, ThreadTime, Time
from udsprobe.model.threads.cpu_holders import cpu_holders
from udsprobe.model.threads.loops import loop_busy_us, loop_rows
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


class _Slept(NamedTuple):
    """A thread that slept through the window in one activity, and how much of it, ns."""

    thread: ThreadActivities
    slept_ns: int

    def lived(self) -> _Lived:
        nothing = dict.fromkeys(self.thread.activity_ns, 0)
        return _Lived(self.thread, {**nothing, self.thread.asleep or "": self.slept_ns})


_Either = Union[_Lived, _Slept]


class _Window(NamedTuple):
    """The threads of a window, and the time of those that ended, until it began."""

    awake: List[_Lived]
    asleep: List[_Slept]
    ended: List[Times]


def thread_time(first: Sample, last: Sample) -> Optional[Time]:
    """Shares by thread, busiest first, and of all threads together.

    A thread that was born or ended in the window has the shares of its own
    time; those that ended are only in the total. Busiest is who was busy the
    longest, not who has the highest share: a thread born a moment ago has
    done nothing but work. None when not measured.
    """
    if last.threads is None or last.exited_activity_ns is None:
        return None
    window = _window(first, last)
    ranked = _ranked(window)
    rows = [_row(_lived(each)) for each in islice(ranked, THREADS_SHOWN_MAX)]
    total = _sum(
        [
            *(dict.fromkeys(each.activity_ns, 0) for each in last.threads[:1]),
            *(each.times for each in window.awake),
            _slept_by_activity(window.asleep),
            _spent_by_ended(first, last, _sum(window.ended)),
        ]
    )
    return Time(
        threads=rows,
        processes=_processes(ranked),
        busiest=rows[0] if rows else None,
        total_s=sum(total.values()) / _NS_PER_S,
        total=shares(total),
        loops=loop_rows(first, last),
        loop_busy_us=loop_busy_us(first, last),
        cpu_holders=cpu_holders(first, last),
    )


def _window(first: Sample, last: Sample) -> _Window:
    """Of thousands of threads nearly all sleep: those are the same objects in both samples."""
    known, living = first.threads or (), last.threads or ()
    same = set(map(id, known))
    asleep = [each for each in living if id(each) in same]
    same.intersection_update(map(id, asleep))
    others = [each for each in living if id(each) not in same]
    earlier = {(t.pid, t.tid): t.until(first.monotonic_ns) for t in known if id(t) not in same}
    spent = [_Lived(t, t.until(last.monotonic_ns)) for t in others]
    now = {(t.pid, t.tid): ns for t, ns in spent}
    before = {who: ns for who, ns in earlier.items() if _has_grown(now.get(who), ns)}
    awake = [
        _Lived(t, _difference(f"thread {t.tid}", ns, before.get((t.pid, t.tid), {})))
        for t, ns in spent
    ]
    ended = [ns for who, ns in earlier.items() if who not in before]
    slept = (_Slept(t, _slept_ns(t, first, last)) for t in asleep)
    return _Window(
        [each for each in awake if sum(each.times.values())],
        [each for each in slept if each.slept_ns],
        ended,
    )


def _slept_ns(thread: ThreadActivities, first: Sample, last: Sample) -> int:
    return thread.slept_ns(last.monotonic_ns) - thread.slept_ns(first.monotonic_ns)


def _busy_ns(thread: _Lived) -> int:
    try:
        return sum(map(thread.times.__getitem__, BUSY))
    except KeyError as error:
        raise UnsoundError(f"thread {thread.thread.tid} has no {error}") from error


def _ranked(window: _Window) -> List[_Either]:
    """The busiest first; of those that were not, by number."""
    awake = [(-_busy_ns(each), each) for each in window.awake]
    busy = [each for each in awake if each[0]]
    busy.sort(key=lambda each: (each[0], each[1].thread.tid))
    idle: List[_Either] = [each for busy_ns, each in awake if not busy_ns]
    idle += window.asleep
    idle.sort(key=lambda each: each.thread.tid)
    return [*(each for _, each in busy), *idle]


def _lived(each: _Either) -> _Lived:
    return each.lived() if isinstance(each, _Slept) else each


def _slept_by_activity(asleep: List[_Slept]) -> Dict[str, int]:
    totals: Dict[str, int] = {}
    for thread, slept_ns in asleep:
        name = thread.asleep or ""
        totals[name] = totals.get(name, 0) + slept_ns
    return totals


def _row(lived: _Lived) -> ThreadTime:
    thread = lived.thread
    return ThreadTime(
        thread.pid, thread.tid, thread.comm, _seconds(lived.times), shares(lived.times)
    )


def _processes(ranked: List[_Either]) -> List[ProcessTime]:
    """In the order of their busiest threads."""
    grouped: Dict[int, List[_Lived]] = {}
    for each in ranked:
        group = grouped.get(each.thread.pid)
        if group is not None:
            group.append(_lived(each))
        elif len(grouped) < PROCESSES_SHOWN_MAX:
            grouped[each.thread.pid] = [_lived(each)]
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


def _has_grown(times: Optional[Times], before: Times) -> bool:
    # Otherwise another thread has the number of one that ended.
    return times is not None and all(times.get(name, 0) >= ns for name, ns in before.items())


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
