"""The chat of the Node.js guide: two clients, a line each 10 ms, TCP and Unix."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval, times_of
from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench, Process, Server
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
CLIENTS = ("anna", "ben")
EVERY_MS = 10
TRIES = 3
STAGES = ("recv_wait", "recv", "app", "send")


@dataclass(frozen=True)
class Way:
    """words: for server and clients. guide_us: the guide's mean round trip."""

    transport: str
    words: Sequence[str] = ()
    guide_us: Optional[int] = None


WAYS: Dict[str, Way] = {
    "TCP": Way("tcp", guide_us=334),
    "TCP, TCP_NODELAY": Way("tcp", ("nodelay",)),
    "Unix": Way("unix", guide_us=130),
}


@dataclass(frozen=True)
class Chat:
    """One run. sent: lines of both clients. passed: lines that the server passed on."""

    sent: int
    passed: int
    trips_us: List[float]
    seen: Optional[Observation] = None

    @property
    def mean_us(self) -> float:
        return times_of(self.trips_us).mean_us


def chat(way: Way, seconds: float, observed: bool) -> Chat:
    """Two clients talk for a while; with udsprobe attached to the server, or without."""
    with Bench(way.transport) as bench:
        address = bench.address("chat")
        argv = [program("node"), str(HERE / "server.js"), address, *way.words]
        server = bench.server(argv, address, "server")
        clients = [_client(bench, address, name, seconds, way) for name in CLIENTS]
        with attached([server.pid], bench.folder, observed) as seen:
            _talk(bench, clients)
        said = [_account(client) for client in clients]
        passed = _farewell(server)
    trips = [trip for one in said for trip in one["tripsUs"]]
    return Chat(sum(one["sent"] for one in said), passed, trips, seen[0] if seen else None)


def _client(bench: Bench, address: str, name: str, seconds: float, way: Way) -> Process:
    argv = [program("node"), str(HERE / "client.js"), address, name, str(seconds), str(EVERY_MS)]
    argv += way.words
    client = bench.start(argv, "client", stdin=subprocess.PIPE)
    connected = client.log
    bench.wait_until(lambda: b"connected" in connected.read_bytes(), "connected", client)
    return client


def _talk(bench: Bench, clients: Sequence[Process]) -> None:
    for client in clients:
        assert client.popen.stdin is not None
        client.popen.stdin.write(b"begin\n")
        client.popen.stdin.flush()
    for client in clients:
        log = client.log
        bench.wait_until(partial(_is_done, log), "every line came back", client)


def _is_done(log: Path) -> bool:
    return log.read_bytes().count(b"\n") == 2


def _account(client: Process) -> Dict[str, Any]:
    client.popen.communicate(timeout=PATIENCE_S)
    said: Dict[str, Any] = json.loads(client.log.read_text().splitlines()[-1])
    return said


def _farewell(server: Server) -> int:
    server.end()
    passed = json.loads(server.log.read_text().splitlines()[-1])["lines"]
    assert isinstance(passed, int)
    return passed


def measure(options: Options) -> Result:
    """Runs in turns without udsprobe, then one of each with it."""
    seconds, rounds = (1.0, 1) if options.quick else (15.0, 7)
    plain: Dict[str, List[Chat]] = {name: [] for name in WAYS}
    for order in in_turns(WAYS, rounds):
        for name in order:
            plain[name].append(chat(WAYS[name], seconds, observed=False))
    seen = {name: _observed(name, min(seconds, 5.0)) for name in WAYS}
    tables = [_round_trips(plain), _pairs(plain), _inside(seen)]
    return Result("\n".join(tables), _wrong(plain, seen))


def _observed(name: str, seconds: float) -> Chat:
    """Three at most, for the finding: one of a machine that was away too often is no finding.
    Lines that were lost are not looked at again."""
    for _ in range(TRIES):
        one = chat(WAYS[name], seconds, observed=True)
        assert one.seen is not None
        if not _counts(one) or bool(_nagle(one.seen)) == (name == "TCP"):
            break
    return one


def _counts(one: Chat) -> bool:
    """Every line was passed on and came back."""
    return one.sent == one.passed == len(one.trips_us)


def _round_trips(plain: Dict[str, List[Chat]]) -> str:
    rows: List[Sequence[object]] = []
    for name, chats in plain.items():
        times = times_of([trip for one in chats for trip in one.trips_us])
        means = interval([one.mean_us for one in chats])
        figures = [round(one) for one in (times.p50_us, times.p99_us, times.max_us)]
        rows.append([name, WAYS[name].guide_us, means, *figures, times.count])
    head = ["", "guide: mean µs", "mean µs", "p50 µs", "p99 µs", "max µs", "round trips"]
    return table(head, rows)


def _pairs(plain: Dict[str, List[Chat]]) -> str:
    """By the runs' means, each way against those before it."""
    means = {name: [one.mean_us for one in chats] for name, chats in plain.items()}
    rows = [
        [f"{b} against {a}", len(means[b]), said(paired(means[a], means[b]), b)]
        for a, b in itertools.combinations(means, 2)
    ]
    return table(["", "pairs of runs", "the pairs say of the mean"], rows)


def _inside(seen: Dict[str, Chat]) -> str:
    """What of a round trip is the server's."""
    rows: List[Sequence[object]] = []
    for name, one in seen.items():
        assert one.seen is not None
        served = one.seen.report["requests"]["served"]
        parts = [served["stages_us"][stage]["mean"] for stage in STAGES]
        means = [round(one.mean_us), round(served["latency_us"]["mean"])]
        found = ", ".join([one.seen.cause, *_nagle(one.seen)])
        calls = one.seen.calls_per_request()
        rows.append([name, *means, *parts, calls, _held(one.seen), found])
    head = ["with udsprobe attached", "client: mean µs", "server: mean µs", *STAGES]
    return table([*head, "calls per line", "sends held by Nagle", "verdict, finding"], rows)


def _held(seen: Observation) -> Optional[int]:
    """Send calls of the server that TCP kept back; None on Unix, which never does."""
    counts = [row["sends_held"] for row in seen.report["connections"]]
    return sum(counts) if counts and None not in counts else None


def _nagle(seen: Observation) -> List[str]:
    """Where it is most of a turn, it is the verdict's and no finding beside it."""
    named = [each["id"] for each in seen.report["findings"] if each["id"] == "nagle"]
    return named or (["nagle"] if "Nagle" in seen.report["verdict"]["summary"] else [])


def _wrong(plain: Dict[str, List[Chat]], seen: Dict[str, Chat]) -> List[str]:
    wrong: List[str] = []
    for name, chats in plain.items():
        for one in [*chats, seen[name]]:
            if not _counts(one):
                counts = f"{one.passed} passed on, {len(one.trips_us)} came back"
                wrong.append(f"{name}: {one.sent} lines sent, {counts}")
        observation = seen[name].seen
        if observation is None or bool(_nagle(observation)) != (name == "TCP"):
            wrong.append(f"{name}: Nagle is named of TCP without TCP_NODELAY, and only there")
    return wrong


if __name__ == "__main__":
    sys.exit(run(HERE, __doc__ or "", ("node",), measure))
