"""From a copied piece of stack to the addresses of its callers."""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from udsprobe.symbols import frame_rules
from udsprobe.symbols.frame_rules import Machine, Operations, Rule

FRAMES_MAX = 127
RED_ZONE_BYTES = 128
"""Below the stack pointer: what functions that call no other keep there (x86-64 ABI, 3.2.2)."""

_KNOWN_MAX, _KNOWN_OF_ONE_MAX = 1000, 8
# Callers are remembered from each frame at such an address: the outer ones of many stacks are one.
_MARKED = 0x70
_WORD = struct.Struct("<Q")
_MASK = (1 << 64) - 1
# Return addresses may be signed above it, arm64's pointer authentication.
_ADDRESS = (1 << 48) - 1


class State(NamedTuple):
    """Registers at one frame; `link` is None where it is not known."""

    ip: int
    sp: int
    fp: int
    link: Optional[int]


class Activation(NamedTuple):
    """One call: the address that it executes, its frame and stack pointers; 0: not known."""

    address: int
    fp: int
    sp: int = 0


class Place(NamedTuple):
    """What is known of a place in code.

    Attributes:
        rule: None where there is none; with `by_frame_pointer` it is tried first.
        by_frame_pointer: its callers keep frame pointers: code made at run time, and files
            without any call frame information, Go's.
        may_lack_frame: what is there may run in the frame of its caller, as V8's functions that
            call no other do; then the word at `sp` is the address of its caller.
        returns: something that it called may return behind it; of what interrupts that does not
            matter.
        is_called: always: where it has no caller, that was not found.
    """

    rule: Optional[Rule]
    by_frame_pointer: bool
    may_lack_frame: bool = False
    returns: bool = True
    is_called: bool = False


class Beside(NamedTuple):
    """What else is known of a stack.

    Attributes:
        registers: of the innermost frame, by their numbers in DWARF: assembly may find its frame by
            any of them. Those that are not there are not known.
        words: of memory that was not copied, by their addresses.
    """

    registers: Sequence[int] = ()
    words: Mapping[int, int] = {}


NOTHING = Beside()


Words = Sequence[Tuple[int, int]]
"""Words of memory and their addresses."""


class _Known(NamedTuple):
    """Callers that were found, and what they were found by."""

    words: Words
    found: Sequence[Activation]
    is_whole: bool


class _Mark(NamedTuple):
    """A frame on the way, from which callers are remembered: so many were found, and words read."""

    state: State
    at: int
    found: int
    words: int


class _Unknown(Exception):
    """A value is not in the copied piece, or an operation is none of ours."""


