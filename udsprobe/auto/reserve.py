"""What is kept of an hour for pressure that begins: a part of it at once, the rest as it comes.

Pure. So what comes first cannot take everything, and in no hour is more taken than its amount.
"""

from __future__ import annotations

from typing import Optional

HOUR_S = 3600.0

AT_ONCE = 0.25
"""Of an hour's amount: more would leave less for what comes day after day, less would not do for
one incident behind the other."""


class Reserve:
    """Of CPU time or of time in windows, in seconds.

    Attributes:
        level_s: what may be taken now; below 0 where more was taken than there was.
        most_s: that `level_s` can be.
    """

    def __init__(self) -> None:
        self.level_s = self.most_s = 0.0
        self._at_s: Optional[float] = None

    def refill(self, at_s: float, hourly_s: float) -> None:
        """To be called before anything is taken.

        Args:
            hourly_s: that may be taken in any hour.
        """
        self.most_s = hourly_s * AT_ONCE
        if self._at_s is None:
            self.level_s = self.most_s
        else:
            came_s = (at_s - self._at_s) / HOUR_S * (hourly_s - self.most_s)
            self.level_s = min(self.level_s + came_s, self.most_s)
        self._at_s = at_s

    def take(self, amount_s: float) -> None:
        """So much was used."""
        self.level_s -= amount_s

    def has(self, amount_s: float) -> bool:
        """Whether so much is there, or all that there ever is."""
        return self.level_s > 0 and self.level_s >= min(amount_s, self.most_s)
