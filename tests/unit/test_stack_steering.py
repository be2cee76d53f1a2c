"""When stacks are taken: for a while after a cause is named, of those that it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Iterable, List, Tuple

from tests.unit import ill, reports
from udsprobe.model.report import Report, Verdict
from udsprobe.observe.stack_taking import AUTO, WINDOW_S, StackTaking

WORKERS = (11, 12, 13)
Watched = Tuple[FrozenSet[int], FrozenSet[str]]


class Steered(StackTaking):
    """Without a kernel: it notes what it would watch."""

    def __init__(self) -> None:
        super().__init__(AUTO, "bcc")
        self.watched: List[Watched] = []

    def _watch(self, pids: Iterable[int], causes: FrozenSet[str]) -> None:
        self.watched.append((frozenset(pids), causes))

    def after(self, seconds: float, report: Report) -> FrozenSet[int]:
        """Who is watched then."""
        self._follow(report, int(seconds * 1e9))
        return self.watched[-1][0]


def served_by(*pids: int, cause: str = "upstream-wait") -> Report:
    """An interval in which these workers of three had requests."""
    report = reports.measured()
    return replace(
        report,
        verdict=Verdict(cause, False, None, None, 0.9, "it waits", "tcp:127.0.0.1:5432"),
        targets=[reports.target(pid, "gunicorn") for pid in WORKERS],
        requests=replace(report.requests, served_by=[ill.served_by(pid, 9) for pid in pids]),
    )


def test_workers_that_serve_in_turns_are_watched_together_and_once() -> None:
    taking = Steered()
    assert taking.after(1, served_by(11)) == {11}
    assert taking.after(2, served_by(12)) == {11, 12}
    assert taking.after(2 + WINDOW_S / 2, served_by(11)) == {11, 12}
    assert taking.after(2 + WINDOW_S, served_by(12)) == frozenset()
    assert taking.after(3 + WINDOW_S, served_by(11, 12)) == frozenset()
    assert taking.after(4 + WINDOW_S, served_by(13)) == {11, 12, 13}


def test_a_cause_that_is_named_anew_is_watched_anew() -> None:
    taking = Steered()
    assert taking.after(1, served_by(11)) == {11}
    assert taking.after(2 + WINDOW_S, served_by(11)) == frozenset()
    assert taking.after(3 + WINDOW_S, served_by(11, cause="healthy")) == frozenset()
    assert taking.after(4 + WINDOW_S, served_by(11)) == {11}
    assert taking.watched[-1][1] == {"upstream-wait"}
