"""The driver `pg` of Node.js against a real PostgreSQL, over TCP and over its Unix socket."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.npm import node_modules
from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval, times_of
from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench
from tests.scenarios.postgres import Postgres
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
STAGES = ("recv_wait", "recv", "app", "send")
ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text);"
    "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 100) n"
)
WAYS = ("no host given", "TCP", "Unix")


@dataclass(frozen=True)
class Queries:
    """One connection's queries. address: the server's end, None for a Unix socket."""

    address: Optional[str]
    rows: int
    trips_us: List[float]
    seen: Optional[Observation] = None


class Database:
    """A PostgreSQL that listens on a port of loopback and on a socket, and `pg` to ask it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._modules = node_modules(HERE)
        self._postgres = Postgres(bench, "tcp")
        self._postgres.run(ITEMS)

    def settings(self, way: str) -> Dict[str, object]:
        """What the guide gives `pg.Client`: for a Unix socket, its folder as the host."""
        port = int(self._postgres.address.rpartition(":")[2])
        login = {"port": port, "user": "postgres", "database": "postgres"}
        host = {"TCP": "127.0.0.1", "Unix": str(Path(self._postgres.socket).parent)}.get(way)
        return {**login, "host": host} if host else dict(login)

    def ask(self, way: str, count: int, observed: bool) -> Queries:
        """Queries one after the other; with udsprobe attached to the backend, or without."""
        argv = [program("node"), str(HERE / "client.js"), json.dumps(self.settings(way))]
        # What the environment says of PostgreSQL servers is of others.
        env = {"NODE_PATH": str(self._modules), "PATH": "/usr/bin:/bin"}
        client = self._bench.start([*argv, str(count)], "pg", stdin=subprocess.PIPE, env=env)
        log = client.log
        self._bench.wait_until(lambda: b"\n" in log.read_bytes(), "pg is connected", client)
        connected = json.loads(log.read_text())
        with attached([connected["backend"]], self._bench.folder, observed) as seen:
            stdin = client.popen.stdin
            assert stdin is not None
            stdin.write(b"begin\n")
            stdin.flush()
            lines = 2
            self._bench.wait_until(lambda: log.read_bytes().count(b"\n") == lines, "rows", client)
        client.popen.communicate(timeout=PATIENCE_S)
        measured = json.loads(log.read_text().splitlines()[-1])
        trips = measured["tripsUs"]
        return Queries(connected["addr"], measured["rows"], trips, seen[0] if seen else None)


def measure(options: Options) -> Result:
    """Rounds in turns without udsprobe, then one of each way with it."""
    count, rounds = (300, 1) if options.quick else (10_000, 9)
    plain: Dict[str, List[Queries]] = {way: [] for way in WAYS}
    with Bench("tcp") as bench:
        database = Database(bench)
        for order in in_turns(WAYS, rounds):
            for way in order:
                plain[way].append(database.ask(way, count, observed=False))
        seen = {way: database.ask(way, count, observed=True) for way in WAYS}
    tables = "\n".join([_round_trips(plain), _pairs(plain), _inside(seen)])
    return Result(tables, _wrong(plain, seen, count))


def _round_trips(plain: Dict[str, List[Queries]]) -> str:
    rows: List[Sequence[object]] = []
    for way, asked in plain.items():
        times = times_of([trip for one in asked for trip in one.trips_us])
        means = interval([times_of(one.trips_us).mean_us for one in asked])
        figures = [round(one) for one in (times.p50_us, times.p99_us, times.max_us)]
        through = "TCP" if asked[0].address else "Unix socket"
        rows.append([way, through, means, *figures, times.count])
    head = ["`host`", "goes through", "mean µs", "p50 µs", "p99 µs", "max µs", "queries"]
    return table(head, rows)


def _pairs(plain: Dict[str, List[Queries]]) -> str:
    """By the mean of each run and by its median, each way against those before it."""
    rows: List[Sequence[object]] = []
    for a, b in itertools.combinations(plain, 2):
        sides = [[times_of(one.trips_us) for one in plain[way]] for way in (a, b)]
        means = paired(*([one.mean_us for one in side] for side in sides))
        medians = paired(*([one.p50_us for one in side] for side in sides))
        rows.append([f"{b} against {a}", len(sides[0]), said(means, b), said(medians, b)])
    return table(["", "pairs of runs", "the pairs say of the mean", "of p50"], rows)


def _inside(seen: Dict[str, Queries]) -> str:
    """What of a query is the backend's, and what its system calls are."""
    rows: List[Sequence[object]] = []
    for way, one in seen.items():
        assert one.seen is not None
        served = one.seen.report["requests"]["served"]
        parts = [served["stages_us"][stage]["mean"] for stage in STAGES]
        means = [round(times_of(one.trips_us).mean_us), round(served["latency_us"]["mean"])]
        calls = one.seen.calls_per_request()
        rows.append([way, *means, *parts, calls, _calls(one.seen), one.seen.cause])
    head = ["with udsprobe attached", "client: mean µs", "backend: mean µs", *STAGES]
    return table([*head, "calls per query", "which", "verdict"], rows)


def _calls(seen: Observation) -> str:
    rows = seen.report["syscalls"][:3]
    return ", ".join(f"{row['name']} {row['transport']} {row['calls']:,}" for row in rows)


def _wrong(plain: Dict[str, List[Queries]], seen: Dict[str, Queries], count: int) -> List[str]:
    wrong: List[str] = []
    for way in WAYS:
        for one in [*plain[way], seen[way]]:
            if one.rows != count:
                wrong.append(f"{way}: {count} queries, {one.rows} rows")
            if (one.address is None) != (way == "Unix"):
                wrong.append(f"{way}: went to {one.address}")
        observation = seen[way].seen
        # One more request is the goodbye of the connection, which is not answered.
        if observation is None or observation.served() != count:
            served = observation and observation.served()
            wrong.append(f"{way}: {count} queries, udsprobe saw {served}")
    return wrong


if __name__ == "__main__":
    sys.exit(run(HERE, __doc__ or "", ("node", "npm", "postgres", "initdb", "psql"), measure))
