"""Where PHP keeps what it executes, by the code of two functions that it exports.

`zend_get_executed_scope` follows the calls from `executor_globals.current_execute_data` on, and
`zend_get_executed_filename_ex` reads the file of a function (Zend/zend_execute_API.c of PHP 7.4 to
8.5): no table by version. x86-64.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Callable, Iterator, NamedTuple, Optional, Set, Tuple

from udsprobe.kernel.stacks.php_frames import CALL_FUNCTION, CALL_PREVIOUS, PhpLayout

CODE_BYTES_MAX = 512
"""Of a function that is looked at; in GCC's builds they have less than 100."""

GLOBALS_BYTES_MAX = 8192
_FILE_MIN, _FILE_MAX, _WORD_BYTES = 96, 256, 8
# Intel's manual, volume 2: REX.W (with R or B), mov or lea, ModRM, a distance.
_REX, _REX_MASK, _MOV, _LEA = 0x48, 0xFA, 0x8B, 0x8D
_LEGACY, _ABSOLUTE = 4, 0x25
_BY_IP, _BYTE, _WORD = (0, 5), 1, 2
_NEAR, _FAR = struct.Struct("<b"), struct.Struct("<i")


class _Uses(NamedTuple):
    """What a function's instructions read or mean: addresses, and offsets in bytes."""

    means: Set[int]
    reads: Set[int]
    offsets: Set[int]


Code = Tuple[bytes, int]
"""Of a function, and its address in the process."""


def layout_of(
    globals_at: int, scope: Code, filename: Code, word: Callable[[int], int]
) -> Optional[PhpLayout]:
    """None where the code is another one than what is known.

    Args:
        globals_at: address of `executor_globals`.
        scope: `zend_get_executed_scope`; filename: `zend_get_executed_filename_ex`.
        word: the word at an address in the process; raises OSError where none is.
    """
    in_scope, in_filename = _uses(*scope), _uses(*filename)
    current = _current(globals_at, in_scope, word)
    if current is None or not {CALL_FUNCTION, CALL_PREVIOUS} <= in_scope.offsets:
        return None
    files = {each for each in in_filename.offsets if _FILE_MIN <= each <= _FILE_MAX} - {current}
    file = _only(files)
    return None if file is None else PhpLayout(globals_at + current, file)


def _current(globals_at: int, uses: _Uses, word: Callable[[int], int]) -> Optional[int]:
    """Offset of what is read of the globals: the newest call."""
    found = {each - globals_at for each in uses.reads}
    if globals_at in uses.means or _is_pointed_at(globals_at, uses, word):
        found |= uses.offsets - {CALL_FUNCTION, CALL_PREVIOUS}
    return _only({each for each in found if 2 * CALL_PREVIOUS < each < GLOBALS_BYTES_MAX})


def _is_pointed_at(globals_at: int, uses: _Uses, word: Callable[[int], int]) -> bool:
    """By the global offset table, where the code is a library's."""
    for each in uses.reads:
        with suppress(OSError):
            if abs(each - globals_at) >= GLOBALS_BYTES_MAX and word(each) == globals_at:
                return True
    return False


def _only(found: Set[int]) -> Optional[int]:
    known = {each for each in found if each % _WORD_BYTES == 0}
    return known.pop() if len(known) == 1 == len(found) else None


def _uses(code: bytes, begin: int) -> _Uses:
    uses = _Uses(set(), set(), set())
    for at in range(min(len(code), CODE_BYTES_MAX) - 2):
        if code[at] & _REX_MASK == _REX and code[at + 1] in (_MOV, _LEA):
            for place, is_offset in _operand(code, at + 2, begin):
                is_read = code[at + 1] == _MOV
                if is_offset:
                    uses.offsets.update({place} if is_read else ())
                else:
                    (uses.reads if is_read else uses.means).add(place)
    return uses


def _operand(code: bytes, at: int, begin: int) -> Iterator[Tuple[int, bool]]:
    """The memory that it names: an address, or an offset from a register."""
    mode, base = code[at] >> 6, code[at] & 7
    rest = code[at + 1 :]
    if (mode, base) == _BY_IP and len(rest) >= _FAR.size:
        yield begin + at + 1 + _FAR.size + _FAR.unpack_from(rest)[0], False
    elif (mode, base) == (0, _LEGACY) and rest[:1] == bytes([_ABSOLUTE]) and len(rest) > _FAR.size:
        yield _FAR.unpack_from(rest, 1)[0], False
    elif base != _LEGACY and mode in (_BYTE, _WORD):
        kind = _NEAR if mode == _BYTE else _FAR
        if len(rest) >= kind.size:
            yield kind.unpack_from(rest)[0], True
