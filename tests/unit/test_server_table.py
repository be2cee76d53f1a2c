"""Requests by process as sample types, from entries made by hand in the built object's layout."""

from __future__ import annotations

import struct
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest

from tests.unit.samples import upstream
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.tables.counters import enum_names
from udsprobe.kernel.tables.server_table import ServerTable
from udsprobe.sample import OwnRequestCounts, PeerReading, UpstreamCounts, Waiting

LISTING = 7


class Kernel:
    """What `ServerTable` asks of a loaded object, its counters and the connections."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self.maps: Dict[str, List[Tuple[bytes, bytes]]] = {"servers": [], "server_upstreams": []}
        self.destinations: List[UpstreamCounts] = []

    def entries(self, name: str, key_bytes: int, value_bytes: int) -> Iterator[Tuple[bytes, bytes]]:
        for key, value in self.maps[name]:
            assert (len(key), len(value)) == (key_bytes, value_bytes)
            yield key, value

    def listing(self) -> int:
        return LISTING

    def by_activity(self, words: Any) -> Mapping[str, int]:
        names = enum_names(self.btf.enum("activity"), "ACTIVITY_")
        return {names[at]: word for at, word in enumerate(words)}

    def destination(self, index: int) -> Optional[UpstreamCounts]:
        return self.destinations[index] if index < len(self.destinations) else None

    def peer(self, pid: int) -> Optional[PeerReading]:
        return PeerReading(pid, "postgres") if pid else None

    def serves(self, pid: int, **fields: Any) -> Any:
        entry = self.btf.structure("server")()
        for name, value in fields.items():
            setattr(entry, name, value)
        for kind, number in self.btf.enum("pending_kind").items():
            if kind != "PENDING_MAX":
                entry.pending[number].count = number
                entry.pending[number].oldest_ns = 100 + number
        entry.app_activity_ns[self.btf.enum("activity")["ACTIVITY_BLOCKED_LOCK"]] = 5
        entry.stages_ns[self.btf.enum("stage")["STAGE_SEND"]] = 6
        self.maps["servers"].append((struct.pack("<I", pid), bytes(entry)))

    def asks(self, pid: int, index: int, count: int, peer: int = 812) -> None:
        key = self.btf.structure("server_upstream_key")(tgid=pid, upstream=index)
        structure = self.btf.structure("server_upstream")
        entry = structure(count=count, total_ns=10 * count, recv_wait_ns=5 * count, peer_tgid=peer)
        self.maps["server_upstreams"].append((bytes(key), bytes(entry)))


@pytest.fixture
def kernel(built_btf: Btf) -> Kernel:
    return Kernel(built_btf)


@pytest.fixture
def table(kernel: Kernel) -> ServerTable:
    everything: Any = kernel
    return ServerTable(everything, everything, everything)


def test_a_process(kernel: Kernel, table: ServerTable) -> None:
    counts = {
        "handed_over": 1,
        "pipelined": 2,
        "accept_waits": 3,
        "multiplexed": 7,
        "tls_handshakes": 6,
    }
    latency = kernel.btf.structure("latency")(count=8, total_ns=4, max_ns=9)
    latency.slots[3] = 8
    kernel.serves(33, latency=latency, upstream_ns=11, listing=LISTING, **counts)
    (reading,) = table.read({33: "nginx", 44: "other"})
    assert (reading.pid, reading.comm, reading.count) == (33, "nginx", 8)
    assert {name: getattr(reading, name) for name in counts} == counts
    assert (reading.total_ns, reading.max_ns) == (4, 9)
    assert reading.latency is not None and reading.latency.slots[3] == sum(reading.latency.slots)
    assert table.read({})[0].latency is reading.latency
    assert reading.stages_ns == {"accept_wait": 0, "recv_wait": 0, "recv": 0, "app": 0, "send": 6}
    assert reading.app_activity_ns["blocked_lock"] == sum(reading.app_activity_ns.values()) == 5
    assert reading.upstream_wait_ns == 11
    assert reading.in_progress == Waiting(0, None)
    assert (reading.unread, reading.asking) == (Waiting(1, 101), Waiting(2, 102))


def test_what_an_older_listing_saw_waits_no_more(kernel: Kernel, table: ServerTable) -> None:
    kernel.serves(33, listing=LISTING - 1)
    (reading,) = table.read({})
    assert reading.asking == reading.unread == Waiting(0, None)


def test_who_is_gone_keeps_its_name(kernel: Kernel, table: ServerTable) -> None:
    kernel.serves(44)
    kernel.serves(33)
    assert [reading.comm for reading in table.read({33: "nginx"})] == ["nginx", None]
    assert [reading.comm for reading in table.read({44: "late"})] == ["nginx", "late"]


def test_nobody_tells_how_long_answers_lie_unread(kernel: Kernel) -> None:
    everything: Any = kernel
    for told in ({"tells_arrival": False}, {"sees_calls": False}):
        table = ServerTable(everything, everything, everything, **told)
        kernel.destinations = [upstream()]
        kernel.serves(33)
        kernel.asks(33, 0, 2)
        assert [row.recv_wait_ns for row in table.read({})[0].upstream] == [None]


def test_its_own_requests_by_name(kernel: Kernel, table: ServerTable) -> None:
    """One name twice is one row; what has no name yet is in the next sample."""
    kernel.destinations = [upstream(), upstream(address="@x"), upstream()]
    kernel.serves(33)
    kernel.asks(33, 0, 1, peer=0)
    kernel.asks(33, 1, 4)
    kernel.asks(33, 2, 2)
    kernel.asks(33, 3, 100)
    kernel.asks(44, 0, 100)
    (reading,) = table.read({})
    peer = PeerReading(812, "postgres")
    assert reading.upstream == (
        OwnRequestCounts("unix", "/run/db.sock", peer, 3, 30, 15),
        OwnRequestCounts("unix", "@x", peer, 4, 40, 20),
    )
