"""elfutils' libdw: entries of debug information, of which each step is one of its calls.

Functions and structures are those of its stable interface (elfutils/libdw.h, ELFUTILS_0.171).
"""

from __future__ import annotations

import ctypes
from functools import cache
from posixpath import join
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from udsprobe.symbols.elf_file import libelf

LIBRARY = "libdw.so.1"
NAME_BYTES_MAX = 4096
PATH_BYTES_MAX = 4096
RANGES_MAX = 20_000
"""Of one entry."""

# DWARF 5, 7.5.3 and 7.5.4
CLASS, STRUCTURE, UNION, NAMESPACE, MODULE = 0x02, 0x13, 0x17, 0x39, 0x1E
FUNCTION, INLINED, BLOCK, TRY, CATCH = 0x2E, 0x1D, 0x0B, 0x32, 0x25
_NAME, _LINKAGE_NAME, _OLD_LINKAGE_NAME = 0x03, 0x6E, 0x2007
_FOLDER, _DECLARED_IN = 0x1B, 0x3A
_FILES_FROM_0 = 5
# libelf.h, ELF_C_READ_MMAP: who cuts the file off ends the child alone.
_READ_MAPPED = 8
# What linkers leave of functions that they left out begins there.
_LEFT_OUT = 1
_LINE_MAX = 1 << 30
_pointer, _int, _word, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_ssize_t


_BASE, _START, _END = _word(), _word(), _word()
# Made once: of a large program hundreds of thousands of entries are asked where they are.
_INTO = (ctypes.byref(_BASE), ctypes.byref(_START), ctypes.byref(_END))


class Die(ctypes.Structure):
    """`Dwarf_Die`, an entry."""

    _fields_ = [("at", _pointer), ("unit", _pointer), ("kind", _pointer), ("pad", ctypes.c_long)]


class _Attribute(ctypes.Structure):
    """`Dwarf_Attribute`."""

    _fields_ = [("code", ctypes.c_uint), ("form", ctypes.c_uint), ("at", _pointer)]
    _fields_ += [("unit", _pointer)]


class Place(NamedTuple):
    """Where a function is declared; None: not told."""

    name: Optional[bytes]
    file: Optional[bytes]
    line: Optional[int]


Span = Tuple[int, int]
"""Of addresses, without the last."""


@cache
def libdw() -> Any:
    """The library, with types of its functions.

    Raises:
        OSError, AttributeError: it is not installed, or too old.
    """
    library = ctypes.CDLL(LIBRARY)
    for name, result, arguments in (
        ("dwarf_begin_elf", _pointer, [_pointer, _int, _pointer]),
        ("dwarf_setalt", None, [_pointer, _pointer]),
        ("dwarf_get_units", _int, [_pointer] * 7),
        ("dwarf_child", _int, [_pointer, _pointer]),
        ("dwarf_siblingof", _int, [_pointer, _pointer]),
        ("dwarf_tag", _int, [_pointer]),
        ("dwarf_ranges", _long, [_pointer, _long, _pointer, _pointer, _pointer]),
        ("dwarf_attr_integrate", _pointer, [_pointer, ctypes.c_uint, _pointer]),
        ("dwarf_formudata", _int, [_pointer, _pointer]),
        ("dwarf_formstring", ctypes.c_char_p, [_pointer]),
        ("dwarf_cu_die", _pointer, [_pointer] * 8),
        ("dwarf_decl_file", ctypes.c_char_p, [_pointer]),
        ("dwarf_decl_line", _int, [_pointer, _pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def begin(file: int) -> Optional[int]:
    """Of a descriptor; None: it has no debug information, or none that can be read."""
    elf = libelf().elf_begin(file, _READ_MAPPED, None)
    found: Optional[int] = libdw().dwarf_begin_elf(elf, 0, None) if elf else None
    return found


def units(debug: int) -> Iterator[Die]:
    """The topmost entry of each unit that was compiled."""
    unit, following = _pointer(), _pointer()
    while True:
        top = Die()
        if libdw().dwarf_get_units(
            *(debug, unit, ctypes.byref(following), None, None, ctypes.byref(top), None)
        ):
            return
        unit = _pointer(following.value)
        yield top


def children(of: Die) -> Iterator[Tuple[int, Die]]:
    """Their kinds, and themselves; each is another one at the next step."""
    library, child = libdw(), Die()
    here = ctypes.byref(child)
    failed = library.dwarf_child(ctypes.byref(of), here)
    while not failed:
        yield library.dwarf_tag(here), child
        failed = library.dwarf_siblingof(here, here)


def copied(die: Die) -> Die:
    """One that stays."""
    return Die.from_buffer_copy(die)


def spans(of: Die) -> List[Span]:
    """Its addresses, as far as the program has them."""
    ranges, here = libdw().dwarf_ranges, ctypes.byref(of)
    step = ranges(here, 0, *_INTO)
    found: List[Span] = []
    while step > 0 and len(found) < RANGES_MAX:
        if _LEFT_OUT < _START.value < _END.value:
            found.append((_START.value, _END.value))
        step = ranges(here, step, *_INTO)
    return found


def place(of: Die) -> Place:
    """Also where its declaration, or the function that it is a copy of, tells that."""
    line = ctypes.c_int()
    failed = libdw().dwarf_decl_line(ctypes.byref(of), ctypes.byref(line))
    is_line = not failed and 0 < line.value < _LINE_MAX
    return Place(_name(of), _file(of), line.value if is_line else None)


def _file(of: Die) -> Optional[bytes]:
    """Where its path is relative, and the unit says to what, from there."""
    name: Optional[bytes] = libdw().dwarf_decl_file(ctypes.byref(of))
    if name is None or not name.startswith(b"/"):
        number, top = _declared_in(of)
        if name is None and number == 0:
            name = _text(top, _NAME)
        if name is not None:
            name = join(_text(top, _FOLDER) or b"", name)
    return name if name and len(name) <= PATH_BYTES_MAX else None


def _declared_in(of: Die) -> Tuple[Optional[int], Die]:
    """The number of its file, and the unit whose number that is; None: of none.

    0 is the unit's own source since DWARF 5; libdw takes it for none.
    """
    attribute, number, version, top = _Attribute(), _word(), ctypes.c_uint16(), Die()
    here, others = ctypes.byref(attribute), (None,) * 5
    if (
        not libdw().dwarf_attr_integrate(ctypes.byref(of), _DECLARED_IN, here)
        or libdw().dwarf_formudata(here, ctypes.byref(number))
        or not libdw().dwarf_cu_die(
            attribute.unit, ctypes.byref(top), ctypes.byref(version), *others
        )
    ):
        return None, top
    return number.value if number.value or version.value >= _FILES_FROM_0 else None, top


def _text(of: Die, code: int) -> Optional[bytes]:
    attribute = _Attribute()
    here = ctypes.byref(attribute)
    if not libdw().dwarf_attr_integrate(ctypes.byref(of), code, here):
        return None
    text = libdw().dwarf_formstring(here)
    return bytes(text[:NAME_BYTES_MAX]) if text else None


def _name(of: Die) -> Optional[bytes]:
    linked = _text(of, _LINKAGE_NAME) or _text(of, _OLD_LINKAGE_NAME)
    return linked or _text(of, _NAME)
