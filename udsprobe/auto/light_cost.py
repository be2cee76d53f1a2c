"""What the programs of light cost, and whether the budget has room for them.

Pure. They run at each message, so light costs what the service does: at some rate it costs more
than the whole budget. Then nothing has a probe between full windows, and these tell when the rate
is lower again.
"""

from __future__ import annotations

from typing import Optional

OVER_S = 60.0
"""What light costs is a mean over about so long: a burst does not count as a rate."""

SHARE_MAX = 0.75
"""Of the budget; full windows keep the rest."""

AGAIN = 0.5
"""Of what light may cost: it comes back where it would cost less than that."""

AWAY_S = 600.0
"""For so long at least: taking it off and putting it back cost more than a window."""


class LightCost:
    """Follows it.

    Args:
        budget: CPU seconds in each second, for light and full windows.

    Attributes:
        spent_s: CPU seconds that light takes in each second; 0 while it is off.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self.spent_s = 0.0
        self._events_per_s: Optional[float] = None
        self._at_that: Optional[float] = None
        self._off_since_s: Optional[float] = None

    @property
    def left(self) -> float:
        """Of the budget, for full windows."""
        return max(self._budget - self.spent_s, self._budget * (1 - SHARE_MAX))

    @property
    def is_too_much(self) -> bool:
        """Whether light is to be taken off."""
        return self.spent_s > SHARE_MAX * self._budget

    def took(self, programs_s: float, duration_s: float) -> None:
        """So much in each of so many seconds."""
        self.spent_s += (programs_s - self.spent_s) * min(1.0, duration_s / OVER_S)

    def in_window(self, events_per_s: float) -> None:
        """What the targets do, as a full window sees it: light costs in proportion to that."""
        self._events_per_s = events_per_s

    def taken_off(self, at_s: float) -> None:
        """Light is off since then."""
        events = self._events_per_s
        self._at_that = self.spent_s / events if events else None
        self._off_since_s, self.spent_s = at_s, 0.0

    def put_back(self) -> None:
        """Light is there again."""
        self._off_since_s = None

    def fits_again(self, at_s: float) -> bool:
        """Whether light, which is off, would cost much less than it may."""
        if self._off_since_s is None or at_s - self._off_since_s < AWAY_S:
            return False
        if self._at_that is None or self._events_per_s is None:
            # What it would cost is not known: it is tried.
            return True
        return self._at_that * self._events_per_s < AGAIN * SHARE_MAX * self._budget
