"""Pressure that begins, told from pressure that merely goes on.

Pure. A sign is known by its name. It begins when it was not there before, or is much stronger than
when it began; what goes on for hours begins once. All moments are seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Collection, Dict, NamedTuple, Optional

FORGET_S = 60.0
"""Absent for so long a sign is new when it comes back; one that comes and goes more often is the
same pressure."""

STRONGER = 2.0
"""Times as strong as when it began: pressure that grows so much is another one."""

HELD_S = 60.0
"""How long a sign keeps full detail open since it began: verdicts need ten seconds, stacks as many
behind them."""

WINDOWS_WITHOUT = 3
"""Closed without it, a sign that only full detail sees is gone: in one second of many it may be
missed."""


class Sign(NamedTuple):
    """Of pressure.

    Attributes:
        name: of what it is a sign; the same name is the same pressure.
        strength: above 0, in a unit of its own.
        in_full: only full detail sees it, so that between windows it is not absent.
    """

    name: str
    strength: float = 1.0
    in_full: bool = False


@dataclass(frozen=True)
class _Known:
    """A sign that was seen: when last, and since when it keeps full detail open, if it did yet.

    `windows_without`: closed since it was seen.
    """

    sign: Sign
    seen_s: float
    held_from_s: Optional[float] = None
    is_covered: bool = False
    windows_without: int = 0


class Beginnings:
    """Follows the signs from one look to the next."""

    def __init__(self) -> None:
        self._known: Dict[str, _Known] = {}
        self._looked_s: Optional[float] = None
        self._now_s = 0.0

    def see(self, at_s: float, signs: Collection[Sign]) -> None:
        """What is there at this moment."""
        before_s = self._looked_s
        self._looked_s = self._now_s = at_s
        for sign in signs:
            known = self._known.get(sign.name)
            if known is None or self._begins(known, sign, before_s):
                self._known[sign.name] = _Known(sign, at_s)
            else:
                self._known[sign.name] = replace(known, seen_s=at_s, windows_without=0)
        for name in [n for n, known in self._known.items() if self._is_gone(known)]:
            del self._known[name]

    def waiting(self) -> bool:
        """Whether anything is there that has begun and has not had full detail yet."""
        return any(k.held_from_s is None and not k.is_covered for k in self._present())

    def any(self) -> bool:
        """Whether anything is there at all."""
        return any(True for _ in self._present())

    def hold(self, at_s: float) -> None:
        """Full detail is there from now on for what waits for it."""
        for name, known in self._known.items():
            if known.held_from_s is None:
                self._known[name] = replace(known, held_from_s=at_s)

    def holds(self, at_s: float) -> bool:
        """Whether anything is there for which full detail is to stay open."""
        return any(
            not known.is_covered
            and known.held_from_s is not None
            and at_s - known.held_from_s < HELD_S
            for known in self._present()
        )

    def closed(self) -> None:
        """A window is closed: what it was held open for has had its full detail."""
        for name, known in self._known.items():
            self._known[name] = replace(
                known,
                is_covered=known.is_covered or known.held_from_s is not None,
                windows_without=known.windows_without + 1,
            )

    def _present(self) -> Collection[_Known]:
        return [known for known in self._known.values() if known.seen_s == self._now_s]

    def _begins(self, known: _Known, sign: Sign, before_s: Optional[float]) -> bool:
        if sign.strength >= STRONGER * known.sign.strength:
            return True
        # Where samples are far apart, the last one of them had it.
        was_there = known.seen_s == before_s or sign.in_full
        return not was_there and self._now_s - known.seen_s >= FORGET_S

    def _is_gone(self, known: _Known) -> bool:
        if self._now_s - known.seen_s < FORGET_S:
            return False
        return not known.sign.in_full or known.windows_without >= WINDOWS_WITHOUT
