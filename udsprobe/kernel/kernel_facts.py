"""What this kernel lets a tracer do, by trying: the same steps as `attach`, without a target.

Loads and attaches every program for a moment and takes all of it back.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Tuple

from udsprobe.errors import KernelCannotError, NotPermittedError, UdsprobeError
from udsprobe.host_facts import KernelFacts, NotChecked, Strategy
from udsprobe.kernel.abilities.features import KERNEL_BTF, Features, kernel_features
from udsprobe.kernel.abilities.lockdown import lockdown_level
from udsprobe.kernel.abilities.plan import strategies
from udsprobe.kernel.abilities.privileges import missing_capabilities
from udsprobe.kernel.bcc.library import bcc_module
from udsprobe.kernel.objects.libbpf import libbpf
from udsprobe.kernel.proc.limits import read_int
from udsprobe.sample import MeasurementState

# Linux kernel commit 76d3ccecfa18 "io_uring: add a sysctl to disable io_uring
# system-wide" (in v6.6)
_IO_URING = ("enabled", "restricted", "disabled")
_COMPILES = (
    "BCC and the kernel's headers are installed: attach --strategy bcc (compiling takes seconds)"
)


def kernel_facts() -> Tuple[KernelFacts, Tuple[NotChecked, ...]]:
    """Everything about the kernel, and what this user could not find out. Needs no root."""
    missing = tuple(missing_capabilities())
    features = _features()
    tried, carried = _try("tracepoint", missing)
    trampolines, carried_there = _try("fentry", missing)
    unchecked: List[NotChecked] = []
    if tried.state == "untried":
        unchecked.append(
            NotChecked(
                "whether probes load, and every measurement", tried.reason or "", "run as root"
            )
        )
    facts = KernelFacts(
        strategies=(
            tried,
            trampolines,
            _bcc(),
        ),
        measurements=carried if _takes_tracepoints(features) else carried_there or carried,
        missing_capabilities=missing,
        btf_bytes=_size(KERNEL_BTF),
        libbpf=_libbpf_version(),
        lockdown=lockdown_level(),
        io_uring=_io_uring(read_int("/proc/sys/kernel/io_uring_disabled")),
        tracepoints=None if features is None else tuple(sorted(features.events)),
        direct_loads=None if features is None else features.direct_loads,
        call_functions=None if features is None else len(features.call_functions),
        preempts=None if features is None else features.preempts,
        jit=read_int("/proc/sys/net/core/bpf_jit_enable"),
        run_time_stats=read_int("/proc/sys/kernel/bpf_stats_enabled"),
    )
    return facts, tuple(unchecked)


def _features() -> Optional[Features]:
    try:
        return kernel_features()
    except KernelCannotError:
        return None


def _takes_tracepoints(features: Optional[Features]) -> bool:
    if features is None:
        return True
    tries = strategies(
        "auto",
        features.events,
        functions=bool(features.call_functions),
        preempts=features.preempts,
    )
    return tries == ("tracepoint",)


def _try(
    name: str,
    missing: Tuple[str, ...],
) -> Tuple[Strategy, Tuple[MeasurementState, ...]]:
    if missing:
        return Strategy(name, "untried", f"this user lacks {', '.join(missing)}"), ()
    # Imported here: it costs as much as all the rest of this command.
    from udsprobe.kernel.tracer import Tracer

    try:
        tracer = Tracer(follow=False, strategy=name, rehearsal=True)
    except NotPermittedError as error:
        return Strategy(name, "untried", error.what), ()
    except UdsprobeError as error:
        return Strategy(name, "refused", error.what), ()
    tracer.close()
    return Strategy(name, "works", None), tracer.measurements()


def _bcc() -> Strategy:
    try:
        bcc_module()
    except KernelCannotError as error:
        return Strategy("bcc", "untried", error.what)
    return Strategy("bcc", "untried", _COMPILES)


def _libbpf_version() -> Optional[str]:
    try:
        return libbpf().version()
    except KernelCannotError:
        return None


def _io_uring(setting: Optional[int]) -> Optional[str]:
    known = setting is not None and 0 <= setting < len(_IO_URING)
    return _IO_URING[setting] if known and setting is not None else None


def _size(path: Path) -> Optional[int]:
    try:
        return path.stat().st_size
    except OSError:
        return None
