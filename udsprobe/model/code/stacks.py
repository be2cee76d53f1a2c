"""Stacks of the window → which functions the time went to, and from where they were called."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from udsprobe.model.code.frames import (
    KERNEL,
    Frame,
    as_called,
    enters_kernel,
    frames_of,
    is_languages,
    is_of_a_runtime,
    own_functions,
    says_nothing,
    without_any_call,
)
from udsprobe.model.counters import grown, grown_by_key
from udsprobe.model.report import (
    CodePlace,
    CodeStack,
    ProcessCode,
    ProcessSleep,
    Report,
    SleepCall,
    Sleeps,
    Stacks,
)
from udsprobe.sample import Sample, StackCounts, StackReading

STACKS_SHOWN_MAX = 200
FUNCTIONS_SHOWN_MAX = 30
PLACES_SHOWN_MAX = 5
CALLERS_SHOWN_MAX = 12
HOT_PATH_MIN = 0.5
"""A function that most samples are in, itself or what it calls, is what the time goes to."""

CALLERS_KNOWN_MIN, CALLED_MIN = 0.1, 30
"""Of a function's time, or of its stacks: they are taken by chance where not all can be, so some
speak for the others."""

_NS_PER_S, _NS_PER_US = 1_000_000_000, 1000
Idle = Sequence[Sequence[Frame]]
CPU, OFF_CPU = "cpu", "off-cpu"
WAITS_FOR_WORK = frozenset(
    (
        *("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"),
        *("io_uring_enter", "futex", "accept", "accept4", "recvfrom", "recvmsg", "read"),
        *("clock_nanosleep", "nanosleep", "semop", "semtimedop", "rt_sigtimedwait", "wait4"),
    )
)
"""Calls that a program without anything to do sleeps in."""


class Row(NamedTuple):
    """What one stack had in the window: samples, or sleeps and their time.

    Attributes:
        owing: of the samples, while the process had requests to answer; None: not known.
        weight: what its part of the whole is reckoned by.
        threads: tid → of the samples, those that are known to be its own.
    """

    pid: int
    on: str
    call: str
    text: str
    frames: Tuple[Frame, ...]
    samples: int
    truncated: int
    slept_ns: int
    owing_ns: int
    weight: int
    owing: Optional[int] = None
    threads: Mapping[int, int] = MappingProxyType({})


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
        functions=by_self(running)[:FUNCTIONS_SHOWN_MAX],
        stacks=[*_most(running), *_most(asleep)],
        stacks_total=len(rows),
        sleeps=sleeps(before, last.stacks, asleep),
    )


def _most(rows: Sequence[Row]) -> List[CodeStack]:
    ranked = sorted(rows, key=lambda row: (-row.weight, row.pid, row.text))
    return [_shown(row) for row in ranked[:STACKS_SHOWN_MAX]]


def sleeps(
    before: Optional[StackReading], after: StackReading, rows: Sequence[Row]
) -> Optional[Sleeps]:
    """None when nobody watched for sleeps in the window."""
    watched_ns = grown(
        "stacks asleep_on_ns", after.asleep_on_ns, 0 if before is None else before.asleep_on_ns
    )
    if not watched_ns and not rows:
        return None
    lost = grown("sleeps lost", after.waits_lost, 0 if before is None else before.waits_lost)
    return Sleeps(
        watched_s=watched_ns / _NS_PER_S,
        count=sum(row.samples for row in rows),
        lost=lost,
        truncated=sum(row.truncated for row in rows),
        total_us=_us(sum(row.slept_ns for row in rows)),
        processes=sleeping_processes(rows, sees_owing=after.sees_owing),
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
    """The process that the verdict is about; all targets where it names none."""
    named = subject_pids(report, report.verdict.subject if report.verdict is not None else None)
    return named or frozenset(each.pid for each in report.targets if each.state == "running")


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


def places(rows: Sequence[Row], idle: Idle = ()) -> List[CodePlace]:
    """What most of the time goes to first, then the functions that take it themselves.

    Args:
        idle: stacks of waits for work, in the same program.
    """
    whole = sum(row.weight for row in rows)
    rows = spoken_for([row._replace(frames=without_any_call(row.frames)) for row in rows])
    hot = _hot(rows, whole, idle)
    rest = by_self(rows, idle)
    if hot is None:
        return rest[:PLACES_SHOWN_MAX]
    others = [each for each in rest if (each.function, each.module) != (hot.function, hot.module)]
    return [hot, *others][:PLACES_SHOWN_MAX]


def _hot(rows: Sequence[Row], whole: int, idle: Idle) -> Optional[CodePlace]:
    """Of the functions that most samples are in, the innermost; those with a source file first.

    An interpreter's own functions say less than those that it interprets.
    """
    inside: Counter[Frame] = Counter()
    for row in rows:
        for frame in set(row.frames):
            inside[frame] += row.weight
    likely = {
        frame
        for frame, weight in inside.items()
        if weight >= HOT_PATH_MIN * whole and not says_nothing(frame)
    }
    likely = {frame for frame in likely if frame.file} or likely
    innermost: Counter[Frame] = Counter()
    for row in rows:
        found = next((frame for frame in reversed(row.frames) if frame in likely), None)
        if found is not None:
            innermost[found] += row.weight
    if not innermost:
        return None
    most = max(innermost, key=lambda frame: (innermost[frame], frame.named()))
    return _place(most, inside[most], whole, rows, idle)


def spoken_for(rows: Sequence[Row]) -> List[Row]:
    """What is known of a function without its callers goes to where it was called from, in parts
    as it is with its callers; rows of functions whose callers are never known stay.
    """
    heard: Dict[Frame, List[Row]] = {}
    silent: Dict[Frame, List[Row]] = {}
    for row in rows:
        (silent if _is_silent(row) else heard).setdefault(row.frames[-1], []).append(row)
    found = [row for frame, own in heard.items() for row in _for_all(own, silent.get(frame, []))]
    left = (own for frame, own in silent.items() if not _speak(heard.get(frame, []), own))
    return [*found, *(row for own in left for row in own)]


def _is_silent(row: Row) -> bool:
    return len(row.frames) == 1 and row.truncated == row.samples


def _speak(heard: Sequence[Row], silent: Sequence[Row]) -> bool:
    """Whether these are enough, and whether they have time at all, to tell of those."""
    weight, samples = sum(row.weight for row in heard), sum(row.samples for row in heard)
    whole = weight + sum(row.weight for row in silent)
    return weight > 0 and (samples >= CALLED_MIN or weight >= CALLERS_KNOWN_MIN * whole)


def _for_all(heard: Sequence[Row], silent: Sequence[Row]) -> Sequence[Row]:
    if not _speak(heard, silent):
        return heard
    weight = sum(row.weight for row in heard)
    factor = 1 + sum(row.weight for row in silent) / weight
    return [row._replace(weight=round(row.weight * factor)) for row in heard]


def by_self(rows: Sequence[Row], idle: Idle = ()) -> List[CodePlace]:
    """The functions that were running, those most often met first."""
    whole = sum(row.weight for row in rows)
    innermost: Counter[Frame] = Counter()
    for row in rows:
        innermost[row.frames[-1]] += row.weight
    ranked = sorted(innermost.items(), key=lambda item: (-item[1], item[0].named()))
    found = ranked[:FUNCTIONS_SHOWN_MAX]
    return [_place(frame, weight, whole, rows, idle) for frame, weight in found]


def _place(frame: Frame, weight: int, whole: int, rows: Sequence[Row], idle: Idle) -> CodePlace:
    stack = [frame, *_usual_callers(frame, rows)]
    return CodePlace(
        function=frame.function,
        module=frame.module,
        file=frame.file,
        line=frame.line,
        share_pct=100 * weight / whole if whole else 0.0,
        on=rows[0].on,
        stack=[each.named() for each in stack],
        own=_own(stack, idle),
    )


def _own(stack: Sequence[Frame], idle: Idle) -> Optional[str]:
    """The innermost function of the program's own that waits for work do not go through, too."""
    found = own_functions(stack)
    if not found:
        return None
    shared = max((_shared(stack, each) for each in idle), default=0)
    return stack[next((at for at in found if at >= shared), found[0])].named()


