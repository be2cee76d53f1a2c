"""From a piece of stack to callers, by rules that are made up.

Rules of real files are in tests/kernel/test_code.py.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Optional, Sequence

import pytest

from udsprobe.symbols import frame_rules as ops
from udsprobe.symbols.frame_rules import MACHINES, Operations, Rule
from udsprobe.symbols.unwinding import NOTHING, RED_ZONE_BYTES, Beside, Place, State, Unwinder

SP = 0x7000_0000
R9, RSP, RBP = 9, 7, 6
INNER, MIDDLE, OUTER = 0x1000, 0x2000, 0x3000
# The frame is at what the word at 8(%rsp,%r9,8) holds, and 8: OpenSSL's bn_mul_mont.
BY_R9: Operations = (
    (ops.OP_BREG0 + RSP, 8, 0),
    (ops.OP_BREG0 + R9, 0, 0),
    (ops.OP_LIT0 + 8, 0, 0),
    (ops.OP_MUL, 0, 0),
    (ops.OP_PLUS, 0, 0),
    (ops.OP_DEREF, 0, 0),
    (ops.OP_PLUS_UCONST, 8, 0),
)
BY_SP: Operations = ((ops.OP_BREG0 + RSP, 16, 0),)
BY_FP: Operations = ((ops.OP_BREG0 + RBP, 16, 0),)
RETURN: Operations = ((ops.OP_CALL_FRAME_CFA, 0, 0), (ops.OP_PLUS_UCONST, -8 % (1 << 64), 0))
SAVED: Operations = ((ops.OP_CALL_FRAME_CFA, 0, 0), (ops.OP_PLUS_UCONST, -16 % (1 << 64), 0))


def rule(cfa: Operations, fp: Optional[Operations] = None, *, outermost: bool = False) -> Place:
    return Place(Rule(cfa, RETURN, fp, outermost, False), False)


def unwinder(rules: Dict[int, Place]) -> Unwinder:
    """Of functions that begin at some addresses, each of 0x1000 bytes."""
    return Unwinder(MACHINES["x86_64"], lambda at: rules.get(at & ~0xFFF))


def stack(words: Dict[int, int], size_words: int = 32) -> bytes:
    """From the red zone on; the words by how far they are from SP."""
    found = [words.get(8 * at, 0) for at in range(size_words)]
    return bytes(RED_ZONE_BYTES) + struct.pack(f"<{size_words}Q", *found)


def callers(
    of: Unwinder, memory: bytes, beside: Beside = NOTHING, fp: int = 0
) -> tuple[List[int], bool]:
    found, is_whole = of.callers(State(INNER, SP, fp, None), memory, beside)
    return [each.address & ~0xFFF for each in found], is_whole


def registers(r9: int) -> Sequence[int]:
    return [*[0] * R9, r9, *[0] * 6]


def test_a_frame_is_found_by_any_register_of_the_innermost() -> None:
    of = unwinder({INNER: rule(BY_R9), MIDDLE: rule(BY_SP, outermost=True)})
    memory = stack({8 + 8 * 5: SP + 80, 80: MIDDLE + 4})
    assert callers(of, memory, Beside(registers(5))) == ([INNER, MIDDLE], True)
    # Nor is it remembered for other registers.
    assert callers(of, memory, Beside(registers(6))) == ([INNER], False)
    assert callers(of, memory) == ([INNER], False)


def test_registers_are_not_those_of_outer_frames() -> None:
    of = unwinder({INNER: rule(BY_SP), MIDDLE: rule(BY_R9), OUTER: rule(BY_SP, outermost=True)})
    memory = stack({8: MIDDLE + 4, 16 + 8: SP + 80, 80: OUTER + 4})
    assert callers(of, memory, Beside(registers(0))) == ([INNER, MIDDLE], False)


@pytest.mark.parametrize("beyond", [False, True])
def test_memory_that_was_not_copied_is_taken_where_it_is_known(beyond: bool) -> None:
    of = unwinder(
        {
            INNER: rule(BY_FP, SAVED),
            MIDDLE: rule(BY_FP, SAVED),
            OUTER: rule(BY_SP, outermost=True),
        }
    )
    near, far = SP + 64, SP + 4096
    memory = stack({64: far, 72: MIDDLE + 4})
    beside = Beside(words={far: 0, far + 8: OUTER + 4} if beyond else {})
    expected = ([INNER, MIDDLE, OUTER], True) if beyond else ([INNER, MIDDLE], False)
    assert callers(of, memory, beside, fp=near) == expected


def test_the_same_words_have_the_same_callers() -> None:
    asked: List[int] = []
    places = {INNER: rule(BY_SP), MIDDLE: rule(BY_SP, outermost=True)}

    def place_of(at: int) -> Optional[Place]:
        asked.append(at)
        return places.get(at & ~0xFFF)

    of = Unwinder(MACHINES["x86_64"], place_of)
    memory = stack({8: MIDDLE + 4})
    first = callers(of, memory)
    count = len(asked)
    assert callers(of, memory) == first == ([INNER, MIDDLE], True)
    assert len(asked) == count
    assert callers(of, stack({8: OUTER + 4})) == ([INNER], False)


def test_where_nothing_returns_to_nothing_has_called() -> None:
    """A word on the stack may be the address of any instruction."""
    memory = stack({8: MIDDLE + 4, 24: OUTER + 4})
    outer = rule(BY_SP, outermost=True)
    of = unwinder({INNER: rule(BY_SP), MIDDLE: rule(BY_SP), OUTER: outer})
    assert callers(of, memory) == ([INNER, MIDDLE, OUTER], True)
    no_call = rule(BY_SP)._replace(returns=False)
    of = unwinder({INNER: rule(BY_SP), MIDDLE: no_call, OUTER: outer})
    assert callers(of, memory) == ([INNER], False)
    # What was interrupted is at any instruction.
    stops = Place(Rule(BY_SP, RETURN, None, False, is_signal=True), False)
    of = unwinder({INNER: stops, MIDDLE: no_call, OUTER: outer})
    assert callers(of, memory) == ([INNER, MIDDLE, OUTER], True)


def test_what_is_always_called_is_not_the_outermost() -> None:
    memory = stack({})
    assert callers(unwinder({INNER: rule(BY_SP)}), memory) == ([INNER], True)
    called = rule(BY_SP)._replace(is_called=True)
    assert callers(unwinder({INNER: called}), memory) == ([INNER], False)
