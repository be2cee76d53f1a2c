"""Connections of the targets and their requests upstream, as sample types."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from udsprobe.kernel.counters import Counters, enum_names, latency_of
from udsprobe.kernel.probe_object import ProbeObject, records
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.socket_names import SocketName
from udsprobe.sample import (
    CONNECTIONS_KEPT_MAX,
    ConnectionReading,
    PeerReading,
    UpstreamCounts,
)


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
        self._upstreams_max = loaded.btf.enum("limits")["UPSTREAMS_MAX"]
        self._roles = enum_names(loaded.btf.enum("role"), "ROLE_")
        self._known: Dict[Tuple[int, int], ConnectionReading] = {}
        self._comms: Dict[int, Optional[str]] = {}
        self._silent: Dict[int, int] = {}

    def read(self) -> Tuple[Tuple[ConnectionReading, ...], int]:
        """The busiest connections so far, and how many are open."""
        self._counters.reset_open_connections()
        raw = self._object.iterate("list_connections", over="connections")
        listed = records(raw, self._record)
        self._comms.clear()
        self._find_silent_peers(listed)
        # What is not listed is quiet or closed, and holds nothing either way.
        self._known = {key: _emptied(reading) for key, reading in self._known.items()}
        self._known.update(((r.sk, r.inode), self._reading(r)) for r in listed)
        kept = sorted(self._known.items(), key=lambda item: -_weight(item[1]))[
            :CONNECTIONS_KEPT_MAX
        ]
        self._known = dict(kept)
        return tuple(self._known.values()), self._counters.open_connections()

    def upstream(self) -> Tuple[UpstreamCounts, ...]:
        """Requests of the targets by destination."""
        size = ctypes.sizeof(self._upstream)
        found = []
        # Two CPUs that run out of places at once count one too many.
        used = min(self._counters.upstreams_used(), self._upstreams_max)
        for raw in self._object.elements("upstreams", size, used):
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
            peer=self._peer(record.peer_tgid or self._silent.get(record.peer_inode, 0)),
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

    def _find_silent_peers(self, listed: List[Any]) -> None:
        """Who holds the other end where bytes pile up and nothing ever came back."""
        wanted = {
            record.peer_inode
            for record in listed
            if record.peer_inode and not record.peer_tgid and record.send_queue_bytes
        }
        unknown = wanted - self._silent.keys()
        self._silent = {inode: pid for inode, pid in self._silent.items() if inode in wanted}
        owners = self._procfs.owners(unknown) if unknown else None
        for inode in unknown:
            pids = owners.of(inode) if owners is not None else None
            if pids:
                self._silent[inode] = pids[0]

    def _peer(self, pid: int) -> Optional[PeerReading]:
        if not pid:
            return None
        if pid not in self._comms:
            process = self._procfs.process(pid)
            self._comms[pid] = process.comm if process is not None else None
        return PeerReading(pid, self._comms[pid])


def _emptied(reading: ConnectionReading) -> ConnectionReading:
    if not reading.recv_queue_bytes and not reading.send_queue_bytes:
        return reading
    return replace(reading, recv_queue_bytes=0, send_queue_bytes=0)


def _weight(reading: ConnectionReading) -> int:
    stuck = reading.send_blocked + reading.send_eagain
    return reading.turns + (reading.bytes_in + reading.bytes_out) // 1024 + 1000 * stuck
