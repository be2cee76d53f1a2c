"""The requests of each process, as sample types."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.tables.connection_table import ConnectionTable
from udsprobe.kernel.tables.counters import (
    Counters,
    enum_names,
    http_replies_of,
    latency_of,
    pieces_of,
)
from udsprobe.sample import (
    GivenUpCounts,
    LatencyCounts,
    OwnRequestCounts,
    PeerReading,
    ServerReading,
    UnansweredCounts,
    Waiting,
)

NOTHING_WAITS = Waiting(0, None)
_TOLD_BY_CALLS = (
    *("handed_over", "pipelined", "multiplexed", "tls_handshakes", "at_once", "given_up"),
    *("dropped", "http", "in_pieces", "rest_ns"),
)
_PENDING = {
    "in_progress": "PENDING_IN_PROGRESS",
    "unread": "PENDING_UNREAD",
    "asking": "PENDING_ASKING",
    "abandoned": "PENDING_ABANDONED",
    "asked_before": "PENDING_ASKED_BEFORE",
}


class ServerTable:
    """Reads what the kernel half counts by process.

    Args:
        loaded: the object that counts.
        counters: for the names of activities.
        connections: that names destinations and peers; it lists before this reads.
        tells_arrival: so it is known how long answers to them wait to be received.
        sees_calls: what the threads did in between is measured.
    """

    def __init__(
        self,
        loaded: ProbeObject,
        counters: Counters,
        connections: ConnectionTable,
        *,
        tells_arrival: bool = True,
        sees_calls: bool = True,
    ) -> None:
        self._object = loaded
        self._tells_arrival = tells_arrival and sees_calls
        self._sees_calls = sees_calls
        self._counters = counters
        self._connections = connections
        self._server = loaded.btf.structure("server")
        self._key = loaded.btf.structure("server_upstream_key")
        self._upstream = loaded.btf.structure("server_upstream")
        self._stages = enum_names(loaded.btf.enum("stage"), "STAGE_")
        self._stages_count = loaded.btf.enum("stage")["STAGE_MAX"]
        self._pending = loaded.btf.enum("pending_kind")
        self._comms: Dict[int, str] = {}
        self._latencies: Dict[int, LatencyCounts] = {}

    def read(self, comms: Mapping[int, str]) -> Tuple[ServerReading, ...]:
        """Each process that answered or made a request, or has one waiting.

        Args:
            comms: pid → name of the targets; one that is gone keeps its last.
        """
        self._comms.update(comms)
        upstream = self._upstreams()
        found = []
        for key, value in self._object.entries("servers", 4, ctypes.sizeof(self._server)):
            (pid,) = struct.unpack("<I", key)
            entry = self._server.from_buffer_copy(value)
            found.append(self._reading(pid, entry, upstream.get(pid, [])))
        known = {reading.pid for reading in found}
        self._comms = {pid: comm for pid, comm in self._comms.items() if pid in known}
        self._latencies = {pid: each for pid, each in self._latencies.items() if pid in known}
        return tuple(sorted(found, key=lambda reading: reading.pid))

    def _reading(self, pid: int, entry: Any, upstream: List[OwnRequestCounts]) -> ServerReading:
        stages = {name: entry.stages_ns[at] for at, name in self._stages.items() if self._is(at)}
        reading = ServerReading(
            pid=pid,
            comm=self._comms.get(pid),
            count=entry.latency.count,
            total_ns=entry.latency.total_ns,
            max_ns=entry.latency.max_ns,
            stages_ns=stages,
            accept_waits=entry.accept_waits,
            app_activity_ns=self._counters.by_activity(entry.app_activity_ns),
            upstream_wait_ns=entry.upstream_ns,
            handed_over=entry.handed_over,
            pipelined=entry.pipelined,
            multiplexed=entry.multiplexed,
            tls_handshakes=entry.tls_handshakes,
            at_once=entry.at_once,
            upstream=tuple(upstream),
            given_up=GivenUpCounts(entry.given_up, entry.given_up_ns, entry.given_up_upstream_ns),
            dropped=UnansweredCounts(entry.dropped, entry.dropped_ns),
            **{name: self._waiting(entry, kind) for name, kind in _PENDING.items()},
            latency=self._latency(pid, entry),
            http=http_replies_of(entry.replies),
            in_pieces=pieces_of(entry.pieces, self._counters.by_activity(entry.paused_activity_ns)),
            rest_ns=entry.rest_ns if self._tells_arrival else None,
        )
        if self._sees_calls:
            return reading
        not_told: Dict[str, Any] = dict.fromkeys(_TOLD_BY_CALLS)
        return replace(
            reading,
            stages_ns={},
            app_activity_ns={},
            **not_told,
        )

    def _latency(self, pid: int, entry: Any) -> LatencyCounts:
        """The same object as before where nothing was served: most are idle."""
        known = self._latencies.get(pid)
        if known is None or known.count != entry.latency.count:
            known = self._latencies[pid] = latency_of(entry.latency)
        return known

    def _is(self, stage: int) -> bool:
        return stage < self._stages_count

    def _waiting(self, entry: Any, kind: str) -> Waiting:
        if entry.listing != self._counters.listing():
            return NOTHING_WAITS
        pending = entry.pending[self._pending[kind]]
        return Waiting(pending.count, pending.oldest_ns if pending.count else None)

    def _upstreams(self) -> Dict[int, List[OwnRequestCounts]]:
        found: Dict[int, Dict[Tuple[str, str], OwnRequestCounts]] = {}
        sizes = ctypes.sizeof(self._key), ctypes.sizeof(self._upstream)
        for raw_key, raw in self._object.entries("server_upstreams", *sizes):
            key, entry = self._key.from_buffer_copy(raw_key), self._upstream.from_buffer_copy(raw)
            destination = self._connections.destination(key.upstream)
            if destination is None:
                continue
            place = destination.transport, destination.address
            rows = found.setdefault(key.tgid, {})
            peer = self._connections.peer(entry.peer_tgid)
            rows[place] = self._added(rows.get(place), place, peer, entry)
        return {pid: list(rows.values()) for pid, rows in found.items()}

    def _added(
        self,
        known: Optional[OwnRequestCounts],
        place: Tuple[str, str],
        peer: Optional[PeerReading],
        new: Any,
    ) -> OwnRequestCounts:
        """One name can be several destinations: of network namespaces, and of two CPUs at once."""
        before = known or OwnRequestCounts(*place, None, 0, 0, 0)
        waited_ns = (before.recv_wait_ns or 0) + new.recv_wait_ns if self._tells_arrival else None
        return OwnRequestCounts(
            *place,
            peer or before.peer,
            before.count + new.count,
            before.total_ns + new.total_ns,
            waited_ns,
        )
