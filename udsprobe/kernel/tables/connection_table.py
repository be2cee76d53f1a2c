"""Connections of the targets and their requests upstream, as sample types."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from udsprobe.kernel.objects.probe_object import ProbeObject, words_of
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.sockets.socket_names import address_of
from udsprobe.kernel.tables.counters import (
    Counters,
    enum_names,
    http_replies_of,
    latency_of,
    pieces_of,
)
from udsprobe.kernel.tables.cpu_holders import OUTSIDE
from udsprobe.kernel.tables.silent_peers import SilentPeers
from udsprobe.sample import (
    CONNECTIONS_KEPT_MAX,
    ConnectionReading,
    PeerReading,
    UnansweredCounts,
    UpstreamCounts,
    with_changes,
)

# Address and inode: the address alone is used again.
Key = Tuple[int, int]
# All there is to read of a connection that will not be among the busiest.
IDENTITY = ("sk", "inode")
WEIGHT = ("bytes_in", "bytes_out", "turns", "send_blocked", "send_eagain", "send_queue_bytes")
# A listing is cut to what is kept whenever it has grown to so many times that.
SLACK = 4
# What peers are busy with is asked of each when they are no more than these, and else of those
# to whom a reply of this many bytes is usual, or to whom bytes are queued.
PEERS_ALWAYS_READ = 16
MUCH_BYTES = 32768
# The clock that goes by the kernel's ticks (kernel/time/posix-timers.c, posix_get_coarse_res).
CLOCK_MONOTONIC_COARSE = 6
TICK_NS = round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)


# Weight of a record of a listing, and the record, not decoded. Thousands are made in each listing.
_Listed = Tuple[int, bytes]


@dataclass(frozen=True)
class _Stall:
    """Bytes wait in the send queue.

    Attributes:
        mark: changes whenever the other end takes any.
        since_ns: of the first sample with this mark.
    """

    mark: Tuple[int, int]
    since_ns: int


class _HighWater(NamedTuple):
    """Of both queues: since the previous sample, and ever; None when it is not told."""

    received: Tuple[Optional[int], Optional[int]]
    sent: Tuple[int, int]


class ConnectionTable:
    """Reads connections that were used or hold bytes, and remembers the busiest.

    Args:
        loaded: the object that counts.
        counters: for the endpoints' names.
        procfs: for the peers' names.
        tells_arrival: the kernel half is told when bytes come; without it nobody
            knows how full receive queues were in between.
        sees_calls: so it is known how long senders sleep, and which requests are not answered.
    """

    def __init__(
        self,
        loaded: ProbeObject,
        counters: Counters,
        procfs: Procfs,
        *,
        tells_arrival: bool = True,
        sees_calls: bool = True,
    ) -> None:
        self._object = loaded
        self._counters = counters
        self._procfs = procfs
        self._record = loaded.btf.structure("connection_record")
        self._peek = words_of(self._record, IDENTITY + WEIGHT)
        self._tells_arrival = tells_arrival
        self._sees_calls = sees_calls
        self._flags = loaded.btf.enum("queue_flag")
        self._upstream = loaded.btf.structure("upstream")
        self._outside = loaded.btf.enum("limits")["PID_OUTSIDE"]
        self._databases = enum_names(loaded.btf.enum("database"), "DATABASE_")
        self._upstreams_max = loaded.btf.enum("limits")["UPSTREAMS_MAX"]
        self._roles = enum_names(loaded.btf.enum("role"), "ROLE_")
        self._known: Dict[Key, ConnectionReading] = {}
        # What of those is not looked at again while nothing happens to it.
        self._weights: Dict[Key, int] = {}
        self._peers: Dict[Key, Optional[PeerReading]] = {}
        self._quiet: Set[Key] = set()
        self._stalls: Dict[Key, Optional[_Stall]] = {}
        self._comms: Dict[int, Optional[str]] = {}
        self._silent = SilentPeers(procfs)
        self._looked: Dict[int, Tuple[int, int]] = {}  # peer → when first, and its busy time then
        self._weight_min = 0
        self._exited = 0
        self._destinations: Tuple[UpstreamCounts, ...] = ()

    def read(self, now_ns: int) -> Tuple[Tuple[ConnectionReading, ...], int]:
        """The busiest connections so far, and how many are open.

        Args:
            now_ns: CLOCK_MONOTONIC of this sample.
        """
        exited = self._counters.targets_exited()
        self._counters.reset_open_connections(
            self._weight_min,
            # Nothing tells of the sockets that a process leaves open when it ends.
            all_of_them=not self._tells_arrival or exited != self._exited,
        )
        self._exited = exited
        fresh = self._heaviest_listed(now_ns)
        kept = _heaviest({**self._weights, **{key: weight for key, (weight, _) in fresh.items()}})
        listed = {key: self._decoded(fresh[key]) for key in kept if key in fresh}
        self._comms.clear()
        self._silent.look(listed.values())
        peers = self._peers_of(kept, listed, now_ns)
        # What is not listed is quiet or closed, and holds nothing either way.
        self._known = {
            key: self._reading(listed[key], peers[key], now_ns)
            if key in listed
            else self._unlisted(key, peers[key])
            for key in kept
        }
        self._weights, self._peers = kept, peers
        self._quiet &= kept.keys() - listed.keys()
        # Weights only grow: whoever is among the heaviest next time weighs at least this.
        full = len(kept) == CONNECTIONS_KEPT_MAX
        self._weight_min = min(kept.values()) if full else 0
        return tuple(self._known.values()), self._counters.open_connections()

    def _unlisted(self, key: Key, peer: Optional[PeerReading]) -> ConnectionReading:
        """The same object as before, where it was quiet before and its peer is."""
        reading = self._known[key]
        if key not in self._quiet:
            reading = _emptied(reading)
            if reading is self._known[key]:
                self._quiet.add(key)
        return reading if peer is self._peers[key] else with_changes(reading, {"peer": peer})

    def _peers_of(
        self, kept: Iterable[Key], listed: Mapping[Key, Any], now_ns: int
    ) -> Dict[Key, Optional[PeerReading]]:
        """Who is at the other ends, and what they are busy with where much is sent to them."""
        found = {
            key: self._peer_at(listed[key]) if key in listed else self._peers[key] for key in kept
        }
        served = {key: peer for key, peer in found.items() if peer is not None}
        if len({peer.pid for peer in served.values()}) > PEERS_ALWAYS_READ:
            readers = (key for key in served if _sends_much(listed.get(key) or self._known[key]))
            served = {key: served[key] for key in readers}
        busy = {pid: self._procfs.busy_ns(pid) for pid in {p.pid for p in served.values()}}
        self._looked = {
            pid: self._looked.get(pid, (now_ns, ns)) for pid, ns in busy.items() if ns is not None
        }
        # Whoever idles costs nothing: its reading stays the one before.
        told = {peer: self._busy_peer(peer, busy[peer.pid]) for peer in served.values()}
        return {**found, **{key: told[peer] for key, peer in served.items()}}

    def _peer_at(self, record: Any) -> Optional[PeerReading]:
        return self.peer(record.peer_tgid or self._silent.pid(record))

    def _busy_peer(self, peer: PeerReading, busy_ns: Optional[int]) -> PeerReading:
        if busy_ns is None:
            now = replace(peer, busy_ns=None)
        else:
            looked_ns, before_ns = self._looked[peer.pid]
            # Threads that ended took theirs along.
            now = replace(peer, busy_ns=max(0, busy_ns - before_ns), looked_ns=looked_ns)
        return peer if now == peer else now

    def upstream(self) -> Tuple[UpstreamCounts, ...]:
        """Requests of the targets by destination; `destination` names them from now on."""
        size = ctypes.sizeof(self._upstream)
        found: List[UpstreamCounts] = []
        # Two CPUs that run out of places at once count one too many.
        used = min(self._counters.upstreams_used(), self._upstreams_max)
        for raw in self._object.elements("upstreams", size, used):
            entry = self._upstream.from_buffer_copy(raw)
            found.append(
                UpstreamCounts(
                    transport=self._counters.endpoint(entry.endpoint).transport,
                    address=address_of(entry.name),
                    peer=self.peer(entry.peer_tgid),
                    opened=entry.opened,
                    latency=latency_of(entry.latency),
                    **(self._failing(entry) if self._sees_calls else {}),
                )
            )
        self._destinations = tuple(found)
        return self._destinations

    def _failing(self, entry: Any) -> Dict[str, Any]:
        return {
            "dropped": UnansweredCounts(entry.dropped, entry.dropped_ns),
            "dropped_kept": entry.dropped_kept,
            "given_up": UnansweredCounts(entry.given_up, entry.given_up_ns),
            "http": http_replies_of(entry.replies),
            "in_pieces": pieces_of(entry.pieces, {}),
            "no_seat": entry.no_seat,
            "no_seat_by": self._databases[entry.no_seat_by] if entry.no_seat else None,
            "recv_wait_ns": entry.recv_wait_ns if self._tells_arrival else None,
            "logins": entry.logins,
            "login_ns": entry.login_ns,
        }

    def destination(self, index: int) -> Optional[UpstreamCounts]:
        """The destination of that index; None when it is newer than the last `upstream`."""
        return self._destinations[index] if index < len(self._destinations) else None

    def peer(self, pid: int) -> Optional[PeerReading]:
        """The process of that id; None for 0, which is nobody."""
        if not pid:
            return None
        if pid & self._outside:
            return PeerReading(pid & ~self._outside, OUTSIDE)
        if pid not in self._comms:
            process = self._procfs.process(pid)
            self._comms[pid] = process.comm if process is not None else None
        return PeerReading(pid, self._comms[pid])

    def _heaviest_listed(self, now_ns: int) -> Dict[Key, _Listed]:
        """Those known already, and of the others those that can be among the heaviest."""
        known: Dict[Key, _Listed] = {}
        new: Dict[Key, _Listed] = {}
        stalls: Dict[Key, Optional[_Stall]] = {}
        for key, one, queued in self._listed():
            if queued:
                stalls[key] = self._stall(self._decoded(one), now_ns)
            (known if key in self._known else new)[key] = one
            if len(new) == SLACK * CONNECTIONS_KEPT_MAX:
                new = {key: new[key] for key in _heaviest({k: n[0] for k, n in new.items()})}
        self._stalls = stalls
        return {**known, **new}

    def _listed(self) -> Iterator[Tuple[Key, _Listed, int]]:
        """With the bytes that wait in its send queue, each."""
        size = ctypes.sizeof(self._record)
        for part in self._object.parts("list_connections", over="connections"):
            at = 0
            for sk, inode, *loads, queued in self._peek.iter_unpack(part):
                yield (sk, inode), (_weighed(*loads), part[at : at + size]), queued
                at += size

    def _decoded(self, one: _Listed) -> Any:
        return self._record.from_buffer_copy(one[1])

    def _stall(self, record: Any, now_ns: int) -> Optional[_Stall]:
        if not record.send_queue_bytes or not record.queue_flags & self._flags["TAKEN_KNOWN"]:
            return None
        fresh = _Stall((record.taken, record.send_sleeps), now_ns)
        known = self._stalls.get((record.sk, record.inode))
        return known if known is not None and known.mark == fresh.mark else fresh

    def _stalled_ns(self, record: Any, now_ns: int) -> Optional[int]:
        if not record.send_queue_bytes:
            return 0
        stall = self._stalls[(record.sk, record.inode)]
        return None if stall is None else now_ns - stall.since_ns

    def _high_water(self, record: Any) -> _HighWater:
        before = self._known.get((record.sk, record.inode))
        sent = _fuller(
            max(record.send_max_bytes, record.send_queue_bytes),
            None if before is None else (before.send_queue_bytes, before.send_queue_max_bytes),
        )
        is_told = record.queue_flags & self._flags["RECV_MAX_KNOWN"]
        if not is_told or not self._tells_arrival:
            return _HighWater((None, None), sent)
        received = _fuller(
            max(record.recv_max_bytes, record.recv_queue_bytes),
            None if before is None else (before.recv_queue_bytes, before.recv_queue_max_bytes),
        )
        return _HighWater(received, sent)

    def _reading(self, record: Any, peer: Optional[PeerReading], now_ns: int) -> ConnectionReading:
        high_water = self._high_water(record)
        transport = self._counters.endpoint(record.endpoint).transport
        reading = ConnectionReading(
            inode=record.inode,
            pid=record.tgid,
            transport=transport,
            role=self._roles[record.role],
            local=address_of(record.local),
            peer_address=address_of(record.peer),
            peer=peer,
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
            recv_queue_recent_max_bytes=high_water.received[0],
            recv_queue_max_bytes=high_water.received[1],
            send_queue_recent_max_bytes=high_water.sent[0],
            send_queue_max_bytes=high_water.sent[1],
            recv_buffer_bytes=record.recv_buffer_bytes,
            recv_buffer_is_fixed=bool(record.queue_flags & self._flags["RECV_BUFFER_FIXED"]),
            send_buffer_is_fixed=bool(record.queue_flags & self._flags["SEND_BUFFER_FIXED"]),
            stalled_ns=self._stalled_ns(record, now_ns),
            sends_held=record.sends_held if transport == "tcp" else None,
            held_ns=record.held * TICK_NS if transport == "tcp" else None,
            stopped_ns=record.stopped_ns,
            stopped_since_ns=record.stopped_since_ns,
            asking_since_ns=record.asking_since_ns,
            is_multiplexed=bool(record.is_multiplexed),
            stops=record.stops,
            window_full_ns=record.window_full * TICK_NS if transport == "tcp" else None,
        )
        return reading if self._sees_calls else _without_sleep(reading)


def _without_sleep(reading: ConnectionReading) -> ConnectionReading:
    return replace(
        reading,
        send_blocked=None,
        send_blocked_ns=None,
        send_blocked_max_ns=None,
        stopped_ns=None,
    )


def _fuller(noted: int, before: Optional[Tuple[int, Optional[int]]]) -> Tuple[int, int]:
    """The fullest since the previous sample, and ever.

    Args:
        noted: by event since then, and now.
        before: what was queued at that sample, and so from then on; the fullest until then.
    """
    queued, ever = before or (0, 0)
    recent = max(noted, queued)
    return recent, max(recent, ever or 0)


def _emptied(reading: ConnectionReading) -> ConnectionReading:
    """Quiet since the previous sample. What was queued then was taken, or it was closed."""
    queues = (reading.recv_queue_bytes, reading.send_queue_bytes, reading.stalled_ns)
    recent = (reading.recv_queue_recent_max_bytes, reading.send_queue_recent_max_bytes)
    if not any(queues) and not any(recent) and reading.stalled_ns is not None:
        return reading
    return replace(
        reading,
        recv_queue_bytes=0,
        send_queue_bytes=0,
        recv_queue_recent_max_bytes=_still(
            reading.recv_queue_recent_max_bytes, reading.recv_queue_bytes
        ),
        send_queue_recent_max_bytes=reading.send_queue_bytes,
        stalled_ns=0,
    )


def _still(measured: Optional[int], queued: int) -> Optional[int]:
    return None if measured is None else queued


def _sends_much(reading: Any) -> bool:
    usual = reading.bytes_out / max(1, reading.turns)
    return bool(reading.stops or reading.send_queue_bytes or usual >= MUCH_BYTES)


def _weighed(bytes_in: int, bytes_out: int, turns: int, blocked: int, eagain: int) -> int:
    """As bpf/iterators.bpf.h weighs them, is_too_light."""
    return turns + (bytes_in + bytes_out) // 1024 + 1000 * (blocked + eagain)


def _heaviest(weights: Mapping[Key, int]) -> Dict[Key, int]:
    """As many as are kept, heaviest first; of equals those that come first."""
    ranked = sorted(weights.items(), key=lambda pair: -pair[1])
    return dict(ranked[:CONNECTIONS_KEPT_MAX])
