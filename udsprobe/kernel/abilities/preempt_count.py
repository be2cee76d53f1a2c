"""Where a CPU keeps its preemption count, which tells that an interrupt is being served."""

from __future__ import annotations

import mmap
import os
import platform
import struct
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from udsprobe.kernel.objects.btf import BYTES_ONCE, BYTES_PER_MEMBER, HEADER, KIND_DATASEC

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
# Elsewhere each thread has its own, in its struct thread_info.
PER_CPU = frozenset({"x86_64"})
RUN_QUEUES = "runqueues"
# Linux arch/x86/include/asm/preempt.h: a variable; from v6.2 to v6.14 part of a structure
# (commit 64701838bf05 "x86/preempt: Move preempt_count to struct pcpu_hot").
COUNTS = ("__preempt_count", "pcpu_hot")
# By its neighbour: other structures have a member of that name.
_MEMBERS = ("current_task", "preempt_count")
_SECTION = ".data..percpu"
_KIND_STRUCTURE, _KIND_VARIABLE, _KIND_PROTOTYPE = 4, 14, 13
_OFFSET_MASK = 0xFFFFFF
_ENTRY = struct.Struct("<III")
_WORD = 4
# Words behind the three of a type's header, by kind: for each of its members, or once.
_PER_MEMBER = [{**BYTES_PER_MEMBER, _KIND_PROTOTYPE: 8}.get(k, 0) // _WORD for k in range(32)]
_ONCE = [BYTES_ONCE.get(kind, 0) // _WORD for kind in range(32)]


def may_be_told(types: bytes) -> bool:
    """Whether the kernel's type information names what it takes.

    Args:
        types: the names in it, as `btf.names` returns them.
    """
    if platform.machine() not in PER_CPU:
        return True
    known = [n for n in (RUN_QUEUES, *COUNTS) if b"\0" + n.encode() + b"\0" in types]
    return RUN_QUEUES in known and len(known) > 1


def distance() -> Optional[int]:
    """From a CPU's run queue to its preemption count, bytes; 0 where threads have their own.

    None where the kernel's type information does not place both.
    """
    if platform.machine() not in PER_CPU:
        return 0
    try:
        with _kernel_types() as raw:
            places = variable_places(raw)
    except (OSError, LookupError, ValueError, struct.error):
        return None
    at = next((places[name] for name in COUNTS if name in places), None)
    return None if at is None or RUN_QUEUES not in places else at - places[RUN_QUEUES]


@contextmanager
def _kernel_types() -> Iterator[mmap.mmap]:
    """The kernel's BTF in memory of its own: several megabytes that are given back at once."""
    with KERNEL_BTF.open("rb", buffering=0) as file:
        raw = mmap.mmap(-1, os.fstat(file.fileno()).st_size)
        with raw:
            _read_into(file, raw)
            yield raw


def _read_into(file: FileIO, raw: mmap.mmap) -> None:
    with memoryview(raw) as view:
        at, read = 0, 1
        while at < len(view) and read:
            read = file.readinto(view[at:]) or 0
            at += read


def variable_places(raw: mmap.mmap) -> Dict[str, int]:
    """Where each of these lies in the section of variables that each CPU has, bytes.

    `pcpu_hot` is where the count in it lies.

    Not `Btf`, which keeps all types: a kernel has more than a hundred thousand.

    Args:
        raw: the kernel's BTF.

    Raises:
        LookupError, ValueError, struct.error: it is damaged.
    """
    _, _, _, header, type_at, type_len, string_at, string_len = HEADER.unpack_from(raw)
    strings = header + string_at, header + string_at + string_len
    wanted = {_name_at(raw, name, strings): name for name in (RUN_QUEUES, *COUNTS)}
    section = _name_at(raw, _SECTION, strings)
    members = [_name_at(raw, name, strings) for name in _MEMBERS]
    with memoryview(raw)[header + type_at : header + type_at + type_len].cast("I") as words:
        places = _places_in(words, wanted, section)
        if COUNTS[1] in places:
            places[COUNTS[1]] += _offset_of_second(words, members)
    return places


def _offset_of_second(words: memoryview, members: Sequence[Optional[int]]) -> int:
    """Of the structure whose first members these are: where the second lies in it, bytes."""
    for at, kind, count in _types(words):
        if kind == _KIND_STRUCTURE and count > 1 and [words[at + 3], words[at + 6]] == members:
            return (words[at + 8] & _OFFSET_MASK) // 8
    raise LookupError(members)


def _types(words: memoryview) -> Iterator[Tuple[int, int, int]]:
    """Of each type: where it begins, its kind, how many members it has."""
    at = 0
    while at < len(words):
        info = words[at + 1]
        kind, members = info >> 24 & 31, info & 0xFFFF
        yield at, kind, members
        at += 3 + _ONCE[kind] + _PER_MEMBER[kind] * members


def _places_in(
    words: memoryview, wanted: Mapping[Optional[int], str], section: Optional[int]
) -> Dict[str, int]:
    ids: Dict[int, str] = {}
    for number, (at, kind, members) in enumerate(_types(words), 1):
        if kind == _KIND_VARIABLE and words[at] in wanted:
            ids[number] = wanted[words[at]]
        if kind == KIND_DATASEC and words[at] == section:
            behind = at + 3 + _PER_MEMBER[kind] * members
            entries = _ENTRY.iter_unpack(words[at + 3 : behind].tobytes())
            return {ids[variable]: offset for variable, offset, _ in entries if variable in ids}
    return {}


def _name_at(raw: mmap.mmap, name: str, strings: Tuple[int, int]) -> Optional[int]:
    """Where a name is in the string section; None where nothing bears it."""
    at = raw.find(b"\0" + name.encode() + b"\0", *strings)
    return at + 1 - strings[0] if at >= 0 else None
