"""When full detail is open: regularly, and when pressure begins; within a budget.

Pure: knows moments, signs of pressure and CPU time, no clock and no probe. All moments are
seconds of one clock that does not go back.

Pressure that begins has full detail for about a minute at most. What goes on is looked at by the
scheduled windows, so that a service that is saturated for hours does not use up what the next
incident needs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Collection, Deque, Optional, Tuple

from udsprobe.auto.beginnings import Beginnings, Sign
from udsprobe.auto.reserve import HOUR_S, Reserve

PERIOD_S = 30.0
"""Between the beginnings of two scheduled windows, where the bounds allow it."""

WINDOW_S = 1.0
"""How long a scheduled window is open; one interval where that is longer."""

QUIET_PACE, QUIET_PACE_S_MAX = 1.5, 1.5
"""Between windows samples are so many times as far apart, and no further by it than that: what
begins is still met within two seconds."""

VERDICT_S = 10.0
"""A window that pressure opened is open for so long at least: what a verdict is made of."""

QUIET_S = 5.0
"""Without that pressure for so long, the window closes."""

COVER_S = 20.0
"""Of pressure that begins, as much as one incident may take when little is left."""

BURST, BURST_S = 2, 20.0
"""At most so many openings in so many seconds: each walks every thread and patches code. Two, so
that an incident that begins right behind a scheduled window is not met ten seconds late."""

FULL_SHARE_MAX = 0.25
"""Of an hour, in windows."""

BUDGET = 0.01
"""Of one CPU."""

SCHEDULED_SHARE = 0.5
"""Of the budget, and of the time in windows; the rest, and what scheduled windows leave, is kept
for pressure that begins."""

SCHEDULE, PRESSURE = "schedule", "pressure"
GOES_ON = "the pressure goes on: scheduled windows look at it"
RESERVED = "what is left is kept for the next beginning"


@dataclass(frozen=True)
class Costs:
    """What a window costs, in CPU seconds: ours, the kernel's verification and the programs'.

    Attributes:
        opening_s: opening and closing one.
        running_s: each second in which one is open.
    """

    opening_s: float
    running_s: float

    def of(self, open_s: float) -> float:
        """A window that is open for so long."""
        return self.opening_s + self.running_s * open_s


@dataclass(frozen=True)
class Bounds:
    """What the control keeps to.

    Attributes:
        budget: CPU seconds for windows in each second, over an hour, where light takes none.
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


@dataclass(frozen=True)
class _Held:
    """A window that pressure keeps open: since when, when that was last seen, and the CPU time
    that it may take, of which so much was taken."""

    since_s: float
    seen_s: float
    allowed_s: float
    taken_s: float = 0.0


def quiet_pace_s(interval_s: float) -> float:
    """From one sample to the next while no window is open.

    Args:
        interval_s: while one is.
    """
    return max(interval_s, min(QUIET_PACE * interval_s, QUIET_PACE_S_MAX))


