"""Stacks of the window → which functions the time went to, and from where they were called."""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.counters import grown
from udsprobe.model.report import CodePlace, CodeStack, ProcessCode, Report, Stacks
from udsprobe.sample import Sample, StackCounts, StackReading

STACKS_SHOWN_MAX = 200
FUNCTIONS_SHOWN_MAX = 30
PLACES_SHOWN_MAX = 5
CALLERS_SHOWN_MAX = 12
HOT_PATH_MIN = 0.5
"""A function that most samples are in, itself or what it calls, is what the time goes to."""

_NS_PER_S = 1_000_000_000
NOT_KNOWN = "not known"
# Where threads and programs begin: everything is below them.
_ROOTS = frozenset(
    (
        *("_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main"),
        *("clone", "clone3", "__clone3", "start_thread", "main", "runtime.goexit"),
        *("runtime.main", "runtime.goexit.abi0", "std::rt::lang_start_internal"),
    )
)


class Frame(NamedTuple):
    """One function of a stack; None: not known."""

    function: Optional[str]
    module: Optional[str]
    file: Optional[str]
    line: Optional[int]

    def named(self) -> str:
        """`verify (auth.js:12)`, `memcpy (libc.so.6)`, `not known (nginx)`."""
        where = self.module or ""
        if self.file:
            where = self.file.rpartition("/")[2]
            where += f":{self.line}" if self.line is not None else ""
        name = self.function or NOT_KNOWN
        return f"{name} ({where})" if where else name


class _Row(NamedTuple):
    pid: int
    on: str
    text: str
    frames: Tuple[Frame, ...]
    samples: int
    truncated: int


def frames_of(text: str) -> Tuple[Frame, ...]:
    """The outermost first, as `StackCounts.frames` has them."""
    found = []
    for line in text.split("\n"):
        function, module, file, number = (*line.split("\t"), "", "", "", "")[:4]
        place = int(number) if number.isdecimal() and len(number) < 10 else None
        found.append(Frame(function or None, module or None, file or None, place))
    return tuple(found)


def stacks(first: Sample, last: Sample) -> Optional[Stacks]:
    """The stacks of the window; None when none were taken in it."""
    if last.stacks is None:
        return None
    before = first.stacks
    on_ns = grown("stacks on_ns", last.stacks.on_ns, 0 if before is None else before.on_ns)
    rows = _grown(before, last.stacks)
    if not on_ns and not rows:
        return None
    whole = sum(row.samples for row in rows)
    ranked = sorted(rows, key=lambda row: (-row.samples, row.pid, row.text))
    return Stacks(
        hz=last.stacks.hz,
        sampled_s=on_ns / _NS_PER_S,
        samples=whole,
        lost=grown("stacks lost", last.stacks.lost, 0 if before is None else before.lost),
        truncated=sum(row.truncated for row in rows),
        pids=sorted({row.pid for row in rows}),
        mapped_pids=list(last.stacks.mapped_pids),
        unwinds=last.stacks.unwinds,
        processes=_processes(rows),
        functions=_by_self(rows, whole)[:FUNCTIONS_SHOWN_MAX],
        stacks=[_shown(row) for row in ranked[:STACKS_SHOWN_MAX]],
        stacks_total=len(ranked),
    )


def every_stack(first: Sample, last: Sample) -> List[CodeStack]:
    """All stacks of the window, not only those that a report shows; the most often met first."""
    if last.stacks is None:
        return []
    rows = _grown(first.stacks, last.stacks)
    return [_shown(row) for row in sorted(rows, key=lambda row: (-row.samples, row.text))]


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


def _grown(before: Optional[StackReading], after: StackReading) -> List[_Row]:
    known: Dict[Tuple[int, str, str], StackCounts] = {
        (each.pid, each.on, each.frames): each for each in (before.stacks if before else ())
    }
    rows = []
    for each in after.stacks:
        was = known.get((each.pid, each.on, each.frames))
        samples = grown("stack samples", each.samples, was.samples if was else 0)
        truncated = grown("stacks truncated", each.truncated, was.truncated if was else 0)
        if samples:
            frames = frames_of(each.frames)
            rows.append(_Row(each.pid, each.on, each.frames, frames, samples, truncated))
    return rows


