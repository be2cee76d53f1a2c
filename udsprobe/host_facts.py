"""What the kernel and the host tell `doctor`: what works here, which limits hold, who one is.

None is not known, and never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from udsprobe.sample import MeasurementState


@dataclass(frozen=True)
class NotChecked:
    """Something that could not be looked at.

    Attributes:
        what: the thing. why: the reason. remedy: what would change that; None when nothing does.
    """

    what: str
    why: str
    remedy: Optional[str] = None


@dataclass(frozen=True)
class Strategy:
    """A way of being called by the kernel.

    Attributes:
        name: as for `--strategy`. state: `works` (it was loaded and attached just
            now), `refused` (it was tried) or `untried`.
        reason: why it does not work or was not tried.
    """

    name: str
    state: str
    reason: Optional[str]


@dataclass(frozen=True)
class KernelFacts:
    """What the running kernel offers a tracer.

    Attributes:
        measurements: what each rests on; empty when no strategy works.
        missing_capabilities: what attaching lacks; empty when it may.
        btf_bytes: size of the kernel's own type information.
        libbpf: its version, `1.1`; None when it cannot be used.
        lockdown: `none`, `integrity` or `confidentiality`; None when there is no such file.
        io_uring: `enabled`, `restricted` or `disabled`; None before Linux 6.6.
        tracepoints: of those with programs, the ones that this kernel has; None without BTF.
        direct_loads: `bpf_rdonly_cast()` exists; None without BTF.
        call_functions: how many functions of system calls programs can stand at, 0 where none
            may; None without BTF.
        preempts: a task can be preempted in the kernel; None without BTF.
        jit: net.core.bpf_jit_enable. run_time_stats: kernel.bpf_stats_enabled.
    """

    strategies: Tuple[Strategy, ...] = ()
    measurements: Tuple[MeasurementState, ...] = ()
    missing_capabilities: Tuple[str, ...] = ()
    btf_bytes: Optional[int] = None
    libbpf: Optional[str] = None
    lockdown: Optional[str] = None
    io_uring: Optional[str] = None
    tracepoints: Optional[Tuple[str, ...]] = None
    direct_loads: Optional[bool] = None
    call_functions: Optional[int] = None
    preempts: Optional[bool] = None
    jit: Optional[int] = None
    run_time_stats: Optional[int] = None


@dataclass(frozen=True)
class HostLimits:
    """Limits of the whole host, and how much of each is used."""

    file_max: Optional[int] = None
    files_open: Optional[int] = None
    nr_open: Optional[int] = None
    threads_max: Optional[int] = None
    pid_max: Optional[int] = None
    threads: Optional[int] = None
    rmem_default_bytes: Optional[int] = None
    rmem_max_bytes: Optional[int] = None
    wmem_default_bytes: Optional[int] = None
    wmem_max_bytes: Optional[int] = None


@dataclass(frozen=True)
class Identity:
    """Whom the kernel checks file permissions against.

    Attributes:
        uid, gid: of the file system. gids: supplementary.
        overrides: CAP_DAC_OVERRIDE is effective.
    """

    uid: int
    gid: int
    gids: Tuple[int, ...]
    overrides: bool