class Control:
    """Decides after each sample.

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
        self._last_s: Optional[float] = None
        self._costs: Optional[Costs] = None
        self._budget = bounds.budget
        self._signs = Beginnings()
        self._cpu, self._time = Reserve(), Reserve()
        self._held: Optional[_Held] = None
        self._wanted = SCHEDULE
        self.held_back: Optional[str] = None

    @property
    def is_open(self) -> bool:
        """Whether a window is."""
        return self._began_s is not None

    @property
    def cause(self) -> Optional[str]:
        """Why the open window is open."""
        if not self.is_open:
            return None
        return SCHEDULE if self._held is None else PRESSURE

    @property
    def period_s(self) -> float:
        """Between scheduled windows: what the bounds allow, at least `PERIOD_S`."""
        bounds = self._bounds
        cpu_s = self._cost_s(bounds.window_s) / (self._budget * SCHEDULED_SHARE)
        open_s = bounds.window_s / (bounds.full_share_max * SCHEDULED_SHARE)
        return max(PERIOD_S, cpu_s, open_s)

    def wants_open(self, at_s: float, signs: Collection[Sign]) -> bool:
        """Whether a window is to be open from now on.

        Args:
            signs: of pressure, seen since the last call; none: there is no pressure.
        """
        self._signs.see(at_s, signs)
        self.held_back = None
        self._forget(at_s)
        self._refill(at_s)
        return self._goes_on(at_s) if self.is_open else self._begins(at_s)

    def expect(self, costs: Costs, budget: Optional[float] = None) -> None:
        """What the next window will cost.

        Args:
            budget: what light leaves of it; None: as it is.
        """
        self._costs = costs
        self._budget = self._budget if budget is None else budget

    def opened(self, at_s: float, costs: Costs) -> None:
        """A window is open since then; what that took counts."""
        self._count_opening(at_s, costs)
        self._began_s = at_s
        if self._wanted == PRESSURE:
            self._hold(at_s)

    def failed(self, at_s: float, costs: Costs) -> None:
        """A window could not be opened; what trying took counts, too."""
        self._count_opening(at_s, costs)

    def spent(self, at_s: float, costs: Costs) -> None:
        """The open window has been open until then, at these costs since the last call."""
        self._costs = costs
        newest = self._windows[-1]
        open_s = max(newest.open_s, at_s - newest.at_s)
        more_s = open_s - newest.open_s
        self._windows[-1] = replace(
            newest, open_s=open_s, cpu_s=newest.cpu_s + costs.running_s * more_s
        )
        if self._held is not None:
            self._take(costs.running_s * more_s, more_s)

    def closed(self) -> None:
        """The window is closed."""
        self._began_s, self._held, self._wanted = None, None, SCHEDULE
        self._signs.closed()

    def used(self) -> Tuple[float, float]:
        """Of the last hour: seconds in windows, and CPU seconds that these took."""
        return sum(w.open_s for w in self._windows), sum(w.cpu_s for w in self._windows)

    def _goes_on(self, at_s: float) -> bool:
        why_not = self._exhausted()
        if why_not is None and self._signs.waiting():
            why_not = self._kept_back()
            if why_not is None:
                self._hold(at_s)
        if self._exhausted() is not None:
            is_wanted = False
        elif self._held is None:
            is_wanted = at_s - (self._began_s or 0.0) < self._bounds.window_s
        else:
            is_wanted, why_not = self._is_held(at_s, self._held)
        if not is_wanted and self._signs.any():
            self.held_back = why_not or GOES_ON
        return is_wanted

    def _is_held(self, at_s: float, held: _Held) -> Tuple[bool, Optional[str]]:
        if self._signs.holds(at_s):
            held = self._held = replace(held, seen_s=at_s)
        if held.taken_s >= held.allowed_s or self._time.level_s <= 0:
            return False, RESERVED
        return at_s - held.since_s < VERDICT_S or at_s - held.seen_s < QUIET_S, None

    def _begins(self, at_s: float) -> bool:
        is_due = self._last_s is None or at_s - self._last_s >= self.period_s
        why_not = self._exhausted() or self._too_soon(at_s)
        self._wanted = SCHEDULE
        if self._signs.waiting():
            kept_back = why_not or self._kept_back()
            if kept_back is None:
                self._wanted = PRESSURE
                return True
            self.held_back = kept_back
        elif self._signs.any():
            self.held_back = GOES_ON
        return is_due and why_not is None

    def _hold(self, at_s: float) -> None:
        """The open window is one of pressure from now on, or of more of it."""
        before = self._held
        taken_s = 0.0 if before is None else before.taken_s
        if before is None:
            costs = self._costs or Costs(0.0, 0.0)
            self._take(costs.opening_s if self._wanted == PRESSURE else 0.0, 0.0)
        allowed_s = taken_s + max(self._cost_s(COVER_S), self._cpu.level_s / 2)
        since_s = at_s if before is None else before.since_s
        self._held = _Held(since_s, at_s, allowed_s, taken_s)
        self._signs.hold(at_s)

    def _take(self, cpu_s: float, open_s: float) -> None:
        self._cpu.take(cpu_s)
        self._time.take(open_s)
        if self._held is not None:
            taken_s = self._held.taken_s + cpu_s
            self._held = replace(self._held, taken_s=taken_s)

    def _kept_back(self) -> Optional[str]:
        """Why what waits for a window cannot have one: it would be closed before a verdict."""
        has_cpu = self._cpu.has(self._cost_s(VERDICT_S))
        return None if has_cpu and self._time.has(VERDICT_S) else RESERVED

    def _refill(self, at_s: float) -> None:
        bounds, per_hour = self._bounds, HOUR_S / self.period_s
        scheduled_s = self._cost_s(bounds.window_s) * per_hour
        self._cpu.refill(at_s, max(0.0, self._budget * HOUR_S - scheduled_s))
        open_s = bounds.window_s * per_hour
        self._time.refill(at_s, max(0.0, bounds.full_share_max * HOUR_S - open_s))

    def _cost_s(self, open_s: float) -> float:
        return 0.0 if self._costs is None else self._costs.of(open_s)

    def _count_opening(self, at_s: float, costs: Costs) -> None:
        self._costs = costs
        self._last_s = at_s
        self._openings.append(at_s)
        self._windows.append(_Spent(at_s, 0.0, costs.opening_s))

    def _too_soon(self, at_s: float) -> Optional[str]:
        recent = [each for each in self._openings if at_s - each < BURST_S]
        return f"{BURST} windows were opened in {BURST_S:g} s" if len(recent) >= BURST else None

    def _exhausted(self) -> Optional[str]:
        open_s, cpu_s = self.used()
        if open_s >= self._bounds.full_share_max * HOUR_S:
            return f"windows were open {100 * self._bounds.full_share_max:g} % of the last hour"
        if cpu_s >= self._budget * HOUR_S:
            return f"the budget of {100 * self._bounds.budget:g} % of a CPU is used up for now"
        return None

    def _forget(self, at_s: float) -> None:
        while self._windows and at_s - self._windows[0].at_s > HOUR_S + self._windows[0].open_s:
            self._windows.popleft()
        while self._openings and at_s - self._openings[0] >= BURST_S:
            self._openings.popleft()
