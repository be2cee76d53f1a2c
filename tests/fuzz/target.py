"""A reader of strangers' bytes, and how it may refuse them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Tuple, Type


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        seeds: inputs that it takes.
        read: reads one input.
        refusals: what it may raise; anything else is a defect.
    """

    name: str
    seeds: Callable[[], List[bytes]]
    read: Callable[[bytes], object]
    refusals: Tuple[Type[Exception], ...] = ()

    def attempt(self, data: bytes) -> bool:
        """Whether the input was taken; raises whatever is no refusal."""
        try:
            self.read(data)
        except self.refusals:
            return False
        return True
