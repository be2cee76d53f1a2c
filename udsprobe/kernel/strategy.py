"""What an observation needs of the programs of a strategy, whichever it is."""

from __future__ import annotations

from typing import Mapping, Optional, Protocol, Tuple

from udsprobe.sample import MeasurementState


class TargetCounts(Protocol):
    """How many targets there are."""

    def targets_alive(self) -> int:
        """Target processes that have not exited."""

    def any_thread(self) -> bool:
        """Whether one of their threads lives."""


class StrategyTracer(Protocol):
    """Programs that are live; `tracepoint`, `fentry` and `bcc` are strategies."""

    @property
    def strategy(self) -> str:
        """The one in use."""

    @property
    def detail(self) -> str:
        """`full` or `light`."""

    @property
    def loading_s(self) -> float:
        """CPU time of this process that loading took; 0 where nothing had to be loaded."""

    @property
    def counters(self) -> TargetCounts:
        """What the programs have counted."""

    def seed(self, processes: Mapping[int, int], *, dormant: bool = False) -> None:
        """Make running processes targets: thread-group id → start time in clock ticks.

        Args:
            dormant: count from the process's next exec on, not before.
        """

    def requests_map(self) -> Optional[int]:
        """Descriptor of the map in which processes have their open requests; None without one."""

    def measurements(self) -> Tuple[MeasurementState, ...]:
        """The state of every measurement."""

    def recursion_misses(self) -> Mapping[str, int]:
        """Program → runs the kernel skipped because it was active on that CPU already."""

    def misses_exits(self) -> bool:
        """Whether the end of a process may have gone unseen."""

    def functions_attached(self) -> int:
        """Of the kernel, with programs that `close` takes away."""

    def detach(self) -> None:
        """Stop counting; what was counted stays readable."""

    def close(self) -> None:
        """Give every kernel object back. May be called twice."""
