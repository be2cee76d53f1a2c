"""From the built object to programs the kernel has verified, or one clear error."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Callable, Dict, FrozenSet, Iterable, Optional, Sequence, Tuple, Type

from udsprobe.errors import KernelCannotError, NotPermittedError, UdsprobeError
from udsprobe.kernel.abilities.built_objects import compiler_of, object_bytes
from udsprobe.kernel.abilities.call_functions import CallFunction
from udsprobe.kernel.abilities.features import Features
from udsprobe.kernel.abilities.lockdown import forbids_reading, lockdown_level
from udsprobe.kernel.abilities.plan import (
    EVENT_PROGRAMS,
    URING_COMPLETE,
    URING_OVERFLOW,
    WAKER_PROGRAM,
)
from udsprobe.kernel.abilities.privileges import missing_capabilities
from udsprobe.kernel.abilities.syscall_table import (
    Entry,
    SyscallTable,
    enums_of,
    socketcall_table,
    uring_entries,
)
from udsprobe.kernel.objects import map_bounds
from udsprobe.kernel.objects.alongside import Work, alongside, nothing
from udsprobe.kernel.objects.libbpf import LibbpfError, libbpf
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.walked_object import MAP_ITERATORS, WalkedObject, walk_of
from udsprobe.kernel.programs.function_programs import KINDS, FunctionPrograms, prototypes
from udsprobe.kernel.tables.connection_table import TICK_NS
from udsprobe.own_descriptors import descriptors_used_up, too_few_descriptors

VERIFIER_LINES = 20
HEAR = "--debug shows the kernel's reason"
# kernel/bpf/verifier.c, print_verification_stats(): after all else it has to say of a program.
_VERIFIED = re.compile(r"processed \d+ insns ")
# It refuses a kind of program, here iterators, before it reads it (check_attach_btf_id).
_UNREAD = "processed 0 insns "
# bpf_prog_new_fd() comes after the verifier, whose log then ends like that of a refusal.
_BESIDE_THE_VERIFIER = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SERIES_MAX = 256  # `enum limits`
CPUS_WITH_ALL_SERIES = 32
MAP_BOUNDS = "UDSPROBE_TEST_MAP_BOUNDS"
WITHOUT = "`udsprobe listeners` works without probes"


def load(
    features: Features,
    tables: Tuple[SyscallTable, SyscallTable],
    cpus: int,
    programs: FrozenSet[str],
    *,
    follow: bool,
    functions: Sequence[CallFunction] = (),
    meanwhile: Work = nothing,
    raw: Optional[bytes] = None,
) -> ProbeObject:
    """Open, configure and load the object.

    Args:
        features: of the running kernel.
        tables: native and 32-bit system-call numbers.
        cpus: possible CPUs, entries of the per-CPU arrays.
        programs: names of the event programs to load.
        follow: children of targets become targets.
        functions: at which calls are seen; none: at the tracepoints.
        meanwhile: done in another thread while the kernel verifies.
        raw: the object; None: that of this installation for these features.

    Raises:
        KernelCannotError: `no-object`, `stale-object`, `lockdown`, `no-memory`, `verifier` (its
            last lines in `detail`), `refused`.
        NotPermittedError: `not-root`, naming the missing capabilities.
    """
    if raw is None:
        raw = object_bytes(features, functions=bool(functions))
    configure = partial(
        _configure,
        features=features,
        tables=tables,
        cpus=cpus,
        follow=follow,
        functions=functions,
        wakers=WAKER_PROGRAM in programs,
    )
    kind = kind_of_object(features)
    with suppress(LibbpfError), libbpf().unheard():
        return _loaded(kind(raw), configure, programs, meanwhile)
    try:
        # Once more, to hear why not.
        return _loaded(kind(raw), configure, programs, nothing)
    except LibbpfError as error:
        raise verifier_refusal(error, raw) or refusal(error) from error


def kind_of_object(features: Features) -> Type[ProbeObject]:
    """The one whose programs over the elements of maps this kernel loads."""
    return WalkedObject if features.walks else ProbeObject


def _loaded(
    opened: ProbeObject,
    configure: Callable[[ProbeObject], None],
    programs: FrozenSet[str],
    meanwhile: Work,
) -> ProbeObject:
    try:
        configure(opened)
        for program in EVENT_PROGRAMS:
            if program.name not in programs:
                opened.leave_out(program.name)
        with alongside(meanwhile):
            opened.load()
        if URING_OVERFLOW in programs:
            opened.array_to_jump_by("completes", URING_COMPLETE)
        return opened
    except LibbpfError:
        opened.close()
        raise


def _configure(
    opened: ProbeObject,
    *,
    features: Features,
    tables: Tuple[SyscallTable, SyscallTable],
    cpus: int,
    follow: bool,
    functions: Sequence[CallFunction],
    wakers: bool,
) -> None:
    _aim_bodies(opened, functions)
    opened.resize("calls", series_max(cpus) * cpus)
    opened.resize("cpus", cpus)
    opened.resize("connections", map_bounds.connections_max(features.bpf_allocator))
    if features.bpf_allocator:
        opened.allocate_late("connections")
    threads = map_bounds.threads_max() + 1
    for name in ("thread_states", "thread_pasts", "free_slots"):
        opened.resize(name, threads)
    opened.resize("call_journals", map_bounds.journals_max())
    _choose_listings(opened)
    bounds = _bounds_for_tests()
    for name, entries in bounds.items():
        opened.resize(name, entries)
    options = _options(opened, features, tables, follow, cpus)
    # Unlike those on tracepoints, programs on functions can be preempted by others.
    if functions and features.preempts:
        options["preemptible"] = bytes([True])
    options["wakers_told"] = bytes([wakers])
    options["threads_max"] = struct.pack("<I", bounds.get("thread_states", threads))
    opened.set_options(options)


def _choose_listings(opened: ProbeObject) -> None:
    """Of the two kinds of programs over the elements of maps, one is loaded."""
    walks = isinstance(opened, WalkedObject)
    for program in MAP_ITERATORS:
        left_out = program if walks else walk_of(program)
        if opened.has(left_out):
            opened.leave_out(left_out)
    if walks:
        opened.resize("records", opened.btf.enum("limits")["RECORDS_MAX"])


def _aim_bodies(opened: ProbeObject, functions: Sequence[CallFunction]) -> None:
    """Functions of one prototype share a body each for their entry and their return."""
    if not functions:
        return
    firsts = prototypes(functions)
    prototypes_max = opened.btf.enum("limits")["PROTOTYPES_MAX"]
    if len(firsts) > prototypes_max:
        raise LibbpfError(f"{len(firsts)} prototypes of system calls", errno.E2BIG)
    for number in range(prototypes_max):
        for kind in KINDS:
            if number < len(firsts):
                opened.aim(f"call_{kind}_{number}", firsts[number].name)
            else:
                opened.leave_out(f"call_{kind}_{number}")


def function_programs(
    loaded: ProbeObject, functions: Sequence[CallFunction]
) -> Optional[FunctionPrograms]:
    """The programs on functions of a loaded object, not yet attached; None without functions.

    Raises:
        LibbpfError: the kernel refuses one.
    """
    if not functions:
        return None
    arrays = {
        (kind, first.prototype): loaded.array_to_jump_by(f"{kind}_{at}", f"call_{kind}_{at}")
        for at, first in enumerate(prototypes(functions))
        for kind in KINDS
    }
    return FunctionPrograms(functions, arrays)


def _bounds_for_tests() -> Dict[str, int]:
    """`connections=8,listeners=2` → smaller maps, so that a test need not fill the real ones."""
    pairs = [each.partition("=") for each in os.environ.get(MAP_BOUNDS, "").split(",") if each]
    return {name: int(entries) for name, _, entries in pairs}


def series_max(cpus: int) -> int:
    """How many (call, endpoint) pairs there is room for: 5.5 KB each on every CPU."""
    return SERIES_MAX if cpus <= CPUS_WITH_ALL_SERIES else SERIES_MAX // 2


def possible_cpus() -> int:
    """How many CPU numbers this kernel can have (`/sys/devices/system/cpu/possible`)."""
    text = Path("/sys/devices/system/cpu/possible").read_text()
    return int(text.replace("-", ",").split(",")[-1]) + 1


def not_permitted() -> Optional[NotPermittedError]:
    """The user's error when this process may not load probes; None when it may."""
    missing = missing_capabilities()
    if not missing:
        return None
    return NotPermittedError(
        "not-root",
        f"loading probes needs {' and '.join(missing)}, which this process lacks",
        f"run it with sudo or grant the capabilities; {WITHOUT}",
    )


