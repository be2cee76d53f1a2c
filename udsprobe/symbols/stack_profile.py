"""Samples of stacks → counts of named stacks, as a sample of the observation holds them."""

from __future__ import annotations

import platform
from typing import Dict, Iterable, List, Optional, Tuple

from udsprobe.kernel.stack_sampler import RawStack
from udsprobe.sample import StackCounts
from udsprobe.symbols.frame_rules import MACHINES
from udsprobe.symbols.kernel_functions import KernelFunctions
from udsprobe.symbols.process_names import CodeFrame, ProcessNames
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import State, Unwinder

STACKS_MAX = 2000
"""Different ones that are kept; of a further one its innermost function alone."""

PROCESSES_MAX = 200
KERNEL = "[kernel]"
_ROOTS = frozenset({"_start", "__libc_start_call_main", "__libc_start_main", "clone", "clone3"})
Row = Tuple[int, str, str]


def as_line(frame: CodeFrame) -> str:
    """`function TAB module TAB file TAB line`; what is not known is empty."""
    line = "" if frame.line is None else str(frame.line)
    return "\t".join((frame.function or "", frame.module or "", frame.file or "", line))


class StackProfile:
    """Counts since the observation began."""

    def __init__(self) -> None:
        machine = MACHINES.get(platform.machine())
        self._machine = machine
        self._images = TargetImages(machine)
        self._kernel = KernelFunctions()
        self._processes: Dict[int, Tuple[ProcessNames, Optional[Unwinder]]] = {}
        self._counts: Dict[Row, List[int]] = {}
        self.truncated = 0

    @property
    def unwinds(self) -> bool:
        """Callers are found by call frame information, not by frame pointers alone."""
        return self._images.unwinds

    def add(self, came: Iterable[RawStack]) -> None:
        """Count samples, each under the names that its addresses have now."""
        for names, _ in self._processes.values():
            names.refresh()
        for raw in came:
            self._add(raw)

    def counts(self) -> Tuple[StackCounts, ...]:
        """All stacks that were seen."""
        return tuple(
            StackCounts(pid=pid, on=on, frames=frames, samples=samples, truncated=truncated)
            for (pid, on, frames), (samples, truncated) in self._counts.items()
        )

    def maps_of(self, pid: int) -> bool:
        """Whether it has a perf map that may be read."""
        known = self._processes.get(pid)
        return known is not None and known[0].has_perf_map

    def close(self) -> None:
        """Let go of all files."""
        self._images.close()
        self._kernel.close()
        self._processes.clear()

    def _add(self, raw: RawStack) -> None:
        names, unwinder = self._process(raw.pid)
        addresses, is_whole = self._addresses(raw, names, unwinder)
        frames = [CodeFrame(self._kernel.at(ip), KERNEL) for ip in raw.kernel]
        frames += [names.frame(address) for address in addresses]
        lines = [as_line(frame) for frame in reversed(frames)]
        row = (raw.pid, "cpu", "\n".join(lines))
        if row not in self._counts and len(self._counts) >= STACKS_MAX:
            row, is_whole = (raw.pid, "cpu", lines[-1] if lines else as_line(_NOBODY)), False
        counted = self._counts.setdefault(row, [0, 0])
        counted[0] += 1
        counted[1] += not is_whole
        self.truncated += not is_whole

    def _addresses(
        self, raw: RawStack, names: ProcessNames, unwinder: Optional[Unwinder]
    ) -> Tuple[List[int], bool]:
        """Of the program, the innermost first; whether they reach its outermost function."""
        registers = raw.registers
        if not registers.ip:
            return self._by_frame_pointers(raw, names)
        if unwinder is None:
            return self._by_frame_pointers(raw, names)
        start = State(registers.ip, registers.sp, registers.fp, registers.link or None)
        return unwinder.callers(start, raw.memory)

    def _by_frame_pointers(self, raw: RawStack, names: ProcessNames) -> Tuple[List[int], bool]:
        """The callers only where they lead to where threads begin: else they are anything."""
        if not raw.user:
            return [], not raw.kernel
        addresses = [raw.user[0], *(address - 1 for address in raw.user[1:])]
        is_whole = names.frame(addresses[-1]).function in _ROOTS
        return (addresses if is_whole else addresses[:1]), is_whole

    def _process(self, pid: int) -> Tuple[ProcessNames, Optional[Unwinder]]:
        known = self._processes.get(pid)
        if known is None:
            if len(self._processes) >= PROCESSES_MAX:
                self._processes.clear()
            names = ProcessNames(pid, self._images)
            unwinder = None
            if self.unwinds and self._machine is not None:
                unwinder = Unwinder(self._machine, names.place)
            known = self._processes[pid] = (names, unwinder)
        return known


_NOBODY = CodeFrame(None, None)
