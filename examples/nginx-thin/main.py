"""nginx before Thin and Sinatra: 1 or 4 backends, TCP or Unix, HTTP/1.1 kept alive or 1.0."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval, typical
from tests.patience import PATIENCE_S
from tests.scenarios.bench import Bench, Server
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
BACKENDS = 4
CLIENTS = 16
ROUNDS = 7
# Of one run: about a second of one request at a time, half a second and more of 16.
SEQUENTIAL, CONCURRENT, OBSERVED = 3000, 6000, 1000
LOCATION = """
    proxy_http_version {http};
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_pass http://app;
"""


@dataclass(frozen=True)
class Condition:
    """One of the benchmark's eight. theirs: its requests a second, where the copy has them."""

    number: int
    backends: int
    transport: str
    http: str
    theirs: Optional[int] = None


CONDITIONS = (
    Condition(1, 1, "tcp", "1.1", 497),
    Condition(2, 1, "tcp", "1.0", 481),
    Condition(3, 4, "tcp", "1.0", 402),
    Condition(4, 4, "tcp", "1.1", 421),
    Condition(5, 1, "unix", "1.1"),
    Condition(6, 1, "unix", "1.0"),
    Condition(7, 4, "unix", "1.0"),
    Condition(8, 4, "unix", "1.1"),
)
# Those that the short form observes.
QUICK = (CONDITIONS[1], CONDITIONS[4])
NAMES = {"tcp": "TCP", "unix": "Unix"}
HOWS = ("sequential", "concurrent")
Pair = Tuple[Condition, Condition]
# By its own number: each pair differs in one thing only.
_BY = {one.number: one for one in CONDITIONS}
COMPARED: Sequence[Tuple[str, Sequence[Pair]]] = (
    ("Unix", [(_BY[1], _BY[5]), (_BY[2], _BY[6]), (_BY[4], _BY[8]), (_BY[3], _BY[7])]),
    ("HTTP/1.1", [(_BY[2], _BY[1]), (_BY[6], _BY[5]), (_BY[3], _BY[4]), (_BY[7], _BY[8])]),
    ("a pool of four", [(_BY[1], _BY[4]), (_BY[2], _BY[3]), (_BY[5], _BY[8]), (_BY[6], _BY[7])]),
)
# The two of a pair of transports run right after each other.
IN_PAIRS = tuple(one for pair in COMPARED[0][1] for one in pair)


@dataclass
class Measured:
    """Of one condition: requests a second of each run, and what udsprobe saw of one more."""

    sequential: List[float] = field(default_factory=list)
    concurrent: List[float] = field(default_factory=list)
    client_cpu_pct: List[float] = field(default_factory=list)
    answered: List[Tuple[int, int]] = field(default_factory=list)
    seen: Optional[Observation] = None


class Thins:
    """Four Thin servers on each transport."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.servers: Dict[str, List[Server]] = {
            transport: [self._thin(transport) for _ in range(BACKENDS)] for transport in NAMES
        }

    def _thin(self, transport: str) -> Server:
        address = self._bench.address("thin", transport)
        host, _, port = address.rpartition(":")
        at = ["--address", host, "--port", port] if port.isdigit() else ["--socket", address]
        argv = [program("thin"), "start", "--rackup", str(HERE / "config.ru"), *at]
        argv += ["--environment", "production", "--quiet"]
        return self._bench.server(argv, address, "thin", {"HOME": str(self._bench.folder)})

    def nginx(self, condition: Condition) -> Server:
        """nginx in front of them, as the condition has it."""
        lines = []
        for server in self.servers[condition.transport][: condition.backends]:
            unix = server.address.startswith("/")
            lines.append(f"server {'unix:' if unix else ''}{server.address};")
        lines += ["keepalive 48;"] if condition.http == "1.1" else []
        upstream = "upstream app { " + " ".join(lines) + " }"
        return self._bench.nginx(LOCATION.format(http=condition.http), upstream)

    def pids(self, condition: Condition) -> List[int]:
        """Of the servers that the condition uses."""
        return [one.pid for one in self.servers[condition.transport][: condition.backends]]


def httperf(address: str, count: int) -> Tuple[float, float, int]:
    """The benchmark's own client, a connection for each request: requests/s, its CPU %, 2xx."""
    host, _, port = address.rpartition(":")
    argv = [program("httperf"), "--hog", "--server", host, "--port", port, "--uri", "/"]
    said = output([*argv, "--num-conns", str(count), "--num-calls", "1"])
    cpu = number(r"total ([\d.]+)%", said)
    return number(r"Request rate: ([\d.]+) req/s", said), cpu, int(number(r"2xx=(\d+)", said))


