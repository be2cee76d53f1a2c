"""Listeners as sample types, from maps filled by hand in the built object's layout."""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest

from tests.unit.layouts import write_latency, write_name
from tests.unit.samples import latency, listener, queue
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables.counters import endpoint, enum_names
from udsprobe.kernel.tables.listener_table import ListenerTable, joined
from udsprobe.sample import Endpoint, ListenerReading, QueueCounts

INTERVAL = 1
SK, INODE = 0xFFFF888000001000, 4242
MOUNT_NS = os.stat("/proc/self/ns/mnt").st_ino
U32 = 1 << 32


class Kernel:
    """What `ListenerTable` asks of a loaded object and its counters."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self.maps: Dict[str, Dict[bytes, bytes]] = {}
        self.records: Dict[int, Any] = {}
        self.handshakes: List[Any] = []
        names = enum_names(btf.enum("endpoint"), "ENDPOINT_")
        self._endpoints = {value: endpoint(name) for value, name in names.items()}
        self.endpoint_values = {name: value for value, name in names.items()}

    def entries(self, name: str, key_bytes: int, value_bytes: int) -> Iterator[Tuple[bytes, bytes]]:
        for key, value in self.maps.get(name, {}).items():
            assert (len(key), len(value)) == (key_bytes, value_bytes), name
            yield key, value

    def take(self, name: str, key_bytes: int, value_bytes: int) -> Iterator[Tuple[bytes, bytes]]:
        yield from self.entries(name, key_bytes, value_bytes)
        self.maps.pop(name, None)

    def iterate(self, program: str, *, over: str) -> bytes:
        if (program, over) == ("list_handshakes", "handshakes"):
            return b"".join(map(bytes, self.handshakes))
        assert (program, over) == ("list_listeners", "listeners")
        return b"".join(map(bytes, self.records.values()))

    def endpoint(self, value: int) -> Endpoint:
        return self._endpoints[value]

    def put(self, map_name: str, key: bytes, value: bytes) -> None:
        self.maps.setdefault(map_name, {})[key] = value

    def listener(
        self, change: Callable[[Any, Any], object] = lambda entry, record: None, sk: int = SK
    ) -> None:
        """Put one listener there, changed by `change(entry, record)`."""
        entry, record = self.btf.structure("listener")(), self.btf.structure("listener_record")()
        entry.inode, entry.seen_ns, entry.netns, entry.tgid = INODE, 7, 40, 4711
        entry.endpoint = self.endpoint_values["unix_stream"]
        entry.backlog = record.backlog = entry.somaxconn = 128
        write_name(entry.name, socket.AF_UNIX, b"\0app")
        record.sk, record.is_alive, record.depth = sk, 1, 3
        change(entry, record)
        self.put("listeners", struct.pack("<Q", sk), bytes(entry))
        self.records[sk] = record

    def accepted(self, tgid: int, tid: int, count: int, inode: int = INODE) -> None:
        who = self.btf.structure("acceptor")(SK, inode, tgid, tid)
        self.put("acceptors", bytes(who), struct.pack("<Q", count))

    def handshake(self, host: str, port: int, netns: int = 40) -> None:
        record = self.btf.structure("handshake_record")(netns=netns)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        write_name(record.peer, family, socket.inet_pton(family, host), port)
        self.handshakes.append(record)

    def refused(self, name: bytes, error: int, count: int, newest_ns: int = 7) -> None:
        failure = self.btf.structure("failed_connect")()
        failure.tgid, failure.mount_ns, failure.net_ns = os.getpid(), MOUNT_NS, 40
        failure.error, failure.newest_listener_ns = error, newest_ns
        write_name(failure.name, socket.AF_UNIX, name)
        self.put("failed_connects", bytes(failure), struct.pack("<Q", count))


@pytest.fixture
def kernel(built_btf: Btf) -> Kernel:
    return Kernel(built_btf)


@pytest.fixture
def table(kernel: Kernel) -> ListenerTable:
    both: Any = kernel
    return ListenerTable(both, both, Procfs())


def read(table: ListenerTable, interval: int = INTERVAL) -> Tuple[ListenerReading, QueueCounts]:
    (reading,) = table.read(interval)
    assert reading.queue is not None
    return reading, reading.queue


def tcp(kernel: Kernel, drops_before: int, drops: int, *, alive: int = 1) -> None:
    def change(entry: Any, record: Any) -> None:
        entry.endpoint = kernel.endpoint_values["tcp"]
        write_name(entry.name, socket.AF_INET, b"\x7f\0\0\1", 8080)
        entry.drops_before, record.drops = drops_before, drops
        record.syn_queue, record.syn_young, record.is_alive = 5, 2, alive

    kernel.listener(change)


def test_a_unix_listener(kernel: Kernel, table: ListenerTable) -> None:
    def change(entry: Any, record: Any) -> None:
        entry.established, entry.accepted, entry.accepted_early = 9, 6, 2
        entry.depth_max = 5
        entry.read_from, entry.closed_unread, entry.closed_unread_sent = 5, 2, 1
        entry.no_seat = 3
        entry.depth[1], entry.depth[33] = 7, 2
        write_latency(entry.wait, 1_000, 5_000)
        write_latency(entry.blocked, 2_000_000)
        record.drops, record.syn_queue = 3, 4

    kernel.listener(change)
    assert read(table)[0] == ListenerReading(
        transport="unix",
        socket_type="stream",
        address="@app",
        netns=40,
        inode=INODE,
        pids=(4711,),
        depth_now=3,
        backlog_effective=128,
        backlog_requested=None,
        somaxconn=128,
        queue=QueueCounts(
            since_ns=7,
            established=9,
            accepted=6,
            accepted_early=2,
            accepted_by={},
            accepted_by_thread={},
            depth={1: 7, 34: 2},
            depth_max=5,
            depth_max_recent=None,
            wait=latency([1_000, 5_000]),
            blocked=latency([2_000_000]),
            blocked_now=0,
            refused={},
            drops=None,
            syn_queue=None,
            syn_young=None,
            read_from=5,
            closed_unread=2,
            closed_unread_sent=1,
            no_seat=3,
        ),
    )


def test_a_tcp_listener(kernel: Kernel, table: ListenerTable) -> None:
    tcp(kernel, drops_before=10, drops=17)
    reading, counts = read(table)
    assert (reading.transport, reading.socket_type) == ("tcp", "stream")
    assert reading.address == "127.0.0.1:8080"
    assert (counts.drops, counts.syn_queue, counts.syn_young) == (7, 5, 2)


@pytest.mark.parametrize(
    ("before", "readings", "counted"),
    [
        (U32 - 2, [U32 - 1, 1, 5], [1, 3, 7]),
        (0, [U32 - 1, 0, U32 - 1, 4], [U32 - 1, U32, 2 * U32 - 1, U32 * 2 + 4]),
    ],
)
def test_drops_go_on_where_the_kernels_counter_wraps(
    kernel: Kernel, table: ListenerTable, before: int, readings: Any, counted: Any
) -> None:
    shown = []
    for drops in readings:
        tcp(kernel, before, drops)
        shown.append(read(table)[1].drops)
    assert shown == counted


def test_nothing_is_read_from_the_memory_of_a_closed_one(
    kernel: Kernel, table: ListenerTable
) -> None:
    tcp(kernel, drops_before=10, drops=17)
    read(table)
    tcp(kernel, drops_before=10, drops=3, alive=0)
    kernel.records[SK].depth, kernel.records[SK].backlog = 99, 77
    reading, counts = read(table)
    assert not reading.is_open
    assert (reading.depth_now, reading.backlog_effective) == (None, 128)
    assert (counts.drops, counts.syn_queue, counts.syn_young) == (7, None, None)


@pytest.mark.parametrize("requested", [-1, 0, 511])
def test_what_listen_was_given(kernel: Kernel, table: ListenerTable, requested: int) -> None:
    def change(entry: Any, record: Any) -> None:
        entry.requested, entry.is_requested = requested, 1

    kernel.listener(change)
    assert read(table)[0].backlog_requested == requested


def test_the_mark_of_the_interval_that_ended(kernel: Kernel, table: ListenerTable) -> None:
    def change(entry: Any, record: Any) -> None:
        for interval, depth in ((3, 30), (4, 40)):
            entry.recent[interval & 1].interval = interval
            entry.recent[interval & 1].depth_max = depth

    kernel.listener(change)
    for interval, expected in ((2, None), (3, 30), (4, 40), (5, None)):
        assert read(table, interval)[1].depth_max_recent == expected


def test_who_accepted(kernel: Kernel, table: ListenerTable) -> None:
    kernel.listener()
    kernel.accepted(10, 10, 3)
    kernel.accepted(10, 11, 4)
    kernel.accepted(12, 12, 1)
    kernel.accepted(12, 13, 9, inode=INODE + 1)
    counts = read(table)[1]
    assert counts.accepted_by == {10: 7, 12: 1}
    assert counts.accepted_by_thread == {10: 3, 11: 4, 12: 1}


def test_a_thread_id_used_again_in_another_process(kernel: Kernel, table: ListenerTable) -> None:
    kernel.listener()
    kernel.accepted(10, 10, 3)
    kernel.accepted(9, 10, 4)
    counts = read(table)[1]
    assert (counts.accepted_by, counts.accepted_by_thread) == ({10: 3, 9: 4}, {10: 7})


def test_refusals_add_up_from_sample_to_sample(kernel: Kernel, table: ListenerTable) -> None:
    kernel.listener()
    seen = []
    for count in (2, 3):
        kernel.refused(b"\0app", errno.EAGAIN, count)
        kernel.refused(b"\0other", errno.ECONNREFUSED, 1)
        seen.append(read(table)[1].refused)
    assert seen == [{"EAGAIN": 2}, {"EAGAIN": 5}]
    assert read(table)[1].refused == {"EAGAIN": 5}
    assert table.unplaced_failures() == 0


def test_a_failure_knows_which_listeners_there_were(kernel: Kernel, table: ListenerTable) -> None:
    def second(entry: Any, record: Any) -> None:
        entry.inode, entry.seen_ns = INODE - 1, 20

    kernel.listener()
    kernel.listener(second, sk=SK + 8)
    kernel.refused(b"\0app", errno.EAGAIN, 2, newest_ns=7)
    kernel.refused(b"\0app", errno.EAGAIN, 5, newest_ns=20)
    first, last = (reading.queue for reading in table.read(INTERVAL))
    assert first is not None and last is not None
    assert (first.refused, last.refused) == ({"EAGAIN": 2}, {"EAGAIN": 5})


def test_a_failure_at_a_listener_that_comes_while_we_read_is_not_lost(
    kernel: Kernel, table: ListenerTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_records = kernel.iterate

    def arrives_meanwhile(program: str, *, over: str) -> bytes:
        shown = read_records(program, over=over)
        kernel.listener()
        kernel.refused(b"\0app", errno.EAGAIN, 2)
        monkeypatch.undo()
        return shown

    monkeypatch.setattr(kernel, "iterate", arrives_meanwhile)
    assert table.read(INTERVAL) == ()
    assert read(table)[1].refused == {"EAGAIN": 2}


def test_who_waits_for_room_is_what_the_kernel_lists(kernel: Kernel, table: ListenerTable) -> None:
    def change(entry: Any, record: Any) -> None:
        record.waiting = 2

    kernel.listener(change)
    assert read(table)[1].blocked_now == 2


@pytest.mark.parametrize(
    ("bound", "waits"),
    [
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"]),
        ("::", ["127.0.0.1", "::1"]),
        ("::1", ["::1"]),
    ],
)
def test_tcp_clients_wait_for_who_has_their_address(
    kernel: Kernel, table: ListenerTable, bound: str, waits: List[str]
) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET

    def change(entry: Any, record: Any) -> None:
        entry.endpoint = kernel.endpoint_values["tcp"]
        write_name(entry.name, family, socket.inet_pton(family, bound), 80)

    kernel.listener(change)
    for host in waits:
        kernel.handshake(host, 80)
    kernel.handshake("127.0.0.1", 81)
    kernel.handshake("127.0.0.1", 80, netns=41)
    kernel.handshake("2001:db8::1" if family == socket.AF_INET else "127.0.0.9", 81)
    assert read(table)[1].blocked_now == len(waits)


def test_for_which_of_the_listeners_at_one_address_tcp_clients_wait_is_not_known(
    kernel: Kernel, table: ListenerTable
) -> None:
    def change(inode: int) -> Callable[[Any, Any], None]:
        def write(entry: Any, record: Any) -> None:
            entry.inode, entry.endpoint = inode, kernel.endpoint_values["tcp"]
            write_name(entry.name, socket.AF_INET, b"\x7f\0\0\1", 80)

        return write

    kernel.listener(change(INODE))
    kernel.listener(change(INODE + 1), sk=SK + 8)
    kernel.handshake("127.0.0.1", 80)
    queues = [reading.queue for reading in table.read(INTERVAL)]
    assert [queue.blocked_now for queue in queues if queue is not None] == [None, None]


def test_histograms_stay_the_same_objects_until_they_grow(
    kernel: Kernel, table: ListenerTable
) -> None:
    def change(waits: Tuple[int, ...], established: int) -> Callable[[Any, Any], None]:
        def write(entry: Any, record: Any) -> None:
            entry.established = established
            write_latency(entry.wait, *waits)
            write_latency(entry.blocked, 2_000_000)

        return write

    histories = [((1_000,), 1), ((1_000,), 1), ((1_000,), 2), ((1_000, 5_000), 2)]
    shown = []
    for waits, established in histories:
        kernel.listener(change(waits, established))
        shown.append(read(table)[1])
    first, same, more, longer = shown
    assert same.wait is first.wait is more.wait
    assert same.blocked is first.blocked is more.blocked is longer.blocked
    assert [counts.established for counts in shown] == [1, 1, 2, 2]
    assert longer.wait == latency([1_000, 5_000])


def test_another_socket_at_the_same_address_begins_again(
    kernel: Kernel, table: ListenerTable
) -> None:
    tcp(kernel, drops_before=0, drops=9)
    read(table)

    def change(entry: Any, record: Any) -> None:
        entry.inode, entry.accepted = INODE + 1, 1
        entry.endpoint = kernel.endpoint_values["tcp"]
        write_name(entry.name, socket.AF_INET6, b"\0" * 15 + b"\1", 443)
        entry.drops_before, record.drops = 2, 3

    kernel.listener(change)
    reading, counts = read(table)
    assert (reading.inode, reading.address) == (INODE + 1, "[::1]:443")
    assert (counts.accepted, counts.drops) == (1, 1)


@pytest.mark.parametrize("missing", ["listeners", "records"])
def test_one_that_came_or_went_between_two_readings_is_left_out(
    kernel: Kernel, table: ListenerTable, missing: str
) -> None:
    kernel.listener()
    kernel.listener(lambda entry, record: setattr(entry, "inode", INODE + 1), sk=SK + 8)
    if missing == "listeners":
        del kernel.maps["listeners"][struct.pack("<Q", SK)]
    else:
        del kernel.records[SK]
    assert [reading.inode for reading in table.read(INTERVAL)] == [INODE + 1]


def test_connects_of_the_targets(kernel: Kernel, table: ListenerTable) -> None:
    def put(name: bytes, family: int, place: str, error: int, port: int = 0) -> None:
        destination = kernel.btf.structure("destination")()
        destination.error, destination.endpoint = error, kernel.endpoint_values[place]
        write_name(destination.name, family, name, port)
        counts = kernel.btf.structure("destination_counts")()
        write_latency(counts.latency, 3_000)
        kernel.put("destinations", bytes(destination), bytes(counts))

    put(b"/run/db.sock", socket.AF_UNIX, "unix_stream", 0)
    put(b"/run/db.sock", socket.AF_UNIX, "unix_stream", errno.ENOENT)
    put(b"\x7f\0\0\1", socket.AF_INET, "tcp", errno.EINPROGRESS, 6379)
    put(b"\x7f\0\0\1", socket.AF_INET, "udp", 0, 53)
    shown = table.connects()
    assert [(each.transport, each.address, each.error) for each in shown] == [
        ("unix", "/run/db.sock", None),
        ("unix", "/run/db.sock", "ENOENT"),
        ("tcp", "127.0.0.1:6379", "EINPROGRESS"),
        ("udp", "127.0.0.1:53", None),
    ]
    assert {each.latency for each in shown} == {latency([3_000])}


def by_inode(readings: Tuple[ListenerReading, ...]) -> Mapping[int, Optional[QueueCounts]]:
    return {reading.inode: reading.queue for reading in readings}


def test_both_views_of_a_listener_are_joined_by_inode() -> None:
    counts = queue([1_000])
    shown = (listener(inode=1, pids=(1, 2), backlog_requested=None), listener(inode=2))
    counted = (
        replace(listener(inode=1, pids=(1,), address="?", backlog_requested=64), queue=counts),
        replace(listener(inode=3, is_open=False), queue=counts),
    )
    both = joined(shown, counted)
    assert by_inode(both) == {1: counts, 2: None, 3: counts}
    assert both[0] == replace(shown[0], backlog_requested=64, queue=counts)
    assert both[1] == shown[1]
    assert both[2] == counted[1]
