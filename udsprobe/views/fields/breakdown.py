"""Where time goes, as one line each: the mean request by stage, and the busiest thread.

The dashboard and `--plain` take these lines here. Knows no screen.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from udsprobe.model.report import Report, Served, Stages, ThreadTime
from udsprobe.model.requests.reply_pieces import in_all, paused_us
from udsprobe.views.fields import bars, numbers
from udsprobe.views.fields.bars import KERNEL, PROGRAM, RUN_QUEUE, WAITING, Part
from udsprobe.views.fields.escape import column, fit

PAUSES_SHOWN_MIN = 0.1
"""The part of what clients wait for from which on they have a line."""
PIPELINED = "pipelined: latencies are not of single requests"
MULTIPLEXED = "HTTP/2: streams share a connection, latencies are not of single requests"

_STAGES = (
    ("recv_wait", "queued for the app", WAITING),
    ("recv", "recv", KERNEL),
    ("app", "app", PROGRAM),
    ("send", "send", KERNEL),
)
ACTIVITIES: Tuple[Tuple[str, str, str], ...] = (
    ("user", "user", PROGRAM),
    ("sys_socket", "sys socket", KERNEL),
    ("sys_poll", "sys poll", KERNEL),
    ("sys_other", "sys other", KERNEL),
    ("runq", "runq", RUN_QUEUE),
    ("blocked_poll", "wait poll", WAITING),
    ("blocked_recv", "wait recv", WAITING),
    ("blocked_send", "wait send", WAITING),
    ("blocked_accept", "wait accept", WAITING),
    ("blocked_connect", "wait connect", WAITING),
    ("blocked_lock", "wait lock", WAITING),
    ("blocked_disk", "wait disk", WAITING),
    ("blocked_other", "wait other", WAITING),
)
"""Name in the report, words on the screen, fill; in the order of the bar."""

_APP = (
    ("client", "client", WAITING),
    ("cpu", "cpu", PROGRAM),
    ("runq", "runq", RUN_QUEUE),
    ("upstream", "upstream", WAITING),
    ("lock", "lock", WAITING),
    ("disk", "disk", WAITING),
    ("poll", "poll", WAITING),
    ("other", "other", WAITING),
)


def no_turns(served: Served) -> Optional[str]:
    """Why its latencies are not requests'; None where they are, as far as is known."""
    if served.turn_based is not False:
        return None
    return MULTIPLEXED if served.multiplexed else PIPELINED


def beside_requests(report: Report) -> List[str]:
    """What the latencies leave out, where it is much: pauses in replies, TLS handshakes."""
    return [each for each in (_pauses(report), _handshakes(report)) if each is not None]


def _handshakes(report: Report) -> Optional[str]:
    served = report.requests.served
    if served is None or not served.tls_handshakes:
        return None
    handshakes = "TLS handshake" if served.tls_handshakes == 1 else "TLS handshakes"
    return f"{served.tls_handshakes:,} {handshakes} of clients beside them, which are no requests"


def _pauses(report: Report) -> Optional[str]:
    """How long replies go on after they have begun; None where that is little, or not measured.

    `200 replies in pieces: 192ms to the last on average, paused for 191ms`.
    """
    rows = report.requests.served_by or ()
    pieces, pauses_us = in_all(rows), sum(map(paused_us, rows))
    whole_us = sum((row.latency_us.mean or 0.0) * row.count for row in rows) + pauses_us
    if not pieces.count or pauses_us < PAUSES_SHOWN_MIN * whole_us:
        return None
    ends, paused = map(numbers.duration, (pieces.transfer_mean_us, pieces.paused_mean_us))
    replies = f"{pieces.count:,} {'reply' if pieces.count == 1 else 'replies'} in pieces"
    return f"{replies}: {ends} to the last on average, paused for {paused}"


