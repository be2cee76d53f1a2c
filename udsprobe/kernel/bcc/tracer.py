"""Strategy `bcc` at work: compiled here, attached, with targets to watch.

What `udsprobe.kernel.tracer` is for kernels that describe their types. There are no iterators:
targets are chosen by their processes, whose threads are taken on at their first event.
"""

from __future__ import annotations

import platform
import struct
import time
from contextlib import suppress
from typing import Dict, Mapping, Optional, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.built_objects import built_program, source_for_bcc
from udsprobe.kernel.abilities.syscall_table import (
    SyscallTable,
    enums_of,
    socketcall_table,
    syscall_tables,
)
from udsprobe.kernel.bcc.counters import BccCounters
from udsprobe.kernel.bcc.plan import EVENTS, bcc_measurements
from udsprobe.kernel.bcc.program import BccObject
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.objects.libbpf import LibbpfError, libbpf
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.proc.own_namespaces import in_pid_namespace
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.programs.loader import not_permitted, possible_cpus, refusal, series_max
from udsprobe.kernel.tables.counters import enum_names, target_names
from udsprobe.sample import MeasurementState

# Of system calls that an ABI does not have: no number is like it.
NO_NUMBER = 0xFFFF
# A child that is born meanwhile has a parent which is followed already.
GENERATIONS_MAX = 100


class BccTracer:
    """The programs of strategy `bcc`, live and without a target.

    Args:
        follow: children of targets become targets.
        meanwhile: done when the programs are compiled, which changes this process's directory.

    Attributes:
        strategy: `bcc`. detail: `full`. loading_s: 0: nothing stays loaded, so nothing is spared.
        counters: everything that is counted.
        target_names: what values of enums in process records are called.

    Raises:
        KernelCannotError: `no-bcc`, `no-kernel-headers`, `bcc-failed`, `no-strategy`,
            `no-libbpf`, `no-object`.
        NotPermittedError: `not-root`, naming the missing capabilities.
    """

    strategy = "bcc"
    detail = "full"
    loading_s = 0.0

    def __init__(self, *, follow: bool = True, meanwhile: Work = nothing) -> None:
        _see_that_it_can_be()
        self._follow = follow
        self._procfs = Procfs()
        self._btf = _layouts()
        self.target_names = target_names(self._btf)
        tables = syscall_tables(platform.machine())
        cpus = possible_cpus()
        self._object = BccObject(source_for_bcc(), _macros(tables, cpus, follow), cpus)
        try:
            self._start(tables)
        except LibbpfError as error:
            self.close()
            raise refusal(error) from error
        except BaseException:
            self.close()
            raise
        meanwhile()

    def _start(self, tables: Tuple[SyscallTable, SyscallTable]) -> None:
        self.counters = BccCounters(self._object, self._btf, tables)
        limit = self._btf.enum("limits")["NR_MAX"]
        for begin, table in enumerate((*tables, socketcall_table())):
            for number, *entry in table.entries(enums_of(self._btf)):
                if number < limit:
                    key = struct.pack("<I", begin * limit + number)
                    self._object.update("entries", key, bytes(entry))
        programs = enum_names(self._btf.enum("bcc_program"), "BCC_")
        for index, name in list(programs.items())[:-1]:
            self._object.chain("programs", index, name)
        for event in EVENTS:
            self._object.attach(event)

    def seed(self, processes: Mapping[int, int], *, dormant: bool = False) -> None:
        """Make running processes targets.

        Args:
            processes: thread-group id → start time in clock ticks (/proc/PID/stat); one that is
                gone, or whose PID is somebody else's by now, is passed over.
            dormant: count from the process's next exec on, not before.
        """
        via = {name: value for value, name in self.target_names.vias.items()}
        seeded = {
            pid
            for pid, ticks in processes.items()
            if self._adopt(pid, ticks, via["selector"], dormant)
        }
        for _ in range(GENERATIONS_MAX if self._follow else 0):
            # Born after the processes were chosen, before their parent was a target.
            known = {struct.unpack("<I", key)[0] for key in self._object.keys("processes", 4)}
            late = self._procfs.descendants(seeded) - known
            if not late:
                break
            for pid in late:
                found = self._procfs.process(pid)
                if found is not None:
                    self._adopt(pid, found.start_ticks, via["fork"], dormant)

    def requests_map(self) -> Optional[int]:
        """None: requests are not told by process."""
        return None

    def functions_attached(self) -> int:
        """None: these are tracepoints."""
        return 0

    def recursion_misses(self) -> Mapping[str, int]:
        """Program → runs the kernel skipped because it was active on that CPU already.

        Raises:
            LibbpfError: maps cannot be read either, for want of a capability.
        """
        return self._object.recursion_misses()

    def measurements(self) -> Tuple[MeasurementState, ...]:
        """The state of every measurement."""
        return bcc_measurements()

    def misses_exits(self) -> bool:
        """Whether the end of a process may have gone unseen."""
        return bool(self.recursion_misses().get("sched_process_exit"))

    def detach(self) -> None:
        """Stop counting; what was counted stays readable."""
        self._object.detach()

    def close(self) -> None:
        """Give every kernel object back. May be called twice."""
        self._object.close()

    def _adopt(self, pid: int, start_ticks: int, via: int, dormant: bool) -> bool:
        """Whether it is there."""
        found = self._procfs.process(pid)
        if found is None or not _is_the_same(found, start_ticks):
            return False
        value = self._btf.structure("bcc_process")()
        value.state.started_ns = time.monotonic_ns()
        value.state.parent, value.state.via = found.ppid, via
        value.state.comm = found.comm_raw
        value.flags = self._btf.enum("thread_flag")["THREAD_DORMANT"] if dormant else 0
        key = struct.pack("<I", pid)
        self._object.update("processes", key, bytes(value))
        again = self._procfs.process(pid)
        if again is None or not _is_the_same(again, start_ticks):
            self._object.delete("processes", key)
            return False
        return True


def _is_the_same(process: Process, start_ticks: int) -> bool:
    return process.start_ticks == start_ticks and not process.ended


def _see_that_it_can_be() -> None:
    lacking = not_permitted()
    if lacking is not None:
        raise lacking
    if in_pid_namespace():
        raise KernelCannotError(
            "no-strategy",
            "strategy bcc uses the host's process IDs, and this is a separate PID namespace",
            "run it on the host, or leave --strategy out",
        )


def _layouts() -> Btf:
    """Of udsprobe.h, out of an object that is built of it; it is not loaded."""
    with libbpf().unheard():
        opened = ProbeObject(built_program("tracepoint"))
    with suppress(LibbpfError):
        opened.close()
    return opened.btf


def _macros(tables: Tuple[SyscallTable, SyscallTable], cpus: int, follow: bool) -> Dict[str, int]:
    macros = {"CALLS_MAX": series_max(cpus), "FOLLOW_FORKS": int(follow)}
    for prefix, table in zip(("", "COMPAT_"), tables):
        for name in ("rt_sigreturn", "sigreturn", "restart_syscall"):
            number = table.number(name)
            macros[f"{prefix}NR_{name.upper()}"] = NO_NUMBER if number is None else number
    return macros
