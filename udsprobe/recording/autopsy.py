"""Stretches of time in which the verdict named a cause: what a ring keeps beyond its age.

Pure: knows times and causes, no file. The recorder follows them as they come, to keep their
surroundings; a reader finds the same ones in what was kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, List, Optional, Tuple

from udsprobe.recording.retention import Period

BEFORE_S = 60.0
"""Kept before a cause is named: what led there."""

QUIET_S = 10.0
"""Without a cause for so long it is over: a verdict is about ten seconds."""

KEPT_S_MAX = 600.0
"""Of one that lasts the first ten minutes are kept; the ring has the newest."""

KEPT_MAX = 24
"""The newest so many."""

QUIET = frozenset({"healthy", "unknown"})


@dataclass(frozen=True)
class Autopsy:
    """One stretch.

    Attributes:
        first_sequence, last_sequence: of the samples whose verdict named a cause first and last.
        causes: those named, each once, in the order in which they came.
    """

    first_sequence: int
    last_sequence: int
    first_unix_s: float
    last_unix_s: float
    causes: Tuple[str, ...]

    @property
    def kept(self) -> Period:
        """Which time is kept for it."""
        end = min(self.last_unix_s + QUIET_S, self.first_unix_s + KEPT_S_MAX)
        return Period(self.first_unix_s - BEFORE_S, end)


class Autopsies:
    """Follows the verdicts of one recording.

    Attributes:
        found: the newest, the last of which may not be over.
    """

    def __init__(self) -> None:
        self.found: List[Autopsy] = []

    def add(self, sequence: int, unix_s: float, cause: Optional[str]) -> None:
        """The verdict of the next sample; None: there is none."""
        if cause is None or cause in QUIET:
            return
        last = self.found[-1] if self.found else None
        if last is None or unix_s - last.last_unix_s > QUIET_S:
            self.found.append(Autopsy(sequence, sequence, unix_s, unix_s, (cause,)))
            del self.found[:-KEPT_MAX]
            return
        causes = last.causes if cause in last.causes else (*last.causes, cause)
        self.found[-1] = replace(last, last_sequence=sequence, last_unix_s=unix_s, causes=causes)

    def periods(self) -> List[Period]:
        """Which times are kept."""
        return [each.kept for each in self.found]


def autopsies(verdicts: Iterable[Tuple[int, float, Optional[str]]]) -> Tuple[Autopsy, ...]:
    """Those among (sequence, seconds since the epoch, cause), which come in their order."""
    following = Autopsies()
    for verdict in verdicts:
        following.add(*verdict)
    return tuple(following.found)
