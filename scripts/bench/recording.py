#!/usr/bin/env python3
"""How large recordings become, and how fast they are read.

Run: scripts/bench/recording.py [--minutes N] [--day]. Prints one JSON document for several request
rates: MB an hour, besides what any recording has, of a made-up service with 50 connections at one
sample a second, CPU time of writing one sample, seconds to open, to seek, to make the report and
the page, and of an SQL query over all moments. With --day instead: 24 simulated hours of the same
service, a sample in ten seconds, through a ring of two hours; the largest file, and those times.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.cost.own_python import go_on_in_own_python

go_on_in_own_python()

from tests.unit import samples  # noqa: E402
from udsprobe.model.histogram import LATENCY_SLOTS, slot_of  # noqa: E402
from udsprobe.recording import Recorder, Retention, open_recording  # noqa: E402
from udsprobe.reporting import Reporter  # noqa: E402
from udsprobe.sample import LatencyCounts, Sample  # noqa: E402
from udsprobe.views.html.report_page import render  # noqa: E402

RATES = (0, 5, 50, 500, 5000)
CONNECTIONS = 50
THREADS = 11
# name, endpoint, calls a request, mean and deviation of ln(ns)
CALLS = (
    ("read", samples.UNIX, 2.0, 7.5, 0.6),
    ("writev", samples.UNIX, 1.0, 8.0, 0.6),
    ("epoll_pwait", samples.OTHER, 0.6, 13.0, 1.0),
    ("read", samples.TCP, 0.1, 7.5, 0.6),
    ("write", samples.TCP, 0.1, 8.0, 0.6),
    ("recvmsg", samples.UNIX, 0.3, 7.5, 0.6),
    ("sendmsg", samples.UNIX, 0.3, 8.0, 0.6),
    ("accept4", samples.UNIX, 0.01, 7.5, 0.6),
)
STAGES = {
    "accept_wait": (0.1, 9.0, 0.3),
    "recv_wait": (1.0, 11.0, 0.7),
    "recv": (1.0, 7.5, 0.5),
    "app": (1.0, 14.4, 0.5),
    "send": (1.0, 8.0, 0.5),
}


class Times:
    """A histogram that grows by log-normal durations."""

    def __init__(self, chance: random.Random, mean: float, deviation: float) -> None:
        self._draw = lambda: int(chance.lognormvariate(mean, deviation))
        self._slots = [0] * LATENCY_SLOTS
        self.count = self.total_ns = self.max_ns = 0

    def grow(self, count: int) -> None:
        for _ in range(count):
            took_ns = self._draw()
            self._slots[slot_of(took_ns)] += 1
            self.count += 1
            self.total_ns += took_ns
            self.max_ns = max(self.max_ns, took_ns)

    def counts(self) -> LatencyCounts:
        return LatencyCounts(self.count, self.total_ns, self.max_ns, tuple(self._slots))


def service(seconds: int, rate: int) -> Iterator[Sample]:
    chance = random.Random(23)
    calls = [Times(chance, mean, deviation) for *_, mean, deviation in CALLS]
    whole, upstream = Times(chance, 14.5, 0.5), Times(chance, 13.0, 0.5)
    stages = {name: Times(chance, mean, dev) for name, (_, mean, dev) in STAGES.items()}
    turns, sent = [0] * CONNECTIONS, [0] * CONNECTIONS
    threads = [samples.activities() for _ in range(THREADS)]
    monotonic_ns = samples.BOOT_NS
    for second in range(seconds):
        requests = max(0, int(chance.gauss(rate, rate**0.5))) if second else 0
        for times, (_, _, each, _, _) in zip(calls, CALLS):
            times.grow(int(requests * each))
        for name, times in stages.items():
            times.grow(int(requests * STAGES[name][0]))
        whole.grow(requests)
        upstream.grow(requests // 10)
        for _ in range(requests):
            one = chance.randrange(CONNECTIONS)
            turns[one] += 1
            sent[one] += chance.choice((350, 400, 400, 1200))
        monotonic_ns += int(1e9 + abs(chance.gauss(0, 2e5)))
        spend(chance, threads, min(900_000_000, requests * 800_000))
        yield samples.sample(
            second + chance.gauss(0, 1e-4),
            sequence=second,
            monotonic_ns=monotonic_ns,
            calls=tuple(
                samples.call(
                    name,
                    endpoint,
                    calls=times.count,
                    bytes=times.count * 100,
                    wall_ns=times.total_ns,
                    cpu_ns=times.total_ns,
                    latency=times.counts(),
                )
                for times, (name, endpoint, *_) in zip(calls, CALLS)
            ),
            in_flight=(samples.in_flight(since_ns=monotonic_ns - chance.randrange(10**7)),),
            threads=tuple(
                samples.thread(4711 + number, **spent) for number, spent in enumerate(threads)
            ),
            served=samples.served(
                count=whole.count,
                latency=whole.counts(),
                stages={name: times.counts() for name, times in stages.items()},
                app_activity_ns=threads[0],
            ),
            upstream=(samples.upstream(latency=upstream.counts()),),
            listeners=(samples.listener(queue=samples.queue(), depth_now=0),),
            connections=tuple(
                samples.connection(
                    inode=700 + one,
                    turns=turns[one],
                    bytes_in=178 * turns[one],
                    bytes_out=sent[one],
                )
                for one in sorted(range(CONNECTIONS), key=lambda one: -sent[one])
            ),
            connections_open=CONNECTIONS,
        )


def spend(chance: random.Random, threads: List[Dict[str, int]], busy_ns: int) -> None:
    """A second of each thread: the first does the work, the others sleep."""
    for number, spent in enumerate(threads):
        work = chance.gauss(busy_ns, busy_ns / 50) if number == 0 else 0
        for name, part in (("user", 0.7), ("sys_socket", 0.2), ("sys_other", 0.05), ("runq", 0.05)):
            spent[name] += int(work * part)
        spent["blocked_poll"] += int(1e9 - work + abs(chance.gauss(0, 2e5)))


def measured(path: str, seconds: int, rate: int) -> Dict[str, Any]:
    taken = list(service(seconds, rate))
    reporter = Reporter(samples.observation(), taken[0])
    spent_s = 0.0
    with Recorder(path) as recorder:
        recorder.begin(samples.observation(), taken[0])
        for sample in taken[1:]:
            interval = reporter.interval(sample)
            began_s = time.process_time()
            recorder.add(sample, interval)
            spent_s += time.process_time() - began_s
    size = Path(path).stat().st_size - fixed_bytes(f"{path}-empty")
    return {
        "requests_per_s": rate,
        "mb_per_hour": round(size / seconds * 3600 / 1e6, 2),
        "write_cpu_ms": round(spent_s / seconds * 1e3, 2),
        **read(path),
    }


def day(path: str, every_s: float = 10.0, ring_s: float = 7200.0) -> Dict[str, Any]:
    """24 simulated hours through a ring, by the writer's own interface."""
    retention, largest, oldest = Retention(ring_s=ring_s), 0, 0.0
    taken = service(int(86_400 / every_s), 5)
    first = next(taken)
    with Recorder(path, retention) as recorder:
        recorder.begin(samples.observation(), first)
        reporter = Reporter(samples.observation(), first)
        for sample in taken:
            later_s = sample.sequence * every_s
            moved = replace(
                sample,
                monotonic_ns=first.monotonic_ns + int(later_s * 1e9),
                unix_s=first.unix_s + later_s,
            )
            recorder.add(moved, reporter.interval(moved))
            largest = max(largest, sum(Path(path + end).stat().st_size for end in ("", "-wal")))
            oldest = max(oldest, recorder.recorded_s)
    return {
        "simulated_h": 24,
        "ring_s": ring_s,
        "most_kept_s": oldest,
        "bound_mb": (retention.bytes_max or 0) / 1e6,
        "largest_mb": round(largest / 1e6, 2),
        **read(path),
    }


