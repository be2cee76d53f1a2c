"""The slowest requests of each interval, and some by chance, as the kernel half kept them.

Each becomes one text, a JSON document: a sample has many of them, and most readers of samples
need none. `udsprobe.model.requests.whole_requests` reads it.
"""

from __future__ import annotations

import ctypes
import json
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from udsprobe.kernel.abilities.syscall_table import ALIASES, TRAITS, WAITS, SyscallTable
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.shared_memory import SharedGlobals, whole_pages
from udsprobe.kernel.sockets.socket_names import address_of
from udsprobe.kernel.tables.connection_table import ConnectionTable
from udsprobe.kernel.tables.counters import (
    ABIS,
    CallKeys,
    Counters,
    endpoint,
    enum_names,
    error_name,
)
from udsprobe.printable import printable
from udsprobe.sample import URING_PREFIX, ConnectionReading, Endpoint, KeptRequest

NEVER_REACHED = (1 << 64) - 1
_TAKES_DESCRIPTOR = {"FD", "FD_THIRD", "FD_EITHER"}
_ACCEPTS = {"accept", "accept4", "io_uring:accept"}


@dataclass(frozen=True)
class _Limits:
    calls: int
    long_calls: int
    slowest: int
    places: int
    long_ns: int


class WholeRequests:
    """Reads what the kernel half kept of the interval that ended.

    Args:
        loaded: the object that keeps them.
        counters: for the names of activities.
        connections: that names destinations and peers; it lists before this reads.
        tables: native and 32-bit system-call numbers.
        tells_arrival: requests begin when their first byte arrives; else none are kept.
    """

    def __init__(
        self,
        loaded: ProbeObject,
        counters: Counters,
        connections: ConnectionTable,
        tables: Tuple[SyscallTable, SyscallTable],
        *,
        tells_arrival: bool,
    ) -> None:
        self._counters = counters
        self._connections = connections
        self._globals = SharedGlobals(loaded)
        self._layout = loaded.btf.structure("whole_request")
        limits = loaded.btf.enum("limits")
        self._limits = _Limits(
            limits["CALLS_KEPT"],
            limits["LONG_CALLS_KEPT"],
            limits["SLOWEST_KEPT"],
            limits["REQUESTS_KEPT"],
            limits["SLOW_CALL_NS"],
        )
        self._kept = limits["SLOWEST_KEPT"] + limits["SAMPLED_KEPT"]
        size = ctypes.sizeof(self._layout) * 2 * self._limits.places
        self._bytes = memoryview(loaded.mapped("whole_requests", whole_pages(size)))
        self._flags = enum_names(loaded.btf.enum("whole_flag"), "WHOLE_")
        self._has_calls = loaded.btf.enum("whole_flag")["WHOLE_HAS_CALLS"]
        self._calls = _CallRows(loaded, connections, tables)
        self._is_off = not tells_arrival
        if self._is_off:
            self._keep_none()
        self._ended_bank = 1
        self._unix_offset_ns = 0
        self._lost = 0

    def turn_over(self) -> None:
        """From now on the other bank is written: what this one has is of before this moment."""
        self._ended_bank = self._globals.get("requests_bank")
        self._globals.set("requests_bank", 1 - self._ended_bank)
        self._unix_offset_ns = time.time_ns() - time.monotonic_ns()

    def _keep_none(self) -> None:
        for name in ("slowest_floor_ns", "sampled_floor"):
            for bank in range(2):
                self._globals.set_long_word(name, bank, NEVER_REACHED)

    def read(self, connections: Iterable[ConnectionReading]) -> Optional[Tuple[KeptRequest, ...]]:
        """Those of the interval before `turn_over`, whose places are free then; None: none are.

        Args:
            connections: that tell the addresses of the targets' own ends.
        """
        if self._is_off:
            return None
        self._calls.local_of = {
            each.inode: each.local for each in connections if each.transport == "tcp"
        }
        first = self._ended_bank * self._limits.places
        keys = self._globals.long_words("kept_keys")[first : first + self._kept]
        busy = self._globals.long_words("kept_busy")[first : first + self._kept]
        found = [
            self._request(first + place, key, is_slow=place < self._limits.slowest)
            for place, key in enumerate(keys)
            if key and not busy[place]
        ]
        self._note_lost(min(keys[: self._limits.slowest]), any(busy))
        for place in range(self._kept):
            self._globals.set_long_word("kept_keys", first + place, 0)
        for name in ("slowest_floor_ns", "sampled_floor", "unkept_slowest_ns"):
            self._globals.set_long_word(name, self._ended_bank, 0)
        return tuple(found)

    def lost(self) -> int:
        """How often one of the slowest found no place, as others took it at the same moment."""
        return self._lost

    def _note_lost(self, least_kept_ns: int, is_busy: bool) -> None:
        # What was quicker than all that are kept is not missing.
        unkept_ns = self._globals.long_words("unkept_slowest_ns")[self._ended_bank]
        self._lost += (unkept_ns > least_kept_ns) + is_busy

    def _request(self, at: int, key: int, *, is_slow: bool) -> KeptRequest:
        size = ctypes.sizeof(self._layout)
        record = self._layout.from_buffer_copy(self._bytes[at * size : (at + 1) * size])
        story = json.dumps(self._story(record), separators=(",", ":"))
        return KeptRequest(
            name=f"{record.replied_ns}-{record.inode}-{'slow' if is_slow else 'chance'}",
            replied_ns=record.replied_ns,
            rank=key,
            is_slow=is_slow,
            story=story,
        )

    def _story(self, record: Any) -> Dict[str, object]:
        kind = self._counters.endpoint(record.endpoint)
        peer = self._connections.peer(record.peer_tgid)
        has_accept = bool(record.accepted_ns)
        return {
            "unix_us": (record.replied_ns + self._unix_offset_ns) // 1000,
            "pid": record.tgid,
            "tid": record.tid,
            "comm": printable(record.comm),
            "transport": kind.transport,
            "socket_type": kind.socket_type,
            "local": address_of(record.local),
            "peer_address": address_of(record.peer),
            "peer_pid": None if peer is None else peer.pid,
            "peer_comm": None if peer is None else peer.comm,
            "inode": record.inode,
            "peer_inode": record.peer_inode,
            "turns": record.turns,
            "flags": [name for bit, name in self._flags.items() if record.flags & bit],
            "latency_ns": record.replied_ns - record.arrived_ns,
            "accept_wait_ns": record.accepted_ns - record.established_ns if has_accept else None,
            "queued_ns": max(0, record.accepted_ns - record.arrived_ns) if has_accept else 0,
            "recv_wait_ns": record.recv_wait_ns,
            "recv_ns": record.recv_ns,
            "app_ns": record.app_ns,
            "last_gap_ns": max(0, record.reply.start_ns - record.received_ns),
            "send_ns": record.replied_ns - record.reply.start_ns,
            "activity_ns": {
                name: spent
                for name, spent in self._counters.by_activity(record.app_activity_ns).items()
                if spent
            },
            "upstream_ns": record.upstream_ns,
            **self._calls_of(record),
        }

    def _calls_of(self, record: Any) -> Dict[str, object]:
        if not record.flags & self._has_calls:
            return {"calls_apart": None, "not_kept": None, "not_kept_below_ns": None}
        kept, missing, are_short = _chosen(record, self._limits)
        roles = {call.inode: call.role for call in kept if call.inode and call.role}
        rows = [self._calls.row(call, record, roles) for call in (*kept, record.reply)]
        below_ns = self._limits.long_ns if are_short else None
        return {"calls_apart": _apart(rows), "not_kept": missing, "not_kept_below_ns": below_ns}


