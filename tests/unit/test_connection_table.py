"""Connections as sample types, from records made by hand in the built object's layout."""

from __future__ import annotations

import ctypes
import socket
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Tuple

import pytest

from tests.unit.layouts import write_latency, write_name
from tests.unit.samples import latency
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.proc.procfs import Owners
from udsprobe.kernel.tables.connection_table import ConnectionTable
from udsprobe.kernel.tables.counters import endpoint, enum_names
from udsprobe.sample import (
    CONNECTIONS_KEPT_MAX,
    ConnectionReading,
    Endpoint,
    HttpReplyCounts,
    PeerReading,
    PieceCounts,
    UnansweredCounts,
    UpstreamCounts,
)

INODE, PEER_INODE, SILENT = 4242, 4343, 66
NOW_NS = 5_000_000_000
RECORDS_OF_A_PART = 7


class Kernel:
    """What `ConnectionTable` asks of a loaded object, its counters and /proc."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self.records: List[Any] = []
        self.destinations: List[Any] = []
        self.used = 0
        self.open = 0
        self.asked: List[FrozenSet[int]] = []
        self.comms: Dict[int, str] = {33: "nginx", SILENT: "sleeper"}
        self.busy: Dict[int, int] = {}
        names = enum_names(btf.enum("endpoint"), "ENDPOINT_")
        self._endpoints = {value: endpoint(name) for value, name in names.items()}
        self._values = {name: value for value, name in names.items()}

    def parts(self, program: str, *, over: str) -> Iterator[bytes]:
        assert (program, over) == ("list_connections", "connections")
        self.open += len(self.records)
        for at in range(0, len(self.records), RECORDS_OF_A_PART):
            yield b"".join(map(bytes, self.records[at : at + RECORDS_OF_A_PART]))

    def elements(self, name: str, value_bytes: int, used: int) -> Iterator[bytes]:
        assert name == "upstreams"
        for destination in self.destinations[:used]:
            assert ctypes.sizeof(destination) == value_bytes
            yield bytes(destination)
        assert used <= self.btf.enum("limits")["UPSTREAMS_MAX"]

    def upstreams_used(self) -> int:
        return self.used

    def reset_open_connections(self, weight_min: int = 0, *, all_of_them: bool = True) -> None:
        self.open = 0

    def targets_exited(self) -> int:
        return 0

    def open_connections(self) -> int:
        return self.open

    def endpoint(self, value: int) -> Endpoint:
        return self._endpoints[value]

    def process(self, pid: int) -> Any:
        return SimpleNamespace(comm=self.comms[pid]) if pid in self.comms else None

    def busy_ns(self, pid: int) -> Optional[int]:
        return self.busy.get(pid)

    def owners(self, inodes: Any) -> Owners:
        self.asked.append(frozenset(inodes))
        return Owners({inode: (SILENT,) for inode in inodes if inode == PEER_INODE}, frozenset())

    def record(self, **fields: Any) -> Any:
        """One record of the listing; `place` is its endpoint's name."""
        record = self.btf.structure("connection_record")()
        record.sk = record.inode = fields.pop("inode", INODE)
        record.tgid, record.role = 4711, self.btf.enum("role")["ROLE_UPSTREAM"]
        record.endpoint = self._values[fields.pop("place", "unix_stream")]
        write_name(record.local, socket.AF_UNIX, b"")
        write_name(record.peer, socket.AF_UNIX, b"/run/db.sock\0")
        for name, value in fields.items():
            setattr(record, name, value)
        return record

    def destination(self, name: bytes, *durations_ns: int, tgid: int = 33) -> Any:
        entry = self.btf.structure("upstream")()
        entry.endpoint, entry.peer_tgid = self._values["unix_stream"], tgid
        entry.opened = 2
        write_name(entry.name, socket.AF_UNIX, name)
        write_latency(entry.latency, *durations_ns)
        return entry


@pytest.fixture
def kernel(built_btf: Btf) -> Kernel:
    return Kernel(built_btf)


@pytest.fixture
def table(kernel: Kernel) -> ConnectionTable:
    everything: Any = kernel
    return ConnectionTable(everything, everything, everything)


