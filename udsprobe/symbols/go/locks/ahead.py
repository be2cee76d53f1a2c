"""What code uses from a place on, whatever its values are: whether it can be about a lock."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Set, Tuple

from udsprobe.symbols.go.locks.instructions import Instruction, Instructions, Operand
from udsprobe.symbols.go.locks.wrappers import LOCKS, UNLOCKS

INSTRUCTIONS_MAX = 400


class Ahead(NamedTuple):
    """Of code that follows a place, in one function.

    Attributes:
        places: addresses of memory that are in it. acts: something may be locked or unlocked in it.
    """

    places: Tuple[int, ...]
    acts: bool


def ahead_of(
    address: int, instructions: Instructions, function_at: Callable[[int], Optional[str]]
) -> Ahead:
    """Of all that can follow there, without what it calls; at most `INSTRUCTIONS_MAX`."""
    ways = [address]
    seen: Set[int] = set()
    places: Set[int] = set()
    acts = False
    while ways and len(seen) < INSTRUCTIONS_MAX:
        at = ways.pop()
        one = None if at in seen else instructions.at(at)
        if one is None:
            continue
        seen.add(at)
        places.update(each.number for each in one.operands if _is_fixed(each))
        acts = acts or _acts(one, function_at)
        ways += _next(one)
    return Ahead(tuple(places), acts)


def _is_fixed(operand: Operand) -> bool:
    """A place that no register has a part in."""
    return operand.is_memory and operand.register is None and operand.scaled is None


def _next(one: Instruction) -> List[int]:
    if one.name == "ret":
        return []
    targets = [each.number for each in one.operands if each.is_number]
    if one.name == "jmp":
        return targets
    return [one.end, *(targets if one.name.startswith("j") else [])]


def _acts(one: Instruction, function_at: Callable[[int], Optional[str]]) -> bool:
    if one.name != "call":
        return one.is_atomic
    target = one.operands[0]
    name = function_at(target.number) or "" if target.is_number else ""
    # What is called by its address alone may be anything, sync.Locker's as well.
    return not target.is_number or any(each.fullmatch(name) for each in (LOCKS, UNLOCKS))