class Unwinder:
    """Of one process.

    Args:
        place_of: the address of an instruction → what is known of it; None: nothing is there.
        begins: whether a thread or program begins in the function there: nothing is lost where its
            own caller cannot be found.
    """

    def __init__(
        self,
        machine: Machine,
        place_of: Callable[[int], Optional[Place]],
        begins: Callable[[int], bool] = lambda address: False,
    ) -> None:
        self._machine = machine
        self._place_of = place_of
        self._begins = begins
        self._known: Dict[Tuple[State, int], List[_Known]] = {}
        self._known_count = 0
        self._places: Dict[int, Optional[Place]] = {}

    def forget(self) -> None:
        """What is mapped may have changed."""
        self._known.clear()
        self._known_count = 0

    def begin_round(self) -> None:
        """Of code that is made at run time more may be known."""
        self._places.clear()

    def callers(
        self, start: State, memory: bytes, beside: Beside = NOTHING
    ) -> Tuple[List[Activation], bool]:
        """The innermost first; whether the last one is the outermost.

        All but the first are of the instruction that called. Where the registers of a frame are
        those of an earlier time, and all words that were read then are the same, callers are, too.

        Args:
            memory: from `RED_ZONE_BYTES` below `start.sp` on.
        """
        stack = _Stack(start.sp - RED_ZONE_BYTES, memory, beside)
        found = [Activation(start.ip, start.fp, start.sp)]
        marks: List[_Mark] = []
        is_whole = self._unwound(start, stack, found, marks)
        if not stack.lacks and len(found) < FRAMES_MAX:
            self._remember(stack, found, marks, is_whole=is_whole)
        return found, is_whole

    def _unwound(
        self, start: State, stack: _Stack, found: List[Activation], marks: List[_Mark]
    ) -> bool:
        """Adds what it finds to both lists."""
        state, at = start, start.ip
        while len(found) < FRAMES_MAX:
            if not marks or state.sp & _MARKED == 0:
                marks.append(_Mark(state, at, len(found), len(stack.words)))
                known = self._known_from(marks[-1], stack)
                if known is not None:
                    found += known.found[: FRAMES_MAX - len(found)]
                    stack.words += known.words
                    marks.pop()
                    return known.is_whole
            place = self._place(at)
            if place is None:
                return False
            try:
                before = self._without_frame(state, place, stack) if len(found) == 1 else None
                before = before or self._caller(state, place, stack)
            except _Unknown:
                stack.lacks = stack.lacks and not self._begins(at)
                return self._begins(at)
            if before is None:
                return not place.is_called
            if before.sp < state.sp or before == state:
                return False
            stack.forget_registers()
            is_signal = place.rule is not None and place.rule.is_signal
            state, at = before, before.ip if is_signal else before.ip - 1
            caller = self._place(at)
            if caller is None or not (is_signal or caller.returns):
                return False
            found.append(Activation(at, state.fp, state.sp))
        return False

    def _known_from(self, mark: _Mark, stack: _Stack) -> Optional[_Known]:
        known = self._known.get((mark.state, mark.at), ())
        return next((each for each in known if stack.has(each.words)), None)

    def _remember(
        self, stack: _Stack, found: List[Activation], marks: List[_Mark], *, is_whole: bool
    ) -> None:
        if self._known_count >= _KNOWN_MAX:
            self.forget()
        for mark in marks[stack.has_used_registers :]:
            same = self._known.setdefault((mark.state, mark.at), [])
            if len(same) < _KNOWN_OF_ONE_MAX:
                words, outer = stack.words[mark.words :], found[mark.found :]
                same.append(_Known(tuple(words), tuple(outer), is_whole))
                self._known_count += 1

    def _place(self, address: int) -> Optional[Place]:
        if address not in self._places:
            self._places[address] = self._place_of(address)
        return self._places[address]

    def _without_frame(self, state: State, place: Place, stack: _Stack) -> Optional[State]:
        """Of what runs, its caller where it has no frame of its own; None: it has, or may have."""
        if not place.may_lack_frame:
            return None
        ip = stack.word(state.sp)
        caller = self._place(ip)
        is_runtimes = caller is not None and caller.rule is None and caller.by_frame_pointer
        return State(ip, state.sp + 8, state.fp, None) if is_runtimes else None

    def _caller(self, state: State, place: Place, stack: _Stack) -> Optional[State]:
        if place.rule is not None:
            found = self._by_rule(state, place.rule, stack)
            # Where both are possible, the one that leads to code.
            if not place.by_frame_pointer or found is None or self._place(found.ip):
                return found
        if place.by_frame_pointer:
            return _by_frame_pointer(state, stack)
        raise _Unknown

    def _by_rule(self, state: State, rule: Rule, stack: _Stack) -> Optional[State]:
        if rule.is_outermost:
            return None
        cfa = self._value(rule.cfa, state, stack)
        if rule.caller is None:
            ip = state.link
        else:
            ip = stack.word(self._value(rule.caller, state, stack, cfa))
        if ip is None:
            raise _Unknown
        ip &= _ADDRESS
        fp = state.fp
        if rule.fp is not None:
            fp = stack.word(self._value(rule.fp, state, stack, cfa))
        return State(ip, cfa, fp, None) if ip else None

    def _value(
        self, operations: Operations, state: State, stack: _Stack, cfa: Optional[int] = None
    ) -> int:
        if len(operations) <= 2:
            known = self._near(operations, state, cfa)
            if known is not None:
                return known
        values: List[int] = []
        for atom, number, number2 in operations:
            values.append(self._one(atom, number, number2, values, state, stack, cfa))
        return values[-1]

    def _near(self, operations: Operations, state: State, cfa: Optional[int]) -> Optional[int]:
        """What nearly all are: so far from a register, or from the frame."""
        atom, number, number2 = operations[0]
        if len(operations) == 1 and atom == frame_rules.OP_BREGX:
            if number == self._machine.fp:
                return (state.fp + number2) & _MASK
            if number == self._machine.sp:
                return (state.sp + number2) & _MASK
        elif len(operations) == 2 and atom == frame_rules.OP_CALL_FRAME_CFA and cfa is not None:
            atom, number, _ = operations[1]
            if atom == frame_rules.OP_PLUS_UCONST:
                return (cfa + number) & _MASK
        return None

    def _one(
        self,
        atom: int,
        number: int,
        number2: int,
        values: List[int],
        state: State,
        stack: _Stack,
        cfa: Optional[int],
    ) -> int:
        ops = frame_rules
        if atom == ops.OP_CALL_FRAME_CFA and cfa is not None:
            return cfa
        if atom == ops.OP_BREGX:
            return (self._register(number, state, stack) + number2) & _MASK
        if ops.OP_BREG0 <= atom < ops.OP_BREG0 + 32:
            return (self._register(atom - ops.OP_BREG0, state, stack) + number) & _MASK
        if ops.OP_LIT0 <= atom < ops.OP_LIT0 + 32:
            return atom - ops.OP_LIT0
        if ops.OP_CONST1U <= atom <= ops.OP_CONSTS:
            return number
        if atom == ops.OP_PLUS_UCONST and values:
            return (values.pop() + number) & _MASK
        if atom == ops.OP_DEREF and values:
            return stack.word(values.pop())
        return _of_two(atom, values)

    def _register(self, number: int, state: State, stack: _Stack) -> int:
        if number == self._machine.sp:
            return state.sp
        if number == self._machine.fp:
            return state.fp
        if number == self._machine.link == 16:
            return state.ip
        return stack.register(number)


