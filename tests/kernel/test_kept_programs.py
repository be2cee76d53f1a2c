"""Programs that stay loaded: each observation with them is as one with programs loaded anew.

Two observers count side by side: the one with programs that have counted before, the other with
programs that are new. What the workload says it did is the truth of both.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Set, Tuple

import pytest

from tests.kernel.actor import Caller
from tests.kernel.at_rest import wait_until_at_rest
from tests.kernel.cases import all_cases, command
from tests.workloads.upstream_process import Actor, Place, connected
from udsprobe.kernel.abilities.features import kernel_features
from udsprobe.kernel.abilities.light_plan import NEEDS, has_light
from udsprobe.kernel.objects.libbpf import libbpf
from udsprobe.kernel.objects.probe_object import ARRAY, PERCPU_ARRAY, QUEUE, MapShape, ProbeObject
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs.fresh import EMPTIED, GLOBALS, ZEROED
from udsprobe.kernel.programs.kept import KeptPrograms
from udsprobe.kernel.programs.loaded import load_programs
from udsprobe.kernel.programs.loader import possible_cpus
from udsprobe.kernel.selectors import Chosen
from udsprobe.kernel.tracer import Tracer
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.observe.observation import Observer
from udsprobe.sample import Sample

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

WINDOWS = 4
Workload = Callable[[int], Path]

# Runs each line as a command, and answers when it has ended.
RUNS = """
import subprocess, sys
for line in sys.stdin:
    subprocess.run(line.split(), check=False, stdout=subprocess.DEVNULL)
    print(flush=True)
