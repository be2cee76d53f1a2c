"""Requests that were kept whole, of a window: from the text of a sample to rows of the report."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import lru_cache
from itertools import accumulate
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Set, Tuple

from udsprobe.kept_requests import SAMPLED_KEPT, SLOWEST_KEPT, highest
from udsprobe.model.counters import UnsoundError
from udsprobe.model.report import Peer, StageMeans, WholeCall, WholeRequest, WholeWait
from udsprobe.model.requests.served_requests import app_parts_ns
from udsprobe.model.requests.whole_hops import NOBODY, Asked, End, Known, with_upstream
from udsprobe.sample import KeptRequest, Sample

PART_NAMES = (
    *("accept_wait", "recv_wait", "recv", "between_receives", "cpu", "runq", "upstream"),
    *("lock", "disk", "poll", "other", "not_known", "send"),
)
"""Of `parts_us`, in the order in which a request passes them, as far as there is one."""

# The account of the thread and that of the connection may differ by so much.
_SLACK, _SLACK_NS = 0.01, 20_000
_BLOCKED = "blocked_"
# In a row of a call.
_WHOSE = 9


def slowest_requests(first: Sample, last: Sample) -> Optional[List[WholeRequest]]:
    """The slowest of the window, the slowest first; None when none are kept."""
    return _rows(first, last, is_slow=True, count=SLOWEST_KEPT)


def sampled_requests(first: Sample, last: Sample) -> Optional[List[WholeRequest]]:
    """Some of the window, drawn by chance, the slowest first; None when none are kept."""
    rows = _rows(first, last, is_slow=False, count=SAMPLED_KEPT)
    return None if rows is None else sorted(rows, key=lambda each: -each.latency_us)


def _rows(
    first: Sample, last: Sample, *, is_slow: bool, count: int
) -> Optional[List[WholeRequest]]:
    if first.kept_requests is None or last.kept_requests is None:
        return None
    within = [
        each
        for each in last.kept_requests
        if first.monotonic_ns < each.replied_ns <= last.monotonic_ns
    ]
    every = [_read(each.story or "") for each in within]
    chosen = highest((each for each in within if each.is_slow is is_slow), count)
    return [with_upstream(_read(each.story or ""), every) for each in chosen]


def whole_request(kept: KeptRequest) -> WholeRequest:
    """The row of one request, by itself.

    Raises:
        UnsoundError: the text is none that udsprobe wrote.
    """
    return _read(kept.story or "").row


# What a text raises that udsprobe did not write.
_NO_STORY = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


# Reports of an interval, of the last seconds and of the whole window have the same ones.
@lru_cache(maxsize=1024)
def _read(text: str) -> Known:
    try:
        story = json.loads(text)
        if "calls_apart" in story:
            story["calls"] = _since_arrival(story["calls_apart"])
        return Known(_row(story), *_ends(story))
    except _NO_STORY as error:
        raise UnsoundError(f"a kept request is damaged: {error!r}") from error


def _since_arrival(apart: Optional[List[List[Any]]]) -> Optional[List[List[Any]]]:
    """Calls that say how long after the one before they start; former recordings have it so."""
    if apart is None:
        return None
    starts = accumulate(_number(row[1]) for row in apart)
    return [[row[0], start, *row[2:]] for row, start in zip(apart, starts)]


def _ends(story: Mapping[str, Any]) -> Tuple[int, FrozenSet[End], Tuple[Asked, ...]]:
    """When it arrived, its client's end, and the requests of its own."""
    arrived_us = _number(story["unix_us"]) - _number(story["latency_ns"]) // 1000
    client: Set[End] = {_number(story["peer_inode"]), _text(story["peer_address"])}
    asked = []
    for row in story["calls"] or ():
        inode, local = _number(row[-2]), row[-1]
        if row[_WHOSE] == "upstream":
            begin_us, took_us = _number(row[1]) // 1000, _number(row[2]) // 1000
            ends: Set[End] = {inode, "" if local is None else _text(local)}
            asked.append(Asked(frozenset(ends - NOBODY), begin_us, begin_us + took_us))
    return arrived_us, frozenset(client - NOBODY), tuple(asked)


