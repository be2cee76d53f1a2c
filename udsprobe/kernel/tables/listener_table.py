"""The kernel half's account of listeners, as sample types.

Joins it with the sockets that sock_diag shows: by inode, which both know.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from udsprobe.kernel.objects.probe_object import ProbeObject, records
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.socket_names import SocketName, address_of
from udsprobe.kernel.tables.counters import Counters, error_name, latency_of
from udsprobe.kernel.tables.refusals import Bound, Refusals, UnixConnect
from udsprobe.kernel.tables.tcp_waiters import waiting_at
from udsprobe.sample import ConnectCounts, Endpoint, LatencyCounts, ListenerReading, QueueCounts
from udsprobe.totals import totals

DEPTH_EXACT = 32
Worker = Tuple[int, int]
# Address and inode: the address alone is used again.
Key = Tuple[int, int]


@dataclass(frozen=True)
class _Entry:
    """One element of the map, decoded; the same object until it changes.

    Attributes:
        counts: the ctypes twin of `struct listener`.
    """

    counts: Any
    name: SocketName
    address: str
    depth: Mapping[int, int]
    wait: LatencyCounts
    blocked: LatencyCounts


class ListenerTable:
    """Reads listeners, who accepted from them, and who could not connect.

    Args:
        loaded: the object that counts.
        counters: for the endpoints' names and the interval counter.
        sees_accepts: the returns of accept() and connect() are seen.
    """

    def __init__(
        self,
        loaded: ProbeObject,
        counters: Counters,
        procfs: Procfs,
        *,
        sees_accepts: bool = True,
    ) -> None:
        self._object = loaded
        self._sees_accepts = sees_accepts
        self._left: Dict[int, int] = {}
        self._counters = counters
        self._refusals = Refusals(procfs)
        btf = loaded.btf
        self._entries: Dict[Key, _Entry] = {}
        self._drops: Dict[int, int] = {}
        self._listener = btf.structure("listener")
        self._record = btf.structure("listener_record")
        self._handshake = btf.structure("handshake_record")
        self._unused = latency_of(btf.structure("latency")())
        self._unused_raw = bytes(btf.structure("latency")())
        self._failed = btf.structure("failed_connect")
        self._acceptor = btf.structure("acceptor")
        self._destination = btf.structure("destination")
        self._destination_counts = btf.structure("destination_counts")

    def read(self, interval: int) -> Tuple[ListenerReading, ...]:
        """Every listener of a target, open or closed by now.

        Args:
            interval: the one that this sample ends (`Counters.next_interval`).

        Returns:
            Readings with `queue`; `pids` holds only who called listen().
        """
        # First: whom they meant is among the listeners that are read after them.
        failures = self._failures()
        found = self._listeners()
        self._entries = {key: entry for key, entry, _ in found}
        self._drops = {e.counts.inode: self._drops_of(e.counts, record) for _, e, record in found}
        entries = self._entries.values()
        self._refusals.learn(_bound(entry) for entry in entries if _is_unix(entry.counts))
        self._refusals.add(failures)
        accepted, waiting = self._accepted(), self._waiting_for_tcp(found)
        return tuple(
            _reading(
                entry,
                record,
                self._counters.endpoint(entry.counts.endpoint),
                self._queue(
                    *(entry, record, interval, accepted.get(key, {})),
                    waiting=_sum_if_known(record.waiting, waiting.get(entry.counts.inode, 0)),
                ),
            )
            for key, entry, record in found
        )

    def connects(self) -> Tuple[ConnectCounts, ...]:
        """The targets' own connect() calls by destination and result."""
        key_size = ctypes.sizeof(self._destination)
        value_size = ctypes.sizeof(self._destination_counts)
        return tuple(
            self._connects_of(self._destination.from_buffer_copy(key), value)
            for key, value in self._object.entries("destinations", key_size, value_size)
        )

    def unplaced_failures(self) -> int:
        """Failed connects of clients that were gone before their path could be looked up."""
        return self._refusals.unplaced

    def _queue(
        self,
        entry: _Entry,
        record: Any,
        interval: int,
        by_thread: Mapping[Worker, int],
        *,
        waiting: Optional[int],
    ) -> QueueCounts:
        counts = entry.counts
        unix = _is_unix(counts)
        has_syns = record.is_alive and not unix
        queue = QueueCounts(
            since_ns=counts.seen_ns,
            **_counted(counts),
            accepted_by=_summed((pid, count) for (pid, _), count in by_thread.items()),
            accepted_by_thread=_summed((tid, count) for (_, tid), count in by_thread.items()),
            depth=entry.depth,
            depth_max=counts.depth_max,
            depth_max_recent=_recent(counts, interval),
            wait=entry.wait,
            blocked=entry.blocked,
            blocked_now=waiting,
            refused=dict(self._refusals.of(counts.inode)),
            drops=None if unix else self._drops[counts.inode],
            syn_queue=record.syn_queue if has_syns else None,
            syn_young=record.syn_young if has_syns else None,
        )
        return queue if self._sees_accepts else self._by_its_length(queue, entry, record)

    def _by_its_length(self, queue: QueueCounts, entry: _Entry, record: Any) -> QueueCounts:
        """What came and is not there any more was accepted; what calls returned is not known."""
        counts = entry.counts
        came: int = counts.queued_before + counts.established
        # The length was read before the counts: who came in between would seem accepted.
        left = came - record.depth if record.is_alive else 0
        left = self._left[counts.inode] = max(self._left.get(counts.inode, 0), left)
        return replace(
            queue,
            accepted=left,
            accepted_early=min(left, counts.queued_before),
            accepted_by=None,
            accepted_by_thread=None,
            wait=None,
            blocked=None if _is_unix(counts) else queue.blocked,
            refused=None,
            read_from=None,
            closed_unread=None,
            closed_unread_sent=None,
            no_seat=None,
        )

    def _drops_of(self, counts: Any, record: Any) -> int:
        """Since the listener was first seen. The kernel's counter has 32 bits, ours goes on."""
        known = self._drops.get(counts.inode, 0)
        if not record.is_alive:
            # Its memory may be another socket's by now.
            return known
        seen: int = record.drops - counts.drops_before
        return known + (seen - known) % (1 << 32)

    def _listeners(self) -> List[Tuple[Key, _Entry, Any]]:
        """All of them, each with what the iterator read; of a replaced one, that is nothing."""
        records, gone = {record.sk: record for record in self._records()}, self._record()
        found: Dict[Key, Tuple[Key, _Entry, Any]] = {}
        for key, value in self._raw("listeners", 8):
            if key[0] in records:
                found[key] = (key, self._decoded(value, self._entries.get(key)), records[key[0]])
        for key, value in self._raw("closed_listeners", 16):
            found[key] = (key, self._decoded(value, self._entries.get(key)), gone)
        return list(found.values())

    def _raw(self, map_name: str, key_size: int) -> Iterable[Tuple[Key, bytes]]:
        inode_at = self._listener.inode.offset
        size = ctypes.sizeof(self._listener)
        for key, value in self._object.entries(map_name, key_size, size):
            yield struct.unpack_from("<Q", key) + struct.unpack_from("<Q", value, inode_at), value

    def _decoded(self, value: bytes, known: Optional[_Entry]) -> _Entry:
        if known is not None and bytes(known.counts) == value:
            return known
        counts = self._listener.from_buffer_copy(value)
        name = SocketName.of(counts.name)
        return _Entry(
            counts=counts,
            name=name,
            address=name.address(),
            depth=depths(counts.depth),
            wait=self._histogram(counts, "wait", known),
            blocked=self._histogram(counts, "blocked", known),
        )

    def _histogram(self, counts: Any, name: str, known: Optional[_Entry]) -> LatencyCounts:
        """The same object as before where nothing was added, so that a difference is cheap."""
        raw = bytes(getattr(counts, name))
        if raw == self._unused_raw:
            return self._unused
        if known is not None and bytes(getattr(known.counts, name)) == raw:
            return known.wait if name == "wait" else known.blocked
        return latency_of(getattr(counts, name))

    def _waiting_for_tcp(self, found: List[Tuple[Key, _Entry, Any]]) -> Dict[int, Optional[int]]:
        open_ones = [
            (entry.counts.inode, entry.counts.netns, entry.name)
            for _, entry, record in found
            if record.is_alive and not _is_unix(entry.counts)
        ]
        if not open_ones:
            return {}
        shown = self._object.iterate("list_handshakes", over="handshakes")
        return waiting_at(records(shown, self._handshake), open_ones)

    def _records(self) -> List[Any]:
        return records(self._object.iterate("list_listeners", over="listeners"), self._record)

    def _accepted(self) -> Dict[Tuple[int, int], Dict[Worker, int]]:
        """(listener, inode) → (process, thread) → accepted."""
        found: Dict[Tuple[int, int], Dict[Worker, int]] = {}
        size = ctypes.sizeof(self._acceptor)
        for key, value in self._object.entries("acceptors", size, 8):
            who = self._acceptor.from_buffer_copy(key)
            counts = found.setdefault((who.listener, who.inode), {})
            counts[(who.tgid, who.tid)] = struct.unpack("<Q", value)[0]
        return found

    def _failures(self) -> List[UnixConnect]:
        """Taken out of the map: the next ones begin at zero."""
        size = ctypes.sizeof(self._failed)
        return [
            _connect_of(self._failed.from_buffer_copy(key), struct.unpack("<Q", value)[0])
            for key, value in self._object.take("failed_connects", size, 8)
        ]

    def _connects_of(self, destination: Any, value: bytes) -> ConnectCounts:
        counts = self._destination_counts.from_buffer_copy(value)
        return ConnectCounts(
            transport=self._counters.endpoint(destination.endpoint).transport,
            address=address_of(destination.name),
            error=error_name(destination.error) if destination.error else None,
            latency=latency_of(counts.latency),
            in_background=bool(destination.in_background),
        )


