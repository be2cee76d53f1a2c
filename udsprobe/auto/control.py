"""When full detail is open: regularly, and while there is pressure; within a budget.

Pure: knows moments, signs of pressure and CPU time, no clock and no probe. All moments are
seconds of one clock that does not go back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Collection, Deque, Optional, Tuple

PERIOD_S = 30.0
"""Between the beginnings of two scheduled windows, where the budget allows it."""

WINDOW_S = 1.0
"""How long a scheduled window is open; one interval where that is longer."""

QUIET_S = 10.0
"""Without pressure for so long a window closes: a verdict is about ten seconds."""

BURST, BURST_S = 2, 20.0
"""At most so many openings in so many seconds: each walks every thread and patches code. Two, so
that an incident that begins right behind a scheduled window is not met ten seconds late."""

HOUR_S = 3600.0
"""The budget and the share of full detail are bounds of so long."""

FULL_SHARE_MAX = 0.25
"""Of an hour, in windows."""

BUDGET = 0.01
"""Of one CPU."""

SCHEDULED_SHARE = 0.75
"""Of the budget; the rest is there for pressure, and what scheduled windows leave."""

SCHEDULE, PRESSURE = "schedule", "pressure"


@dataclass(frozen=True)
class Costs:
    """What a window costs, in CPU seconds: ours, the kernel's verification and the programs'.

    Attributes:
        opening_s: opening and closing one.
        running_s: each second in which one is open.
    """

    opening_s: float
    running_s: float


@dataclass(frozen=True)
class Bounds:
    """What the control keeps to.

    Attributes:
        budget: CPU seconds for windows in each second, over an hour.
        window_s: how long a scheduled window is.
        full_share_max: the part of an hour in which windows may be open.
    """

    budget: float = BUDGET
    window_s: float = WINDOW_S
    full_share_max: float = FULL_SHARE_MAX


@dataclass(frozen=True)
class _Spent:
    """A window: when it began, how long it has been open, and its CPU time so far."""

    at_s: float
    open_s: float
    cpu_s: float


class Control:
    """Decides after each sample of light.

    Args:
        bounds: to keep to.

    Attributes:
        cause: why the open window is open: `schedule` or `pressure`; None: none is open.
        held_back: why no window is open although there is pressure; None: there is not, or it is.
    """

    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self._bounds = bounds
        self._windows: Deque[_Spent] = deque()
        self._openings: Deque[float] = deque()
        self._began_s: Optional[float] = None
        self._pressed_s: Optional[float] = None
        self._last_s: Optional[float] = None
        self._costs: Optional[Costs] = None
        self.cause: Optional[str] = None
        self.held_back: Optional[str] = None

    @property
    def is_open(self) -> bool:
        """Whether a window is."""
        return self._began_s is not None

    @property
    def period_s(self) -> float:
        """Between scheduled windows: what the budget allows, at least `PERIOD_S`."""
        if self._costs is None:
            return PERIOD_S
        cost_s = self._costs.opening_s + self._costs.running_s * self._bounds.window_s
        return max(PERIOD_S, cost_s / (self._bounds.budget * SCHEDULED_SHARE))

    def wants_open(self, at_s: float, signs: Collection[str]) -> bool:
        """Whether a window is to be open from now on.

        Args:
            signs: of pressure, seen since the last call; none: there is no pressure.
        """
        if signs:
            self._pressed_s = at_s
        self.held_back = None
        self._forget(at_s)
        return self._goes_on(at_s) if self.is_open else self._begins(at_s, bool(signs))

    def expect(self, costs: Costs) -> None:
        """What the next window will cost."""
        self._costs = costs

    def opened(self, at_s: float, costs: Costs) -> None:
        """A window is open since then, or could not be opened; what that took counts."""
        self.cause = PRESSURE if self._is_pressed(at_s) else SCHEDULE
        self._costs = costs
        self._began_s = self._last_s = at_s
        self._openings.append(at_s)
        self._windows.append(_Spent(at_s, 0.0, costs.opening_s))

    def spent(self, at_s: float, costs: Costs) -> None:
        """The open window has been open until then, at these costs since the last call."""
        self._costs = costs
        newest = self._windows[-1]
        open_s = max(newest.open_s, at_s - newest.at_s)
        cpu_s = newest.cpu_s + costs.running_s * (open_s - newest.open_s)
        self._windows[-1] = replace(newest, open_s=open_s, cpu_s=cpu_s)

    def closed(self) -> None:
        """The window is closed."""
        self._began_s = self.cause = None

    def _goes_on(self, at_s: float) -> bool:
        began_s = self._began_s or 0.0
        why_not = self._exhausted()
        if why_not is not None:
            self.held_back = why_not if self._is_pressed(at_s) else None
            return False
        if self._is_pressed(at_s):
            self.cause = PRESSURE
            return True
        return self.cause == SCHEDULE and at_s - began_s < self._bounds.window_s

    def _begins(self, at_s: float, pressed: bool) -> bool:
        is_due = self._last_s is None or at_s - self._last_s >= self.period_s
        if not pressed and not is_due:
            return False
        why_not = self._exhausted() or self._too_soon(at_s)
        if why_not is not None and pressed:
            self.held_back = why_not
        return why_not is None

    def _is_pressed(self, at_s: float) -> bool:
        return self._pressed_s is not None and at_s - self._pressed_s < QUIET_S

    def _too_soon(self, at_s: float) -> Optional[str]:
        recent = [each for each in self._openings if at_s - each < BURST_S]
        return f"{BURST} windows were opened in {BURST_S:g} s" if len(recent) >= BURST else None

    def _exhausted(self) -> Optional[str]:
        open_s, cpu_s = self.used()
        if open_s >= self._bounds.full_share_max * HOUR_S:
            return f"windows were open {100 * self._bounds.full_share_max:g} % of the last hour"
        if cpu_s >= self._bounds.budget * HOUR_S:
            return f"the budget of {100 * self._bounds.budget:g} % of a CPU is used up for now"
        return None

    def used(self) -> Tuple[float, float]:
        """Of the last hour: seconds in windows, and CPU seconds that these took."""
        return sum(w.open_s for w in self._windows), sum(w.cpu_s for w in self._windows)

    def _forget(self, at_s: float) -> None:
        while self._windows and at_s - self._windows[0].at_s > HOUR_S + self._windows[0].open_s:
            self._windows.popleft()
        while self._openings and at_s - self._openings[0] >= BURST_S:
            self._openings.popleft()
