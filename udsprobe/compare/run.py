"""One run: a window with, where there are some, its intervals. The seam that every source fills."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Iterable, List, Optional, Sequence, Tuple

from udsprobe.compare.noise import INTERVALS_MIN, blocks
from udsprobe.compare.tally import About, Document, NotAReport, Tally, about, added, tally


@dataclass(frozen=True)
class Run:
    """One observation, ready to be compared.

    Attributes:
        name: as the user gave it.
        whole: the whole window.
        intervals: the parts it is made of; empty when only the window is known.
        is_added_up: `whole` is the sum of the intervals, and its percentiles are
            those of the interval in the middle.
        blocks: the intervals, many of them added up to few, see `noise.blocks`.
    """

    name: str
    whole: Tally
    intervals: Sequence[Tally]
    is_added_up: bool
    about: Sequence[About]
    blocks: Sequence[Tally] = field(default=(), repr=False)

    @property
    def has_noise(self) -> bool:
        """Whether there are enough intervals to know how much they scatter."""
        return len(self.intervals) >= INTERVALS_MIN

    @property
    def by_intervals(self) -> Run:
        """The same run with the percentiles of the interval in the middle, where it has some."""
        if not self.intervals or self.is_added_up:
            return self
        percentiles = added(self.intervals).percentiles
        return replace(self, whole=replace(self.whole, percentiles=percentiles), is_added_up=True)


def run_of(name: str, intervals: Iterable[Document], window: Optional[Document] = None) -> Run:
    """A run from report documents.

    Args:
        name: as the user gave it.
        intervals: one document each, in order; a single one is a window.
        window: the document of the whole time, if the source has it.

    Raises:
        NotAReport: a document is none, or there is none at all.
    """
    parts, seen = _read(intervals)
    if window is not None:
        whole, seen = tally(window), [about(window)]
    elif not parts:
        raise NotAReport("it is empty")
    else:
        whole = parts[0] if len(parts) == 1 else added(parts)
    is_added_up = window is None and len(parts) > 1
    parts = parts if len(parts) > 1 else []
    few = blocks(parts) if len(parts) >= INTERVALS_MIN else ()
    return Run(name, whole, parts, is_added_up, seen, few)


def _read(documents: Iterable[Document]) -> Tuple[List[Tally], List[About]]:
    parts, seen = [], []
    for document in documents:
        parts.append(tally(document))
        seen.append(about(document))
    return parts, seen