def h2load(address: str, count: int) -> Tuple[float, int]:
    """Requests at once over kept connections: requests/s, and how many succeeded."""
    argv = [program("h2load"), "--h1", "-n", str(count), "-c", str(CLIENTS)]
    said = output([*argv, f"http://{address}/"])
    return number(r"([\d.]+) req/s", said), int(number(r"(\d+) succeeded", said))


def output(argv: Sequence[str]) -> str:
    """What a load prints."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout


def number(pattern: str, said: str) -> float:
    """Raises RuntimeError when a load does not say what it always says."""
    found = re.search(pattern, said)
    if not found:
        raise RuntimeError(f"no {pattern!r} in {said[-2000:]}")
    return float(found[1])


def load(address: str, counts: Tuple[int, int], into: Measured) -> None:
    """So many requests one after the other, then so many concurrent ones."""
    rate, cpu_pct, good = httperf(address, counts[0])
    into.sequential.append(rate)
    into.client_cpu_pct.append(cpu_pct)
    into.answered.append((counts[0], good))
    rate, good = h2load(address, counts[1])
    into.concurrent.append(rate)
    into.answered.append((counts[1], good))


def measure(options: Options) -> Result:
    """Every condition in each round, so that they share what else the machine does."""
    counts, rounds = ((50, 50), 1) if options.quick else ((SEQUENTIAL, CONCURRENT), ROUNDS)
    watched = 50 if options.quick else OBSERVED
    all_measured = {one: Measured() for one in CONDITIONS}
    with Bench("tcp") as bench:
        thins = Thins(bench)
        proxies = {one: thins.nginx(one) for one in CONDITIONS}
        for proxy in proxies.values():  # each Sinatra compiles its route at its first request
            httperf(proxy.address, BACKENDS)
        for order in in_turns(IN_PAIRS, rounds):
            for one in order:
                load(proxies[one].address, counts, all_measured[one])
        for one in QUICK if options.quick else CONDITIONS:
            measured = all_measured[one]
            with attached([proxies[one].pid, *thins.pids(one)], bench.folder) as found:
                httperf(proxies[one].address, watched)
            measured.seen = found[0]
    parts = [_rates(all_measured), _pairs(all_measured), _inside(all_measured)]
    return Result("\n".join(parts), _wrong(all_measured, watched))


def _rates(all_measured: Dict[Condition, Measured]) -> str:
    """The benchmark's table, by performance, and the concurrent figures beside it."""

    def rate(item: Tuple[Condition, Measured]) -> float:
        return -typical(item[1].sequential)

    rows: List[Sequence[object]] = []
    for one, measured in sorted(all_measured.items(), key=rate):
        what = [f"#{one.number}", one.backends, NAMES[one.transport], one.http, one.theirs]
        each = f"{1000 / typical(measured.sequential):.2f}"
        figures = [interval(measured.sequential), each, interval(measured.concurrent)]
        rows.append([*what, *figures, round(typical(measured.client_cpu_pct))])
    head = ["Condition", "Backends", "Socket Type", "HTTP Version", "theirs: req/s", "req/s"]
    return table([*head, "ms/req", f"req/s, {CLIENTS} at once", "client's CPU %"], rows)


