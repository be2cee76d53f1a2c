"""What a thread would do next, as far as it follows from memory: registers, words and branches.

Of what is not known nothing is guessed: such a branch goes both ways.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Tuple

from udsprobe.symbols.go.locks.instructions import REGISTERS, Instruction, Operand

_MASK = (1 << 64) - 1
# Kept over calls by Go's ABI, with the goroutine in r14: what is in that changes from outside.
_KEPT = ("rsp", "rbp")
_MOVES = frozenset(("mov", "movabs", "movzx"))
_COMPARES = frozenset(("cmp", "test"))
_LESS: Dict[str, Tuple[Tuple[int, ...], bool]] = {
    "je": ((0,), False),
    "jne": ((-1, 1), False),
    "jb": ((-1,), False),
    "jbe": ((-1, 0), False),
    "ja": ((1,), False),
    "jae": ((0, 1), False),
    "jl": ((-1,), True),
    "jle": ((-1, 0), True),
    "jg": ((1,), True),
    "jge": ((0, 1), True),
}


class Machine:
    """One way that it may go.

    Args:
        read: address, size in bytes → memory; raises OSError.
        registers: those that are known.
    """

    def __init__(self, read: Callable[[int, int], bytes], registers: Dict[str, int]) -> None:
        self._read = read
        self.registers: Dict[str, Optional[int]] = dict.fromkeys(REGISTERS)
        self.registers.update(registers)
        self._written: Dict[int, Optional[int]] = {}
        self._compared: Optional[Tuple[int, int, int]] = None

    def copy(self) -> Machine:
        """Of its own memory and registers."""
        other = Machine(self._read, {})
        other.registers, other._written = dict(self.registers), dict(self._written)
        other._compared = self._compared
        return other

    def key(self) -> object:
        """Two of the same do the same."""
        return tuple(self.registers.values()), tuple(self._written.items()), self._compared

    def address(self, operand: Operand) -> Optional[int]:
        """Of memory; None: not known."""
        found = operand.number
        for register, scale in ((operand.register, 1), (operand.scaled, operand.scale)):
            value = 0 if register is None else self.registers.get(register)
            if value is None:
                return None
            found += value * scale
        return found & _MASK

    def value(self, operand: Operand) -> Optional[int]:
        """Of an operand, without sign; None: not known."""
        mask = (1 << 8 * operand.size_bytes) - 1
        if operand.is_memory:
            address = self.address(operand)
            return None if address is None else self.load(address, operand.size_bytes)
        if operand.register is None:
            return operand.number & mask
        value = self.registers.get(operand.register)
        return None if value is None else value & mask

    def load(self, address: int, size_bytes: int) -> Optional[int]:
        """What is in memory there, after what was written."""
        places = range(address, address + size_bytes)
        if self._written and any(place in self._written for place in places):
            found = [self._byte(place) for place in places]
            known = [each for each in found if each is not None]
            return int.from_bytes(known, "little") if len(known) == size_bytes else None
        try:
            return int.from_bytes(self._read(address, size_bytes), "little")
        except OSError:
            return None

    def does(self, one: Instruction) -> None:
        """An instruction that goes on to the next one."""
        operands = one.operands
        if one.name in _COMPARES:
            self._compare(one)
            return
        if one.name not in ("lea", *_MOVES, "push", "pop", "nop", "leave"):
            self._compared = None
        if one.name == "push":
            self.push(self.value(operands[0]))
        elif one.name == "pop":
            self._set(operands[0], self.pop())
        elif len(operands) == 2:
            self._set(operands[0], self._computed(one))
            self._forget(set(one.writes) - {operands[0].register or ""})
        else:
            if operands and operands[0].is_memory:
                self._set(operands[0], None)
            self._forget(set(one.writes))

    def returns_unknown(self) -> None:
        """A call that was not followed is over."""
        self._compared = None
        self._forget(set(REGISTERS) - set(_KEPT))

    def push(self, value: Optional[int]) -> None:
        """Onto its stack."""
        sp = self.registers["rsp"]
        self.registers["rsp"] = sp = None if sp is None else (sp - 8) & _MASK
        if sp is not None:
            self._store(sp, 8, value)

    def pop(self) -> Optional[int]:
        """From its stack; None: not known."""
        sp = self.registers["rsp"]
        if sp is None:
            return None
        self.registers["rsp"] = (sp + 8) & _MASK
        return self.load(sp, 8)

    def jumps(self, name: str) -> Optional[bool]:
        """Whether it takes this branch; None: not known."""
        if self._compared is None or name not in _LESS:
            return None
        left, right, bits = self._compared
        wanted, is_signed = _LESS[name]
        if is_signed:
            left, right = (value - (value >> bits - 1 << bits) for value in (left, right))
        return (left > right) - (left < right) in wanted

    def _compare(self, one: Instruction) -> None:
        left, right = (self.value(each) for each in one.operands)
        self._compared = None
        if left is None or right is None:
            return
        bits = 8 * one.operands[0].size_bytes
        right &= (1 << bits) - 1
        self._compared = (left, right, bits) if one.name == "cmp" else (left & right, 0, bits)

    def _computed(self, one: Instruction) -> Optional[int]:
        """Of two operands, what the first one is then."""
        into, by = one.operands
        if one.name == "lea":
            return self.address(by)
        if one.name in _MOVES:
            return self.value(by)
        if one.name == "xor" and not into.is_memory and into == by:
            return 0
        left, right = self.value(into), self.value(by)
        if left is None or right is None or one.name not in ("add", "sub"):
            return None
        sum_of = left + right if one.name == "add" else left - right
        return sum_of & ((1 << 8 * into.size_bytes) - 1)

    def _set(self, operand: Operand, value: Optional[int]) -> None:
        if operand.is_memory:
            address = self.address(operand)
            # One that is not known is no slot of the frame: those are reached by the stack pointer.
            if address is not None:
                self._store(address, operand.size_bytes, value)
        elif operand.register in self.registers:
            # What is less than 32 bits leaves the rest as it was.
            self.registers[operand.register] = value if operand.size_bytes >= 4 else None

    def _store(self, address: int, size_bytes: int, value: Optional[int]) -> None:
        for at in range(size_bytes):
            byte = None if value is None else value >> 8 * at & 0xFF
            self._written[(address + at) & _MASK] = byte

    def _byte(self, place: int) -> Optional[int]:
        if place in self._written:
            return self._written[place]
        try:
            return self._read(place, 1)[0]
        except OSError:
            return None

    def _forget(self, registers: set[str]) -> None:
        for register in registers:
            if register != "rsp":
                self.registers[register] = None
