"""What is read of the functions of one Go program, by the table of its file."""

from __future__ import annotations

from typing import Optional

from udsprobe.symbols.go.frames import GoRules
from udsprobe.symbols.go.function_list import FunctionList
from udsprobe.symbols.go.functions import GoFrames
from udsprobe.symbols.go.inlined import GoInlined
from udsprobe.symbols.go.sources import GoSources


class GoCode:
    """Of a file that stays open until `close`.

    Args:
        file: a descriptor, which stays the caller's.

    Attributes:
        rules: how to get to callers; None: not for this machine.
        sources: where functions are written. inlined: which ones are in others.
    """

    def __init__(self, frames: GoFrames, file: int, *, is_x86: bool) -> None:
        self._functions = FunctionList(frames, file)
        self.rules: Optional[GoRules] = GoRules(self._functions) if is_x86 else None
        self.sources = GoSources(self._functions)
        self.inlined = GoInlined(self._functions, self.sources)

    def close(self) -> None:
        """Give it back. May be called twice."""
        self._functions.close()
