"""The programs of a strategy in the kernel, and what was found out to load them."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import FrozenSet, Sequence, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.call_functions import CallFunction, described
from udsprobe.kernel.abilities.features import Features
from udsprobe.kernel.abilities.plan import WAKER_PROGRAM, programs
from udsprobe.kernel.abilities.syscall_table import SyscallTable, syscall_tables
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.programs.loader import load, possible_cpus, refusal
from udsprobe.kernel.tables.wakers import Wakers


@dataclass(frozen=True)
class LoadedPrograms:
    """Verified, with their maps, and attached to nothing.

    Attributes:
        object: with the programs and maps.
        strategy: what they are for.
        features: of the running kernel.
        tables: native and 32-bit system-call numbers.
        cpus: entries of the per-CPU arrays.
        programs: names of the event programs that can be attached.
        functions: at which calls are seen; none: at the tracepoints.
        wakers: what the program at wakes takes.
        loading_s: CPU time of this process that all of it took.
    """

    object: ProbeObject
    strategy: str
    features: Features
    tables: Tuple[SyscallTable, SyscallTable]
    cpus: int
    programs: FrozenSet[str]
    functions: Sequence[CallFunction]
    wakers: Wakers
    loading_s: float


def load_programs(
    strategy: str, features: Features, detail: str, *, follow: bool, meanwhile: Work = nothing
) -> LoadedPrograms:
    """Load what a strategy takes with that detail; without the program at wakes where only that
    is refused.

    Args:
        follow: children of targets become targets.
        meanwhile: done in another thread while the kernel verifies.

    Raises:
        UdsprobeError: of `load`.
    """
    began_s = time.process_time()
    tables, cpus = syscall_tables(platform.machine()), possible_cpus()
    wanted = programs(strategy, features.events, detail)
    functions = _functions(features) if strategy == "fentry" else []
    wakers = Wakers(wanted)
    given = (features, tables, cpus)
    try:
        work = wakers.besides(meanwhile)
        made = load(*given, wanted, follow=follow, functions=functions, meanwhile=work)
    except KernelCannotError as error:
        # All else is of use without it.
        if error.slug != "verifier" or WAKER_PROGRAM not in wanted:
            raise
        wanted -= {WAKER_PROGRAM}
        made = load(*given, wanted, follow=follow, functions=functions)
    spent_s = time.process_time() - began_s
    return LoadedPrograms(
        made, strategy, features, tables, cpus, wanted, functions, wakers, spent_s
    )


def _functions(features: Features) -> Sequence[CallFunction]:
    try:
        return described(features.call_functions)
    except LibbpfError as error:
        raise refusal(error) from error
