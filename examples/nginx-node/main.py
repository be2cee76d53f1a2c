"""The ladder of the tuning guide: each rung broken, then repaired, over TCP and over Unix."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from rungs import FULL as QUEUE_FULL
from rungs import Rung, Site, rungs

from examples.frame import Observation, Options, Result, observe, run, table
from examples.frame.namespace import own_network, tcp_counter
from tests.scenarios.bench import Bench
from tests.scenarios.case import BOTH, TCP

NEEDS = ("gcc", "ip", "nginx", "node", "prlimit", "taskset")
HEAD = (
    *("rung", "req/s, all out", "p50 ms", "p99 ms", "p999 ms", "failed"),
    *("calls/req", "queue", "must say", "udsprobe says"),
)


@dataclass(frozen=True)
class Times:
    """Seconds of each phase: as fast as may be, paced, observed."""

    pushed: int
    paced: int
    observed: int


# No rung plants foreign load: a verdict that is not the rung's is looked at again.
TRIES = 3
FULL = Times(4, 4, 6)
QUICK = Times(0, 0, 2)


@dataclass(frozen=True)
class Measured:
    """One rung.

    Attributes:
        pushed: the load's account of the first phase, None without one. paced: of the second.
        entry_pids: who may serve the entry.
        disturbed: others held its CPUs.
        overflows: TCP connections that found a full queue meanwhile, by the kernel's own count.
    """

    rung: Rung
    transport: str
    site: Site
    pushed: Optional[Dict[str, Any]]
    paced: Dict[str, Any]
    seen: Observation
    entry_pids: Sequence[int]
    disturbed: bool
    overflows: int

    @property
    def came_true(self) -> bool:
        """False when a queue was to overflow and did not: a quick server empties it in time."""
        planted = self.rung.cause_over(self.transport)
        return planted != QUEUE_FULL or self.transport != TCP or self.overflows > 0

    @property
    def cause(self) -> str:
        """What is true."""
        return self.rung.cause_over(self.transport) if self.came_true else "healthy"

    @property
    def unnamed(self) -> List[str]:
        """What a verdict on a broken rung should name and does not."""
        wanted = [*self.site.names, *self.rung.names] if self.cause != "healthy" else []
        return self.seen.unnamed(wanted)

    @property
    def wrong(self) -> str:
        """What is wrong with the verdict, "" for nothing."""
        where = f"{self.rung.step}, {self.rung.what}, {self.transport}"
        if self.seen.cause != self.cause:
            return f"{where}: {self.seen.cause}, not {self.cause}: {self.seen.summary}"
        if self.unnamed:
            return f"{where}: does not name {', '.join(self.unnamed)}: {self.seen.summary}"
        return ""


def measure_rung(rung: Rung, transport: str, times: Times) -> Measured:
    """Start a rung in a network of its own, load it, observe it, end it."""
    with own_network(rung.somaxconn), Bench(transport) as bench:
        site = rung.build(bench)
        pushed = _account(bench, site, rung.pushed, times.pushed)
        paced = _account(bench, site, rung.paced, times.paced)
        load = bench.load(site.entry, **rung.paced)
        before = tcp_counter("ListenOverflows")
        seen = observe(site.pids, times.observed)
        overflows = tcp_counter("ListenOverflows") - before
        entry = bench.family(site.pids[0])
        disturbed = seen.disturbed(bench.family(os.getpid()))
        paced = paced or load.result()
        return Measured(rung, transport, site, pushed, paced, seen, entry, disturbed, overflows)


def settled(rung: Rung, transport: str, times: Times) -> Measured:
    """Measure a rung, and again when the verdict is another, which the machine may have been,
    or what was planted did not come true."""
    for left in reversed(range(TRIES)):
        one = measure_rung(rung, transport, times)
        if (one.came_true and not one.wrong) or not left:
            break
        sys.stderr.write(f"again {rung.name}-{transport}: {one.seen.summary}\n")
    return one


def _account(
    bench: Bench, site: Site, load: Optional[Any], seconds: int
) -> Optional[Dict[str, Any]]:
    if load is None or not seconds:
        return None
    running = bench.load(site.entry, **{**load, "seconds": seconds})
    running.popen.wait(seconds + 30)
    return dict(running.result())


def row_of(one: Measured) -> List[object]:
    """A row of the table."""
    failed = one.paced["broken"] + one.paced["unhappy"] + sum(one.paced["connect_errors"].values())
    return [
        f"{one.rung.what}, {one.transport}",
        round(one.pushed["replies"] / one.pushed["seconds"]) if one.pushed else None,
        *(f"{one.paced[name] / 1000:.2f}" for name in ("p50_us", "p99_us", "p999_us")),
        failed,
        one.seen.calls_per_request(one.entry_pids),
        one.seen.queue(one.site.app),
        one.cause if one.came_true else "healthy: it never filled",
        one.seen.cause if not one.wrong else f"**{one.seen.cause}**",
    ]


def chosen(options: Options) -> List[Any]:
    """(rung, transport) of all that is to be run."""
    wanted = [f"*{pattern}*" for pattern in options.only]
    return [
        (rung, transport)
        for rung in rungs()
        for transport in BOTH
        if not options.quick or transport in rung.quick
        if not wanted or any(fnmatch(f"{rung.name}-{transport}", each) for each in wanted)
    ]


def tables_of(measured: List[Measured]) -> str:
    """A table for each step."""
    steps = list(dict.fromkeys(one.rung.step for one in measured))
    parts = []
    for step in steps:
        rows = [row_of(one) for one in measured if one.rung.step == step]
        parts.append(f"### {step[0].upper()}{step[1:]}\n\n{table(HEAD, rows)}")
    return "\n".join(parts)


def measure(options: Options) -> Result:
    """All rungs that were asked for."""
    measured: List[Measured] = []
    moot: List[Measured] = []
    for rung, transport in chosen(options):
        one = settled(rung, transport, QUICK if options.quick else FULL)
        mark = "WRONG" if one.wrong else "ok   "
        # Of a machine that never was its own CI learns nothing; a table is not made of it.
        if one.wrong and one.disturbed and options.quick:
            mark = "moot "
            moot.append(one)
        sys.stderr.write(f"{mark} {rung.name}-{transport}: {one.seen.cause}: {one.seen.summary}\n")
        measured.append(one)
    wrong = [one.wrong for one in measured if one.wrong and one not in moot]
    return Result(tables_of(measured), wrong)


if __name__ == "__main__":
    sys.exit(run(Path(__file__).parent, __doc__ or "", NEEDS, measure))
