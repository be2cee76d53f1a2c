"""What kinds of code a process ran, and what of it was the transport's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.code.frames import Frame, is_installed, own_functions
from udsprobe.model.code.marks import CALL_BACK, KERNEL, Found, Mark, Named, kind_of
from udsprobe.model.code.places import Row, places, spoken_for
from udsprobe.model.code.socket_calls import is_socket_call
from udsprobe.model.code.stacks import ran
from udsprobe.model.report import CodeKind, CodeThread, ProcessCode, Stacks
from udsprobe.sample import Sample

THREADS_SHOWN_MAX = 5


class _Marked(NamedTuple):
    """A stack whose kind is known; `at`: where in it functions tell that kind."""

    mark: Mark
    at: Tuple[int, ...]
    row: Row

    def telling(self) -> Row:
        """With the functions that tell the kind alone."""
        return self._with(tuple(self.row.frames[at] for at in self.at))

    def inside(self) -> Row:
        """Without those that have called them."""
        return self._with(self.row.frames[self.at[0] :])

    def _with(self, frames: Tuple[Frame, ...]) -> Row:
        return self.row._replace(frames=frames, truncated=0)


def with_kinds(found: Optional[Stacks], first: Sample, last: Sample) -> Optional[Stacks]:
    """The stacks of a window with the kinds of code, the transport's calls apart."""
    if found is None:
        return found
    by_pid: Dict[int, List[Row]] = {}
    for row in ran(first, last):
        by_pid.setdefault(row.pid, []).append(row)
    comms = {each.tid: each.comm for each in last.threads or ()}
    processes = [_process(each, by_pid.get(each.pid, []), comms) for each in found.processes]
    return replace(found, processes=processes)


def kinds(rows: Sequence[Row], comms: Mapping[int, str]) -> List[CodeKind]:
    """Of the samples of one process, the largest part first.

    Args:
        comms: tid → name, of the threads that have one.
    """
    spoken = spoken_for(rows)
    whole = sum(row.weight for row in spoken)
    by_kind: Dict[str, List[_Marked]] = {}
    for each in map(_marked, spoken):
        if each is not None:
            by_kind.setdefault(each.mark.kind, []).append(each)
    told = [_kind(name, marked, whole, comms) for name, marked in by_kind.items()]
    return sorted(told, key=lambda each: (-each.share_pct, each.kind))


def is_in_sockets(row: Row) -> bool:
    """It moved bytes of a socket, or waited for them: the transport's time, not the code's."""
    return any(
        frame.module == KERNEL and is_socket_call(frame.function or "") for frame in row.frames
    )


def _process(found: ProcessCode, rows: Sequence[Row], comms: Mapping[int, str]) -> ProcessCode:
    own = [row for row in rows if not is_in_sockets(row)]
    moving = sum(row.samples for row in rows) - sum(row.samples for row in own)
    code = places(own) if moving and own else found.code if own else []
    of_kinds = kinds(rows, comms)
    return replace(found, code=code, in_sockets=moving, kinds=of_kinds, own_pct=_own_pct(own))


def _own_pct(rows: Sequence[Row]) -> Optional[float]:
    """Of those whose innermost function of the program, or of a package, is known."""
    by_package: Counter[bool] = Counter()
    for row in spoken_for(rows):
        of_program = own_functions(row.frames)
        if of_program:
            by_package[is_installed(row.frames[of_program[-1]])] += row.weight
    whole = sum(by_package.values())
    return 100 * by_package[False] / whole if whole else None


def _marked(row: Row) -> Optional[_Marked]:
    if is_in_sockets(row):
        return None
    found = _found([(each.function, each.module, each.file) for each in row.frames], row.frames)
    return None if found is None else _Marked(found.mark, found.at, row)


def _found(names: Sequence[Named], frames: Sequence[Frame]) -> Optional[Found]:
    """Where a template, or who writes JSON, calls the program, what that does tells the kind."""
    found = kind_of(names)
    if found is None or found.mark.kind not in CALL_BACK:
        return found
    called = own_functions(frames)[-1:]
    if not called or called[0] <= found.at[-1]:
        return found
    inside = kind_of(names[called[0] :])
    return inside and inside._replace(at=tuple(called[0] + at for at in inside.at))


def _kind(name: str, marked: Sequence[_Marked], whole: int, comms: Mapping[int, str]) -> CodeKind:
    weight = sum(each.row.weight for each in marked)
    mark = _mostly(marked)
    return CodeKind(
        kind=name,
        share_pct=100 * weight / whole if whole else 0.0,
        samples=sum(each.row.samples for each in marked),
        runtime=mark.runtime,
        part=mark.part,
        stack=_stack([each for each in marked if _part(each.mark) == _part(mark)]),
        threads=_threads(marked, comms),
    )


def _mostly(marked: Sequence[_Marked]) -> Mark:
    """Of the runtime, and of its part, that has most."""
    weights: Counter[Tuple[Optional[str], Optional[str]]] = Counter()
    for each in marked:
        weights[_part(each.mark)] += each.row.weight
    most = max(weights, key=lambda part: weights[part])
    return next(each.mark for each in marked if _part(each.mark) == most)


def _part(mark: Mark) -> Tuple[Optional[str], Optional[str]]:
    return mark.runtime, mark.part


def _stack(marked: Sequence[_Marked]) -> List[str]:
    inside = places([each.inside() for each in marked])[0]
    told_by = places([each.telling() for each in marked])[0]
    names = [inside.stack[0], told_by.stack[0]]
    return names if inside.function and names[0] != names[1] else names[1:]


def _threads(marked: Sequence[_Marked], comms: Mapping[int, str]) -> List[CodeThread]:
    samples: Counter[int] = Counter()
    for each in marked:
        samples.update(each.row.threads)
    whole = sum(samples.values())
    return [
        CodeThread(tid, comms.get(tid), 100 * count / whole)
        for tid, count in samples.most_common(THREADS_SHOWN_MAX)
    ]
