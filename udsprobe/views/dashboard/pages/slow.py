"""One of the slowest requests on a page of its own: a sequence with its time to scale."""

from __future__ import annotations

from typing import Hashable, List, Optional

from udsprobe.model.report import WholeCall, WholeRequest
from udsprobe.views.dashboard.feed import Frame
from udsprobe.views.dashboard.pages.lines import Fact, plain, rests_on, rule, section
from udsprobe.views.dashboard.table import Line
from udsprobe.views.fields import numbers, sequence
from udsprobe.views.fields.escape import column, fit, visible

_NAME = 32


def slow_key(request: WholeRequest) -> Hashable:
    """Tells it from all others."""
    return "slow", request.at, request.tid, request.latency_us


def slow_page(key: object, frame: Frame, width: int) -> Optional[List[Line]]:
    """The drawing and every call; None where the key is of something else."""
    if not isinstance(key, tuple) or not key or key[0] != "slow":
        return None
    found = [each for each in frame.window.requests.slowest or [] if slow_key(each) == key]
    if not found:
        return [plain("it is no longer among the slowest")]
    request = found[0]
    drawing = [plain(line) for line in sequence.drawn(request, width - 2)]
    return [
        rule(fit(sequence.headline(request), width - 8)),
        *drawing,
        plain("█ program  ▓ kernel  ▒ ready, without a CPU  ░ asleep or queued"),
        plain(""),
        *section("where its time went", _parts(request), width),
        *_calls(request),
        *rests_on(frame.window, ("slowest_requests",), width),
    ]


def _parts(request: WholeRequest) -> List[Fact]:
    facts = [
        (words, numbers.duration(request.parts_us[name]).strip())
        for name, words in sequence.PARTS.items()
        if name in request.parts_us
    ]
    notes = [("waits", told) for told in sequence.woken_by(request)]
    notes += [("but", remark) for remark in sequence.remarks(request)]
    peer = request.peer
    client = f"{visible(peer.comm or '?')} {peer.pid}" if peer and peer.pid else "not known"
    number = f"request {request.connection_turn:,} of its connection"
    facts += [
        (f"in {fit(hop.comm, 12)} {hop.pid}", sequence.parts_told(hop.parts_us))
        for hop in request.upstream
    ]
    return [*facts, ("client", f"{client}; {number}"), *notes]


def _calls(request: WholeRequest) -> List[Line]:
    if not request.calls:
        return []
    heads = ("at", "took", "asleep", "ready", "result")
    title = "its calls: when, how long, of which asleep and ready without a CPU"
    lines = [rule(title), plain(" " * _NAME + "".join(f"{head:>9}" for head in heads))]
    return [*lines, *map(_call, request.calls), plain("")]


def _call(call: WholeCall) -> Line:
    begins = numbers.duration(abs(call.at_us)).strip()
    known = call.off_cpu_us is not None
    told = (
        f"-{begins}" if call.at_us < 0 else begins,
        numbers.duration(call.duration_us),
        numbers.duration(call.asleep_us if known else None),
        numbers.duration(call.runq_us),
        visible(call.error or str(call.result)),
    )
    name = column(
        fit(sequence.label(call, sleeps=call.asleep_us >= call.duration_us / 2 > 0), _NAME - 1),
        _NAME,
    )
    return plain(name + "".join(f"{each:>9}" for each in told))
