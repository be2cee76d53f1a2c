"""Where a CPU keeps its preemption count, which tells that an interrupt is being served."""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import Dict, Optional

from udsprobe.kernel.libbpf import LibbpfError, libbpf

# Elsewhere each thread has its own, in its struct thread_info.
PER_CPU = frozenset({"x86_64"})
RUN_QUEUES = "runqueues"
# Linux arch/x86/include/asm/preempt.h: a variable of its own, or the first of a structure.
COUNTS = ("__preempt_count", "pcpu_hot")
_SECTION = ".data..percpu"
_VARIABLE, _DATASEC = 14, 15
_ENTRY = struct.Struct("<III")


def may_be_told(types: bytes) -> bool:
    """Whether the kernel's type information names what it takes.

    Args:
        types: the names in it, as `btf.names` returns them.
    """
    if platform.machine() not in PER_CPU:
        return True
    known = [name for name in (RUN_QUEUES, *COUNTS) if b"\0" + name.encode() + b"\0" in types]
    return RUN_QUEUES in known and len(known) > 1


def distance() -> Optional[int]:
    """From a CPU's run queue to its preemption count, bytes; 0 where threads have their own.

    None where the kernel's type information does not place both.
    """
    if platform.machine() not in PER_CPU:
        return 0
    try:
        places = _places()
    except LibbpfError:
        return None
    at = next((places[name] for name in COUNTS if name in places), None)
    return None if at is None or RUN_QUEUES not in places else at - places[RUN_QUEUES]


def _places() -> Dict[str, int]:
    """Where each of the variables lies in the section of those that each CPU has."""
    bpf = libbpf()
    types = bpf.pointer("btf__load_vmlinux_btf")
    try:
        ids = {_find(types, name, _VARIABLE): name for name in (RUN_QUEUES, *COUNTS)}
        section = _find(types, _SECTION, _DATASEC)
        if section is None:
            return {}
        address = bpf.pointer("btf__type_by_id", types, section)
        entries = ctypes.c_uint32.from_address(address + 4).value & 0xFFFF
        raw = ctypes.string_at(address + 12, entries * _ENTRY.size)
    finally:
        bpf.functions.btf__free(types)
    found = {ids.get(variable): at for variable, at, _ in _ENTRY.iter_unpack(raw)}
    return {name: at for name, at in found.items() if name is not None}


def _find(types: int, name: str, kind: int) -> Optional[int]:
    try:
        return libbpf().call("btf__find_by_name_kind", types, name.encode(), kind)
    except LibbpfError:
        return None