def refusal(error: LibbpfError) -> UdsprobeError:
    """The user's error for a load or attach that failed."""
    lacking = not_permitted()
    if lacking is not None:
        return lacking
    used_up = descriptors_used_up(error.errno) or too_few_descriptors()
    if used_up is not None:
        return used_up
    if error.errno == errno.ENOMEM:
        return KernelCannotError(
            "no-memory",
            "the kernel has no memory for the probes' maps, or a memory limit forbids it",
            f"allow 128 MB more (MemoryMax= of the unit, memory.max of the cgroup); {WITHOUT}",
        )
    if forbids_reading(error.log, lockdown_level()):
        return KernelCannotError(
            "lockdown",
            "kernel lockdown is in confidentiality mode: BPF may not read kernel memory",
            f"boot with lockdown=integrity; {WITHOUT}",
            detail=_last_lines(error),
        )
    by_policy = error.errno in (errno.EPERM, errno.EACCES)
    return KernelCannotError(
        "refused",
        f"{'the policy of ' if by_policy else ''}this kernel refuses the probes "
        f"({_failed_load(error)})",
        f"{'a security module, sandbox or kernel setting forbids them' if by_policy else HEAR}; "
        f"{WITHOUT}",
        detail=_last_lines(error),
    )


def verifier_refusal(error: LibbpfError, raw: bytes) -> Optional[KernelCannotError]:
    """The user's error where the verifier has read a program of the object and refused it.

    None where it was refused before: by the policy of the kernel, a limit or for want of memory.
    """
    if error.errno in _BESIDE_THE_VERIFIER or too_few_descriptors():
        return None
    lines = error.log.splitlines()
    ends = [at for at, line in enumerate(lines) if _VERIFIED.match(line)]
    if not ends or forbids_reading(error.log, lockdown_level()):
        return None
    if error.errno == errno.EPERM and lines[ends[-1]].startswith(_UNREAD):
        return None
    why = lines[max(0, ends[-1] - 1)]
    return KernelCannotError(
        "verifier",
        f"the verifier of this kernel refuses the probes that {compiler_of(raw)} built "
        f"({_failed_load(error)}: {why})",
        f"this is a defect of this build of udsprobe and not of the host: build it with another "
        f"clang (CLANG=clang-16 scripts/build_bpf.py) and report what --debug shows; {WITHOUT}",
        detail=_last_lines(error),
    )


