#!/usr/bin/env python3
"""What stacks cost their target: its own CPU time for a round of work, in three ways in turns.

    sudo scripts/bench/stacks.py [--rounds 24] [--seconds 1.2] [--output FILE]

`never`: nothing is open. `idle`: as while the verdict is another's: programs are loaded, the clock
and the event of context switches are open and disabled. `always`: both enabled, looked at 20 times
a second, named once a second. No other probe of udsprobe is there.

Two targets: one computes below 20 callers (sampled), one passes a byte between two threads (which
fall asleep some 100,000 times a second). Each way once a round, beginning with another one each
time. Prints one JSON document: for each target and way by how many % a round costs more CPU time
than with `never` of the same round, the median and its 95 % interval; and what was taken. As it
comes it takes less than four minutes. Take a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import mmap
import platform
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.cost.figures import spread  # noqa: E402
from scripts.bench.cost.machine import describe  # noqa: E402
from scripts.bench.cost.own_python import go_on_in_own_python  # noqa: E402

NEVER, IDLE, ALWAYS = "never", "idle", "always"
TARGETS = ("computes", "switches")
SETTLES_S, LOOK_EVERY_S, NAMES_EVERY_S = 0.1, 0.05, 1.0
ACCOUNT = struct.Struct("=QQ")
PATIENCE_S = 20.0


class Target:
    """A program that works, and what it has done.

    Args:
        kind: of TARGETS.
    """

    def __init__(self, program: str, kind: str, folder: Path) -> None:
        self._file = folder / kind
        self._process = subprocess.Popen([program, kind, str(self._file)])
        give_up_at = time.monotonic() + PATIENCE_S
        while not (self._file.exists() and self._file.stat().st_size == ACCOUNT.size):
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the target that {kind} does not start")
            time.sleep(0.01)
        with self._file.open("rb") as file:
            self._account = mmap.mmap(file.fileno(), ACCOUNT.size, access=mmap.ACCESS_READ)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def account(self) -> Tuple[int, int]:
        """Rounds so far, and its own CPU time in ns."""
        rounds, cpu_ns = ACCOUNT.unpack(self._account[: ACCOUNT.size])
        return rounds, cpu_ns

    def end(self) -> None:
        """Kill it, and no other."""
        self._process.kill()
        self._process.wait()


class _Nothing:
    def tend(self) -> None:
        """There is nothing to do."""

    def counts(self) -> Dict[str, int]:
        """Nor to tell."""
        return {}


class _Sampler:
    """Tended as udsprobe does: looked at often, named now and then."""

    def __init__(self, sampler: Any, profile: Any) -> None:
        self._sampler, self._profile = sampler, profile
        self._names_s = time.monotonic() + NAMES_EVERY_S

    def tend(self) -> None:
        """Called every LOOK_EVERY_S."""
        self._sampler.look()
        if time.monotonic() >= self._names_s:
            self._names_s += NAMES_EVERY_S
            self._profile.add(self._sampler.take())

    def counts(self) -> Dict[str, int]:
        """What was taken, so that nobody measures a sampler that sampled nothing."""
        self._profile.add(self._sampler.take())
        kinds = {"cpu": 0, "off-cpu": 0}
        for each in self._profile.counts():
            kinds[each.on] += each.samples
        return {"samples": kinds["cpu"], "sleeps": kinds["off-cpu"]}


@contextmanager
def never(pid: int) -> Iterator[Any]:
    """Nothing is open."""
    yield _Nothing()


@contextmanager
def idle(pid: int) -> Iterator[Any]:
    """Everything is open and nothing enabled."""
    from udsprobe.kernel.stacks.loaded import load_stacks
    from udsprobe.kernel.stacks.sampler import StackSampler

    sampler = StackSampler(load_stacks())
    try:
        yield _Nothing()
    finally:
        sampler.close()


@contextmanager
def always(pid: int) -> Iterator[Any]:
    """Both events are enabled."""
    from udsprobe.kernel.abilities.syscall_table import syscall_tables
    from udsprobe.kernel.stacks.loaded import load_stacks
    from udsprobe.kernel.stacks.sampler import StackSampler
    from udsprobe.symbols.stack_profile import StackProfile

    sampler = StackSampler(load_stacks())
    profile = StackProfile(syscall_tables(platform.machine())[0].names)
    try:
        sampler.watch([pid])
        sampler.switch(running=True, asleep=True)
        yield _Sampler(sampler, profile)
    finally:
        sampler.close()
        profile.close()


WAYS: Mapping[str, Callable[[int], ContextManager[Any]]] = {
    NEVER: never,
    IDLE: idle,
    ALWAYS: always,
}


def cpu_ns_per_round(target: Target, way: str, seconds: float) -> Tuple[float, Dict[str, int]]:
    """Of the seconds after it has settled; and what was taken in them."""
    with WAYS[way](target.pid) as observer:
        time.sleep(SETTLES_S)
        rounds, cpu_ns = target.account()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(LOOK_EVERY_S)
            observer.tend()
        rounds_after, cpu_ns_after = target.account()
        return (cpu_ns_after - cpu_ns) / max(1, rounds_after - rounds), observer.counts()


def measured(target: Target, rounds: int, seconds: float) -> Dict[str, Any]:
    """Each way in turns, against `never` of the same round."""
    ways, more = list(WAYS), {way: [] for way in WAYS if way != NEVER}  # type: Dict[str, List[float]]
    bare: List[float] = []
    taken: Dict[str, int] = {}
    for number in range(rounds):
        at = number % len(ways)
        seen: Dict[str, float] = {}
        for way in (*ways[at:], *ways[:at]):
            seen[way], counts = cpu_ns_per_round(target, way, seconds)
            taken = {name: taken.get(name, 0) + count for name, count in counts.items()} or taken
        bare.append(seen[NEVER])
        for way, values in more.items():
            values.append(100 * (seen[way] / seen[NEVER] - 1))
    return {
        "cpu_ns_per_round": spread(bare),
        "taken": taken,
        **{f"{way}_more_cpu_pct": spread(values) for way, values in more.items()},
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    go_on_in_own_python()
    document: Dict[str, Any] = {"machine": describe(), "seconds": asked.seconds}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        program = str(folder / "target")
        source = str(ROOT / "scripts/bench/stacks.c")
        subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source], check=True)
        for kind in TARGETS:
            target = Target(program, kind, folder)
            try:
                document[kind] = measured(target, asked.rounds, asked.seconds)
            finally:
                target.end()
    text = json.dumps(document, indent=1)
    print(text)
    if asked.output is not None:
        asked.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