def listed(kernel: Kernel, table: ConnectionTable, *records: Any) -> Tuple[ConnectionReading, ...]:
    kernel.records = list(records)
    return table.read(NOW_NS)[0]


def test_a_connection(kernel: Kernel, table: ConnectionTable) -> None:
    counts = {
        "turns": 3,
        "bytes_in": 10,
        "bytes_out": 20,
        "recv_queue_bytes": 4,
        "send_queue_bytes": 5,
        "send_buffer_bytes": 6,
        "send_blocked": 7,
        "send_blocked_ns": 8,
        "send_blocked_max_ns": 9,
        "send_eagain": 11,
    }
    (reading,) = listed(kernel, table, kernel.record(peer_tgid=33, **counts))
    assert reading == ConnectionReading(
        inode=INODE,
        pid=4711,
        transport="unix",
        role="upstream",
        local="",
        peer_address="/run/db.sock",
        peer=PeerReading(33, "nginx"),
        **counts,
        send_queue_max_bytes=5,
        send_queue_recent_max_bytes=5,
        recv_buffer_bytes=0,
        recv_buffer_is_fixed=False,
        send_buffer_is_fixed=False,
        stopped_ns=0,
        stops=0,
    )


def maxima(reading: ConnectionReading) -> Tuple[Any, ...]:
    """Of the receive queue and the send queue: recent and ever."""
    return (
        (reading.recv_queue_recent_max_bytes, reading.recv_queue_max_bytes),
        (reading.send_queue_recent_max_bytes, reading.send_queue_max_bytes),
    )


def test_the_fullest_of_an_interval_and_ever(kernel: Kernel, table: ConnectionTable) -> None:
    known = kernel.btf.enum("queue_flag")["RECV_MAX_KNOWN"]
    shown = []
    for received, sent, queued in ((70, 7, 10), (20, 0, 0), (5, 9, 2)):
        record = kernel.record(
            queue_flags=known,
            recv_max_bytes=received,
            send_max_bytes=sent,
            recv_queue_bytes=queued,
        )
        shown.append(maxima(listed(kernel, table, record)[0]))
    assert shown == [((70, 70), (7, 7)), ((20, 70), (0, 7)), ((5, 70), (9, 9))]
    assert maxima(listed(kernel, table)[0]) == ((2, 70), (0, 9))
    assert maxima(listed(kernel, table)[0]) == ((0, 70), (0, 9))


def test_what_waited_before_was_there_since(kernel: Kernel, table: ConnectionTable) -> None:
    known = kernel.btf.enum("queue_flag")["RECV_MAX_KNOWN"]
    full = kernel.record(queue_flags=known, recv_queue_bytes=900, send_queue_bytes=800)
    listed(kernel, table, full)
    (reading,) = listed(kernel, table, kernel.record(queue_flags=known, turns=1))
    assert maxima(reading) == ((900, 900), (800, 800))


def test_a_receive_queue_that_is_not_told(kernel: Kernel, table: ConnectionTable) -> None:
    record = kernel.record(recv_max_bytes=0, recv_queue_bytes=900, send_max_bytes=3)
    assert maxima(listed(kernel, table, record)[0]) == ((None, None), (3, 3))
    assert maxima(listed(kernel, table)[0]) == ((None, None), (0, 3))


def test_nobody_tells_of_arrivals(kernel: Kernel) -> None:
    everything: Any = kernel
    table = ConnectionTable(everything, everything, everything, tells_arrival=False)
    kernel.destinations, kernel.used = [kernel.destination(b"@x", 1)], 1
    assert [row.recv_wait_ns for row in table.upstream()] == [None]
    known = kernel.btf.enum("queue_flag")["RECV_MAX_KNOWN"]
    record = kernel.record(queue_flags=known, recv_queue_bytes=900, send_max_bytes=3)
    assert maxima(listed(kernel, table, record)[0]) == ((None, None), (3, 3))


def test_buffers_that_the_application_fixed(kernel: Kernel, table: ConnectionTable) -> None:
    flags = kernel.btf.enum("queue_flag")
    for name, expected in (
        ("SEND_BUFFER_FIXED", (True, False)),
        ("RECV_BUFFER_FIXED", (False, True)),
    ):
        record = kernel.record(queue_flags=flags[name], recv_buffer_bytes=4608)
        (reading,) = listed(kernel, table, record)
        assert (reading.send_buffer_is_fixed, reading.recv_buffer_is_fixed) == expected
        assert reading.recv_buffer_bytes == 4608