def fixed_bytes(path: str) -> int:
    """What a recording has however short it is."""
    with Recorder(path) as recorder:
        recorder.begin(samples.observation(), samples.sample())
    return Path(path).stat().st_size


def read(path: str) -> Dict[str, float]:
    marks = [time.process_time()]
    with open_recording(path) as recording:
        marks.append(time.process_time())
        recording.sample(recording.sequences()[len(recording.sequences()) // 2])
        marks.append(time.process_time())
        whole = recording.report()
        marks.append(time.process_time())
        sequences = recording.sequences()
        render(whole, recording.timeline(sequences[0], sequences[-1]), [])
        marks.append(time.process_time())
    store = sqlite3.connect(path)
    store.execute("SELECT max(p99_us), sum(requests), count(*) FROM moments").fetchall()
    store.close()
    marks.append(time.process_time())
    names = ("open_s", "seek_s", "report_s", "page_s", "sql_s")
    return {name: round(b - a, 3) for name, a, b in zip(names, marks, marks[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--day", action="store_true")
    options = parser.parse_args()
    minutes = options.minutes
    with tempfile.TemporaryDirectory() as folder:
        if options.day:
            print(json.dumps(day(f"{folder}/day"), indent=2))
            return
        rows = [measured(f"{folder}/{rate}", 60 * minutes, rate) for rate in RATES]
    print(json.dumps({"minutes": minutes, "recordings": rows}, indent=2))


if __name__ == "__main__":
    main()