def _shared(stack: Sequence[Frame], other: Sequence[Frame]) -> int:
    """How many functions they begin with in common; 0 where nothing tells them apart after."""
    for at, (mine, its) in enumerate(zip(stack, other)):
        if not mine.function or not its.function:
            return 0
        if mine != its:
            return at
    return 0


def _usual_callers(frame: Frame, rows: Iterable[Row]) -> List[Frame]:
    """Outwards, as long as most of what is in the function came that way, where that is known."""
    paths = [
        (_callers(frame, row.frames), row.weight, row.truncated == row.samples)
        for row in rows
        if frame in row.frames
    ]
    whole = sum(weight for _, weight, _ in paths)
    found: List[Frame] = []
    while len(found) < CALLERS_SHOWN_MAX:
        ends = [each for each in paths if len(each[0]) <= len(found)]
        # Whose callers could not be found says nothing about who else calls.
        whole -= sum(weight for _, weight, is_truncated in ends if is_truncated)
        following: Counter[Frame] = Counter()
        for path, weight, _ in paths:
            if len(path) > len(found):
                following[path[len(found)]] += weight
        caller, most = (following.most_common(1) or [(frame, 0)])[0]
        if not most or most < HOT_PATH_MIN * whole:
            break
        paths = [p for p in paths if len(p[0]) > len(found) and p[0][len(found)] == caller]
        found.append(caller)
    return found