def _of_two(atom: int, values: List[int]) -> int:
    if len(values) < 2:
        raise _Unknown
    right, left = values.pop(), values.pop()
    if atom == frame_rules.OP_PLUS:
        return (left + right) & _MASK
    if atom == frame_rules.OP_MINUS:
        return (left - right) & _MASK
    if atom == frame_rules.OP_MUL:
        return (left * right) & _MASK
    if atom == frame_rules.OP_AND:
        return left & right
    if atom == frame_rules.OP_GE:
        return int(left >= right)
    if atom == frame_rules.OP_SHL and right < 64:
        return (left << right) & _MASK
    raise _Unknown


def _by_frame_pointer(state: State, stack: _Stack) -> Optional[State]:
    if not state.fp:
        return None
    ip = stack.word(state.fp + 8)
    return State(ip, state.fp + 16, stack.word(state.fp), None) if ip else None


class _Stack:
    """The copied piece.

    Attributes:
        words: those that were read. lacks: one was asked for that is not known.
        has_used_registers: a register was, which a later sample may have another of.
    """

    def __init__(self, start: int, memory: bytes, beside: Beside) -> None:
        self._start = start
        self._memory = memory
        self._beside = beside
        self.words: List[Tuple[int, int]] = []
        self.lacks = self.has_used_registers = False

    def has(self, words: Words) -> bool:
        """Whether all of these are in it."""
        return all(self._found(address) == word for address, word in words)

    def forget_registers(self) -> None:
        """The innermost frame is behind."""
        if self._beside.registers:
            self._beside = self._beside._replace(registers=())

    def register(self, number: int) -> int:
        self.has_used_registers = True
        if not 0 <= number < len(self._beside.registers):
            raise _Unknown
        return self._beside.registers[number]

    def word(self, address: int) -> int:
        found = self._found(address)
        if found is None:
            self.lacks = True
            raise _Unknown
        self.words.append((address, found))
        return found

    def _found(self, address: int) -> Optional[int]:
        at = address - self._start
        if 0 <= at <= len(self._memory) - 8:
            word: int = _WORD.unpack_from(self._memory, at)[0]
            return word
        return self._beside.words.get(address)
