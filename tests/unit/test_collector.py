"""What the collector asks of the tracer, and how often."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from tests.unit.samples import listener, queue
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables.target_book import TargetBook
from udsprobe.observe.collector import Collector, SystemClock
from udsprobe.sample import ListenerReading


class Table:
    """The kernel half's listeners, by inode."""

    def __init__(self) -> None:
        self.inodes: List[int] = []

    def read(self, interval: int) -> Tuple[ListenerReading, ...]:
        return tuple(listener(inode=inode, queue=queue()) for inode in self.inodes)


class NothingKept:
    """No request is kept whole."""

    def turn_over(self) -> None:
        pass

    def read(self, connections: object) -> Tuple[()]:
        return ()

    def lost(self) -> int:
        return 0


class Tracer:
    """Adopts the listeners it has room for."""

    attached = frozenset({"sk_data_ready"})

    def __init__(self, adoptable: Sequence[int]) -> None:
        self.table = Table()
        self.adoptable = adoptable
        self.attempts = 0

    def adopt_listeners(self) -> None:
        self.attempts += 1
        self.table.inodes = list(self.adoptable)

    def listener_table(self, procfs: Procfs) -> Table:
        return self.table

    def connection_table(self, procfs: Procfs) -> None:
        return None

    def server_table(self, connections: None) -> None:
        return None

    def cpu_holders(self, procfs: Procfs) -> None:
        return None

    def wait_table(self, procfs: Procfs) -> None:
        return None

    def whole_requests(self, connections: None) -> NothingKept:
        return NothingKept()

    def program_runs(self) -> Mapping[str, Tuple[int, int]]:
        return {}


def attempts(tracer: Tracer, seen: Sequence[Sequence[int]]) -> List[int]:
    """How often adoption was tried, after each of these samples."""
    fake: Any = tracer
    collector = Collector(fake, TargetBook(Procfs()), Procfs(), SystemClock())
    tried = []
    for interval, inodes in enumerate(seen):
        shown = tuple(listener(inode=inode) for inode in inodes)
        collector._with_events(shown, interval)
        tried.append(tracer.attempts)
    return tried


def test_a_listener_that_cannot_be_adopted_is_tried_once() -> None:
    assert attempts(Tracer(adoptable=[7]), [[7, 8], [7, 8], [7, 8]]) == [1, 1, 1]


def test_another_listener_is_tried() -> None:
    assert attempts(Tracer(adoptable=[]), [[7], [7], [7, 8], [7, 8]]) == [1, 1, 2, 2]


def test_one_that_was_gone_in_between_is_tried_again() -> None:
    assert attempts(Tracer(adoptable=[]), [[7], [], [7]]) == [1, 1, 2]


def test_what_is_adopted_is_not_tried_again() -> None:
    assert attempts(Tracer(adoptable=[7]), [[7], [7]]) == [1, 1]