def _callers(frame: Frame, frames: Sequence[Frame]) -> Tuple[Frame, ...]:
    """From where a function was called, the nearest first; itself again is left out."""
    place = len(frames) - 1 - list(reversed(frames)).index(frame)
    outwards = [each for each in reversed(frames[:place]) if each != frame]
    # Between functions of source files only those: what lies between them is the interpreter.
    outwards = [each for each in outwards if not enters_kernel(each)]
    return tuple(each for each in outwards if each.file or not frame.file)


def _shown(row: Row) -> CodeStack:
    return CodeStack(
        pid=row.pid,
        on=row.on,
        samples=row.samples,
        truncated=row.truncated > 0,
        frames=[frame.named() for frame in row.frames],
        total_us=None if row.on == CPU else _us(row.slept_ns),
    )


# ------------------------------------------------------------ asleep


def sleeping_processes(rows: Sequence[Row], *, sees_owing: bool) -> List[ProcessSleep]:
    """The processes that slept, those with requests to answer first."""
    by_pid: Dict[int, List[Row]] = {}
    for row in rows:
        by_pid.setdefault(row.pid, []).append(row)
    idle = _idle(rows) if sees_owing else []
    found = [
        ProcessSleep(
            pid=pid,
            count=sum(row.samples for row in own),
            total_us=_us(sum(row.slept_ns for row in own)),
            owing_us=_us(sum(row.owing_ns for row in own)) if sees_owing else None,
            calls=_calls(own, idle, sees_owing=sees_owing),
        )
        for pid, own in sorted(by_pid.items())
    ]
    return sorted(found, key=lambda each: (-(each.owing_us or 0.0), -each.total_us))


def _idle(rows: Iterable[Row]) -> List[List[Frame]]:
    """The innermost first, as the programs called them."""
    waits = [row for row in rows if row.call in WAITS_FOR_WORK and not row.owing_ns]
    return [list(reversed(as_called(row.frames))) for row in waits]


def _calls(rows: Sequence[Row], idle: Idle, *, sees_owing: bool) -> List[SleepCall]:
    by_call: Dict[str, List[Row]] = {}
    # Where a runtime's own threads sleep, the program did not call; unless nothing else slept.
    for row in [each for each in rows if not is_of_a_runtime(each.frames)] or rows:
        by_call.setdefault(row.call, []).append(row)
    found = [
        SleepCall(
            call=call or None,
            count=sum(row.samples for row in own),
            truncated=sum(row.truncated for row in own),
            total_us=_us(sum(row.slept_ns for row in own)),
            owing_us=_us(sum(row.owing_ns for row in own)) if sees_owing else None,
            code=places(_as_called(own), idle),
        )
        for call, own in sorted(by_call.items())
    ]
    return sorted(found, key=lambda each: (-(each.owing_us or 0.0), -each.total_us))


def _as_called(rows: Sequence[Row]) -> List[Row]:
    """As the program called it, by the time in which requests waited where there is any."""
    owing = any(row.owing_ns for row in rows)
    weighed = [row._replace(weight=row.owing_ns if owing else row.slept_ns) for row in rows]
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