"""
STRATEGY = os.environ.get("UDSPROBE_STRATEGY", "auto")
OPTIONS = ObserverOptions(1.0, follow=True, strategy=STRATEGY)
USED = {
    *("calls", "cpus", "cpu_stays", "upstreams", "upstream_indices", "connections", "processes"),
    *("servers", "waits", "free_slots", "listeners", "acceptors"),
    *("destinations", GLOBALS),
}
"""Maps that the workload of the test below leaves something in, so that it is not empty words."""


@pytest.fixture
def kept() -> Iterator[KeptPrograms]:
    if not has_light(kernel_features().events):
        pytest.skip(f"detail auto, which keeps programs, needs {NEEDS}")
    made = KeptPrograms()
    yield made
    made.close()


def chosen(pids: Iterable[int]) -> List[Chosen]:
    found = map(Procfs().process, pids)
    return [Chosen(each.pid, each.start_ticks, "selector", "test") for each in found if each]


class Pair:
    """The last samples of both observers, when the block is left."""

    def __init__(self) -> None:
        self.samples: List[Sample] = []
        self.sockets: Set[int] = set()

    def told(self) -> Dict[str, Any]:
        """What both say, which is the same."""
        with_kept, with_new = map(counted, self.samples)
        assert with_kept == with_new
        return with_kept


@contextmanager
def observed(kept: KeptPrograms, pids: List[int], is_first: bool) -> Iterator[Pair]:
    """By both, from one moment of rest to another."""
    wait_until_at_rest(pids)
    pair = Pair()
    with (
        Observer(chosen(pids), OPTIONS, kept=kept) as with_kept,
        Observer(chosen(pids), OPTIONS) as with_new,
    ):
        assert bool(with_kept.loading_s) == is_first
        yield pair
        wait_until_at_rest(pids)
        for each in (with_kept, with_new):
            each.interval()
        pair.sockets = addresses(with_kept)
        for each in (with_kept, with_new):
            each.finish()
            pair.samples.append(each.last)


def addresses(observer: Observer) -> Set[int]:
    """Of the targets' connections, in the kernel's memory."""
    assert isinstance(observer._tracer, Tracer)
    loaded = observer._tracer._object
    size = ctypes.sizeof(loaded.btf.structure("connection"))
    return {int.from_bytes(key, "little") for key, _ in loaded.entries("connections", 8, size)}


def counted(sample: Sample) -> Dict[str, Any]:
    """Everything in it that is a count."""
    served, queues = sample.served, [each.queue for each in sample.listeners]
    assert served is not None and sample.calls is not None and sample.threads is not None
    return {
        "calls": {
            (row.name, row.abi, row.endpoint): (row.calls, row.errors, row.bytes, row.latency.count)
            for row in sample.calls
        },
        "by_name": sample.syscalls_by_name,
        "events": (sample.probe.events_seen, sample.probe.events_counted, sample.probe.turned_away),
        "served": (served.count, {name: each.count for name, each in served.stages.items()}),
        "apart": (served.handed_over, served.pipelined, served.multiplexed),
        "served_by": {each.pid: (each.count, each.accept_waits) for each in sample.served_by or ()},
        "connections": {
            row.inode: (row.role, row.peer_address, row.turns, row.bytes_in, row.bytes_out)
            for row in sample.connections or ()
        },
        "connections_open": sample.connections_open,
        "upstream": sorted(
            (row.transport, row.address, row.opened, row.latency.count)
            for row in sample.upstream or ()
        ),
        "queues": sorted(
            (each.established, each.accepted, each.accepted_by, each.depth)
            for each in queues
            if each is not None
        ),
        "connects": sorted(
            (row.transport, row.address, row.error or "", row.latency.count)
            for row in sample.connects or ()
        ),
        "targets": {each.pid: (each.state, each.via) for each in sample.targets},
        "exited": sample.targets_exited,
        "threads": sorted((each.pid, each.tid, each.kind) for each in sample.threads),
        "in_flight": sorted((each.tid, each.name) for each in sample.in_flight or ()),
        "loops": {each.tid: each.iterations for each in sample.loops or ()},
        "waits": waits(sample),
    }


def waits(sample: Sample) -> Dict[Tuple[int, str, str], int]:
    """By who waited, what for and whether a thread ended it."""
    found: Dict[Tuple[int, str, str], int] = Counter()
    for each in sample.waits or ():
        found[(each.tid, each.kind, each.author)] += each.count
    return found


def calls(told: Dict[str, Any], name: str) -> int:
    return sum(row[0] for key, row in told["calls"].items() if key[0] == name)


@contextmanager
def serving(
    folder: Path, turns: Dict[str, int]
) -> Iterator[Tuple[Actor, Actor, Callable[[], None]]]:
    """A server, a client, and so many requests over a new connection of each kind."""
    with Actor("serves") as server, Actor("asks") as client:
        places = [Place(server, kind, folder) for kind in ("stream", "tcp4")]

        def ask() -> None:
            listeners = [place.listener for place in places]
            server.start("serve", listeners=listeners, connections=2, request=100, reply=700)
            sockets = [number for place in places for number in connected(client, place)]
            client.do("ask", sockets=sockets, turns=turns["each"], request=100, reply=700)
            client.do("close", sockets=sockets)
            server.finish()

        yield server, client, ask


def test_each_window_counts_what_falls_into_it(kept: KeptPrograms, folder: Path) -> None:
    """Between windows as much happens as in them."""
    turns: Dict[str, int] = {}
    with serving(folder, turns) as (server, client, ask), Caller() as caller:
        pids = [server.pid, client.pid, caller.pid]
        for number in range(WINDOWS):
            with observed(kept, pids, is_first=number == 0) as pair:
                turns["each"] = 10 + number
                ask()
                sent = caller.does("call", 20 + number) + caller.does("thread", 3 + number)
                sent += caller.does("fork", number)
            told = pair.told()
            assert told["served"][0] == 2 * turns["each"]
            assert sum(row[3] for row in told["upstream"]) == 2 * turns["each"]
            assert sum(row[1] for row in told["queues"]) == 2
            assert calls(told, "sendto") >= sent
            assert told["exited"] == 1
            assert told["events"][0] == told["events"][1]
            turns["each"] = 7
            ask()
            caller.does("call", 5)
            caller.does("thread", 5)
            caller.does("fork", 5)


def test_who_is_no_target_any_more_is_not_counted(kept: KeptPrograms) -> None:
    """Tasks keep what was noted with them."""
    with Caller() as one, Caller() as other:
        with observed(kept, [one.pid, other.pid], is_first=True) as pair:
            one.does("call", 5)
            other.does("call", 6)
        assert calls(pair.told(), "sendto") == 11
        with observed(kept, [other.pid], is_first=False) as pair:
            one.does("call", 50)
            other.does("call", 7)
        told = pair.told()
        assert calls(told, "sendto") == 7
        assert set(told["targets"]) == {other.pid}
        with observed(kept, [one.pid], is_first=False) as pair:
            one.does("call", 8)
            other.does("call", 60)
        assert calls(pair.told(), "sendto") == 8


def test_calls_that_last_over_edges_are_told_as_by_new_programs(
    kept: KeptPrograms, folder: Path
) -> None:
    with Actor("serves") as server, Actor("reads") as client:
        place = Place(server, "stream", folder)
        (ours,) = connected(client, place)
        theirs = server.do("accept", listener=place.listener)["socket"]
        client.start("read", socket_number=ours, size=5)
        for number in range(2):
            with observed(kept, [client.pid], is_first=number == 0) as pair:
                pass
            told = pair.told()
            assert [name for _, name in told["in_flight"]] == ["recvfrom"]
            assert not calls(told, "recvfrom")
        with observed(kept, [client.pid], is_first=False) as pair:
            server.do("send", socket_number=theirs, size=5)
            assert client.finish() == {"taken": 5}
        told = pair.told()
        assert calls(told, "recvfrom") == 1
        # Asleep for the next order.
        assert [name for _, name in told["in_flight"]] == ["recvmsg"]
        client.start("read", socket_number=ours, size=5)
        with observed(kept, [client.pid], is_first=False) as pair:
            pass
        server.do("send", socket_number=theirs, size=5)
        assert client.finish() == {"taken": 5}
        with observed(kept, [client.pid], is_first=False) as pair:
            pass
        assert not calls(pair.told(), "recvfrom")


def test_a_connection_in_the_memory_of_one_of_before(kept: KeptPrograms, folder: Path) -> None:
    """It was closed between two windows, and another is where it was."""
    seen: Set[int] = set()
    met_again = 0
    with Actor("serves") as server, Actor("asks") as client:
        for actor in (server, client):
            # What a CPU gives back it takes again.
            os.sched_setaffinity(actor.pid, {min(os.sched_getaffinity(0))})
        place = Place(server, "stream", folder)
        for number in range(8):
            (ours,) = connected(client, place)
            theirs = server.do("accept", listener=place.listener)["socket"]
            server.start("serve", listeners=[], connections=0, sockets=[theirs])
            with observed(kept, [server.pid, client.pid], is_first=number == 0) as pair:
                client.do("ask", sockets=[ours], turns=3 + number)
            told = pair.told()
            assert told["served"][0] == 3 + number
            assert [row[2] for row in told["connections"].values()] == [3 + number] * 2
            met_again += bool(pair.sockets & seen)
            seen |= pair.sockets
            client.do("close", sockets=[ours])
            assert server.finish()["answered"] == 3 + number
    assert met_again


# what is left in the maps


def test_every_map_is_as_it_was_when_it_was_loaded(
    kept: KeptPrograms, workload: Workload, folder: Path
) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert runner.stdin is not None and runner.stdout is not None
    turns = {"each": 5}
    with runner, serving(folder, turns) as (server, client, ask):
        pids = [runner.pid, server.pid, client.pid]
        with Observer(chosen(pids), OPTIONS, kept=kept) as observer:
            for case in all_cases():
                print(*command(workload(64), case, folder / "truth"), file=runner.stdin, flush=True)
                runner.stdout.readline()
            ask()
            stays = Place(server, "stream", folder, "stays")
            connected(client, stays)
            server.do("accept", listener=stays.listener)
            # Before it is read: some of what is gone is taken away then.
            observer.stop()
            assert isinstance(observer._tracer, Tracer)
            before = contents(observer._tracer._object)
            observer.finish()
        runner.stdin.close()
    taken = kept.take()
    assert taken is not None
    fresh = load_programs(taken.strategy, taken.features, "full", follow=True)
    try:
        new, after = contents(fresh.object), contents(taken.object)
    finally:
        fresh.object.close()
        taken.object.close()
    assert USED - {name for name, was in before.items() if was != new[name]} == set()
    assert {name for name, now in after.items() if now != new[name]} == set()


def contents(loaded: ProbeObject) -> Dict[str, bytes]:
    """Of each map that is brought back to what it was."""
    found = {}
    for shape in loaded.shapes():
        if shape.kind in EMPTIED:
            found[shape.name] = b"".join(keys(loaded, shape))
        elif shape.name in ZEROED:
            found[shape.name] = b"".join(values(loaded, shape))
        elif shape.name == GLOBALS:
            (image,) = values(loaded, shape)
            at = loaded.btf.variables(GLOBALS)["observation"].offset_bytes
            found[GLOBALS] = image[:at] + image[at + 4 :]
    return found


def keys(loaded: ProbeObject, shape: MapShape) -> Iterator[bytes]:
    if shape.kind == QUEUE:
        top = ctypes.create_string_buffer(shape.value_bytes)
        lookup = libbpf().functions.bpf_map_lookup_elem
        if lookup(loaded.descriptor(shape.name), None, top) == 0:
            yield top.raw
        return
    for key, _ in loaded.entries(shape.name, shape.key_bytes, shape.value_bytes):
        yield key


def values(loaded: ProbeObject, shape: MapShape) -> Iterator[bytes]:
    assert shape.kind in (ARRAY, PERCPU_ARRAY)
    copies = possible_cpus() if shape.kind == PERCPU_ARRAY else 1
    return loaded.elements(shape.name, shape.value_bytes * copies, shape.entries)


def test_what_cannot_be_brought_back_is_loaded_anew(kept: KeptPrograms) -> None:
    with Caller() as caller:
        with Observer(chosen([caller.pid]), OPTIONS, kept=kept) as observer:
            assert isinstance(observer._tracer, Tracer)
            os.close(observer._tracer._object.descriptor("programs_ended"))
        assert not kept.keeps
        with Observer(chosen([caller.pid]), OPTIONS, kept=kept) as observer:
            assert observer.loading_s
            caller.does("call", 5)
            observer.finish()
            assert calls(counted(observer.last), "sendto") == 5