def joined(
    shown: Iterable[ListenerReading], counted: Iterable[ListenerReading]
) -> Tuple[ListenerReading, ...]:
    """Both views of the same sockets: owners and addresses from one, events from the other.

    Args:
        shown: by sock_diag. counted: by `ListenerTable.read`.
    """
    by_inode = {reading.inode: reading for reading in counted}
    readings = [_with_queue(reading, by_inode.pop(reading.inode, None)) for reading in shown]
    return (*readings, *by_inode.values())


def depths(slots: Sequence[int]) -> Dict[int, int]:
    """Depth → how often, of the slots that are not empty (`depth_slot` in the kernel half)."""
    return {_depth_of(slot): count for slot, count in enumerate(slots) if count}


def _depth_of(slot: int) -> int:
    if slot < DEPTH_EXACT:
        return slot
    octave, part = divmod(slot - DEPTH_EXACT, 16)
    return (16 + part) << (octave + 1)


def _with_queue(shown: ListenerReading, counted: Optional[ListenerReading]) -> ListenerReading:
    if counted is None:
        return shown
    return replace(shown, backlog_requested=counted.backlog_requested, queue=counted.queue)


def _reading(entry: _Entry, record: Any, place: Endpoint, queue: QueueCounts) -> ListenerReading:
    is_open = bool(record.is_alive)
    counts = entry.counts
    return ListenerReading(
        transport=place.transport,
        socket_type=place.socket_type or "stream",
        address=entry.address,
        netns=counts.netns,
        inode=counts.inode,
        pids=(counts.tgid,),
        depth_now=record.depth if is_open else None,
        backlog_effective=record.backlog if is_open else counts.backlog,
        backlog_requested=counts.requested if counts.is_requested else None,
        somaxconn=counts.somaxconn,
        queue=queue,
        is_open=is_open,
    )


