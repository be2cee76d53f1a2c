"""What the running kernel offers, asked of its own type information."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import FrozenSet

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.plan import EVENT_PROGRAMS

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
PID_NAMESPACE = Path("/proc/self/ns/pid")
# include/linux/proc_ns.h, PROC_PID_INIT_INO: the number of the host's own.
HOST_PID_NAMESPACE = "pid:[4026531836]"
WITHOUT = "`udsprobe listeners` works without it"


@dataclass(frozen=True)
class Features:
    """What can be used.

    Attributes:
        tracepoints: names of those we have programs for.
        direct_loads: `bpf_rdonly_cast()` exists: Linux kernel commit a35b9af4ec2c
            "bpf: Add a kfunc for generic type cast" (in v6.2).
    """

    tracepoints: FrozenSet[str]
    direct_loads: bool


def kernel_features() -> Features:
    """Ask the running kernel.

    Raises:
        KernelCannotError: `no-btf`; `no-tracepoint` when a required one is absent;
            `pid-namespace`.
    """
    _refuse_pid_namespace()
    types = _kernel_types()
    features = Features(
        frozenset(p.name for p in EVENT_PROGRAMS if _has(types, p.type_name)),
        _has(types, "bpf_rdonly_cast"),
    )
    required = {program.name for program in EVENT_PROGRAMS if program.required}
    absent = sorted(required - features.tracepoints)
    if absent:
        raise KernelCannotError(
            "no-tracepoint", f"this kernel has no tracepoint {', '.join(absent)}", WITHOUT
        )
    return features


def _refuse_pid_namespace() -> None:
    # Here process 3 is one, for the probes it is another: they would count nothing.
    try:
        namespace = os.readlink(PID_NAMESPACE)
    except OSError:
        return
    if namespace != HOST_PID_NAMESPACE:
        raise KernelCannotError(
            "pid-namespace",
            "process ids are a container's here, while the probes see the host's",
            f"run it on the host, or in a container with the host's (--pid=host); {WITHOUT}",
        )


def _kernel_types() -> bytes:
    why = "it is empty"
    try:
        types = KERNEL_BTF.read_bytes()
        if types:
            return types
    except OSError as error:
        why = os.strerror(error.errno or 0)
    raise KernelCannotError(
        "no-btf",
        f"this kernel does not describe its types in {KERNEL_BTF} ({why})",
        f"it takes CONFIG_DEBUG_INFO_BTF=y; {WITHOUT}",
    )


def _has(types: bytes, name: str) -> bool:
    # A name stands whole in the string section exactly when a type bears it.
    return b"\0" + name.encode() + b"\0" in types
