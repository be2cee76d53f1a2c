"""Node echo server and client: packets of 1 byte to 1 MB over TCP and over a Unix socket."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import graphs

from examples.frame import Observation, Options, Result, run, table
from examples.frame.attached import attached
from examples.frame.pairs import in_turns, paired, said
from examples.frame.times import interval, typical
from tests.scenarios.bench import Bench, Server
from tests.scenarios.programs import program

HERE = Path(__file__).resolve().parent
KB = 1024
TRANSPORTS = {"TCP": "tcp", "UDS": "unix"}
QUICK_SIZES = (1, KB, 16 * KB, 128 * KB, KB * KB)
SEEN_SIZES = (KB, 64 * KB, KB * KB)
THEIR_SIZE, THEIR_PACKETS = 1000, 100_000
PAIRS = 7
GROUPS = (
    ("1 byte to 16 KB", 1, 16 * KB),
    ("128 KB to 1 MB", 128 * KB, KB * KB),
    ("512 KB and 1 MB", 512 * KB, KB * KB),
)


class Echoes:
    """A server on each transport, and the client that measures."""

    def __init__(self, bench: Bench) -> None:
        self.servers: Dict[str, Server] = {}
        for name, transport in TRANSPORTS.items():
            address = bench.address("echo", transport)
            argv = [program("node"), str(HERE / "server.js"), address]
            self.servers[name] = bench.server(argv, address, "echo")

    def milliseconds(self, name: str, size: int, count: int) -> float:
        """Of `count` packets, each sent when the one before it is back.

        Raises:
            RuntimeError: not all came back.
        """
        address = self.servers[name].address
        argv = [program("node"), str(HERE / "client.js"), address, str(size), str(count)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
        said: Dict[str, Any] = json.loads(done.stdout)
        if said["packets"] != count:
            raise RuntimeError(f"{count} packets of {size} sent, {said['packets']} came back")
        return float(said["ms"])


def packets_of(size: int, quick: bool) -> int:
    """How many are sent in a run: enough for half a second and more, of each size."""
    if quick:
        return 100 if size <= 16 * KB else 20
    if size == THEIR_SIZE:
        return THEIR_PACKETS
    return 10_000 if size <= 64 * KB else 1_500


def measure(options: Options) -> Result:
    """All sizes in each round, so that slow and fast times of the machine meet every size."""
    swept = QUICK_SIZES if options.quick else tuple(2**power for power in range(21))
    packets = {size: packets_of(size, options.quick) for size in (THEIR_SIZE, *swept)}
    runs: graphs.Runs = {name: {size: [] for size in packets} for name in TRANSPORTS}
    with Bench("unix") as bench:
        echoes = Echoes(bench)
        for names in in_turns(TRANSPORTS, 2 if options.quick else PAIRS):
            for size, name in itertools.product(packets, names):  # a pair's runs, then the next
                runs[name][size].append(echoes.milliseconds(name, size, packets[size]))
        seen = {
            size: _observed(bench, echoes, size, packets[size])
            for size in SEEN_SIZES
            if size in packets
        }
        drawn = {name: {size: sizes[size] for size in swept} for name, sizes in runs.items()}
        folder = bench.folder if options.quick else HERE / "results"
        files = graphs.write(drawn, {size: packets[size] for size in swept}, folder)
        written = ", ".join(f"{path.name} ({path.stat().st_size:,} bytes)" for path in files)
    parts = [
        _times(runs, packets),
        _together(runs, swept),
        _inside(seen, packets),
        f"Written: {written}.\n",
    ]
    return Result("\n".join(parts), _wrong(seen, packets))


def _observed(bench: Bench, echoes: Echoes, size: int, count: int) -> Dict[str, Observation]:
    found: Dict[str, Observation] = {}
    for name, server in echoes.servers.items():
        with attached([server.pid], bench.folder) as seen:
            echoes.milliseconds(name, size, count)
        found[name] = seen[0]
    return found


def _times(runs: graphs.Runs, packets: Dict[int, int]) -> str:
    """Each size's pairs, in the words of `udsprobe compare`."""
    rows: List[Sequence[object]] = []
    for size, count in packets.items():
        tcp, uds = ([1000 * ms / count for ms in runs[name][size]] for name in ("TCP", "UDS"))
        ratio = f"{typical(tcp) / typical(uds):.2f}"
        seconds = f"{typical(uds) * count / 1e6:.1f}"
        told = said(paired(tcp, uds), "Unix")
        rows.append(
            [f"{size:,}", count, len(tcp), seconds, interval(tcp), interval(uds), ratio, told]
        )
    head = ["bytes", "packets a run", "pairs", "s a run", "TCP: µs per packet"]
    return table([*head, "Unix: µs per packet", "TCP ÷ Unix", "the pairs say"], rows)


def _together(runs: graphs.Runs, swept: Sequence[int]) -> str:
    """Sizes of one kind as one: a round's value is the geometric mean of theirs."""
    rows: List[Sequence[object]] = []
    for name, low, high in GROUPS:
        sizes = [size for size in swept if low <= size <= high]
        tcp, uds = ([typical(each) for each in _rounds(runs[one], sizes)] for one in TRANSPORTS)
        rows.append([name, len(sizes), len(tcp), said(paired(tcp, uds), "Unix")])
    return table(["sizes together", "sizes", "pairs", "the pairs say"], rows)


def _rounds(of_size: Dict[int, List[float]], sizes: Sequence[int]) -> List[Tuple[float, ...]]:
    return list(zip(*(of_size[size] for size in sizes)))


def _inside(seen: Dict[int, Dict[str, Observation]], packets: Dict[int, int]) -> str:
    """The server's system calls on the connection for each packet, and their CPU time."""
    rows: List[Sequence[object]] = []
    for size, both in seen.items():
        for name, one in both.items():
            moving = [row for row in one.report["syscalls"] if row["transport"] != "other"]
            calls = sum(row["calls"] for row in moving) / packets[size]
            cpu_us = sum(row["cpu_us"] for row in moving) / packets[size]
            names = ", ".join(sorted({row["name"] for row in moving if row["bytes"]}))
            share = one.report["verdict"]["transport_share_pct"]
            rows.append([f"{size:,}", name, calls, cpu_us, names, share, one.cause])
    head = ["bytes, with udsprobe attached", "transport", "socket calls per packet"]
    return table([*head, "CPU µs in them", "which", "transport %", "verdict"], rows)


def _wrong(seen: Dict[int, Dict[str, Observation]], packets: Dict[int, int]) -> List[str]:
    wrong: List[str] = []
    for size, both in seen.items():
        for name, one in both.items():
            moved = sum(
                row["bytes"] or 0 for row in one.report["syscalls"] if row["transport"] != "other"
            )
            expected = 2 * size * packets[size] + len("start sending now!")
            if moved != expected:
                counts = f"{expected} bytes through the server, udsprobe saw {moved}"
                wrong.append(f"{name}, {size} bytes: {counts}")
    return wrong


if __name__ == "__main__":
    sys.exit(run(HERE, __doc__ or "", ("node",), measure))
