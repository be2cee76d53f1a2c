"""What bodies may hold that strangers wrote: no more than samples have."""

from __future__ import annotations

from udsprobe.recording.bodies.leaves import NODES_MAX

BODY_BYTES_MAX = 64 << 20
"""Bodies that follow from each other are refused when they unpack to more."""

SAMPLES_MAX = 4096
"""So are those that say they hold more, seven blocks of ours."""

CHANGES_MAX = 1 << 21
"""And those with more changes: a block of ours ends at 800,000, after a sample."""

_PARTS_MAX = 2 * NODES_MAX
_HEAD_BYTES_MAX = 32 << 20
_ORDERED_MAX = 1 << 25

_SHIFTS_MAX = 1 << 32
"""Places moved in lists while orders are read: seconds."""


class Limits:
    """What bodies that follow from each other may still hold."""

    def __init__(self) -> None:
        self._left = {
            "bytes": BODY_BYTES_MAX,
            "bytes of places": _HEAD_BYTES_MAX,
            "places": NODES_MAX,
            "parts of places": _PARTS_MAX,
            "changes": CHANGES_MAX,
            "rows in orders": _ORDERED_MAX,
            "moves in orders": _SHIFTS_MAX,
            "samples": SAMPLES_MAX,
        }

    @property
    def bytes_left(self) -> int:
        """For what comes next, unpacked."""
        return self._left["bytes"]

    def take(self, what: str, count: int) -> None:
        """Count what is there.

        Raises:
            ValueError: it is more than samples have, or less than nothing.
        """
        self._left[what] -= count
        if count < 0 or self._left[what] < 0:
            raise ValueError(f"too many {what} to be samples")