def _failed_load(error: LibbpfError) -> str:
    refused = [line for line in error.log.splitlines() if "load failed" in line]
    return refused[-1].split("libbpf: ", 1)[-1] if refused else str(error)


def _last_lines(error: LibbpfError) -> str:
    return "\n".join(error.log.splitlines()[-VERIFIER_LINES:])


def _options(
    opened: ProbeObject,
    features: Features,
    tables: Tuple[SyscallTable, SyscallTable],
    follow: bool,
    cpus: int,
) -> Dict[str, bytes]:
    options = {
        "series_max": struct.pack("<I", series_max(cpus)),
        "socketcall_entries": _socketcall_entries(opened),
        "uring_entries": _image(opened, "URING_OPS", uring_entries(enums_of(opened.btf))),
        "follow_forks": bytes([follow]),
        "tick_ns": struct.pack("<I", TICK_NS),
        "direct_loads": bytes([features.direct_loads]),
        "preemptible": bytes([features.preemptible]),
        "in_pid_namespace": bytes([features.pid_namespace]),
    }
    for prefix, table in zip(("", "compat_"), tables):
        options[f"{prefix or 'native_'}entries"] = _entries(opened, table)
        for name in ("rt_sigreturn", "sigreturn", "restart_syscall", "connect", "futex"):
            number = table.number(name)
            if number is not None:
                options[f"{prefix}nr_{name}"] = struct.pack("<I", number)
    return options


def _entries(opened: ProbeObject, table: SyscallTable) -> bytes:
    return _image(opened, "NR_MAX", table.entries(enums_of(opened.btf)))


def _socketcall_entries(opened: ProbeObject) -> bytes:
    return _image(opened, "SOCKETCALL_MAX", socketcall_table().entries(enums_of(opened.btf)))


def _image(opened: ProbeObject, limit_name: str, entries: Iterable[Entry]) -> bytes:
    limit = opened.btf.enum("limits")[limit_name]
    size = ctypes.sizeof(opened.btf.structure("call_entry"))
    image = bytearray(size * limit)
    for number, *entry in entries:
        if number < limit:
            image[size * number : size * number + len(entry)] = bytes(entry)
    return bytes(image)
