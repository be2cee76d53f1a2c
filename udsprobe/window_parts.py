"""The parts of a window that its verdict is compared with: at most `PARTS_MAX`, of whole intervals.

Which samples part a window follows from their number alone, so that a report made live and one
made of the recording say the same.
"""

from __future__ import annotations

from typing import List, Tuple

from udsprobe.sample import Sample

PARTS_MAX = 8


def part_places(count: int) -> List[int]:
    """Places of the samples between which parts lie, of so many samples: the first and last too."""
    step = 1
    while (count - 1) // step > PARTS_MAX:
        step *= 2
    places = list(range(0, count, step))
    return places if places[-1] == count - 1 else [*places, count - 1]


class PartingSamples:
    """Keeps the samples at `part_places` while they come; never more than `PARTS_MAX` + 2."""

    def __init__(self, first: Sample) -> None:
        self._kept: List[Tuple[int, Sample]] = [(0, first)]
        self._last = first
        self._count = 1
        self._step = 1

    def add(self, sample: Sample) -> None:
        """Take the next one in."""
        place = self._count
        self._last = sample
        self._count += 1
        if place % self._step == 0:
            self._kept.append((place, sample))
        if len(self._kept) > PARTS_MAX + 1:
            self._step *= 2
            self._kept = [each for each in self._kept if each[0] % self._step == 0]

    def all(self) -> List[Sample]:
        """Those at `part_places`, oldest first."""
        samples = [sample for _, sample in self._kept]
        return samples if samples[-1] is self._last else [*samples, self._last]
