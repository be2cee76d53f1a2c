"""From the strategy that was asked for to its programs, loaded, and to who reads them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Protocol

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.bcc.library import bcc_is_here
from udsprobe.kernel.objects.alongside import Work
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.strategy import StrategyTracer
from udsprobe.kernel.tables.target_book import TargetBook
from udsprobe.kernel.tracer import Tracer
from udsprobe.observe.collector import Collector, SystemClock
from udsprobe.observe.stack_taking import StackTaking
from udsprobe.sample import Sample

if TYPE_CHECKING:
    from udsprobe.kernel.programs.kept import KeptPrograms

NO_TYPES = "no-btf"


class SampleCollector(Protocol):
    """Reads everything there is about the targets."""

    def begin(self) -> None:
        """Take over what was seen of the targets when they became targets, just now."""

    def settle(self) -> None:
        """What takes privileges is open, and they are given up: there may be threads now."""

    def sample(self) -> Sample:
        """One moment of the observation, cumulative."""

    def close(self) -> None:
        """Let go of what sampling holds open; the tracer stays."""


class Strategy(NamedTuple):
    """Programs that are live, and what reads them once they have targets.

    Attributes:
        collector: makes the reader.
    """

    tracer: StrategyTracer
    collector: Callable[[TargetBook, Procfs, StackTaking], SampleCollector]


def load_strategy(
    strategy: str, detail: str, follow: bool, meanwhile: Work, kept: Optional[KeptPrograms]
) -> Strategy:
    """Live and without a target; the arguments are those of `Tracer`, and `bcc` beside them.

    `auto` takes `bcc` where no other strategy works: BCC compiles for seconds, and measures less.

    Raises:
        UdsprobeError: of `Tracer` and `BccTracer`.
    """
    if strategy != "bcc" or detail == "light":
        try:
            tracer = Tracer(
                follow=follow, strategy=strategy, detail=detail, meanwhile=meanwhile, kept=kept
            )
            return Strategy(tracer, partial(_collector, tracer))
        except KernelCannotError as error:
            if (
                detail == "light"
                or strategy != "auto"
                or error.slug != NO_TYPES
                or not bcc_is_here()
            ):
                raise
    return _bcc(follow, meanwhile)


def _collector(
    tracer: Tracer, book: TargetBook, procfs: Procfs, stacks: StackTaking
) -> SampleCollector:
    return Collector(tracer, book, procfs, SystemClock(), stacks)


def _bcc(follow: bool, meanwhile: Work) -> Strategy:
    # Imported where it is used: other hosts have no BCC.
    from udsprobe.kernel.bcc.tracer import BccTracer
    from udsprobe.observe.bcc_collector import BccCollector

    tracer = BccTracer(follow=follow, meanwhile=meanwhile)

    def collector(book: TargetBook, procfs: Procfs, _: StackTaking) -> SampleCollector:
        return BccCollector(tracer, book, procfs, SystemClock())

    return Strategy(tracer, collector)