def time_lines(report: Report, width: int, *, app: bool = False) -> List[str]:
    """Bars of the mean request and of the busiest thread, `width` cells each at most.

    What is not measured has no line; a window without requests says so.

    Args:
        app: a line between them says what the stage `app` consisted of.
    """
    lines = []
    served = report.requests.served
    if served is not None and served.stages_us != Stages():
        lines += _request(report, served, width, app)
    if report.time is not None and report.time.busiest is not None:
        lines.append(_thread(report.time.busiest, width))
    return lines


def stages(served: Served) -> Optional[Dict[str, float]]:
    """The mean request by stage, in µs: they add up to the mean latency.

    `accept` is what the request itself waited for accept(): its bytes were
    there, and its connection was not accepted. None without requests.
    """
    latency = served.stages_latency_us or served.latency_us
    mean = latency.mean
    if not latency.count or mean is None:
        return None
    means = {name: _mean_of(served.stages_us, name) for name, _, _ in _STAGES}
    return {"accept": max(0.0, mean - sum(means.values())), **means}


def stage_means(served: Served) -> Optional[Dict[str, float]]:
    """The measured stages of the mean request in µs, by the words on the screen.

    They add up to the mean latency. Where this kernel does not tell a stage,
    it is in `rest` together with accept. None without requests or stages.
    """
    means = stages(served)
    if means is None or served.stages_us == Stages():
        return None
    told = {words: means[name] for name, words, _ in _STAGES if getattr(served.stages_us, name)}
    return {"accept" if len(told) == len(_STAGES) else "rest": means["accept"], **told}


def app_parts(report: Report) -> List[Part]:
    """What the stage `app` consisted of, by threads that received and replied; empty when not
    measured. Of what one received and another one replied to, no thread tells."""
    served = report.requests.served
    if served is None:
        return []
    handed = _handed_over(report, served)
    told = _parts(_APP, served.app_time_pct or {}, 100)
    parts = [part._replace(share=part.share * (1 - handed)) for part in told]
    return [*parts, Part("handed over", handed, WAITING)] if handed else parts


def _handed_over(report: Report, served: Served) -> float:
    """The part of the stage `app` that other threads replied to than received."""
    app = served.stages_us.app
    whole_us = (app.mean or 0.0) * app.count if app is not None else 0.0
    handed_us = sum(row.handed_over_us or 0.0 for row in report.requests.served_by or ())
    return min(1.0, handed_us / whole_us) if whole_us else 0.0


def activities(share: Mapping[str, float]) -> List[Part]:
    """A thread's time by activity."""
    return _parts(ACTIVITIES, share, 1)


def _request(report: Report, served: Served, width: int, app: bool) -> List[str]:
    means = stages(served)
    if means is None:
        quiet = [column("request", _head_width(width)) + " no request was served"]
        return [*quiet, *(["└ app"] if app else [])]
    total = sum(means.values()) or 1.0
    parts = [
        Part("accept", means["accept"] / total, WAITING),
        *_parts(_STAGES, means, total),
    ]
    lines = [_line(f"request {numbers.duration(total)}", parts, width)]
    inside = app_parts(report)
    if app:
        lines.append(_line(f"└ app {numbers.duration(means['app'])}", inside, width))
    return lines


def _thread(thread: ThreadTime, width: int) -> str:
    tid = str(thread.tid)
    comm = fit(thread.comm, _head_width(width) - len("thread  ") - len(tid))
    return _line(f"thread {comm} {tid}", activities(thread.share), width)


def _line(head: str, parts: Sequence[Part], width: int) -> str:
    first = _head_width(width)
    room = max(27, (width - first) * 3 // 10)
    bar, unnamed = bars.stacked_bar(parts, width - first - room - 2, room)
    return f"{column(head, first)} {bar} {unnamed}".rstrip()


def _head_width(width: int) -> int:
    return 20 if width < 96 else 26 if width < 140 else 31


def _parts(
    names: Sequence[Tuple[str, str, str]], values: Mapping[str, float], whole: float
) -> List[Part]:
    return [
        Part(words, values[name] / whole, fill) for name, words, fill in names if name in values
    ]


def _mean_of(measured: Stages, name: str) -> float:
    latency = getattr(measured, name)
    return 0.0 if latency is None or latency.mean is None else float(latency.mean)
