"""Requests by process, against gateways that ask another service and wait for own timers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pytest

from tests.conftest import give_up
from tests.kernel.test_call_numbers import chosen
from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import gateway as gateways
from tests.workloads.build import BuildError
from tests.workloads.gateway import SIZE, request
from tests.workloads.stages_program import program
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.observe.observation import Observer

pytestmark = [pytest.mark.root]

WORKLOADS = Path(gateways.__file__).parent
Row = Dict[str, Any]


class Process:
    """A gateway, or the service behind it, from its first line on."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def end(self) -> Row:
        """Its account."""
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        account: Row = json.loads(said)
        return account

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def python(mode: str, *paths: Path) -> Process:
    return Process(sys.executable, gateways.__file__, mode, *map(str, paths))


def started(kind: str, *paths: Path) -> Process:
    if kind != "c":
        return python(kind, *paths)
    try:
        return Process(str(program("gateway")), *map(str, paths))
    except BuildError as error:
        give_up(str(error))
        raise


@pytest.fixture
def upstream(folder: Path) -> Iterator[Process]:
    with python("upstream", folder / "u") as process:
        yield process


@pytest.fixture(params=["c", "loop", "executor"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def gateway(kind: str, folder: Path, upstream: Process) -> Iterator[Process]:
    with started(kind, folder / "g", folder / "u") as process:
        yield process


def clients(folder: Path, count: int) -> List[socket.socket]:
    made = []
    for _ in range(count):
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].settimeout(PATIENCE_S)
        made[-1].connect(str(folder / "g"))
    return made


def ask(sockets: Sequence[socket.socket], requests: Sequence[bytes], turns: int) -> None:
    """Each its own request, all at once, so many times."""
    for _ in range(turns):
        for sock, data in zip(sockets, requests):
            sock.sendall(data)
        for sock in sockets:
            assert len(sock.recv(SIZE, socket.MSG_WAITALL)) == SIZE


def observed(
    gateway: Process, folder: Path, requests: Sequence[bytes], turns: int
) -> Tuple[Row, Row, Row]:
    """The gateway's account, its row of `served_by`, and `served`."""
    with Attached(["--pid", str(gateway.pid)], folder) as watched:
        sockets = clients(folder, len(requests))
        ask(sockets, requests, turns)
        for sock in sockets:
            sock.close()
    account = gateway.end()
    (row,) = watched.report["requests"]["served_by"]
    served = watched.report["requests"]["served"]
    assert row["pid"] == gateway.pid
    assert row["count"] == served["count"] == account["requests"] == turns * len(requests)
    assert row["latency_us"] == served["latency_us"]
    return account, row, served


MIXES = {
    "an answer and then a timer": [request(6, 6)],
    "only answers": [request(10)],
    "only timers": [request(0, 10)],
    "a short answer and a long timer": [request(3, 12)],
    "all do both at once": [request(6, 6)] * 8,
    "half this and half that": [request(10), request(0, 10)] * 4,
    "one in eight asks": [request(10), *[request(0, 10)] * 7],
    "on a busy thread": [request(20, 20, 1)] * 8,
}
TOLERANCE, TOLERANCE_OF_THREADS, TRIES = 0.05, 0.1, 6


def asked_for(requests: Sequence[bytes]) -> float:
    """The part of their waits that is for answers, as they were ordered."""
    upstream_ms = sum(gateways.fields(data)[0] for data in requests)
    return upstream_ms / (upstream_ms + sum(gateways.fields(data)[1] for data in requests))


def upstream_error(folder: Path, kind: str, requests: Sequence[bytes]) -> float:
    """How far the part of the sleep that is called `upstream` is from what was ordered, or
    from what the gateway's clock says: that one has what others kept it from its own, too."""
    with started(kind, folder / "g", folder / "u") as gateway:
        account, row, served = observed(gateway, folder, requests, 12)
    (folder / "g").unlink()
    share = row["app_time_pct"]
    assert sum(share.values()) == pytest.approx(100, abs=0.01)
    assert served["app_time_pct"] == pytest.approx(share, abs=0.01)
    asleep = share["upstream"] + share["poll"] + share["lock"] + share["other"]
    timed = account["upstream"] / (account["upstream"] + account["timer"])
    low, high = sorted((timed, asked_for(requests)))
    return max(share["upstream"] / asleep - high, low - share["upstream"] / asleep, 0.0)


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("mix", MIXES)
def test_waiting_for_an_answer_is_told_from_waiting_for_a_timer(
    kind: str, folder: Path, mix: str
) -> None:
    """Who waits for a CPU misses the moment its answer came, so a busy machine has more tries."""
    tolerance = TOLERANCE_OF_THREADS if kind == "executor" else TOLERANCE
    errors: List[float] = []
    while len(errors) < TRIES and (not errors or errors[-1] > tolerance):
        errors.append(upstream_error(folder, kind, MIXES[mix]))
    assert errors[-1] <= tolerance, errors


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("mode, part", [("sleeper", "other"), ("loop", "cpu")])
def test_answers_that_lie_unread_are_not_waited_for(folder: Path, mode: str, part: str) -> None:
    """Eight requests at once, with answers after 1 to 29 ms and then each 20 ms in the loop, asleep
    or busy: most answers come meanwhile, and lie there for 28 ms on average."""
    requests = [request(1 + 4 * number, 0, 20) for number in range(8)]
    ordered_ms = sum(gateways.fields(data)[0] for data in requests) / len(requests)
    with started(mode, folder / "g", folder / "u") as gateway:
        account, row, _ = observed(gateway, folder, requests, 5)
    (own,) = row["upstream"]
    assert own["count"] == account["requests"] == 40
    assert own["recv_wait_mean_us"] > 20_000
    came_ms = (own["latency_mean_us"] - own["recv_wait_mean_us"]) / 1000
    assert ordered_ms <= came_ms < account["upstream"] / 40 / 1e6 - 20
    # In the first 20 ms they are waited for as well: of 728 ms, added up, that is 120.
    share = row["app_time_pct"]
    assert share[part] > 65 > 25 > share["upstream"], share


def test_a_request_that_is_always_outstanding_explains_nothing(folder: Path) -> None:
    """The gateway has asked before anybody asked it, as one that waits for messages does."""
    with listening(folder) as service, started("c", folder / "g", folder / "u") as gateway:
        with Attached(["--pid", str(gateway.pid)], folder) as watched:
            subscriber, client = clients(folder, 2)
            conversation, _ = service.accept()
            ask([client], [request(0, 1)], 1)
            subscriber.sendall(request(1))
            assert conversation.recv(SIZE)
            conversation.sendall(b"y" * SIZE)
            assert subscriber.recv(SIZE)
            ask([client], [request(0, 5)], 20)
        (row,) = watched.report["requests"]["served_by"]
    # Of its sleep: what it waits for a CPU is the machine's.
    share = row["app_time_pct"]
    asleep = share["upstream"] + share["poll"] + share["lock"] + share["other"]
    assert share["poll"] > 0.9 * asleep > 0


def test_each_process_has_its_own(folder: Path, gateway: Process, upstream: Process) -> None:
    """And together they have those of the outermost; the requests of one are those of the other."""
    sockets = clients(folder, 4)
    ask(sockets, [request(1)] * 4, 1)
    with Attached(["--pid", f"{gateway.pid},{upstream.pid}"], folder) as watched:
        ask(sockets, [request(1)] * 4, 25)
        ask(sockets, [request(0, 1)] * 4, 5)
    requests = watched.report["requests"]
    rows = {row["pid"]: row for row in requests["served_by"]}
    assert {pid: row["count"] for pid, row in rows.items()} == {gateway.pid: 120, upstream.pid: 100}
    assert requests["served"]["count"] == 120
    (own,) = rows[gateway.pid]["upstream"]
    assert (own["transport"], own["address"]) == ("unix", str(folder / "u"))
    assert (own["count"], own["peer"]["pid"]) == (100, upstream.pid)
    assert own["latency_mean_us"] == pytest.approx(requests["upstream"][0]["latency_us"]["mean"])
    assert rows[upstream.pid]["upstream"] == []
    for row in rows.values():
        means = row["stages_mean_us"]
        assert means.pop("accept_wait") is None
        assert sum(means.values()) == pytest.approx(row["latency_us"]["mean"], rel=0.05, abs=50)
        assert row["latency_us"]["count"] == row["count"]
    assert sum(row["handed_over"] for row in rows.values()) == 0


@pytest.mark.parametrize("how", ["together", "apart"])
def test_how_many_requests_are_in_hand_at_a_reply(folder: Path, how: str) -> None:
    """Of seven received together the first reply finds seven, the last one."""
    many, rounds, path = 7, 30, str(folder / "s")
    argv = [sys.executable, str(WORKLOADS / "batch_server.py"), path, str(many), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server, ExitStack() as stack:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        with Attached(["--pid", str(server.pid)], folder) as watched:
            peers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(many)]
            for peer in peers:
                peer.settimeout(PATIENCE_S)
                peer.connect(path)
            for _ in range(rounds):
                for peer in peers:
                    peer.sendall(b"request")
                for peer in peers:
                    assert peer.recv(64) == b"reply"
        stack.close()
    (row,) = watched.report["requests"]["served_by"]
    assert row["count"] == many * rounds
    assert row["at_once"] == ((many + 1) / 2 if how == "together" else 1)


@contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """The service behind the gateway is the test."""
    with socket.socket(socket.AF_UNIX) as service:
        service.settimeout(PATIENCE_S)
        service.bind(str(folder / "u"))
        service.listen()
        yield service


def waits(row: Row) -> Dict[str, int]:
    found = {name: row[name]["count"] for name in ("in_progress", "unread", "asking")}
    for name, count in found.items():
        assert (row[name]["oldest_us"] is not None) == bool(count)
    return found


@pytest.mark.parametrize("answered_before", [0, 1])
def test_what_waits_at_the_end(folder: Path, answered_before: int) -> None:
    """A reply that never comes, and a request nobody reads. Who never replied may not have to."""
    with listening(folder) as service, started("c", folder / "g", folder / "u") as gateway:
        with Attached(["--pid", str(gateway.pid)], folder) as watched:
            hung, unread, other = clients(folder, 3)
            for _ in range(answered_before):
                ask([hung, other], [request(), request()], 1)
            hung.sendall(request(1))
            conversation, _ = service.accept()
            assert conversation.recv(SIZE)
            stop(gateway.pid)
            unread.sendall(request())
        (row,) = watched.report["requests"]["served_by"]
        os.kill(gateway.pid, signal.SIGCONT)
    assert waits(row) == {"in_progress": answered_before, "unread": 1, "asking": 1}
    window_us = watched.report["window"]["duration_s"] * 1e6
    assert 0 < row["unread"]["oldest_us"] < row["asking"]["oldest_us"] < window_us


def test_who_hung_before_we_came(folder: Path) -> None:
    """Nothing was ever seen of it but bytes that nobody reads."""
    with listening(folder), started("c", folder / "g", folder / "u") as gateway:
        client, *_ = clients(folder, 1)
        ask([client], [request()], 3)
        stop(gateway.pid)
        client.sendall(request())
        with Attached(["--pid", str(gateway.pid)], folder) as watched:
            pass
        (row,) = watched.report["requests"]["served_by"]
        os.kill(gateway.pid, signal.SIGCONT)
    assert (row["count"], waits(row)) == (0, {"in_progress": 0, "unread": 1, "asking": 0})
    assert row["unread"]["oldest_us"] > 0


def test_what_comes_when_no_probe_is_attached_any_more_is_new(folder: Path) -> None:
    """Between the last event and the last reading: it has not waited for the whole window."""
    with listening(folder), started("c", folder / "g", folder / "u") as gateway:
        with Observer(chosen(gateway.pid), ObserverOptions(1.0, follow=True)) as observer:
            client, *_ = clients(folder, 1)
            ask([client], [request()], 3)
            stop(gateway.pid)
            ended_s = time.monotonic()
            observer.stop()
            client.sendall(request())
            (row,) = observer.finish().requests.served_by or []
            since_us = (time.monotonic() - ended_s) * 1e6
        os.kill(gateway.pid, signal.SIGCONT)
    assert (row.count, row.unread.count) == (3, 1)
    assert row.unread.oldest_us is not None and 0 <= row.unread.oldest_us <= since_us


def stop(pid: int) -> None:
    """In the middle of nothing: it sleeps in its poller."""
    give_up_at = time.monotonic() + PATIENCE_S
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert time.monotonic() < give_up_at, "it does not stop"
        time.sleep(0.001)
