"""How much stack the functions of a BPF object take, alone and in chains of calls.

Read from the instructions, as the verifier does when it has walked all of them: an upper bound of
what it counts. Documentation/bpf/standardization/instruction-set.rst has the encoding.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Set, Tuple

INSTRUCTION = struct.Struct("<BBhi")
SYMBOL = struct.Struct("<IBBHQQ")
SYMBOLS, RELOCATIONS, FUNCTION, SECTION = 2, 9, 2, 3
CALL, ADD, MOVE = 0x85, 0x07, 0xBF
LOAD, STORE_IMMEDIATE, STORE = 1, 2, 3
FRAME_POINTER, PSEUDO_CALL, CALL_RELOCATION = 10, 1, 10
# The address of a callback, which a helper calls on the same stack.
LOAD_ADDRESS, ADDRESS_RELOCATION, CODE = 0x18, 1, 4
# kernel/bpf/verifier.c, check_max_stack_depth(), up to v6.8; less since.
ROUNDED_TO = 32

Place = Tuple[int, int]  # section, offset in it
KERNEL_FUNCTION = (0, 0)  # no section of this file


class Header(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


@dataclass
class Function:
    """One function; `frame_bytes` as its instructions reach below the frame pointer.

    `callbacks`: what it gives to helpers, which call it on the same stack.
    """

    name: str
    frame_bytes: int = 0
    calls: Set[Place] = field(default_factory=set)
    callbacks: Set[Place] = field(default_factory=set)


def deepest_chain(elf: bytes) -> Tuple[int, List[str]]:
    """Bytes of stack, each frame rounded up, and the names of the functions from the top.

    Without callbacks: where a kernel has the helpers that take them, less of the rest is walked.
    """
    functions = _functions(elf)
    return max(_depth(functions, place, callbacks=False) for place in functions)


def deepest_walk(elf: bytes) -> Tuple[int, List[str]]:
    """The same of the programs that walk over maps, with their callbacks; 0 without such."""
    functions = _functions(elf)
    names = ("walk_list_", "walk_sweep_")
    walks = [place for place, one in functions.items() if one.name.startswith(names)]
    return max((_depth(functions, place, callbacks=True) for place in walks), default=(0, []))


def _depth(
    functions: Dict[Place, Function], place: Place, *, callbacks: bool
) -> Tuple[int, List[str]]:
    function = functions[place]
    entered = function.calls | (function.callbacks if callbacks else set())
    depths = (_depth(functions, each, callbacks=callbacks) for each in entered)
    below = max(depths, default=(0, []))
    frame = max(function.frame_bytes + ROUNDED_TO - 1, ROUNDED_TO) // ROUNDED_TO * ROUNDED_TO
    return frame + below[0], [function.name, *below[1]]


def _functions(elf: bytes) -> Dict[Place, Function]:
    headers = _headers(elf)
    symbols = _symbols(elf, headers)
    found: Dict[Place, Function] = {}
    for name, kind, section, value, size in symbols:
        if kind == FUNCTION and size:
            found[section, value] = Function(name)
            calls = _called(elf, headers, symbols, section)
            start = headers[section].offset
            code = elf[start + value : start + value + size]
            _walk(found[section, value], code, (section, value), calls)
    return found


def _walk(function: Function, code: bytes, place: Place, relocated: Dict[int, Place]) -> None:
    """`relocated`: offset of a call in the section → what it calls."""
    section, start = place
    copies: Set[int] = set()
    for at, (opcode, registers, offset, number) in enumerate(INSTRUCTION.iter_unpack(code)):
        target, source = registers & 15, registers >> 4
        if opcode == CALL and source == PSEUDO_CALL:
            here = start + 8 * at
            called = relocated.get(here, (section, here + 8 * (number + 1)))
            function.calls |= {called} - {KERNEL_FUNCTION}
        if opcode == LOAD_ADDRESS and start + 8 * at in relocated:
            function.callbacks.add(relocated[start + 8 * at])
        reach = _reach(opcode, target, source, offset, number, copies)
        function.frame_bytes = max(function.frame_bytes, reach)
        copies.discard(target)
        if opcode == MOVE and source == FRAME_POINTER:
            copies.add(target)


def _reach(
    opcode: int, target: int, source: int, offset: int, number: int, copies: Set[int]
) -> int:
    if opcode == ADD and target in copies:
        return -number
    kind = opcode & 7
    if kind == LOAD and source == FRAME_POINTER:
        return -offset
    if kind in (STORE, STORE_IMMEDIATE) and target == FRAME_POINTER:
        return -offset
    return 0


def _called(
    elf: bytes,
    headers: List[Header],
    symbols: List[Tuple[str, int, int, int, int]],
    section: int,
) -> Dict[int, Place]:
    found: Dict[int, Place] = {}
    for header in headers:
        if header.kind != RELOCATIONS or header.info != section:
            continue
        for at, info in struct.iter_unpack("<QQ", elf[header.offset : header.offset + header.size]):
            _, kind, where, value, _ = symbols[info >> 32]
            number = INSTRUCTION.unpack_from(elf, headers[section].offset + at)[3]
            if info & 0xFFFFFFFF == CALL_RELOCATION:
                found[at] = (where, value + 8 * (number + 1) if kind == SECTION else value)
            elif info & 0xFFFFFFFF == ADDRESS_RELOCATION and _is_code(headers, where):
                found[at] = (where, value + number)
    return found


def _is_code(headers: List[Header], section: int) -> bool:
    return section < len(headers) and bool(headers[section].flags & CODE)


def _headers(elf: bytes) -> List[Header]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    return [Header(*struct.unpack_from("<IIQQQQII", elf, table + size * at)) for at in range(count)]


def _symbols(elf: bytes, headers: List[Header]) -> List[Tuple[str, int, int, int, int]]:
    """Name, kind, section, offset and size."""
    (table,) = [header for header in headers if header.kind == SYMBOLS]
    names = headers[table.link].offset
    found = []
    for name, info, _, section, value, size in SYMBOL.iter_unpack(
        elf[table.offset : table.offset + table.size]
    ):
        start = names + name
        found.append(
            (elf[start : elf.index(b"\0", start)].decode(), info & 15, section, value, size)
        )
    return found
