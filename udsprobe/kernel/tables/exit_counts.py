"""How targets ended, added up by program: the kernel half tells it of each that has exited."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals
from typing import Any, Dict, Tuple

from udsprobe.printable import printable
from udsprobe.sample import ExitCounts

KINDS_MAX = 64
OTHERS = "others"
OUT_OF_MEMORY = "out of memory"


class ExitBook:
    """Adds up processes that ended otherwise than with status 0."""

    def __init__(self) -> None:
        self._counts: Dict[Tuple[str, str], ExitCounts] = {}

    def take(self, process: Any) -> None:
        """Of a `struct process_state` that has exited."""
        how = way(process.exit_code, bool(process.out_of_memory))
        if not how:
            return
        key = (printable(process.comm), how)
        if key not in self._counts and len(self._counts) >= KINDS_MAX:
            key = (OTHERS, how)
        before = self._counts.get(key) or ExitCounts(*key, processes=0, served=0, unanswered=0)
        self._counts[key] = replace(
            before,
            processes=before.processes + 1,
            served=before.served + process.served,
            unanswered=before.unanswered + process.unanswered,
        )

    def counts(self) -> Tuple[ExitCounts, ...]:
        """Since the beginning, in the order in which they were met."""
        return tuple(self._counts.values())


def way(exit_code: int, out_of_memory: bool) -> str:
    """What a status of wait4() says; "" for status 0.

    Args:
        out_of_memory: the kernel chose the process to get memory back.
    """
    signal, status = exit_code & 0x7F, exit_code >> 8 & 0xFF
    if signal:
        return OUT_OF_MEMORY if out_of_memory else _signal_name(signal)
    return f"status {status}" if status else ""


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:  # of the real-time ones, which have none but the first and the last
        return f"signal {number}"