def _apart(rows: List[List[Any]]) -> List[List[Any]]:
    """Each starts so long after the one before: requests in progress at once have calls in common,
    which a recording then has once."""
    starts = [0, *(row[1] for row in rows)]
    return [[row[0], row[1] - before, *row[2:]] for row, before in zip(rows, starts)]


def _chosen(record: Any, limits: _Limits) -> Tuple[List[Any], Optional[int], bool]:
    """The calls of the journal that ended while the request was there, in their order.

    Returns:
        (calls, how many since it was received are not among them, whether those are all short);
        the number is None where another thread received it and the journal does not reach so far.
    """
    ended = record.calls_ended
    oldest = max(0, ended - limits.calls)
    last = [record.journal.calls[number % limits.calls] for number in range(oldest, ended)]
    during = [call for call in last if call.end_ns > record.arrived_ns]
    starts = {call.start_ns for call in last}
    long_calls = list(_long_calls(record, limits))
    earlier = [call for call in long_calls if call.start_ns not in starts]
    earlier = [call for call in earlier if call.end_ns > record.arrived_ns]
    reaches_all = record.long_calls_ended <= limits.long_calls or any(
        call.end_ns <= record.arrived_ns for call in long_calls
    )
    kept = sorted([*earlier, *during], key=lambda call: int(call.start_ns))
    return kept, _missing(record, oldest, earlier, last), reaches_all