def stalls(kernel: Kernel, table: ConnectionTable, *records: Any) -> List[Any]:
    """`stalled_ns` of one sample a second."""
    found = []
    for second, record in enumerate(records):
        kernel.records = [record]
        found.append(table.read(NOW_NS + second * 1_000_000_000)[0][0].stalled_ns)
    return found


def test_a_stall_lasts_while_nothing_is_taken(kernel: Kernel, table: ConnectionTable) -> None:
    told = kernel.btf.enum("queue_flag")["TAKEN_KNOWN"]

    def waiting(taken: int, queued: int = 9, sleeps: int = 0) -> Any:
        return kernel.record(
            queue_flags=told, taken=taken, send_queue_bytes=queued, send_sleeps=sleeps
        )

    second = 1_000_000_000
    assert stalls(kernel, table, waiting(5), waiting(5, 12), waiting(5)) == [0, second, 2 * second]
    assert stalls(kernel, table, waiting(6), waiting(6, queued=0), waiting(6)) == [0, 0, 0]
    assert stalls(kernel, table, waiting(7), waiting(7, sleeps=1)) == [0, 0]
    untold = kernel.record(send_queue_bytes=9)
    assert stalls(kernel, table, untold, untold) == [None, None]


def test_one_of_tcp(kernel: Kernel, table: ConnectionTable) -> None:
    record = kernel.record(place="tcp", turns=1)
    write_name(record.local, socket.AF_INET, b"\x7f\0\0\1", 40000)
    write_name(record.peer, socket.AF_INET6, b"\0" * 15 + b"\1", 443)
    (reading,) = listed(kernel, table, record)
    assert (reading.transport, reading.local) == ("tcp", "127.0.0.1:40000")
    assert (reading.peer_address, reading.peer) == ("[::1]:443", None)


def test_the_open_ones_are_counted_anew(kernel: Kernel, table: ConnectionTable) -> None:
    kernel.records = [kernel.record(inode=n, turns=1) for n in range(1, 4)]
    assert [table.read(NOW_NS)[1], table.read(NOW_NS)[1]] == [3, 3]


def test_what_is_not_listed_keeps_its_counts_and_holds_nothing(
    kernel: Kernel, table: ConnectionTable
) -> None:
    record = kernel.record(turns=3, bytes_out=20, recv_queue_bytes=4, send_queue_bytes=5)
    listed(kernel, table, record)
    (reading,) = listed(kernel, table)
    assert (reading.turns, reading.bytes_out) == (3, 20)
    assert (reading.recv_queue_bytes, reading.send_queue_bytes) == (0, 0)


def test_the_busiest_are_kept_and_the_stuck_before_them(
    kernel: Kernel, table: ConnectionTable
) -> None:
    many = [kernel.record(inode=n, turns=n) for n in range(1, CONNECTIONS_KEPT_MAX + 50)]
    kept = {
        r.inode for r in listed(kernel, table, kernel.record(inode=9999, send_blocked=1), *many)
    }
    assert len(kept) == CONNECTIONS_KEPT_MAX
    assert 9999 in kept and 1 not in kept and many[-1].inode in kept


def test_a_long_listing_is_ranked_as_a_whole(kernel: Kernel, table: ConnectionTable) -> None:
    many = [kernel.record(inode=n, turns=n * 7919 % 2003) for n in range(1, 2003)]
    by_turns = sorted((r.turns for r in many), reverse=True)[:CONNECTIONS_KEPT_MAX]
    assert [r.turns for r in listed(kernel, table, *many)] == by_turns
    assert [r.turns for r in listed(kernel, table)] == by_turns
    heavier = [kernel.record(inode=n, turns=9000 + n) for n in range(3000, 3900)]
    kept = listed(kernel, table, *heavier, kernel.record(inode=5, turns=9500))
    assert [r.turns for r in kept[:2]] == [9000 + 3899, 9000 + 3898]
    assert len(kept) == CONNECTIONS_KEPT_MAX


