"""A report document as sums that can be added up: what a comparison is made of.

Knows the document's fields and nothing of files. A mean becomes a sum again
(mean times count), so that intervals, and runs, add up to what they are
together. None is not measured, and stays so in every sum it is part of.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

REPORT_SCHEMA = "udsprobe.report/1"
STAGES = ("recv_wait", "recv", "app", "send")
APP_TIME = ("client", "cpu", "runq", "upstream", "lock", "disk", "poll", "other")
PERCENTILES = ("p50", "p90", "p99", "p999")
SYSTEM = ("sys_socket", "sys_poll", "sys_other")
SOCKETS = ("unix", "tcp", "udp")
_US_PER_S = 1e6
# Five means with 3 decimals each: what they differ by within this is no time.
_ROUNDED_US = 0.0025

Document = Mapping[str, Any]


class NotAReport(ValueError):
    """The document is none of `udsprobe.report/1`; the message says where."""


@dataclass(frozen=True)
class Tally:
    """Sums and percentiles of one window.

    Attributes:
        sums: by name, see `tally`; µs, bytes, s or counts.
        percentiles: of the served requests' latency, µs.
        by_syscall: system calls, estimated from their number per request.
        by_function: samples of stacks, by the function that ran; samples: all of them.
    """

    sums: Mapping[str, Optional[float]]
    percentiles: Mapping[str, Optional[float]]
    by_syscall: Mapping[str, float]
    by_function: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0

    def of(self, name: str) -> Optional[float]:
        return self.sums[name]

    @property
    def requests(self) -> float:
        """Served, 0 where that is not measured."""
        return self.sums["requests"] or 0.0


@dataclass(frozen=True)
class About:
    """Where a document comes from and what casts doubt on it."""

    start: str
    hostname: str
    kernel: str
    cpus: int
    version: str
    strategy: str
    targets: Sequence[str]
    served_on: Sequence[str]
    lost: int
    turned_away: int
    turn_based: Optional[bool]
    detail: str = "full"


def tally(document: Document) -> Tally:
    """The sums of one report document.

    Raises:
        NotAReport: a field is missing or of another type.
    """
    _check_schema(document)
    document = without_windows(document)
    served = _part(document, "requests", "served")
    sums: Dict[str, Optional[float]] = {"duration_s": _number(document, "window", "duration_s")}
    sums.update(_latency_sums(served))
    sums.update(_cpu_sums(_part(document, "time")))
    sums["accepted"] = _accepted(document)
    sums["socket_bytes"] = _socket_bytes(document)
    sums["reply_pauses_us"] = _reply_pauses(document)
    made = _part(document, "requests", "syscalls_per_request")
    count = sums["requests"] or 0.0
    sums["syscalls"] = _syscalls(made, count, measured=document.get("syscalls") is not None)
    sampled = document.get("stacks") and _part(document, "stacks")
    samples = round(_number(sampled, "samples") or 0) if sampled else 0
    by_function = _by_function(sampled, samples) if sampled else {}
    return Tally(sums, _percentiles(served), _by_syscall(made, count), by_function, samples)


def without_windows(document: Document) -> Document:
    """The document without what full windows of detail auto tell: that is of other times."""
    probe, requests = document.get("probe"), document.get("requests")
    if not isinstance(probe, Mapping) or probe.get("detail") != "auto":
        return document
    kept: Dict[str, Any] = {**document, "time": None, "syscalls": None, "stacks": None}
    if isinstance(requests, Mapping):
        kept["requests"] = {**requests, "syscalls_per_request": None}
        served = requests.get("served")
        if "served_requests" in _of_windows(probe):
            kept.update(listeners=None, connections=None)
            kept["requests"].update(served=None, served_by=None, upstream=None, hops=None)
        elif isinstance(served, Mapping):
            stages = dict.fromkeys(STAGES)
            kept["requests"]["served"] = {**served, "stages_us": {**stages, "accept_wait": None}}
            kept["requests"]["served"]["app_time_pct"] = None
    return kept


def _of_windows(probe: Document) -> List[str]:
    """The measurements whose figures are of a full window."""
    rows = probe.get("measurements")
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [str(row.get("name")) for row in found if row.get("coverage") is not None]


def _by_function(sampled: Document, samples: int) -> Dict[str, int]:
    """Those that a report shows."""
    found: Counter[str] = Counter()
    places = sampled.get("functions")
    for place in places if isinstance(places, list) else []:
        stack = place.get("stack") if isinstance(place, Mapping) else None
        if not isinstance(stack, list) or not stack or not isinstance(stack[0], str):
            raise NotAReport("stacks.functions is not as in a report")
        found[stack[0]] += round((_number(place, "share_pct") or 0.0) / 100 * samples)
    return found


def _syscalls(made: Optional[Document], count: float, measured: bool) -> Optional[float]:
    if made is None:
        # Null is no request as well as not measured.
        return 0.0 if measured and not count else None
    return (_number(made, "total") or 0.0) * count


def _check_schema(document: Document) -> None:
    if not isinstance(document, Mapping) or document.get("schema") != REPORT_SCHEMA:
        raise NotAReport(f"it is not a {REPORT_SCHEMA} document")


def _latency_sums(served: Optional[Document]) -> Dict[str, Optional[float]]:
    names = ("requests", "latency_us", *(f"{stage}_us" for stage in STAGES))
    names = (*names, *(f"app_{doing}_us" for doing in APP_TIME))
    names = (*names, "before_accept_us", "accept_wait_us", "first_requests")
    if served is None:
        return dict.fromkeys(names)
    latency = _required(served, "latency_us")
    sums = {"requests": _number(served, "count"), "latency_us": _sum_us(latency)}
    for stage in STAGES:
        sums[f"{stage}_us"] = _sum_us(_part(served, "stages_us", stage))
    accept_wait = _part(served, "stages_us", "accept_wait")
    sums["accept_wait_us"] = _sum_us(accept_wait)
    sums["first_requests"] = None if accept_wait is None else _number(accept_wait, "count")
    sums.update(_app_sums(served, sums["app_us"]))
    return {**sums, "before_accept_us": _before_accept(sums)}


def _app_sums(served: Document, app_us: Optional[float]) -> Dict[str, Optional[float]]:
    """The stage app by what the targets did in it; together they are the stage."""
    shares = None if served.get("app_time_pct") is None else _required(served, "app_time_pct")
    if shares is None or app_us is None:
        nothing = 0.0 if app_us == 0 else None
        return {f"app_{doing}_us": nothing for doing in APP_TIME}
    parts = {doing: _number(shares, doing) or 0.0 for doing in APP_TIME if doing in shares}
    whole = sum(parts.values())
    return {
        f"app_{doing}_us": app_us * parts.get(doing, 0.0) / whole if whole else None
        for doing in APP_TIME
    }


def _before_accept(sums: Mapping[str, Optional[float]]) -> Optional[float]:
    """Latency in no stage: the request was there, its connection was not accepted yet."""
    parts = [sums[f"{stage}_us"] for stage in STAGES]
    known = [part for part in parts if part is not None]
    whole = sums["latency_us"]
    if whole is None or len(known) < len(parts):
        return None
    rest = whole - sum(known)
    return 0.0 if abs(rest) <= _ROUNDED_US * (sums["requests"] or 0.0) else rest


def _sum_us(latency: Optional[Document]) -> Optional[float]:
    if latency is None:
        return None
    count = _number(latency, "count")
    mean = _number(latency, "mean")
    return 0.0 if not count else None if mean is None else mean * count


def _percentiles(served: Optional[Document]) -> Dict[str, Optional[float]]:
    if served is None:
        return dict.fromkeys(PERCENTILES)
    latency = _required(served, "latency_us")
    return {name: _number(latency, name) for name in PERCENTILES}


def _cpu_sums(time: Optional[Document]) -> Dict[str, Optional[float]]:
    # Absent in documents of the first version, which cannot tell how many threads there were.
    if time is None or time.get("total_s") is None:
        return dict.fromkeys(("user_us", "system_us", "cpu_us", "runq_us"))
    whole_us = (_number(time, "total_s") or 0.0) * _US_PER_S
    total = _required(time, "total")
    user = (_number(total, "user") or 0.0) * whole_us
    system = sum((_number(total, name) or 0.0) for name in SYSTEM) * whole_us
    runq = (_number(total, "runq") or 0.0) * whole_us
    return {"user_us": user, "system_us": system, "cpu_us": user + system, "runq_us": runq}


def _accepted(document: Document) -> Optional[float]:
    listeners = _rows(document, "listeners")
    if listeners is None:
        return None
    accepted = [_number(row, "accepted") for row in listeners]
    return sum(n for n in accepted if n is not None) if None not in accepted else None


def _socket_bytes(document: Document) -> Optional[float]:
    rows = _rows(document, "syscalls")
    if rows is None:
        return None
    return sum(_number(row, "bytes") or 0.0 for row in rows if row.get("transport") in SOCKETS)


def _reply_pauses(document: Document) -> Optional[float]:
    """Pauses after replies have begun, of the outermost server of a chain."""
    requests = _required(document, "requests")
    rows, hops = _rows(requests, "served_by"), _rows(requests, "hops")
    if rows is None:
        return None
    outer = hops[0].get("pids") if hops and len(hops) > 1 else None
    told = [row for row in rows if not isinstance(outer, list) or row.get("pid") in outer]
    # Absent in documents of earlier versions, None where a status is not looked for.
    return _total(_paused_us(row.get("in_pieces")) for row in told)


def _paused_us(in_pieces: Any) -> Optional[float]:
    if in_pieces is None:
        return None
    if not isinstance(in_pieces, Mapping):
        raise NotAReport("served_by.in_pieces is not an object")
    return (_number(in_pieces, "paused_mean_us") or 0.0) * (_number(in_pieces, "count") or 0.0)


def _by_syscall(made: Optional[Document], requests: float) -> Dict[str, float]:
    if made is None:
        return {}
    rows = _required(made, "by_syscall")
    return {_text(name): (_number(rows, name) or 0.0) * requests for name in rows}


def about(document: Document) -> About:
    """Where one report document comes from.

    Raises:
        NotAReport: a field is missing or of another type.
    """
    _check_schema(document)
    host, probe = _required(document, "host"), _required(document, "probe")
    served = _part(document, "requests", "served")
    return About(
        start=_text(_required(document, "window").get("start")),
        hostname=_text(host.get("hostname")),
        kernel=_text(host.get("kernel")),
        cpus=int(_number(host, "cpus") or 0),
        version=_text(document.get("version")),
        strategy=_text(probe.get("strategy")),
        targets=_targets(document),
        served_on=_served_on(document),
        lost=int(sum(_number(_required(probe, "events_lost"), name) or 0 for name in _LOSSES)),
        turned_away=int(_number(probe, "turned_away") or 0),
        turn_based=None if served is None else _flag(served.get("turn_based")),
        # Documents of earlier versions have none.
        detail=_text(probe.get("detail")) if "detail" in probe else "full",
    )


_LOSSES = ("map_full", "ring_full", "missed")


def _targets(document: Document) -> List[str]:
    names = [_text(row.get("comm")) for row in _rows(document, "targets") or ()]
    return list(dict.fromkeys(names))


def _served_on(document: Document) -> List[str]:
    """Where requests came in: listeners that accepted, connections that were served."""
    accepted = [row for row in _rows(document, "listeners") or () if _number(row, "accepted")]
    served = [row for row in _rows(document, "connections") or () if row.get("role") == "served"]
    busy = [row for row in served if _number(row, "requests")]
    places = [*((row, "address") for row in accepted), *((row, "local") for row in busy)]
    named = (f"{_text(row.get('transport'))} {_text(row.get(key))}" for row, key in places)
    return list(dict.fromkeys(named))


def added(parts: Sequence[Tally]) -> Tally:
    """Several windows as one; its percentiles are those of the interval in the middle.

    Args:
        parts: one or more.
    """
    sums = {name: _total(part.sums[name] for part in parts) for name in parts[0].sums}
    by_syscall: Dict[str, float] = {}
    for part in parts:
        for name, calls in part.by_syscall.items():
            by_syscall[name] = by_syscall.get(name, 0.0) + calls
    by_function: Counter[str] = Counter()
    for part in parts:
        by_function.update(part.by_function)
    samples = sum(part.samples for part in parts)
    percentiles = {name: middle(parts, name) for name in PERCENTILES}
    return Tally(sums, percentiles, by_syscall, by_function, samples)


def middle(parts: Sequence[Tally], percentile: str) -> Optional[float]:
    """The percentile of the interval in the middle, by requests; None without requests."""
    known = [(part.percentiles[percentile], part.requests) for part in parts]
    measured = [(value, weight) for value, weight in known if value is not None and weight]
    return middle_of(measured) if measured else None


def middle_of(weighted: Sequence[Tuple[float, float]]) -> float:
    """The value with half of the weight at or below it.

    Args:
        weighted: one or more values, each with its weight above 0.
    """
    ranked = sorted(weighted)
    half = sum(weight for _, weight in ranked) / 2
    reached = 0.0
    for value, weight in ranked:
        reached += weight
        if reached >= half:
            return value
    return ranked[-1][0]


def _total(values: Iterable[Optional[float]]) -> Optional[float]:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _part(document: Document, *path: str) -> Optional[Document]:
    """The object at `path`; None where it, or one above it, is null."""
    found: Any = document
    for name in path:
        if found is None:
            return None
        if not isinstance(found, Mapping) or name not in found:
            raise NotAReport(f"{'.'.join(path)} is missing")
        found = found[name]
    if found is not None and not isinstance(found, Mapping):
        raise NotAReport(f"{'.'.join(path)} is not an object")
    return found


def _required(document: Document, name: str) -> Document:
    found = _part(document, name)
    if found is None:
        raise NotAReport(f"{name} is null")
    return found


def _rows(document: Document, name: str) -> Optional[List[Document]]:
    found = document.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise NotAReport(f"{name} is not a list of objects")
    return found


def _number(document: Document, *path: str) -> Optional[float]:
    """The number at `path`: finite, and not below zero."""
    holder = _part(document, *path[:-1]) if len(path) > 1 else document
    if holder is None or path[-1] not in holder:
        raise NotAReport(f"{'.'.join(path)} is missing")
    value = holder[path[-1]]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotAReport(f"{'.'.join(path)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise NotAReport(f"{'.'.join(path)} is not a possible value")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotAReport("a name is not text")
    return value


def _flag(value: Any) -> Optional[bool]:
    if value is not None and not isinstance(value, bool):
        raise NotAReport("turn_based is not a boolean")
    return value
