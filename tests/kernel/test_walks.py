"""What is in the maps, listed both by iterators and by walks, which a kernel may refuse apart."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Dict, Iterator, List, Type

import pytest

from tests.workloads.upstream_process import Actor, Place, connected
from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.features import KERNEL_BTF, WALKS
from udsprobe.kernel.objects.probe_object import ProbeObject, records
from udsprobe.kernel.objects.walked_object import WalkedObject
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs import loader
from udsprobe.kernel.tracer import Tracer

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

ROOM, CONNECTIONS = 7, 40
KINDS: Dict[str, Type[ProbeObject]] = {"iterators": ProbeObject, "walks": WalkedObject}


@pytest.fixture(params=KINDS)
def tracer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    """One with room for fewer records than there are connections."""
    if request.param == "walks" and WALKS.encode() not in KERNEL_BTF.read_bytes():
        pytest.skip("this kernel has no programs of type syscall (Linux 5.14)")
    monkeypatch.setattr(loader, "kind_of_object", lambda _: KINDS[request.param])
    monkeypatch.setenv(loader.MAP_BOUNDS, f"records={ROOM}" if request.param == "walks" else "")
    try:
        made = Tracer(strategy="tracepoint")
    except KernelCannotError as error:
        if request.param == "walks" or error.slug != "refused":
            raise
        pytest.skip(f"iterators over maps: {error.what}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def server() -> Iterator[Actor]:
    with Actor("serves") as actor:
        yield actor


@pytest.fixture
def client() -> Iterator[Actor]:
    with Actor("asks") as actor:
        yield actor


def seed(tracer: Tracer, actor: Actor) -> None:
    process = Procfs().process(actor.pid)
    assert process is not None
    tracer.seed({actor.pid: process.start_ticks})


def listed(tracer: Tracer, program: str, over: str, layout: str) -> List[Any]:
    loaded = tracer._object
    return records(loaded.iterate(program, over=over), loaded.btf.structure(layout))


def connections(tracer: Tracer) -> List[Any]:
    return listed(tracer, "list_connections", "connections", "connection_record")


def entries(tracer: Tracer) -> int:
    loaded = tracer._object
    return len(
        list(loaded.entries("connections", 8, ctypes.sizeof(loaded.btf.structure("connection"))))
    )


def test_each_connection_is_listed_once(
    tracer: Tracer, server: Actor, client: Actor, folder: Path
) -> None:
    place = Place(server, "stream", folder)
    server.start("serve", listeners=[place.listener], connections=CONNECTIONS, request=9, reply=5)
    sockets = connected(client, place, CONNECTIONS)
    seed(tracer, client)
    for turns, number in enumerate(sockets, 1):
        client.do("ask", sockets=[number], turns=turns, request=9, reply=5)
    found = connections(tracer)
    assert sorted(record.turns for record in found) == list(range(1, CONNECTIONS + 1))
    assert {record.tgid for record in found} == {client.pid}
    assert {(record.bytes_out, record.bytes_in) for record in found} == {
        (9 * turns, 5 * turns) for turns in range(1, CONNECTIONS + 1)
    }
    client.do("close", sockets=sockets)
    server.finish()


def test_what_is_gone_is_swept(tracer: Tracer, server: Actor, client: Actor, folder: Path) -> None:
    """Nothing tells of the end of a Unix socket."""
    place = Place(server, "stream", folder)
    server.start("serve", listeners=[place.listener], connections=CONNECTIONS, request=9, reply=5)
    sockets = connected(client, place, CONNECTIONS)
    seed(tracer, client)
    client.do("ask", sockets=sockets, turns=1, request=9, reply=5)
    assert entries(tracer) == CONNECTIONS
    client.do("close", sockets=sockets[ROOM:])
    tracer.sweep_connections()
    assert entries(tracer) == ROOM
    client.do("close", sockets=sockets[:ROOM])
    server.finish()


def test_listeners_are_listed(tracer: Tracer, server: Actor, client: Actor, folder: Path) -> None:
    places = [Place(server, "stream", folder, f"s{number}") for number in range(2 * ROOM + 1)]
    seed(tracer, server)
    waiting = connected(client, places[3], 2)
    found = listed(tracer, "list_listeners", "listeners", "listener_record")
    assert sorted(record.depth for record in found) == [*[0] * 2 * ROOM, 2]
    assert len({record.sk for record in found}) == len(places)
    assert all(record.is_alive for record in found)
    client.do("close", sockets=waiting)
