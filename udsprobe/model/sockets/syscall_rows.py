"""The table of system calls: one row per call, caller's ABI and kind of endpoint.

Knows samples and the report's rows; reads nothing from the system.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Optional, Tuple

from udsprobe.model.counters import grown, grown_by_key
from udsprobe.model.histogram import NOTHING, latency_us, subtract
from udsprobe.model.report import Syscall
from udsprobe.sample import URING_PREFIX, CallCounts, CallInFlight, Endpoint, Sample

_Key = Tuple[str, str, Endpoint]

_NS_PER_US = 1000


def syscall_rows(first: Sample, last: Sample) -> Optional[List[Syscall]]:
    """What each system call did between two samples, the most called first.

    Rows without a completed call are there only while a thread is inside one.
    None when system calls are not counted.

    Raises:
        UnsoundError: a counter went backwards; the message names it.
    """
    if first.calls is None or last.calls is None:
        return None
    before, after = _by_key(first.calls), _by_key(last.calls)
    waiting = None if last.in_flight is None else _waiting(last.in_flight)
    keys = set(after).union(before, waiting or ())
    rows = (_row(key, before.get(key), after.get(key), waiting) for key in keys)
    return sorted((row for row in rows if _is_active(row)), key=_order)


def _by_key(calls: Tuple[CallCounts, ...]) -> Dict[_Key, CallCounts]:
    return {(call.name, call.abi, call.endpoint): call for call in calls}


def _waiting(in_flight: Tuple[CallInFlight, ...]) -> Dict[_Key, int]:
    return Counter((call.name, call.abi, call.endpoint) for call in in_flight)


def _row(
    key: _Key,
    before: Optional[CallCounts],
    after: Optional[CallCounts],
    waiting: Optional[Dict[_Key, int]],
) -> Syscall:
    name, abi, endpoint = key
    start, end = before or _no_calls(key), after or _no_calls(key)
    label = f"{name}/{endpoint.transport}"
    in_ring = name.startswith(URING_PREFIX)
    return Syscall(
        name=name,
        transport=endpoint.transport,
        socket_type=endpoint.socket_type,
        abi=abi,
        calls=grown(f"{label} calls", end.calls, start.calls),
        in_flight=None if waiting is None or in_ring else waiting.get(key, 0),
        errors=grown_by_key(f"{label} errors", end.errors, start.errors),
        bytes=grown(f"{label} bytes", end.bytes, start.bytes),
        wall_us=grown(f"{label} wall_ns", end.wall_ns, start.wall_ns) / _NS_PER_US,
        cpu_us=None if in_ring else grown(f"{label} cpu_ns", end.cpu_ns, start.cpu_ns) / _NS_PER_US,
        latency_us=latency_us(subtract(f"{label} latency", end.latency, start.latency)),
        slow_us=grown(f"{label} slow_ns", end.slow_ns, start.slow_ns) / _NS_PER_US,
    )


def _no_calls(key: _Key) -> CallCounts:
    name, abi, endpoint = key
    return CallCounts(
        name=name,
        abi=abi,
        endpoint=endpoint,
        calls=0,
        errors={},
        bytes=0,
        wall_ns=0,
        cpu_ns=0,
        slow_ns=0,
        latency=NOTHING,
    )


def _is_active(row: Syscall) -> bool:
    return bool(row.calls or row.errors or row.in_flight)


def _order(row: Syscall) -> Tuple[int, str, str, str, str]:
    return -row.calls, row.name, row.transport, row.socket_type or "", row.abi
