"""Connections of the targets and their requests upstream, as sample types."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Tuple

from udsprobe.kernel.counters import Counters, latency_of
from udsprobe.kernel.probe_object import ProbeObject
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.socket_names import SocketName
from udsprobe.sample import ConnectionReading, PeerReading, UpstreamCounts

# A report shows the busiest 50; more are kept so that two samples hold the same ones.
KEPT_MAX = 200


class ConnectionTable:
    """Reads connections that were used or hold bytes, and remembers the busiest.

    Args:
        loaded: the object that counts.
        counters: for the endpoints' names.
        procfs: for the peers' names.
    """

    def __init__(self, loaded: ProbeObject, counters: Counters, procfs: Procfs) -> None:
        self._object = loaded
        self._counters = counters
        self._procfs = procfs
        self._record = loaded.btf.structure("connection_record")
        self._upstream = loaded.btf.structure("upstream")
        self._roles = {
            value: name[len("ROLE_") :].lower() for name, value in loaded.btf.enum("role").items()
        }
        self._known: Dict[Tuple[int, int], ConnectionReading] = {}
        self._comms: Dict[int, Optional[str]] = {}

    def read(self) -> Tuple[Tuple[ConnectionReading, ...], int]:
        """The busiest connections so far, and how many are open."""
        self._counters.reset_open_connections()
        raw = self._object.iterate("list_connections", over="connections")
        size = ctypes.sizeof(self._record)
        for at in range(0, len(raw) - size + 1, size):
            record = self._record.from_buffer_copy(raw, at)
            self._known[(record.sk, record.inode)] = self._reading(record)
        kept = sorted(self._known.items(), key=lambda item: -_weight(item[1]))[:KEPT_MAX]
        self._known = dict(kept)
        return tuple(self._known.values()), self._counters.open_connections()

    def upstream(self) -> Tuple[UpstreamCounts, ...]:
        """Requests of the targets by destination."""
        size = ctypes.sizeof(self._upstream)
        found = []
        for raw in self._object.elements("upstreams", size, self._counters.upstreams_used()):
            entry = self._upstream.from_buffer_copy(raw)
            found.append(
                UpstreamCounts(
                    transport=self._counters.endpoint(entry.endpoint).transport,
                    address=SocketName.of(entry.name).address(),
                    peer=self._peer(entry.peer_tgid),
                    opened=entry.opened,
                    latency=latency_of(entry.latency),
                )
            )
        return tuple(found)

    def _reading(self, record: Any) -> ConnectionReading:
        return ConnectionReading(
            inode=record.inode,
            pid=record.tgid,
            transport=self._counters.endpoint(record.endpoint).transport,
            role=self._roles[record.role],
            local=SocketName.of(record.local).address(),
            peer_address=SocketName.of(record.peer).address(),
            peer=self._peer(record.peer_tgid),
            turns=record.turns,
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
            recv_queue_bytes=record.recv_queue_bytes,
            send_queue_bytes=record.send_queue_bytes,
            send_buffer_bytes=record.send_buffer_bytes,
            send_blocked=record.send_blocked,
            send_blocked_ns=record.send_blocked_ns,
            send_blocked_max_ns=record.send_blocked_max_ns,
            send_eagain=record.send_eagain,
        )

    def _peer(self, pid: int) -> Optional[PeerReading]:
        if not pid:
            return None
        if pid not in self._comms:
            process = self._procfs.process(pid)
            self._comms[pid] = process.comm if process is not None else None
        return PeerReading(pid, self._comms[pid])


def _weight(reading: ConnectionReading) -> int:
    stuck = reading.send_blocked + reading.send_eagain
    return reading.turns + (reading.bytes_in + reading.bytes_out) // 1024 + 1000 * stuck
