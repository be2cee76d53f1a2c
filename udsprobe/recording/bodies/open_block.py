"""Consecutive samples that are one block later: each as its change, and all of them as columns."""

from __future__ import annotations

from typing import Optional

from udsprobe.recording.bodies.columns import Columns, Gathered, change_of
from udsprobe.recording.bodies.leaves import Flattener, Leaves
from udsprobe.sample import Sample


class OpenBlock:
    """The samples since the last block, as columns that grow."""

    def __init__(self) -> None:
        self.first: Optional[Sample] = None
        self.tail_bytes = 0
        self.gathered = Gathered()
        self._flattener = Flattener()
        self._before: Leaves = {}

    def add(self, sample: Sample) -> Columns:
        """The sample as a change of the one before."""
        known = len(self._flattener.nodes)
        leaves = self._flattener.leaves(sample)
        self.first = self.first or sample
        change = change_of(self._flattener.nodes, known, self._before, leaves)
        self.gathered.add(change)
        self._before = leaves
        return change

    def columns(self) -> Columns:
        """All of them, for a block."""
        return self.gathered.columns(self._flattener.nodes)