def test_a_socket_in_used_memory_is_another(kernel: Kernel, table: ConnectionTable) -> None:
    first, second = kernel.record(turns=9), kernel.record(inode=INODE + 1, turns=1)
    second.sk = first.sk
    listed(kernel, table, first)
    assert {r.inode: r.turns for r in listed(kernel, table, second)} == {INODE: 9, INODE + 1: 1}


def test_a_peer_is_called_what_it_is_called_now(kernel: Kernel, table: ConnectionTable) -> None:
    record = kernel.record(peer_tgid=33, turns=1)
    shown = []
    for comm in ("sh", "nginx"):
        kernel.comms[33] = comm
        shown.append(listed(kernel, table, record)[0].peer)
    del kernel.comms[33]
    shown.append(listed(kernel, table, record)[0].peer)
    assert shown == [PeerReading(33, "sh"), PeerReading(33, "nginx"), PeerReading(33, None)]


def test_a_peer_that_never_sent_is_found_by_its_socket(
    kernel: Kernel, table: ConnectionTable
) -> None:
    record = kernel.record(peer_inode=PEER_INODE, send_queue_bytes=9)
    for _ in range(2):
        assert listed(kernel, table, record)[0].peer == PeerReading(SILENT, "sleeper")
    assert kernel.asked == [{PEER_INODE}]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"peer_inode": 0, "send_queue_bytes": 9}, 0),
        ({"peer_inode": PEER_INODE, "send_queue_bytes": 0}, 0),
        ({"peer_inode": PEER_INODE, "send_queue_bytes": 9, "peer_tgid": 33}, 0),
        ({"peer_inode": PEER_INODE + 1, "send_queue_bytes": 9}, 1),
    ],
)
def test_nobody_is_searched_without_need(
    kernel: Kernel, table: ConnectionTable, fields: Any, asked: int
) -> None:
    (reading,) = listed(kernel, table, kernel.record(**fields))
    assert reading.peer == (PeerReading(33, "nginx") if "peer_tgid" in fields else None)
    assert len(kernel.asked) == asked


def test_destinations(kernel: Kernel, table: ConnectionTable) -> None:
    kernel.destinations = [
        kernel.destination(b"/run/db\0", 5_000, 7_000),
        kernel.destination(b"\0x", 1, tgid=0),
    ]
    kernel.used = 2
    none = UnansweredCounts(0, 0)
    nginx, ended = (
        PeerReading(33, "nginx"),
        (none, 0, none, HttpReplyCounts(0, 0, 0, {}), 0),
    )
    pieces = PieceCounts(0, 0, 0, {})
    assert table.upstream() == (
        UpstreamCounts(
            *("unix", "/run/db", nginx, 2, latency([5_000, 7_000]), *ended),
            in_pieces=pieces,
            recv_wait_ns=0,
            logins=0,
            login_ns=0,
        ),
        UpstreamCounts(
            "unix",
            "@x",
            None,
            2,
            latency([1]),
            *ended,
            in_pieces=pieces,
            recv_wait_ns=0,
            logins=0,
            login_ns=0,
        ),
    )


def test_places_counted_beyond_the_last_are_not_read(
    kernel: Kernel, table: ConnectionTable
) -> None:
    limit = kernel.btf.enum("limits")["UPSTREAMS_MAX"]
    kernel.destinations = [kernel.destination(b"\0x", 1)] * limit
    kernel.used = limit + 1
    assert len(table.upstream()) == limit


def test_what_a_reader_was_busy_with_counts_from_the_first_look(
    kernel: Kernel, table: ConnectionTable
) -> None:
    record = kernel.record(peer_tgid=33, bytes_out=100, stopped_ns=7, stops=2, stopped_since_ns=5)
    kernel.busy[33] = 1_000
    (before,) = listed(kernel, table, record)
    assert before.peer == PeerReading(33, "nginx", busy_ns=0, looked_ns=NOW_NS)
    assert (before.stopped_ns, before.stops, before.stopped_since_ns) == (7, 2, 5)
    kernel.busy[33] = 1_400
    (after,) = listed(kernel, table, record)
    assert after.peer == PeerReading(33, "nginx", busy_ns=400, looked_ns=NOW_NS)
    del kernel.busy[33]
    (gone,) = listed(kernel, table, record)
    assert gone.peer is not None and gone.peer.busy_ns is None