def _processes(rows: Sequence[_Row]) -> List[ProcessCode]:
    by_pid: Dict[int, List[_Row]] = {}
    for row in rows:
        by_pid.setdefault(row.pid, []).append(row)
    return [
        ProcessCode(
            pid=pid,
            samples=sum(row.samples for row in own),
            truncated=sum(row.truncated for row in own),
            code=_places(own),
        )
        for pid, own in sorted(by_pid.items(), key=lambda item: -sum(r.samples for r in item[1]))
    ]


def _places(rows: Sequence[_Row]) -> List[CodePlace]:
    """What most of the time goes to first, then the functions that take it themselves."""
    whole = sum(row.samples for row in rows)
    hot = _hot(rows, whole)
    rest = _by_self(rows, whole)
    if hot is None:
        return rest[:PLACES_SHOWN_MAX]
    others = [each for each in rest if (each.function, each.module) != (hot.function, hot.module)]
    return [hot, *others][:PLACES_SHOWN_MAX]


def _hot(rows: Sequence[_Row], whole: int) -> Optional[CodePlace]:
    """Of the functions that most samples are in, the innermost; those with a source file first.

    An interpreter's own functions say less than those that it interprets.
    """
    inside: Counter[Frame] = Counter()
    depths: Counter[Frame] = Counter()
    for row in rows:
        for frame, depth in _first_met(row.frames).items():
            inside[frame] += row.samples
            depths[frame] += row.samples * depth
    likely = [
        frame
        for frame, samples in inside.items()
        if samples >= HOT_PATH_MIN * whole and frame.function and frame.function not in _ROOTS
    ]
    if not likely:
        return None
    interpreted = [frame for frame in likely if frame.file]
    found = min(interpreted or likely, key=lambda frame: depths[frame] / inside[frame])
    return _place(found, inside[found], whole, rows)


def _first_met(frames: Sequence[Frame]) -> Dict[Frame, int]:
    """Function → how many others it called, where it is met innermost."""
    found: Dict[Frame, int] = {}
    for depth, frame in enumerate(reversed(frames)):
        found.setdefault(frame, depth)
    return found


def _by_self(rows: Sequence[_Row], whole: int) -> List[CodePlace]:
    """The functions that were running, those most often met first."""
    innermost: Counter[Frame] = Counter()
    for row in rows:
        innermost[row.frames[-1]] += row.samples
    ranked = sorted(innermost.items(), key=lambda item: (-item[1], item[0].named()))
    return [_place(frame, samples, whole, rows) for frame, samples in ranked[:FUNCTIONS_SHOWN_MAX]]


def _place(frame: Frame, samples: int, whole: int, rows: Sequence[_Row]) -> CodePlace:
    return CodePlace(
        function=frame.function,
        module=frame.module,
        file=frame.file,
        line=frame.line,
        share_pct=100 * samples / whole,
        on="cpu",
        stack=[frame.named(), *(each.named() for each in _usual_callers(frame, rows))],
    )


def _usual_callers(frame: Frame, rows: Iterable[_Row]) -> List[Frame]:
    """Outwards, as long as most of the samples in the function came that way."""
    paths = [(_callers(frame, row.frames), row.samples) for row in rows if frame in row.frames]
    whole = sum(samples for _, samples in paths)
    found: List[Frame] = []
    while len(found) < CALLERS_SHOWN_MAX:
        following: Counter[Frame] = Counter()
        for path, samples in paths:
            if len(path) > len(found):
                following[path[len(found)]] += samples
        caller, samples = (following.most_common(1) or [(frame, 0)])[0]
        if samples < HOT_PATH_MIN * whole or not samples:
            break
        paths = [p for p in paths if len(p[0]) > len(found) and p[0][len(found)] == caller]
        found.append(caller)
    return found


def _callers(frame: Frame, frames: Sequence[Frame]) -> Tuple[Frame, ...]:
    """From where a function was called, the nearest first; itself again is left out."""
    place = len(frames) - 1 - list(reversed(frames)).index(frame)
    outwards = [each for each in reversed(frames[:place]) if each != frame]
    # Between functions of source files only those: what lies between them is the interpreter.
    return tuple(each for each in outwards if each.file or not frame.file)


def _shown(row: _Row) -> CodeStack:
    return CodeStack(
        pid=row.pid,
        on=row.on,
        samples=row.samples,
        truncated=row.truncated > 0,
        frames=[frame.named() for frame in row.frames],
    )
