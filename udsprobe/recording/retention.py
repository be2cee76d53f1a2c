"""Which samples a recording keeps: all, the last hours, those around findings.

Pure: knows times and severities, no file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Optional, Sequence

SEVERITIES = ("info", "warning", "critical")
AROUND_S = 300.0

_RING_PARTS = 12
_AROUND_PARTS = 2.5
RING_BYTES_PER_S = 8192
RING_BYTES_MIN = 8 << 20


class Period(NamedTuple):
    """From and to, seconds since the epoch."""

    start: float
    end: float


@dataclass(frozen=True)
class Retention:
    """What to keep.

    Attributes:
        ring_s: only the last so many seconds; None is all.
        severity: only around findings of at least this severity, and the
            newest `around_s` seconds; None is all.
        around_s: before and after a finding.
    """

    ring_s: Optional[float] = None
    severity: Optional[str] = None
    around_s: float = AROUND_S

    @property
    def bytes_max(self) -> Optional[int]:
        """Bound of the file's size; None is none. A ring drops earlier than asked to keep it."""
        if self.ring_s is None:
            return None
        return max(RING_BYTES_MIN, int(self.ring_s * RING_BYTES_PER_S))

    @property
    def block_s(self) -> float:
        """How long a block may be, which is kept and dropped as a whole."""
        ring_s = math.inf if self.ring_s is None else self.ring_s / _RING_PARTS
        around_s = math.inf if self.severity is None else self.around_s / _AROUND_PARTS
        return min(ring_s, around_s)

    def is_cause(self, severity: str) -> bool:
        """Whether a finding of this severity is one to keep samples around."""
        if self.severity is None or severity not in SEVERITIES:
            return False
        return SEVERITIES.index(severity) >= SEVERITIES.index(self.severity)

    def is_past_ring(self, block: Period, now: float) -> bool:
        """Whether a block is older than a ring keeps."""
        return self.ring_s is not None and block.end < now - self.ring_s

    def drops(
        self,
        block: Period,
        now: float,
        causes: Sequence[Period],
        autopsies: Sequence[Period] = (),
    ) -> bool:
        """Whether a block of samples is kept no longer.

        Args:
            now: of the newest sample.
            causes: when findings were there.
            autopsies: times that outlive the ring.
        """
        if self.is_past_ring(block, now):
            return not any(one.start <= block.end and block.start <= one.end for one in autopsies)
        if self.severity is None or block.end >= now - self.around_s:
            return False
        return not any(
            cause.start - self.around_s <= block.end and block.start <= cause.end + self.around_s
            for cause in causes
        )
