"""What stands at system calls: the tracepoints, or functions and as long as needed both."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from udsprobe.kernel.abilities.call_functions import CallFunction
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.programs.function_programs import Account, FunctionPrograms
from udsprobe.kernel.programs.loader import function_programs
from udsprobe.kernel.tables.counters import Counters

# In the order in which they come; the other way round they go.
TRACEPOINTS = ("sys_enter", "sys_exit")
# What reports call the programs on functions, all together, and their kind.
FUNCTIONS = {"fentry:system calls": "enters", "fexit:system calls": "returns"}


def is_of_calls(program: str) -> bool:
    """Whether a program, by its name, is one on system calls."""
    return program in TRACEPOINTS or program in FUNCTIONS


def missed_calls(misses: Mapping[str, int]) -> int:
    """Of runs that the kernel skipped, by program, those that may be calls not counted."""
    return sum(runs for program, runs in misses.items() if is_of_calls(program))


class CallPrograms:
    """With strategy `fentry` the tracepoints come and go; with others nothing is done here.

    While they are there, each call of each program on the host passes them, which is what
    functions spare it. They tell of threads that were inside a call when they became targets,
    and of 32-bit ones (bpf/traced.bpf.h).

    Args:
        loaded: the object, not attached yet.
    """

    def __init__(self, loaded: ProbeObject) -> None:
        self._object = loaded
        self._functions: Optional[FunctionPrograms] = None
        self._counters: Optional[Counters] = None
        self._has_tracepoints = True

    def begin(self, functions: Sequence[CallFunction], counters: Counters) -> None:
        """Attach to functions; the tracepoints are attached already.

        Raises:
            LibbpfError: the kernel refuses.
        """
        self._functions = function_programs(self._object, functions)
        if self._functions is None:
            return
        self._counters = counters
        self._counters.say_tracepoints_are(True)
        self._functions.attach()

    def need_tracepoints(self) -> None:
        """Before threads become targets.

        Raises:
            LibbpfError: the kernel refuses.
        """
        if self._counters is None or self._has_tracepoints:
            return
        for name in TRACEPOINTS:
            self._object.attach(name)
        self._has_tracepoints = True
        self._counters.say_tracepoints_are(True)

    def settle(self) -> None:
        """Take the tracepoints away when no thread needs them, or give them to one that does."""
        if self._counters is None:
            return
        if self._counters.traced_threads():
            self._try_tracepoints()
        elif self._has_tracepoints:
            self._take_tracepoints()

    def _try_tracepoints(self) -> None:
        try:
            self.need_tracepoints()
        except LibbpfError:
            # Without privileges by now: what is not seen is counted (`programs_unseen`).
            self._object.take_back_if_there(TRACEPOINTS)

    def _take_tracepoints(self) -> None:
        assert self._counters is not None
        self._counters.say_tracepoints_are(False)
        if self._counters.traced_threads():
            # A 32-bit program began in between, and was told that they are there.
            self._counters.say_tracepoints_are(True)
            return
        self._object.take_back_if_there(TRACEPOINTS)
        self._has_tracepoints = False

    def accounts(self) -> Mapping[str, Account]:
        """Of the programs on functions, as `FUNCTIONS` calls them."""
        if self._functions is None:
            return {}
        return {name: self._functions.account(kind) for name, kind in FUNCTIONS.items()}

    def functions_attached(self) -> int:
        """How many have programs."""
        return 0 if self._functions is None else self._functions.attached()

    def stop(self) -> None:
        """Count no more."""
        if self._counters is not None:
            self._counters.stop()
            self._counters = None

    def close(self) -> None:
        """Take the functions' programs away. May be called twice."""
        if self._functions is not None:
            self._functions.close()
