"""What the running kernel offers, asked of its own type information."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import FrozenSet, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.call_functions import call_functions
from udsprobe.kernel.abilities.map_iterators import MapIteratorTrial
from udsprobe.kernel.abilities.plan import (
    EVENT_PROGRAMS,
    URING,
    URING_OVERFLOW,
    URING_SUBMITS,
    WAKER_PROGRAM,
)
from udsprobe.kernel.abilities.preempt_count import may_be_told
from udsprobe.kernel.abilities.preemption import preempts_kernel_code
from udsprobe.kernel.objects.alongside import alongside
from udsprobe.kernel.objects.btf import names
from udsprobe.kernel.proc.own_namespaces import in_pid_namespace

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
WALKS = "BPF_PROG_TYPE_SYSCALL"
WITHOUT = "`udsprobe listeners` works without probes"


@dataclass(frozen=True)
class Features:
    """What can be used.

    Attributes:
        events: names of the event programs that have something to attach to.
        direct_loads: `bpf_rdonly_cast()` exists: Linux kernel commit a35b9af4ec2c
            "bpf: Add a kfunc for generic type cast" (in v6.2).
        task_storage: programs can keep state with a task: Linux kernel commit a10787e6d58c
            "bpf: Enable task local storage for tracing programs" (in v5.12).
        sleeping_calls: the registers of a sleeping task can be read: Linux kernel commit
            dd6e10fbd9fb "bpf: Add bpf_task_pt_regs() helper" (in v5.15).
        preemptible: programs on tracepoints can be preempted by others of their kind:
            tracepoints guarded by SRCU-fast, Linux kernel commit a46023d5616e (in v7.0).
        unix_unread: Unix streams keep the number of bytes in their receive queue
            (f4e1fb04c123 "af_unix: Use cached value for SOCK_STREAM in
            unix_inq_len()", in v6.17).
        bpf_allocator: maps have an allocator that programs can use anywhere (7c8199e24fa0
            "bpf: Introduce any context BPF specific memory allocator.", in v6.1).
        pid_namespace: process ids are other ones here than on the host.
        call_functions: (system call, function that makes it), where programs can stand there
            instead of at the tracepoints of all calls. It takes `sleeping_calls`, and a return
            that may come when the program is taken away already: Linux kernel commit
            e21aa341785c "bpf: Fix fexit trampoline" (in v5.12).
        preempts: a task can be preempted in the kernel, and so in a program on a function.
        walks: what goes over the elements of a map is a program that user space runs, since
            iterators are forbidden: Linux kernel commit 79a7f8bdb159 "bpf: Introduce
            bpf_sys_bpf() helper and program type." (in v5.14).
    """

    events: FrozenSet[str]
    direct_loads: bool
    task_storage: bool
    sleeping_calls: bool
    preemptible: bool
    unix_unread: bool = False
    bpf_allocator: bool = False
    pid_namespace: bool = False
    call_functions: Tuple[Tuple[str, str], ...] = ()
    preempts: bool = True
    walks: bool = False


def kernel_features() -> Features:
    """Ask the running kernel.

    Raises:
        KernelCannotError: `no-btf`; `no-tracepoint` when a required one is absent;
            `pid-namespace`, `time-namespace`.
    """
    pid_namespace = in_pid_namespace()
    trial = MapIteratorTrial()
    # libbpf reads the kernel's types for it, and this thread reads them too.
    with alongside(trial.run):
        types = _kernel_types()
    features = Features(
        _events(types),
        direct_loads=_has(types, "bpf_rdonly_cast"),
        task_storage=_has(types, "BPF_FUNC_task_storage_get"),
        sleeping_calls=_has(types, "BPF_FUNC_task_pt_regs"),
        # Tracepoints had an SRCU domain up to v6.12 as well, before there was SRCU-fast.
        preemptible=_has(types, "tracepoint_srcu_srcu_data") and _has(types, "srcu_ctr"),
        unix_unread=_has(types, "inq_len"),
        bpf_allocator=_has(types, "bpf_mem_alloc"),
        pid_namespace=pid_namespace,
        call_functions=_call_functions(types),
        preempts=preempts_kernel_code(),
        walks=trial.are_forbidden and _has(types, WALKS),
    )
    required = {program.name for program in EVENT_PROGRAMS if program.required}
    absent = sorted(required - features.events)
    if absent:
        raise KernelCannotError(
            "no-tracepoint", f"this kernel has no tracepoint {', '.join(absent)}", WITHOUT
        )
    return features


def _events(types: bytes) -> FrozenSet[str]:
    found = {program.name for program in EVENT_PROGRAMS if _has(types, program.type_name)}
    # Linux kernel commit cef216fc32d7 "io_uring: explicitly keep a CQE in io_kiocb" (in v5.19):
    # before, completions do not say of which request they are.
    if not _has(types, "io_cqe") or not found.issuperset(URING) or not found & URING_SUBMITS:
        found -= URING | URING_SUBMITS | {URING_OVERFLOW}
    if not may_be_told(types):
        found.discard(WAKER_PROGRAM)
    return frozenset(found)


def _call_functions(types: bytes) -> Tuple[Tuple[str, str], ...]:
    if not (_has(types, "BPF_FUNC_task_pt_regs") and _has(types, "bpf_tramp_image")):
        return ()
    return call_functions(types, platform.machine())


def _kernel_types() -> bytes:
    why = "it is empty"
    try:
        types = KERNEL_BTF.read_bytes()
        if types:
            return names(types)
    except OSError as error:
        why = os.strerror(error.errno or 0)
    raise KernelCannotError(
        "no-btf",
        f"this kernel has no type information (BTF) in {KERNEL_BTF} ({why})",
        "use a kernel with CONFIG_DEBUG_INFO_BTF=y, or BCC and the kernel's headers "
        f"(--strategy bcc says which packages); {WITHOUT}",
    )


def _has(types: bytes, name: str) -> bool:
    # A name stands whole in the string section exactly when something bears it.
    return b"\0" + name.encode() + b"\0" in types
