"""Four Caddys in a row: a file server and three proxies, a large download through each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval
from tests.scenarios.bench import Bench, Server
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
MB = 1_000_000
SHARED_MEMORY = Path("/dev/shm")
HOPS = ("file server", "first proxy", "second proxy", "third proxy")
INSIDE = "UDSPROBE_EXAMPLE_INSIDE"
THREADS = (1, 5)
# The case study's figures of 5 threads, in Mbit/s; those of the repaired chain are not in it.
THEIRS = (300, 60, 16, 16)
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
# Name → transport between the hops, congestion control of whatever is TCP.
# reno is the one that every kernel lets every network namespace choose.
WAYS = {"TCP": ("tcp", "reno"), "TCP with bbr": ("tcp", "bbr"), "Unix": ("unix", "reno")}


@dataclass(frozen=True)
class Hop:
    """One Caddy. port: where downloads begin; path: where the next hop reaches it over Unix."""

    server: Server
    port: int
    path: Path

    def upstream(self, transport: str) -> str:
        """As `reverse_proxy` takes it."""
        return f"unix/{self.path}" if transport == "unix" else f"127.0.0.1:{self.port}"


class Chain:
    """Four processes, so that each hop is told from the others; the case study has one."""

    def __init__(self, bench: Bench, way: str, file: Path) -> None:
        transport, control = WAYS[way]
        set_congestion_control(control)  # a listener hands it on to what it accepts
        self._bench = bench
        self._file = file
        self.hops: List[Hop] = []
        for at in range(len(HOPS)):
            directives = f"root * {file.parent}\n\tfile_server browse"
            if at:
                directives = f"reverse_proxy {self.hops[-1].upstream(transport)}"
            self.hops.append(self._hop(directives))

    def _hop(self, directives: str) -> Hop:
        address = self._bench.address("caddy", "tcp")
        port = int(address.rpartition(":")[2])
        path = SHARED_MEMORY / f"{self._bench.folder.name}-{port}.sock"
        self._bench.afterwards(lambda: path.unlink(missing_ok=True))
        text = CADDYFILE.format(port=port, path=path, directives=directives)
        config = self._bench.file(self._bench.name("Caddyfile"), text)
        env = {"HOME": str(self._bench.folder), "XDG_DATA_HOME": str(self._bench.folder)}
        argv = [program("caddy"), "run", "--config", config, "--adapter", "caddyfile"]
        return Hop(self._bench.server(argv, address, "caddy", env), port, path)

    def pids(self) -> List[int]:
        return [hop.server.pid for hop in self.hops]

    def download(self, at: int, threads: int) -> float:
        """From one hop, so often at the same time, as with `xargs -P`: Mbit/s of all together.

        Raises:
            RuntimeError: a download was not whole.
        """
        url = f"http://127.0.0.1:{self.hops[at].port}/{self._file.name}"
        argv = [program("curl"), "-s", "-o", "/dev/null", "-w", "%{size_download}", url]
        begun = time.monotonic()
        curls = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(threads)]
        sizes = [int(one.communicate(timeout=600)[0]) for one in curls]
        seconds = time.monotonic() - begun
        whole = self._file.stat().st_size
        if sizes != [whole] * threads:
            raise RuntimeError(f"{whole} bytes at {url}, received {sizes}")
        return 8e-6 * sum(sizes) / seconds


CADDYFILE = """
{{
	admin off
	auto_https off
}}
:{port} {{
	bind 127.0.0.1 unix/{path}
	{directives}
}}
"""


Rates = Dict[str, Dict[Tuple[int, int], List[float]]]


def set_congestion_control(name: str) -> bool:
    """False where this kernel lacks it, or keeps it from namespaces other than the first."""
    try:
        CONGESTION_CONTROL.write_text(name)
    except OSError:
        return False
    return True


def measure(options: Options) -> Result:
    """Each hop with 1 and 5 downloads at once, every kind of chain in turns."""
    size, rounds = (10 * MB, 1) if options.quick else (1000 * MB, 7)
    ways = [way for way, (_, control) in WAYS.items() if set_congestion_control(control)]
    places = [(at, threads) for at in range(len(HOPS)) for threads in THREADS]
    rates: Rates = {way: {place: [] for place in places} for way in ways}
    seen: Dict[str, Observation] = {}
    with Bench("tcp") as bench:
        file = bench.folder / "www" / f"{size // MB}MB"
        file.parent.mkdir()
        with file.open("wb") as empty:
            os.truncate(empty.fileno(), size)
        chains = {way: Chain(bench, way, file) for way in ways}
        for order in in_turns(ways, rounds):
            for place, way in itertools.product(places, order):
                rates[way][place].append(chains[way].download(*place))
        for way, chain in chains.items():
            with attached(chain.pids(), bench.folder) as found:
                chain.download(*places[-1])
            seen[way] = found[0]
        hops = {way: chain.pids() for way, chain in chains.items()}
    wrong = [line for way in ways for line in _wrong(way, seen[way], hops[way], size)]
    return Result(
        "\n".join([_rates(rates), _pairs(rates), _shares(seen, hops), _verdicts(seen)]), wrong
    )


def _rates(rates: Rates) -> str:
    rows: List[Sequence[object]] = []
    for at, name in enumerate(HOPS):
        figures = [_interval(rates, way, (at, threads)) for threads in THREADS for way in WAYS]
        rows.append([name, THEIRS[at], *figures])
    head = [f"{way}, {threads} at once" for threads in THREADS for way in WAYS]
    return table(["Mbit/s, from the", "theirs: TCP, 5 at once", *head], rows)


def _pairs(rates: Rates) -> str:
    """Against plain TCP: the time that a megabit takes, so that less is faster."""
    others = [way for way in rates if way != "TCP"]
    rows: List[Sequence[object]] = []
    for at, threads in itertools.product(range(len(HOPS)), THREADS):
        ms = {way: [1000 / rate for rate in rates[way][at, threads]] for way in rates}
        told = [said(paired(ms["TCP"], ms[way]), way) for way in others]
        rows.append([f"{HOPS[at]}, {threads} at once", len(ms["TCP"]), *told])
    return table(["against TCP", "pairs of runs", *others], rows)


def _interval(rates: Rates, way: str, place: Tuple[int, int]) -> Optional[str]:
    """None where this kernel does not let us."""
    return interval(rates[way][place]) if way in rates else None


def _shares(seen: Dict[str, Observation], hops: Dict[str, List[int]]) -> str:
    """Five downloads through the whole chain: what each hop takes, and whom it waits for."""
    rows: List[Sequence[object]] = []
    for way, one in seen.items():
        of_hop = {row["pid"]: row for row in one.report["requests"]["hops"]}
        for name, pid in reversed([*zip(HOPS, hops[way])]):
            hop = of_hop[pid]
            waits = ", ".join(HOPS[hops[way].index(peer)] for peer in hop["next"])
            times = [round(hop["latency_mean_us"]), round(hop["own_us"])]
            rows.append([way, name, *times, waits or "nobody", *_cpu_ms(one, pid), _full(one, pid)])
    head = ["with udsprobe attached", "hop", "until its reply begins: µs", "its own", "waits for"]
    return table([*head, "CPU ms", "ready, no CPU: ms", "sends that found no room"], rows)


def _cpu_ms(seen: Observation, pid: int) -> List[int]:
    """On a CPU, and waiting for one, of all threads."""
    row = next(row for row in seen.report["time"]["processes"] if row["pid"] == pid)
    shares, all_ms = row["share"], 1000 * row["observed_s"]
    working = sum(part for name, part in shares.items() if name.startswith(("user", "sys_")))
    return [round(working * all_ms), round(shares["runq"] * all_ms)]


def _full(seen: Observation, pid: int) -> Optional[int]:
    """Sends that the reader was too slow for, on connections that are still open; None: none is."""
    rows = _served(seen, pid)
    return sum(row["send_blocked"]["eagain"] for row in rows) if rows else None


def _served(seen: Observation, pid: int) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = seen.report["connections"]
    return [row for row in rows if row["pid"] == pid and row["role"] == "served"]


def _verdicts(seen: Dict[str, Observation]) -> str:
    return "\n".join(f"{way}: {one.cause}. {one.summary}\n" for way, one in seen.items())


def _wrong(way: str, seen: Observation, pids: Sequence[int], size: int) -> List[str]:
    wrong: List[str] = []
    of_hop = {row["pid"]: row for row in seen.report["requests"]["hops"]}
    expected = {pid: ([before] if before else []) for pid, before in zip(pids, [0, *pids])}
    waits = {pid: row["next"] for pid, row in of_hop.items()}
    if waits != expected:
        wrong.append(f"{way}: each hop waits for the one before it, {expected}; not {waits}")
    counts = [row["count"] for row in of_hop.values()]
    if counts != [THREADS[-1]] * len(HOPS):
        wrong.append(f"{way}: {THREADS[-1]} downloads, requests at the hops: {counts}")
    for pid in pids[:-1]:  # connections of curl are gone by the end
        moved = sum(row["bytes_out"] for row in _served(seen, pid))
        if moved < THREADS[-1] * size:
            wrong.append(f"{way}: {THREADS[-1]} downloads of {size}, {moved} bytes sent by {pid}")
    return wrong


def in_own_network() -> None:
    """Run again in a network namespace that has loopback only: the host's settings stay."""
    if os.environ.get(INSIDE):
        subprocess.run([program("ip"), "link", "set", "lo", "up"], check=True)
        return
    again = ["unshare", "--net", sys.executable, *sys.argv]
    os.execvpe(again[0], again, {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    if not {"-h", "--help"} & set(sys.argv):
        in_own_network()
    sys.exit(run(HERE, __doc__ or "", ("caddy", "curl", "ip"), measure))