def _pairs(all_measured: Dict[Condition, Measured]) -> str:
    """What the pairs of runs tell of each thing that was varied, all else being equal."""
    rounds = len(all_measured[CONDITIONS[0]].sequential)
    rows: List[Sequence[object]] = []
    for what, versus in COMPARED:
        groups = [*((pair,) for pair in versus), tuple(versus)]
        for group in groups:
            name = ", ".join(f"#{b.number} against #{a.number}" for a, b in group)
            alone, many = (_said(all_measured, group, how, what) for how in HOWS)
            rows.append(
                [f"{what}: {name}" if len(group) == 1 else f"{what}, all four", alone, many]
            )
    head = [f"pairs of runs: {rounds} each", "one request at a time", f"{CLIENTS} at once"]
    return table(head, rows)


def _said(
    all_measured: Dict[Condition, Measured], group: Sequence[Pair], how: str, what: str
) -> str:
    """Of several pairs of conditions, a round's value is the geometric mean of theirs."""
    ms = [
        [typical(runs) for runs in zip(*(_each_ms(all_measured[side], how) for side in sides))]
        for sides in zip(*group)
    ]
    return said(paired(ms[0], ms[1]), what)


def _each_ms(measured: Measured, how: str) -> List[float]:
    return [1000 / rate for rate in getattr(measured, how)]


def _inside(all_measured: Dict[Condition, Measured]) -> str:
    """Where a sequential request's time is, and how much of it the transport could give back."""
    rows: List[Sequence[object]] = []
    for one in CONDITIONS:
        seen = all_measured[one].seen
        if seen is None:
            continue
        front, *thins = seen.report["requests"]["hops"]
        verdict = seen.report["verdict"]
        moving, application = _at_thin(seen, [hop["pid"] for hop in thins])
        share, gain = verdict["transport_share_pct"], verdict["max_gain_pct"]
        times = [round(front["latency_mean_us"]), round(front["own_us"]), application, moving]
        connects = sum(row["calls"] for row in seen.report["connects"]) / front["count"]
        calls = seen.calls_per_request([front["pid"]])
        rows.append([f"#{one.number}", *times, connects, calls, share, gain, seen.cause])
    head = ["with udsprobe attached", "nginx: µs", "its own", "Thin, Sinatra", "Thin's recv + send"]
    head += [
        "connects per request",
        "calls per request",
        "transport %",
        "free one saves, % at most",
    ]
    return table([*head, "verdict"], rows)


def _at_thin(seen: Observation, pids: Sequence[int]) -> Tuple[float, int]:
    """Mean of moving bytes and of the application, in microseconds, over these processes."""
    rows = [row for row in seen.report["requests"]["served_by"] if row["pid"] in pids]
    count = sum(row["count"] for row in rows)

    def mean(*stages: str) -> float:
        sums = [row["stages_mean_us"][stage] * row["count"] for row in rows for stage in stages]
        return float(sum(sums) / count)

    return mean("recv", "send"), round(mean("app"))


def _wrong(all_measured: Dict[Condition, Measured], count: int) -> List[str]:
    wrong: List[str] = []
    for one, measured in all_measured.items():
        name = f"#{one.number}"
        wrong += [
            f"{name}: {sent} sent, {good} good" for sent, good in measured.answered if sent != good
        ]
        if measured.seen is None:
            continue
        front, *thins = measured.seen.report["requests"]["hops"]
        at_thin = [hop["count"] for hop in thins]
        if front["count"] != count or sum(at_thin) != count or len(at_thin) != one.backends:
            wrong.append(f"{name}: {count} sent, udsprobe saw {front['count']} and {at_thin}")
        made = sum(row["calls"] for row in measured.seen.report["connects"])
        # HTTP/1.0 makes one for each request; nginx drops one that was idle for a minute.
        if made != count if one.http == "1.0" else made > one.backends:
            wrong.append(f"{name}: {count} requests, HTTP {one.http}, {made} connects")
    return wrong


if __name__ == "__main__":
    sys.exit(run(HERE, __doc__ or "", ("nginx", "thin", "httperf", "h2load"), measure))
