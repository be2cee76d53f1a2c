"""One request as a sequence, drawn to scale: queued, received, each call and what was between.

The text, the screen and the page take their rows here. Knows no screen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.report import WholeCall, WholeHop, WholeRequest
from udsprobe.views.fields import numbers, waiting
from udsprobe.views.fields.bars import KERNEL, NOT_KEPT, PROGRAM, RUN_QUEUE, WAITING
from udsprobe.views.fields.escape import column, fit, visible

PARTS: Dict[str, str] = {
    "accept_wait": "not accepted",
    "recv_wait": "queued",
    "recv": "receive",
    "between_receives": "between receives",
    "cpu": "cpu",
    "runq": "run queue",
    "upstream": "upstream",
    "lock": "lock",
    "disk": "disk",
    "poll": "poll",
    "other": "other sleep",
    "not_known": "not known",
    "send": "send",
}
"""Name in the report → words."""

_STAGES = (("recv", "receive", KERNEL), ("app", "the program", PROGRAM), ("send", "send", KERNEL))
_DRAWN_PCT = 1.0
_LABEL, _DURATION = 31, 6
_NAMES_IN_GROUP = 2


class Piece(NamedTuple):
    """A stretch of time in which a row does one thing, µs from the arrival."""

    fill: str
    begin_us: float
    end_us: float


@dataclass(frozen=True)
class Step:
    """One row: what happened from when until when; `calls` stand behind it."""

    label: str
    begin_us: float
    end_us: float
    pieces: Tuple[Piece, ...]
    calls: Tuple[str, ...] = ()

    @property
    def duration_us(self) -> float:
        """Of it, within the request."""
        return self.end_us - self.begin_us


def headline(request: WholeRequest) -> str:
    """Who answered whom, when, and how long it took."""
    peer = request.peer
    client = f" ← {visible(peer.comm or '?')} {peer.pid}" if peer and peer.pid else ""
    where = f"{request.transport}:{visible(request.address)}"
    took = numbers.spaced(numbers.duration(request.latency_us))
    facts = [
        f"{took} until {visible(request.at[11:19])}",
        f"{visible(request.comm)} {request.pid}/{request.tid}",
        f"{where}{client}",
    ]
    return " · ".join(facts)


def parts_line(request: WholeRequest) -> str:
    """Where its time went, the largest first: they add up to the latency."""
    return parts_told(request.parts_us)


def parts_told(parts_us: Mapping[str, float]) -> str:
    """The parts of a latency, the largest first."""
    ranked = sorted(parts_us.items(), key=lambda pair: -pair[1])
    told = [f"{PARTS.get(name, name)} {numbers.duration(us).strip()}" for name, us in ranked]
    return " · ".join(told)


def remarks(request: WholeRequest) -> List[str]:
    """What is not there, or not certain."""
    told = []
    if not request.turn_based:
        told.append("others of its connection were in progress: what is its own is not certain")
    if request.handed_over:
        told.append("another thread received it; these are the calls of the one that replied")
    if request.calls is None:
        told.append("its thread's calls are not kept: too many threads at once")
    elif request.calls_not_kept is None:
        told.append("earlier calls of the thread are not kept")
    elif request.calls_not_kept:
        told.append(f"{request.calls_not_kept:,} earlier calls are not kept{_short(request)}")
    return told


def woken_by(request: WholeRequest) -> List[str]:
    """Who ended its waits, as far as it is certain and worth a line."""
    told = []
    for wait in request.waits:
        author = wait.author
        if author is None or wait.total_us < waiting.WORTH_TELLING_US:
            continue
        who = waiting.thread(author.comm, author.pid, author.tid)
        what = waiting.WAITS_FOR.get(wait.kind, wait.kind)
        took = numbers.spaced(numbers.duration(wait.total_us))
        told.append(f"it waited {took} for {what}: woken by {who}")
    return told


def _short(request: WholeRequest) -> str:
    if request.not_kept_below_us is None:
        return ""
    return f", each below {numbers.spaced(numbers.duration(request.not_kept_below_us))}"


def steps(request: WholeRequest, most: Optional[int] = None) -> List[Step]:
    """The rows, in their order; neighbours that are short are one row where there are too many."""
    found = _queued(request)
    at_us = 0.0
    for place, call in enumerate(request.calls or ()):
        gap = _gap(at_us, call, request, is_kept=place > 0 or _all_long_are_kept(request))
        found += [gap] if gap is not None else []
        found.append(_step(call, request))
        at_us = max(at_us, call.at_us + call.duration_us)
    found += _stages(request) if request.calls is None else []
    for hop in request.upstream:
        before = [at for at, step in enumerate(found) if step.begin_us <= hop.at_us]
        found.insert(before[-1] + 1 if before else 0, _hop(hop, request))
    while most is not None and len(found) > max(1, most):
        found = _with_one_less(found)
    return found


def _queued(request: WholeRequest) -> List[Step]:
    waited = sum(request.parts_us.get(name, 0.0) for name in ("accept_wait", "recv_wait"))
    if waited < request.latency_us * _DRAWN_PCT / 100:
        return []
    piece = Piece(WAITING, 0.0, waited)
    return [Step("queued, not yet received", 0.0, waited, (piece,))]


def _hop(hop: WholeHop, request: WholeRequest) -> Step:
    """What the upstream did: queued first, then drawn as what it did most."""
    begin = min(max(0.0, hop.at_us), request.latency_us)
    end = min(begin + hop.latency_us, request.latency_us)
    parts = dict(hop.parts_us)
    queued = sum(parts.pop(name, 0.0) for name in ("accept_wait", "recv_wait"))
    received = min(begin + queued, end)
    largest = max(parts, key=lambda name: parts[name], default="other")
    fill = {"cpu": PROGRAM, "runq": RUN_QUEUE}.get(largest, WAITING)
    pieces = (Piece(WAITING, begin, received), Piece(fill, received, end))
    name = f"└ {visible(hop.comm)} {hop.pid} ({PARTS.get(largest, largest)})"
    return Step(name, begin, end, tuple(p for p in pieces if p.end_us > p.begin_us))


def _stages(request: WholeRequest) -> List[Step]:
    """What is known without its calls."""
    begin, found = sum(step.duration_us for step in _queued(request)), []
    for name, words, fill in _STAGES:
        took = getattr(request.stages_us, name) or 0.0
        end = min(request.latency_us, begin + took)
        found.append(Step(words, begin, end, (Piece(fill, begin, end),)))
        begin = end
    return found


def _all_long_are_kept(request: WholeRequest) -> bool:
    return request.calls_not_kept == 0 or request.not_kept_below_us is not None


def _gap(at_us: float, call: WholeCall, request: WholeRequest, *, is_kept: bool) -> Optional[Step]:
    """The program, between two calls; left out where it is too short to see.

    Args:
        is_kept: no long call of that time is missing.
    """
    begin, end = max(0.0, at_us), min(call.at_us, request.latency_us)
    if end - begin < request.latency_us * _DRAWN_PCT / 100:
        return None
    if not is_kept:
        return Step("earlier calls, not kept", begin, end, (Piece(NOT_KEPT, begin, end),))
    waited = min(call.runq_before_us, end - begin)
    pieces = [Piece(PROGRAM, begin, end - waited), Piece(RUN_QUEUE, end - waited, end)]
    return Step("the program", begin, end, tuple(p for p in pieces if p.end_us > p.begin_us))


def _step(call: WholeCall, request: WholeRequest) -> Step:
    begin = min(max(0.0, call.at_us), request.latency_us)
    end = min(max(begin, call.at_us + call.duration_us), request.latency_us)
    pieces = _pieces(call, begin, end)
    asleep_us = sum(each.end_us - each.begin_us for each in pieces if each.fill == WAITING)
    name = label(call, sleeps=asleep_us >= (end - begin) / 2 > 0)
    return Step(name, begin, end, tuple(pieces), (call.name,))


def _pieces(call: WholeCall, begin: float, end: float) -> List[Piece]:
    """Asleep first, then ready, then on a CPU: of what lies within the request, the last part."""
    runq = min(call.runq_us or 0.0, end - begin)
    on_cpu = max(0.0, call.duration_us - (call.off_cpu_us or 0.0))
    on_cpu = min(on_cpu, end - begin - runq) if call.off_cpu_us is not None else 0.0
    asleep_until = end - runq - on_cpu
    pieces = [
        Piece(WAITING, begin, asleep_until),
        Piece(RUN_QUEUE, asleep_until, asleep_until + runq),
        Piece(KERNEL, asleep_until + runq, end),
    ]
    return [each for each in pieces if each.end_us > each.begin_us]


def label(call: WholeCall, *, sleeps: bool) -> str:
    """What it is, about what, and what it sleeps for if it does."""
    about = {"this": " client", "upstream": " upstream", "other": " another's"}.get(
        call.whose or "", ""
    )
    address = f" {visible(call.address)}" if call.address else ""
    failed = f" {visible(call.error)}" if call.error else ""
    asleep = f" ({visible(call.waits_for)})" if sleeps else ""
    return f"{visible(call.name)}{about}{address}{failed}{asleep}"


def _with_one_less(found: Sequence[Step]) -> List[Step]:
    """The two neighbours that together are shortest, as one."""
    spans = [a.duration_us + b.duration_us for a, b in zip(found, found[1:])]
    at = min(range(len(spans)), key=lambda index: spans[index])
    one, other = found[at], found[at + 1]
    calls = (*one.calls, *other.calls)
    joined = Step(
        _group_label(calls),
        one.begin_us,
        max(one.end_us, other.end_us),
        (*one.pieces, *other.pieces),
        calls,
    )
    return [*found[:at], joined, *found[at + 2 :]]


def _group_label(calls: Sequence[str]) -> str:
    if not calls:
        return "the program"
    counted = Counter(calls).most_common()
    names = [f"{visible(name)} ×{n}" if n > 1 else visible(name) for name, n in counted]
    more = " …" if len(names) > _NAMES_IN_GROUP else ""
    noun = "call" if len(calls) == 1 else "calls"
    return f"{len(calls)} {noun}: {', '.join(names[:_NAMES_IN_GROUP])}{more}"


def drawn(request: WholeRequest, width: int, most: Optional[int] = None) -> List[str]:
    """The rows as lines of `width` cells, time from the left to the right."""
    room = width - _LABEL - _DURATION - 4
    return [_line(step, request.latency_us, room) for step in steps(request, most)]


def _line(step: Step, whole_us: float, room: int) -> str:
    cells = [" "] * room
    for piece in step.pieces:
        first, last = _cells(piece.begin_us, piece.end_us, whole_us, room)
        for at in range(first, last):
            cells[at] = piece.fill
    name = column(fit(step.label, _LABEL), _LABEL)
    took = column(numbers.duration(step.duration_us), _DURATION, right=True)
    return f"{name} ▕{''.join(cells)}▏ {took}"


def _cells(begin_us: float, end_us: float, whole_us: float, room: int) -> Tuple[int, int]:
    """What is not zero has a cell."""
    per_us = room / whole_us if whole_us > 0 else 0.0
    first = min(room - 1, int(begin_us * per_us))
    return first, max(first + 1, min(room, round(end_us * per_us)))