def _missing(record: Any, oldest: int, earlier: List[Any], last: List[Any]) -> Optional[int]:
    is_handed_over = bool(record.flags & 1)
    if is_handed_over:
        reaches_all = not oldest or (bool(last) and last[0].start_ns <= record.arrived_ns)
        return 0 if reaches_all else None
    made = (record.calls_ended - record.calls_before) & 0xFFFFFFFF
    among_last = min(made, record.calls_ended - oldest)
    received_ns = record.arrived_ns + record.recv_wait_ns
    return int(max(0, made - among_last - sum(call.start_ns >= received_ns for call in earlier)))


def _long_calls(record: Any, limits: _Limits) -> Iterator[Any]:
    for place in range(min(record.long_calls_ended, limits.long_calls)):
        yield record.journal.long_calls[place]


class _CallRows:
    """Calls of a journal as rows of the text."""

    def __init__(
        self,
        loaded: ProbeObject,
        connections: ConnectionTable,
        tables: Tuple[SyscallTable, SyscallTable],
    ) -> None:
        self._connections = connections
        self._tables = tables
        self._names = CallKeys(loaded.btf).calls
        self._endpoints = {
            value: endpoint(name)
            for value, name in enum_names(loaded.btf.enum("endpoint"), "ENDPOINT_").items()
        }
        self._none = loaded.btf.enum("call")["CALL_NONE"]
        self._roles = loaded.btf.enum("role")
        self.local_of: Dict[int, str] = {}

    def row(self, call: Any, record: Any, roles: Mapping[int, int]) -> List[Any]:
        """As `model.requests.whole_requests` reads it; times from the request's arrival."""
        name = self._name(call)
        kind = self._endpoints[call.endpoint]
        is_uring = name.startswith(URING_PREFIX)
        whose = self._whose(call, name, record.inode, roles)
        return [
            name if call.abi == 0 else f"{ABIS[call.abi]}:{name}",
            call.start_ns - record.arrived_ns,
            call.end_ns - call.start_ns,
            None if is_uring else call.off_cpu_ns,
            None if is_uring else call.runq_ns,
            call.runq_before_ns,
            kind.transport if call.inode else "other",
            error_name(-call.result) if -4096 < call.result < 0 else call.result,
            call.fd if self._has_descriptor(call, name) else None,
            whose,
            self._address(call),
            _waits_for(name, kind, whose),
            bool(call.early),
            call.inode,
            self.local_of.get(call.inode),
        ]

    def _name(self, call: Any) -> str:
        if call.call != self._none:
            return self._names[call.call]
        return self._tables[call.abi].names.get(call.nr, f"syscall_{call.nr}")

    def _has_descriptor(self, call: Any, name: str) -> bool:
        takes: Set[str] = set(TRAITS.get(ALIASES.get(name, name), ()))
        return call.call != self._none and bool(takes & _TAKES_DESCRIPTOR)

    def _whose(self, call: Any, name: str, inode: int, roles: Mapping[int, int]) -> Optional[str]:
        if not call.inode:
            return None
        if call.inode == inode:
            return "this"
        role = call.role or roles.get(call.inode, 0)
        if role == self._roles["ROLE_UPSTREAM"]:
            return "upstream"
        if role == self._roles["ROLE_SERVED"] or name in _ACCEPTS:
            return "other"
        return None

    def _address(self, call: Any) -> Optional[str]:
        if not call.upstream:
            return None
        destination = self._connections.destination(call.upstream - 1)
        return None if destination is None else destination.address


def _waits_for(name: str, kind: Endpoint, whose: Optional[str]) -> str:
    """What a thread that sleeps in the call waits for, as its time is counted."""
    waits = WAITS.get(ALIASES.get(name, name), "OTHER").lower()
    # Of the one connection that it polls (bpf/syscalls.bpf.h, find_polled).
    if waits == "poll" and whose == "upstream":
        return "recv"
    if waits in ("recv", "send") and kind.transport == "other":
        return "other"
    return waits
