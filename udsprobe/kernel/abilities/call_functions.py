"""Which function of the kernel makes each system call that is followed."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import FrozenSet, Iterable, List, Optional, Tuple

from udsprobe.kernel.abilities.syscall_table import ALIASES, STARTS, TRAITS, syscall_tables
from udsprobe.kernel.objects.libbpf import BTF_KIND_FUNC, libbpf

# Wrappers that take the registers (Linux arch/x86/include/asm/syscall_wrapper.h,
# arch/arm64/include/asm/syscall_wrapper.h).
WRAPPERS = {"x86_64": "__x64_sys_", "aarch64": "__arm64_sys_"}
# What the wrapper of a call without arguments is an alias of, and takes the same.
WITHOUT_ARGUMENTS = "__do_sys_"
# Every function that a call has some part of.
PARTS = ("__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__se_sys_", "__do_sys_")
_NAMES = re.compile(rf"\0((?:{'|'.join(PARTS)})\w+)(?=\0)".encode())
# They end calls that a signal interrupted, and have no arguments.
RETURNS = ("rt_sigreturn", "restart_syscall")
_NO_ARGUMENTS = (*RETURNS, "fork", "vfork")
# As SYSCALL_DEFINE names it where the table does not.
DEFINED_AS = {"sendfile": "sendfile64"}


@dataclass(frozen=True)
class CallFunction:
    """A function to attach to.

    Attributes:
        call: the kernel's name of the system call.
        name: of the function.
        type_id, prototype: of the function and of its prototype in the kernel's BTF.
    """

    call: str
    name: str
    type_id: int
    prototype: int


def call_functions(types: bytes, machine: str) -> Tuple[Tuple[str, str], ...]:
    """The functions of the 64-bit calls that are followed.

    Args:
        types: the names in the kernel's BTF, as `btf.names` returns them.
        machine: as `uname -m` says.

    Returns:
        (system call, function) of each; none at all when this kernel makes a call in some
        function that BTF does not know.
    """
    if machine not in WRAPPERS:
        return ()
    native, _ = syscall_tables(machine)
    # In one pass: the section is long, and is read at each start.
    names = frozenset(name.decode() for name in _NAMES.findall(types))
    known = {*TRAITS, *RETURNS, *STARTS}
    followed = [name for name in native.names.values() if ALIASES.get(name, name) in known]
    found = []
    for call in followed:
        name = _wrapper(call, names, machine)
        if name is not None:
            found.append((call, name))
        elif _is_made(call, names):
            return ()
    return tuple(found)


def _wrapper(call: str, names: FrozenSet[str], machine: str) -> Optional[str]:
    defined = DEFINED_AS.get(call, call)
    prefixes = [WRAPPERS[machine], *([WITHOUT_ARGUMENTS] if call in _NO_ARGUMENTS else [])]
    wrappers = (f"{prefix}{defined}" for prefix in prefixes)
    return next((name for name in wrappers if name in names), None)


def _is_made(call: str, names: FrozenSet[str]) -> bool:
    return any(f"{part}{DEFINED_AS.get(call, call)}" in names for part in PARTS)


def described(functions: Iterable[Tuple[str, str]]) -> List[CallFunction]:
    """The same with their types.

    Args:
        functions: as `call_functions` returns them.

    Raises:
        LibbpfError: the kernel's BTF cannot be read, or has a name and no such function.
    """
    bpf = libbpf()
    types = bpf.pointer("btf__load_vmlinux_btf")
    try:
        return [_described(types, call, name) for call, name in functions]
    finally:
        bpf.functions.btf__free(types)


def _described(types: int, call: str, name: str) -> CallFunction:
    bpf = libbpf()
    type_id = bpf.call("btf__find_by_name_kind", types, name.encode(), BTF_KIND_FUNC)
    # struct btf_type: name, info, and for a function the type of its prototype.
    words = (ctypes.c_uint32 * 3).from_address(bpf.pointer("btf__type_by_id", types, type_id))
    return CallFunction(call, name, type_id, words[2])
