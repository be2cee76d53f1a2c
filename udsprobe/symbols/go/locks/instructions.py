"""Instructions of x86-64, as far as what they do to addresses matters; decoded by Capstone.

Without the library nothing is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    import capstone

DECODED_MAX = 20_000
"""Of a process, that are remembered."""

DECODED_OF_ROUND_MAX = 4000
"""Of a process, that are decoded in one round; the others later."""

_BYTES_MAX = 15
REGISTERS = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
)
_PARTS: Dict[str, str] = {
    **{f"e{name[1:]}": name for name in REGISTERS[:8]},
    **{name[1:]: name for name in REGISTERS[:8]},
    **{f"{name[1]}l": name for name in REGISTERS[:4]},
    **{f"{name[1:]}l": name for name in REGISTERS[4:8]},
    **{f"{name}{part}": name for name in REGISTERS[8:] for part in "dwb"},
    **{name: name for name in REGISTERS},
}
_WRITTEN = {**_PARTS, **{f"{name[1]}h": name for name in REGISTERS[:4]}}


class Operand(NamedTuple):
    """What an instruction uses.

    Attributes:
        register: with `is_memory` that of the base; None: there is none.
        scaled: of memory, a register that counts `scale` times.
        number: itself, or the distance from the base.
    """

    size_bytes: int
    is_memory: bool = False
    register: Optional[str] = None
    scaled: Optional[str] = None
    scale: int = 1
    number: int = 0

    @property
    def is_number(self) -> bool:
        """Neither of memory nor a register."""
        return not self.is_memory and self.register is None


class Instruction(NamedTuple):
    """One.

    Attributes:
        name: as Capstone has it, without `lock`. end: address of the next one.
        writes: registers that it changes, as parts of the 64-bit ones.
        is_atomic: it has the prefix `lock`, or is `xchg`.
    """

    name: str
    end: int
    operands: Tuple[Operand, ...]
    writes: Tuple[str, ...]
    is_atomic: bool


class Instructions:
    """Of one process.

    Args:
        read: address, size in bytes → memory; raises OSError.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._loaded: List[Optional[capstone.Cs]] = []
        self._known: Dict[int, Optional[Instruction]] = {}
        self._left = DECODED_OF_ROUND_MAX

    def begin_round(self) -> None:
        """More may be decoded."""
        self._left = DECODED_OF_ROUND_MAX

    @property
    def are_read(self) -> bool:
        """The library is there."""
        return self._decoder() is not None

    @property
    def have_room(self) -> bool:
        """This round has decoded all that it was asked for."""
        return self._left > 0

    def at(self, address: int) -> Optional[Instruction]:
        """None: it is none, cannot be read, or is more than this round has room for."""
        if address not in self._known:
            if not self._left:
                return None
            self._left -= 1
            if len(self._known) >= DECODED_MAX:
                self._known.clear()
            self._known[address] = self._decoded(address)
        return self._known[address]

    def _decoder(self) -> Optional[capstone.Cs]:
        """The library has 10 MB: it is loaded where goroutines wait for locks."""
        if not self._loaded:
            self._loaded.append(_decoder())
        return self._loaded[0]

    def _decoded(self, address: int) -> Optional[Instruction]:
        decoder = self._decoder()
        if decoder is None:
            return None
        try:
            code = self._read(address, _BYTES_MAX)
        except OSError:
            return None
        found = next(decoder.disasm(code, address, 1), None)
        return None if found is None else _told(found)


def _decoder() -> Optional[capstone.Cs]:
    try:
        import capstone
    except (ImportError, OSError):
        return None
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    return decoder


def _told(found: Any) -> Instruction:
    name = found.mnemonic
    _, written = found.regs_access()
    writes = {_WRITTEN.get(found.reg_name(each), "") for each in written} - {""}
    end = found.address + found.size
    operands = tuple(_operand(found, each, end) for each in found.operands)
    bare = name.rpartition(" ")[2]
    return Instruction(bare, end, operands, tuple(sorted(writes)), name != bare or bare == "xchg")


def _operand(found: Any, raw: Any, end: int) -> Operand:
    from capstone import x86

    if raw.type == x86.X86_OP_REG:
        # Others, of vectors, hold no address.
        return Operand(raw.size, register=_PARTS.get(found.reg_name(raw.reg), "other"))
    if raw.type == x86.X86_OP_IMM:
        return Operand(raw.size, number=raw.imm)
    if raw.mem.base == x86.X86_REG_RIP:
        return Operand(raw.size, is_memory=True, number=end + raw.mem.disp)
    base, index = (_register(found, each) for each in (raw.mem.base, raw.mem.index))
    if raw.mem.segment:
        base = "other"
    return Operand(raw.size, True, base, index, raw.mem.scale, raw.mem.disp)


def _register(found: Any, number: int) -> Optional[str]:
    return _PARTS.get(found.reg_name(number), "other") if number else None
