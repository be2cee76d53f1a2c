"""Rows of stacks → which functions the time went to, and from where they were called."""

from __future__ import annotations

from collections import Counter
from itertools import filterfalse, islice
from types import MappingProxyType
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.code.frames import (
    Frame,
    enters_kernel,
    is_installed,
    is_own,
    own_functions,
    says_nothing,
    turns_loop,
    without_any_call,
)
from udsprobe.model.report import CodePlace

FUNCTIONS_SHOWN_MAX = 30
PLACES_SHOWN_MAX = 5
CALLERS_SHOWN_MAX = 24
HOT_PATH_MIN = 0.5
"""A function that most samples are in, itself or what it calls, is what the time goes to."""

PASSED_ON_MIN = 0.9
"""Of a function's time: what it does itself is not worth to be told."""

CALLERS_KNOWN_MIN, CALLED_MIN = 0.1, 30
"""Of a function's time, or of its stacks: they are taken by chance where not all can be, so some
speak for the others."""

Idle = Sequence[Sequence[Frame]]


class Row(NamedTuple):
    """What one stack had in the window: samples, or sleeps and their time.

    Attributes:
        owing: of the samples, while the process had requests to answer; None: not known.
        weight: what its part of the whole is reckoned by.
        threads: tid → of the samples, or of `slept_ns`, those that are known to be its own.
        held_by: of `slept_ns`, waits for a lock by the stack of who had it, the outermost first;
            empty: not known.
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
    held_by: Mapping[str, int] = MappingProxyType({})


def places(rows: Sequence[Row], idle: Idle = ()) -> List[CodePlace]:
    """What most of the time goes to first, then the functions that take it themselves.

    Args:
        idle: stacks of waits for work, in the same program.
    """
    whole = sum(row.weight for row in rows)
    rows = called_rows(rows)
    hot = _hot(rows, whole, idle)
    rest = by_self(rows, idle, PLACES_SHOWN_MAX + 1)
    if hot is None:
        return rest[:PLACES_SHOWN_MAX]
    others = [each for each in rest if (each.function, each.module) != (hot.function, hot.module)]
    return [hot, *others][:PLACES_SHOWN_MAX]


def _hot(rows: Sequence[Row], whole: int, idle: Idle) -> Optional[CodePlace]:
    """Of the functions that most samples are in, the innermost; those with a source file first.

    An interpreter's own functions say less than those that it interprets. Where none has most, the
    one of the program's own with more than any other.
    """
    inside: Counter[Frame] = Counter()
    for row in rows:
        for frame in set(row.frames):
            inside[frame] += row.weight
    if _is_interpreted(rows, whole):
        inside = Counter({frame: weight for frame, weight in inside.items() if frame.of_script})
    likely = {
        frame
        for frame, weight in inside.items()
        if weight >= HOT_PATH_MIN * whole and not says_nothing(frame)
    }
    if not likely:
        own = {frame: weight for frame, weight in inside.items() if is_own(frame)}
        likely = {max(own, key=lambda frame: (own[frame], frame.named()))} if own else set()
    innermost: Counter[Frame] = Counter()
    for row in rows:
        found = next((frame for frame in reversed(row.frames) if frame in likely), None)
        if found is not None:
            innermost[found] += row.weight
    if not innermost:
        return None
    most = max(innermost, key=lambda frame: (innermost[frame], frame.named()))
    if not any(inside[frame] >= HOT_PATH_MIN * whole for frame in likely):
        inside = Counter({frame: inside[frame] for frame in filter(is_own, inside)})
    most = _passed_on(most, inside, rows)
    most = _called_by_framework(most, inside[most], rows) or most
    return place_of(most, inside[most], whole, rows, idle)


def _passed_on(frame: Frame, inside: Mapping[Frame, int], rows: Sequence[Row]) -> Frame:
    """The innermost function that nearly all of its time is in: it only calls that one.

    Args:
        inside: the functions that may be told, with the weight of the stacks that they are in.
    """
    called: Counter[Frame] = Counter()
    depth: Counter[Frame] = Counter()
    for row in rows:
        for at, each in enumerate(dict.fromkeys(_called(frame, row.frames))):
            if each in inside and each != frame and not says_nothing(each):
                called[each] += row.weight
                depth[each] += row.weight * at
    least = PASSED_ON_MIN * inside[frame]
    found = (each for each, weight in called.items() if weight >= least)
    return max(found, key=lambda each: (depth[each] / called[each], each.named()), default=frame)


def _called_by_framework(frame: Frame, weight: int, rows: Sequence[Row]) -> Optional[Frame]:
    """The program's own function that most of an installed package's time is in: who calls the
    program says less than what it calls. None where the package was called by the program.
    """
    if not is_installed(frame) or any(map(_is_programs, _usual_callers(frame, rows))):
        return None
    called: Counter[Frame] = Counter()
    for row in rows:
        for each in set(_called(frame, row.frames)):
            called[each] += row.weight
    own = {each: part for each, part in called.items() if _is_programs(each)}
    best = max(own, key=lambda each: (own[each], each.named()), default=None)
    return best if best is not None and own[best] >= HOT_PATH_MIN * weight else None


def _called(frame: Frame, frames: Tuple[Frame, ...]) -> Tuple[Frame, ...]:
    return frames[frames.index(frame) + 1 :] if frame in frames else ()


def _is_programs(frame: Frame) -> bool:
    return is_own(frame) and frame.of_script and not is_installed(frame)


def _is_interpreted(rows: Sequence[Row], whole: int) -> bool:
    """Most of it is in functions with source files, or called by them."""
    inside = sum(row.weight for row in rows if any(frame.of_script for frame in row.frames))
    return inside >= HOT_PATH_MIN * whole


def called_rows(rows: Sequence[Row]) -> List[Row]:
    """Without what only enters the kernel, and with the callers that others tell of the silent."""
    return spoken_for([row._replace(frames=without_any_call(row.frames)) for row in rows])


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


def by_self(
    rows: Sequence[Row], idle: Idle = (), count: int = FUNCTIONS_SHOWN_MAX
) -> List[CodePlace]:
    """The functions that were running, those most often met first."""
    whole = sum(row.weight for row in rows)
    innermost: Counter[Frame] = Counter()
    for row in rows:
        innermost[row.frames[-1]] += row.weight
    ranked = sorted(innermost.items(), key=lambda item: (-item[1], item[0].named()))
    return [place_of(frame, weight, whole, rows, idle) for frame, weight in ranked[:count]]


def place_of(
    frame: Frame, weight: int, whole: int, rows: Sequence[Row], idle: Idle = ()
) -> CodePlace:
    """A function with its part of the whole, and from where most of it was called.

    Args:
        idle: as of `places`.
    """
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
    """The innermost function of the program's own that waits for work do not go through, too.

    Of a package that was installed beside the program only where there is no other.
    """
    found = own_inside(stack)
    if not found:
        return None
    shared = max((_shared(stack, each) for each in idle), default=0)
    likely = [at for at in found if at >= shared] or found[:1]
    return stack[next((at for at in likely if not is_installed(stack[at])), likely[0])].named()


def own_inside(stack: Sequence[Frame]) -> List[int]:
    """Places of the program's own functions, the innermost first.

    In an event loop of those that the loop calls: what runs the loop is on all of its stacks.
    """
    turn = next((at for at, frame in enumerate(stack) if turns_loop(frame)), len(stack))
    return own_functions(stack[:turn])


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
    place = len(frames) - 1 - frames[::-1].index(frame)
    outwards = (each for each in frames[:place][::-1] if each != frame)
    # Between functions of source files only those: what lies between them is the interpreter.
    wanted = (each for each in outwards if each.of_script or not frame.of_script)
    return tuple(islice(filterfalse(enters_kernel, wanted), CALLERS_SHOWN_MAX))
