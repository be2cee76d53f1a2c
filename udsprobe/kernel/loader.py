"""From the built object to programs the kernel has verified, or one clear error."""

from __future__ import annotations

import ctypes
import platform
import struct
from importlib import resources
from pathlib import Path
from typing import Dict, Iterable, Tuple

from udsprobe.errors import KernelCannotError, NotPermittedError, UdsprobeError
from udsprobe.kernel.features import Features
from udsprobe.kernel.libbpf import LibbpfError
from udsprobe.kernel.plan import EVENT_PROGRAMS
from udsprobe.kernel.privileges import missing_capabilities
from udsprobe.kernel.probe_object import ProbeObject
from udsprobe.kernel.syscall_table import SOCKETCALLS, TABLES, Entry, Enums, SyscallTable

VERIFIER_LINES = 20
SERIES_MAX = 256  # `enum limits`
CPUS_WITH_ALL_SERIES = 32
WITHOUT = "`udsprobe listeners` works without"


def load(
    features: Features, tables: Tuple[SyscallTable, SyscallTable], cpus: int, *, follow: bool
) -> ProbeObject:
    """Open, configure and load the object of strategy `tracepoint`.

    Args:
        features: of the running kernel.
        tables: native and 32-bit system-call numbers.
        cpus: possible CPUs, entries of the per-CPU arrays.
        follow: children of targets become targets.

    Raises:
        KernelCannotError: `no-object`, `refused` (the verifier's last lines in `detail`).
        NotPermittedError: `not-root`, naming the missing capabilities.
    """
    opened = ProbeObject(_object_bytes())
    try:
        opened.resize("calls", series_max(cpus) * cpus)
        opened.resize("cpus", cpus)
        opened.set_options(_options(opened, features, tables, follow, cpus))
        for program in EVENT_PROGRAMS:
            if program.name not in features.tracepoints:
                opened.leave_out(program.name)
        opened.load()
        return opened
    except LibbpfError as error:
        opened.close()
        raise refusal(error) from error


def series_max(cpus: int) -> int:
    """How many (call, endpoint) pairs there is room for: 5.5 KB each on every CPU."""
    return SERIES_MAX if cpus <= CPUS_WITH_ALL_SERIES else SERIES_MAX // 2


def possible_cpus() -> int:
    """How many CPU numbers this kernel can have (`/sys/devices/system/cpu/possible`)."""
    text = Path("/sys/devices/system/cpu/possible").read_text()
    return int(text.replace("-", ",").split(",")[-1]) + 1


def refusal(error: LibbpfError) -> UdsprobeError:
    """The user's error for a load or attach that failed."""
    missing = missing_capabilities()
    if missing:
        return NotPermittedError(
            "not-root",
            f"loading probes takes {' and '.join(missing)}, which this process lacks",
            f"run it with sudo or grant the capabilities; {WITHOUT}",
        )
    lines = error.log.splitlines()
    refused = [line for line in lines if "load failed" in line]
    what = refused[-1].split("libbpf: ", 1)[-1] if refused else str(error)
    return KernelCannotError(
        "refused",
        f"this kernel refuses the probes ({what})",
        f"--debug shows the kernel's reason; {WITHOUT}",
        detail="\n".join(lines[-VERIFIER_LINES:]),
    )


def _object_bytes() -> bytes:
    machine = platform.machine()
    if machine not in TABLES:
        raise KernelCannotError(
            "no-object",
            f"no probes are built for {machine}",
            f"they exist for {' and '.join(TABLES)}; {WITHOUT}",
        )
    name = f"tracepoint.{machine}.bpf.o"
    try:
        return (resources.files("udsprobe") / "_bpf" / name).read_bytes()
    except OSError as error:
        raise KernelCannotError(
            "no-object",
            f"the built probes {name} are missing from this installation",
            "install the wheel, or run scripts/build_bpf.py in a checkout",
        ) from error


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
        "follow_forks": bytes([follow]),
        "direct_loads": bytes([features.direct_loads]),
    }
    for prefix, table in zip(("", "compat_"), tables):
        options[f"{prefix or 'native_'}entries"] = _entries(opened, table)
        for name in ("rt_sigreturn", "restart_syscall", "connect"):
            number = table.number(name)
            if number is not None:
                options[f"{prefix}nr_{name}"] = struct.pack("<I", number)
    return options


def _entries(opened: ProbeObject, table: SyscallTable) -> bytes:
    return _image(opened, "NR_MAX", table.entries(_enums(opened)))


def _socketcall_entries(opened: ProbeObject) -> bytes:
    named = SyscallTable(dict(enumerate(SOCKETCALLS, 1)))
    return _image(opened, "SOCKETCALL_MAX", named.entries(_enums(opened)))


def _enums(opened: ProbeObject) -> Enums:
    return {name: opened.btf.enum(name) for name in ("call", "trait", "waits")}


def _image(opened: ProbeObject, limit_name: str, entries: Iterable[Entry]) -> bytes:
    limit = opened.btf.enum("limits")[limit_name]
    size = ctypes.sizeof(opened.btf.structure("call_entry"))
    image = bytearray(size * limit)
    for number, *entry in entries:
        if number < limit:
            image[size * number : size * number + len(entry)] = bytes(entry)
    return bytes(image)