def _counted(counts: Any) -> Dict[str, Any]:
    """Totals that the kernel half counts under the name that they have in the sample."""
    names = [name for name in totals(QueueCounts) if hasattr(counts, name)]
    return {name: getattr(counts, name) for name in names}


def _recent(counts: Any, interval: int) -> Optional[int]:
    recent = counts.recent[interval & 1]
    return recent.depth_max if recent.interval == interval else None


def _summed(counts: Iterable[Tuple[int, int]]) -> Dict[int, int]:
    """An id can come twice: that of a thread is used again in another process."""
    totals: Dict[int, int] = {}
    for key, count in counts:
        totals[key] = totals.get(key, 0) + count
    return totals


def _is_unix(counts: Any) -> bool:
    return bool(counts.name.family == socket.AF_UNIX)


def _bound(entry: _Entry) -> Bound:
    counts = entry.counts
    file = (counts.file_device, counts.file_inode) if counts.file_inode else None
    return Bound(counts.inode, counts.seen_ns, counts.tgid, counts.netns, entry.name, file)


def _connect_of(record: Any, count: int) -> UnixConnect:
    return UnixConnect(
        pid=record.tgid,
        mount_ns=record.mount_ns,
        net_ns=record.net_ns,
        error=record.error,
        name=SocketName.of(record.name),
        count=count,
        newest_ns=record.newest_listener_ns,
    )


def _sum_if_known(one: int, other: Optional[int]) -> Optional[int]:
    return None if other is None else one + other