def _at(unix_us: int) -> str:
    moment = datetime.fromtimestamp(unix_us / 1e6, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds")


def _row(story: Mapping[str, Any]) -> WholeRequest:
    flags = frozenset(map(_text, story["flags"]))
    return WholeRequest(
        at=_at(_number(story["unix_us"])),
        pid=_whole(story["pid"]),
        tid=_whole(story["tid"]),
        comm=_text(story["comm"]),
        transport=_text(story["transport"]),
        address=_text(story["local"]),
        peer=_peer(story),
        latency_us=_number(story["latency_ns"]) / 1e3,
        stages_us=_stages(story),
        parts_us=_parts_us(story, is_handed_over="handed_over" in flags),
        waits=_waits(story, is_handed_over="handed_over" in flags),
        calls=_calls(story),
        calls_not_kept=_maybe_whole(story["not_kept"]),
        not_kept_below_us=_maybe_us(story["not_kept_below_ns"]),
        connection_turn=_whole(story["turns"]) + 1,
        handed_over="handed_over" in flags,
        turn_based=not flags & {"pipelined", "multiplexed"},
    )


def _peer(story: Mapping[str, Any]) -> Optional[Peer]:
    pid, comm = _maybe_whole(story["peer_pid"]), story["peer_comm"]
    address = _text(story["peer_address"]) or None
    if pid is None and address is None:
        return None
    return Peer(pid=pid, comm=None if comm is None else _text(comm), address=address)


def _stages(story: Mapping[str, Any]) -> StageMeans:
    return StageMeans(
        accept_wait=_maybe_us(story["accept_wait_ns"]),
        recv_wait=_maybe_us(story["recv_wait_ns"]),
        recv=_number(story["recv_ns"]) / 1e3,
        app=_number(story["app_ns"]) / 1e3,
        send=_number(story["send_ns"]) / 1e3,
    )


def _parts_us(story: Mapping[str, Any], *, is_handed_over: bool) -> Dict[str, float]:
    """Exactly the latency, all together; what nobody knows is a part of its own."""
    latency_ns, app_ns = _number(story["latency_ns"]), _number(story["app_ns"])
    gap_ns = min(_number(story["last_gap_ns"]), app_ns)
    parts = {
        "recv_wait": _number(story["recv_wait_ns"] or 0),
        "recv": _number(story["recv_ns"]),
        "between_receives": app_ns - gap_ns,
        **_app_parts(story, gap_ns, is_handed_over=is_handed_over),
        "send": _number(story["send_ns"]),
    }
    # What is left was before accept() returned, or two threads' calls overlapped.
    rest_ns = latency_ns - sum(parts.values())
    queued_ns = min(max(0, rest_ns), _number(story["queued_ns"]))
    parts["accept_wait"] = queued_ns
    parts["not_known"] = parts.get("not_known", 0) + rest_ns - queued_ns
    _make_up(parts)
    return {name: parts[name] / 1e3 for name in PART_NAMES if parts.get(name, 0) > 0}


def _app_parts(story: Mapping[str, Any], gap_ns: int, *, is_handed_over: bool) -> Dict[str, int]:
    activity_ns = {_text(name): _number(ns) for name, ns in story["activity_ns"].items()}
    spent_ns = sum(activity_ns.values())
    if is_handed_over or abs(spent_ns - gap_ns) > _SLACK * gap_ns + _SLACK_NS:
        return {"not_known": gap_ns}
    parts = app_parts_ns(activity_ns, _number(story["upstream_ns"]))
    parts["cpu"] += gap_ns - spent_ns
    return parts


def _make_up(parts: Dict[str, int]) -> None:
    """Parts below 0 are taken from the largest ones."""
    missing_ns = -sum(spent_ns for spent_ns in parts.values() if spent_ns < 0)
    for name in sorted(parts, key=lambda each: -parts[each]):
        taken_ns = min(missing_ns, max(0, parts[name]))
        parts[name] = max(0, parts[name]) - taken_ns
        missing_ns -= taken_ns


def _waits(story: Mapping[str, Any], *, is_handed_over: bool) -> List[WholeWait]:
    if is_handed_over:
        return []
    found = {
        name[len(_BLOCKED) :]: _number(ns)
        for name, ns in story["activity_ns"].items()
        if name.startswith(_BLOCKED)
    }
    ranked = sorted(found.items(), key=lambda pair: -pair[1])
    return [WholeWait(kind=kind, total_us=ns / 1e3) for kind, ns in ranked]


def _calls(story: Mapping[str, Any]) -> Optional[List[WholeCall]]:
    return None if story["calls"] is None else [_call(row) for row in story["calls"]]


def _call(row: List[Any]) -> WholeCall:
    name, at, wall, off, runq, before, transport, result, fd, whose, address, waits, early = row[
        :-2
    ]
    is_error = isinstance(result, str)
    return WholeCall(
        name=_text(name),
        at_us=_number(at) / 1e3,
        duration_us=_number(wall) / 1e3,
        off_cpu_us=_maybe_us(off),
        runq_us=_maybe_us(runq),
        runq_before_us=_number(before) / 1e3,
        transport=_text(transport),
        result=None if is_error else _whole(result),
        error=_text(result) if is_error else None,
        fd=_maybe_whole(fd),
        whose=None if whose is None else _text(whose),
        address=None if address is None else _text(address),
        waits_for=_text(waits),
        is_early=bool(early),
    )


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number")
    return value


_whole = _number


def _maybe_whole(value: Any) -> Optional[int]:
    return None if value is None else _number(value)


def _maybe_us(value: Any) -> Optional[float]:
    return None if value is None else _number(value) / 1e3


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
