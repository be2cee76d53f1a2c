"""What udsprobe says about processes of an example, as a user would ask it: `attach --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from tests.scenarios import judge
from tests.scenarios.case import Subject


@dataclass(frozen=True)
class Observation:
    """A report document (docs/json-schema.md) and the questions that examples ask of it."""

    report: Dict[str, Any]

    @property
    def cause(self) -> str:
        """Of the verdict, "–" without one."""
        return self.report["verdict"]["cause"] if self.report["verdict"] else judge.NO_VERDICT

    @property
    def summary(self) -> str:
        """The verdict in a sentence or two."""
        return self.report["verdict"]["summary"] if self.report["verdict"] else "no verdict"

    def unnamed(self, wanted: Sequence[str]) -> List[str]:
        """Those texts that the verdict has nowhere, neither in words nor in its evidence."""
        return judge.read(self.report, Subject([], list(wanted))).unnamed

    def served(self, pids: Optional[Sequence[int]] = None) -> int:
        """Requests that these processes served, all of the targets for None."""
        rows = self.report["requests"]["served_by"]
        return sum(row["count"] for row in rows if pids is None or row["pid"] in pids)

    def calls(self) -> int:
        """System calls of all targets together."""
        return sum(row["calls"] for row in self.report["syscalls"])

    def calls_per_request(self, pids: Optional[Sequence[int]] = None) -> Optional[float]:
        """System calls of all targets for each request that `pids` served."""
        served = self.served(pids)
        return self.calls() / served if served else None

    def listener(self, address: str) -> Dict[str, Any]:
        """The row of a listener; empty where there is none."""
        rows: List[Dict[str, Any]] = self.report["listeners"]
        return next((row for row in rows if row["address"] == address), {})

    def queue(self, address: str) -> str:
        """`deepest/limit` of a listener's accept queue."""
        depth = self.listener(address).get("depth") or {}
        deepest, limit = depth.get("max"), depth.get("limit")
        return f"{'–' if deepest is None else deepest}/{'–' if limit is None else limit}"

    def disturbed(self, own: Sequence[int]) -> bool:
        """Whether others than `own` processes, or the hypervisor, held the targets' CPUs."""
        return judge.disturbed(self.report, own)


def observe(pids: Sequence[int], seconds: float) -> Observation:
    """Attach to processes, and their children, for a while.

    Raises:
        RuntimeError: udsprobe failed.
    """
    said = judge.judge(Subject(list(pids)), seconds)
    assert said.report is not None
    return Observation(said.report)
