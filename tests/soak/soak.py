"""Full load for minutes: is everything counted, and does udsprobe stay as it began?

The load counts its own calls. udsprobe is looked at from outside, once a second: memory,
descriptors, BPF objects, children. Run by `scripts/soak` and, briefly, by the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Sequence

from tests.kernel.kernel_objects import Objects, held_by, left_of
from tests.kernel.live import Live
from tests.workloads.stages_program import Program

# What is bounded fills for longer than the warm-up: 400 requests kept whole, 20 a minute.
DRIFT_MAX_BYTES = 2 << 20
# Python's heap takes its shape, caches fill: this part of the time is no drift.
WARM_UP_SHARE = 0.3
# Medians of this many seconds at either end: one reading can catch a report being made.
ENDS_SHARE = 0.2
CALLS = ("sendto", "recvfrom", "connect", "accept")


@dataclass(frozen=True)
class Reading:
    """udsprobe from outside, at one moment.

    Attributes:
        children: the pids of its own: one that reads debug information lives for a moment.
    """

    rss_bytes: int
    anonymous_bytes: int
    descriptors: int
    objects: int
    children: FrozenSet[int]


@dataclass(frozen=True)
class Account:
    """What the intervals say, added up."""

    counted: Dict[str, int]
    forks: int
    seen: int
    lost: Dict[str, int]
    turned_away: Dict[str, int]
    intervals: int
    intervals_that_do_not_add_up: int


@dataclass(frozen=True)
class Outcome:
    """Of one soak. `truth` is the load's own, by system call on Unix sockets."""

    seconds: float
    truth: Dict[str, int]
    account: Account
    rss_first_bytes: int
    rss_drift_bytes: int
    anonymous_drift_bytes: int
    descriptors_gained: int
    objects_gained: int
    objects_left: int
    children_most: int
    children_left: int

    def wrong(self, drift_max_bytes: int = DRIFT_MAX_BYTES) -> List[str]:
        """A sentence for each promise that was not kept."""
        told = self.account
        expected = {name: self.truth[name] for name in CALLS}
        found = [
            (told.counted != expected, f"counted {told.counted}, and there were {expected}"),
            (told.forks != self.truth["forks"], f"{told.forks} children seen"),
            (any(told.lost.values()), f"lost {told.lost}"),
            (bool(told.turned_away), f"no room for {told.turned_away}"),
            (
                told.intervals_that_do_not_add_up > 0,
                f"{told.intervals_that_do_not_add_up} accounts do not add up",
            ),
            (self.rss_drift_bytes >= drift_max_bytes, f"grew by {self.rss_drift_bytes} bytes"),
            (self.descriptors_gained > 0, f"{self.descriptors_gained} descriptors more"),
            (self.objects_gained > 0, f"{self.objects_gained} BPF objects more"),
            (self.objects_left > 0, f"{self.objects_left} BPF objects left behind"),
            (self.children_most > 1, f"{self.children_most} children at a time"),
            (self.children_left > 0, f"{self.children_left} processes left behind"),
        ]
        return [sentence for is_wrong, sentence in found if is_wrong]


def soak(seconds: float, folder: Path, senders: int) -> Outcome:
    """Load and watch for so long.

    Args:
        folder: for the socket and the report of each second.
        senders: threads of the load besides the one that connects.
    """
    output = folder / "report.jsonl"
    with Program("full_load", str(folder / "socket"), str(senders)) as load:
        assert load.line() == "ready"
        # Stacks from the beginning: names of code take 16 MB when the first is asked for.
        options = ["--stacks", "--jsonl", "--output", str(output)]
        command = ["attach", "--pid", str(load.pid), *options]
        with Live(command, folder) as live:
            objects = live.objects()
            load.go()
            readings = _readings(live.pid, seconds)
            truth = load.end()
            ended = live.end(None)
            assert ended.code == 0, ended.err
    return _outcome(seconds, truth, _account(output), readings, objects, live.pid)


def _readings(pid: int, seconds: float) -> List[Reading]:
    found = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        found.append(reading(pid))
        time.sleep(min(1.0, seconds - passed))
    return found


def reading(pid: int) -> Reading:
    """A process now."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return Reading(
        rss_bytes=kib["Rss"] << 10,
        anonymous_bytes=kib["Anonymous"] << 10,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        objects=sum(map(len, held_by(pid).values())),
        children=frozenset(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())),
    )


def _account(output: Path) -> Account:
    reports = list(_reports(output))
    probes = [report["probe"] for report in reports]
    lost = {
        reason: sum(probe["events_lost"][reason] for probe in probes)
        for reason in ("map_full", "ring_full", "missed")
    }
    return Account(
        counted={name: sum(_calls(report, name) for report in reports) for name in CALLS},
        # The load itself is the one that is no child.
        forks=reports[-1]["targets_exited"] - 1,
        seen=sum(probe["events_seen"] for probe in probes),
        lost=lost,
        turned_away=dict(sum((Counter(p["turned_away_by_map"]) for p in probes), Counter())),
        intervals=len(reports),
        intervals_that_do_not_add_up=sum(not adds_up(probe) for probe in probes),
    )


def _reports(output: Path) -> Iterator[Dict[str, Any]]:
    with output.open() as lines:
        for line in lines:
            report = json.loads(line)
            yield {name: report[name] for name in ("probe", "syscalls", "targets_exited")}


def adds_up(probe: Dict[str, Any]) -> bool:
    """Whether what was seen is counted or known as lost."""
    seen: int = probe["events_seen"]
    return seen == probe["events_counted"] + sum(probe["events_lost"].values())


def _calls(report: Dict[str, Any], name: str) -> int:
    rows = report["syscalls"]
    return sum(r["calls"] for r in rows if (r["name"], r["transport"]) == (name, "unix"))


def _outcome(
    seconds: float,
    truth: Dict[str, int],
    account: Account,
    readings: Sequence[Reading],
    objects: Objects,
    pid: int,
) -> Outcome:
    warm = readings[int(len(readings) * WARM_UP_SHARE) :]
    some = max(1, int(len(warm) * ENDS_SHARE))
    first, last = warm[:some], warm[-some:]

    def drift(name: str) -> int:
        before, after = ([getattr(each, name) for each in part] for part in (first, last))
        return int(statistics.median(after) - statistics.median(before))

    own = frozenset({pid}).union(*(each.children for each in readings))

    return Outcome(
        seconds=seconds,
        truth=truth,
        account=account,
        rss_first_bytes=int(statistics.median(each.rss_bytes for each in first)),
        rss_drift_bytes=drift("rss_bytes"),
        anonymous_drift_bytes=drift("anonymous_bytes"),
        descriptors_gained=drift("descriptors"),
        objects_gained=drift("objects"),
        objects_left=sum(map(len, left_of(objects).values())),
        children_most=max(len(each.children) for each in readings),
        children_left=sum(Path(f"/proc/{each}").exists() for each in own),
    )


def main(argv: Sequence[str]) -> int:
    """The command; 1 when something was lost or leaked."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N")
    parser.add_argument("--senders", type=int, default=os.cpu_count() or 1, metavar="THREADS")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="udsprobe-soak-") as folder:
        outcome = soak(options.minutes * 60, Path(folder), options.senders)
    print(json.dumps(asdict(outcome), indent=2))
    for sentence in outcome.wrong():
        print(f"soak: {sentence}", file=sys.stderr)
    return 1 if outcome.wrong() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
