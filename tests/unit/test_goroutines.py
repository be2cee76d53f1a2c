"""The list of all goroutines in a process's memory, also where that lies."""

from __future__ import annotations

import random
import struct
from typing import Dict, List, Tuple

import pytest

from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.symbols.go.goroutines import LOOKED_AT_MAX, Goroutines

CODE, DATA, HEAP, STACKS = 0x40_0000, 0x60_0000, 0xC0_0000_0000, 0xC1_0000_0000
LIST = DATA + 0x530
GOPARK, RUNS = 0x43_0000, 0
STACK_BYTES = 2048


class Memory(ProcessMemory):
    """Pieces at their addresses."""

    def __init__(self) -> None:
        super().__init__(0)
        self.pieces: Dict[int, bytearray] = {}

    def put(self, address: int, data: bytes) -> None:
        self.pieces[address] = bytearray(data)

    def read(self, address: int, size_bytes: int) -> bytes:
        for begin, data in self.pieces.items():
            inside = address - begin
            if inside >= 0 and inside + size_bytes <= len(data):
                return bytes(data[inside : inside + size_bytes])
        raise OSError("nothing is there")


def uses(address: int, at: int, number: bytes = b"") -> bytes:
    """An instruction at `at` that means `address` relative to its own end."""
    opcode = b"\x48\x83\x3d" if number else b"\x48\x8b\x05"
    end = at + len(opcode) + 4 + len(number)
    return opcode + struct.pack("<i", address - end) + number


def goroutine(number: int, *, ip: int = GOPARK + 5, runs: bool = False) -> bytes:
    low = STACKS + number * STACK_BYTES
    sp = 0 if runs else low + 1024
    return struct.pack("<QQ40xQQ", low, low + STACK_BYTES, sp, ip)


def process(goroutines: List[bytes], number: bytes = b"") -> Tuple[Memory, Goroutines]:
    """One whose list says that these are all."""
    memory = Memory()
    code = uses(DATA + 0x10, CODE)
    code += uses(LIST, CODE + len(code), number)
    memory.put(CODE, code + b"\x90" * 8)
    each_bytes = 512
    memory.put(HEAP, b"".join(one.ljust(each_bytes, b"\0") for one in goroutines))
    addresses = [HEAP + at * each_bytes for at in range(len(goroutines))]
    memory.put(HEAP - 0x10_0000, struct.pack(f"<{len(addresses)}Q", *addresses))
    data = bytearray(0x1000)
    struct.pack_into("<QQQ", data, 0x10, 7, 1, 2)
    found = (HEAP - 0x10_0000, len(addresses), len(addresses) + 3)
    struct.pack_into("<QQQ", data, LIST - DATA, *found)
    memory.put(DATA, bytes(data))
    memory.put(STACKS - 128, bytes(128 + STACK_BYTES * (len(goroutines) + 1)))
    parks = range(GOPARK, GOPARK + 256).__contains__
    return memory, Goroutines(memory, (CODE, len(code) + 8), parks, 128)


@pytest.mark.parametrize("number", [b"", b"\x01", b"\x01\0\0\0"])
def test_those_that_are_parked_are_met(number: bytes) -> None:
    """Not who runs, nor who is in a system call; whatever instruction leads to their list."""
    in_a_call = goroutine(2, ip=GOPARK - 64)
    rows = [goroutine(0), goroutine(1, runs=True), in_a_call, goroutine(3)]
    _, found = process(rows, number)
    assert found.is_there
    parked, each = found.parked()
    assert [one.sp for one in parked] == [STACKS + n * STACK_BYTES + 1024 for n in (0, 3)]
    assert each == 1 and {len(one.memory) for one in parked} == {128 + 1024}


def test_of_many_each_second_one_stands_for_two() -> None:
    count = LOOKED_AT_MAX + 10
    _, found = process([goroutine(number) for number in range(count)])
    looks = [found.parked() for _ in range(2)]
    assert [each for _, each in looks] == [2, 2]
    assert [len(parked) for parked, _ in looks] == [count // 2] * 2
    # All have been looked at after two.
    assert len({one.sp for parked, _ in looks for one in parked}) == count


def test_of_many_those_that_few_wait_like_are_looked_at_beside() -> None:
    """They may have what the others wait for, and stand for nobody else."""
    rows = [goroutine(number) for number in range(LOOKED_AT_MAX + 10)]
    for number in (4, 5):
        low, high, sp, ip = struct.unpack("<QQ40xQQ", rows[number])
        rows[number] = struct.pack("<QQ40xQQ", low, high, sp + 64, ip)
    _, found = process(rows)
    for _ in range(2):
        parked, _ = found.parked()
        first, second, *rest = parked
        assert {one.address for one in (first, second)} == {HEAP + 512 * at for at in (4, 5)}
        assert {first.is_chosen, second.is_chosen} == {True, False}
        assert len(rest) == len(rows) // 2 - 1 and all(one.is_chosen for one in rest)


def test_who_is_in_a_system_call_is_told_so() -> None:
    """By the same place and stack pointer in both, behind one word more before Go 1.25."""
    low = STACKS + STACK_BYTES
    for between in (32, 40):
        head = struct.pack("<QQ40xQQ", low, low + STACK_BYTES, low + 1024, GOPARK - 64)
        row = head + bytes(between) + struct.pack("<QQ", low + 1024, GOPARK - 64)
        parked, _ = process([goroutine(0), row])[1].parked()
        assert [(one.sp - STACKS, one.is_in_call) for one in parked] == [
            (1024, False),
            (STACK_BYTES + 1024, True),
        ]


def test_one_whose_stack_was_given_back_is_none() -> None:
    _, found = process([bytes(72), goroutine(1)])
    assert len(found.parked()[0]) == 1


def test_what_is_no_list_is_not_taken_for_one() -> None:
    rows = [struct.pack("<QQ40xQQ", 5, 3, 9, 9), goroutine(1)]
    assert not process(rows)[1].is_there
    assert process(rows)[1].parked() == ([], 1)


def test_memory_that_is_gone_or_anything_ends_nothing() -> None:
    """Only the error that says so, however damaged."""
    chosen = random.Random(49)
    for _ in range(300):
        memory, found = process([goroutine(number) for number in range(4)])
        for _ in range(20):
            piece = memory.pieces[chosen.choice(list(memory.pieces))]
            piece[chosen.randrange(len(piece))] = chosen.randrange(256)
        if chosen.random() < 0.2:
            del memory.pieces[chosen.choice(list(memory.pieces))]
        try:
            found.parked()
        except OSError:
            continue
        Goroutines(memory, (CODE, 64), lambda ip: True, 128)
