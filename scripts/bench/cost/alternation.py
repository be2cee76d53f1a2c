"""Rounds: in each, every tool looks at the same load once, in an order that turns."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from scripts.bench.cost.loads import Load, Measured, Running, started
from scripts.bench.cost.programs import missing
from scripts.bench.cost.tools import Account, Tool

SLOW_EVERY = 3
WARM_UP_S = 0.3
Round = Dict[str, Any]


class Alternation:
    """All rounds of one load.

    Args:
        folder: for sockets and programs, empty to begin with.
        seconds: of one measurement.

    Attributes:
        rounds: tool → its measurements: `round`, `figures`, `made`, `account`.
        reasons: tool → why it did not run, or not to the end.
    """

    def __init__(self, load: Load, tools: Sequence[Tool], folder: Path, seconds: float) -> None:
        self._load, self._folder, self._seconds = load, folder, seconds
        self.rounds: Dict[str, List[Round]] = {}
        self.reasons: Dict[str, str] = {}
        self._tools = [tool for tool in tools if self._can_run(tool)]

    def run(self, rounds: int) -> None:
        """Measure; a tool that fails is left out from then on."""
        absent = missing(self._load.needs)
        if absent:
            self.reasons = {tool.name: absent for tool in self._tools}
            return
        with started(self._load, self._folder) as running:
            self._check_targets(running)
            running.measure(WARM_UP_S)
            for number in range(rounds):
                for tool in self._turn(number):
                    self._try(tool, number, running)

    def _check_targets(self, running: Running) -> None:
        if len(running.targets) > 1:
            for tool in self._tools:
                if tool.takes_one:
                    self.reasons[tool.name] = "takes one process"

    def _turn(self, number: int) -> Iterator[Tool]:
        """Begin with another tool each time, and with the slow ones not each time."""
        due = [tool for tool in self._tools if not tool.is_slow or number % SLOW_EVERY == 0]
        start = number % len(due)
        return (tool for tool in due[start:] + due[:start] if tool.name not in self.reasons)

    def _try(self, tool: Tool, number: int, running: Running) -> None:
        print(f"{self._load.name} {number} {tool.name}", file=sys.stderr)
        try:
            measured, account = self._measure(tool, running)
        except Exception as error:  # one tool that fails is said, and must not end the others
            self.reasons[tool.name] = f"{type(error).__name__}: {error}"
            return
        figures = dict(measured.figures)
        # Of less than an interval it would be of none or of one sample.
        if account.own_cpu_s is not None and account.wall_s and account.wall_s >= 1:
            figures["own_cpu_pct"] = 100 * account.own_cpu_s / account.wall_s
        self.rounds.setdefault(tool.name, []).append(
            {
                "round": number,
                "figures": figures,
                "made": dict(measured.made),
                "account": asdict(account),
            }
        )

    def _measure(self, tool: Tool, running: Running) -> Tuple[Measured, Account]:
        if tool.prefix is None:
            return self._look(tool, running)
        folder = self._folder / "launched"
        folder.mkdir(exist_ok=True)
        with started(self._load, folder, tool.prefix(self._folder)) as launched:
            warm = launched.measure(WARM_UP_S)
            measured = _both(warm, launched.measure(self._seconds))
        with contextmanager(tool.look)(self._folder, ()) as account:
            pass
        return measured, account

    def _look(self, tool: Tool, running: Running) -> Tuple[Measured, Account]:
        with contextmanager(tool.look)(self._folder, running.targets) as account:
            warm = running.measure(WARM_UP_S + tool.settle_s)
            measured = _both(warm, running.measure(self._seconds))
        return measured, account

    def _can_run(self, tool: Tool) -> bool:
        reason = tool.absent()
        if reason:
            self.reasons[tool.name] = reason
        return not reason


def _both(warm: Measured, measured: Measured) -> Measured:
    """The figures of the second; calls of both, since a tool counts both."""
    made = {name: measured.made[name] + warm.made[name] for name in measured.made}
    return Measured(measured.figures, made)
