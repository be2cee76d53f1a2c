"""When stacks are taken, and of whom: while the verdict is that a target's code is the cause."""

from __future__ import annotations

from contextlib import suppress
from typing import FrozenSet, Iterable, Optional, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.libbpf import LibbpfError
from udsprobe.kernel.own_namespaces import in_pid_namespace
from udsprobe.kernel.stack_sampler import HZ, RESTS_ON, StackSampler
from udsprobe.model.code import culprit_pids
from udsprobe.model.report import Report
from udsprobe.sample import MeasurementState, StackReading

NAME = "stacks"
WINDOW_S = 10.0
"""After a cause is named: a thousand samples of a thread that runs all the time."""

ALWAYS, AUTO, NEVER = "always", "auto", "never"
BY_BCC = "strategy bcc takes no stacks"
WITHOUT_LIBDW = (
    "only innermost functions of programs without frame pointers: libdw.so.1 (elfutils) is not "
    "installed"
)
CAUSES = frozenset({"app-cpu"})


def tried() -> MeasurementState:
    """What `attach` would say of stacks here, by opening and closing everything they need."""
    taking = StackTaking(AUTO, "", in_pid_namespace=in_pid_namespace())
    taking.close()
    return taking.state


class StackTaking:
    """Made before privileges are given up; takes nothing until it is steered to.

    Args:
        wanted: `always`, `auto` (while the verdict is that of a target's own CPU time) or `never`.
        strategy: of the probes beside it.

    Attributes:
        state: of the measurement; what it cannot do is said there.
    """

    def __init__(self, wanted: str, strategy: str, *, in_pid_namespace: bool = False) -> None:
        self._wanted = wanted
        self._sampler: Optional[StackSampler] = None
        self._culprits: FrozenSet[int] = frozenset()
        self._ends_ns = 0
        why = {NEVER: "--no-stacks was given"}.get(wanted)
        if strategy == "bcc":
            why = BY_BCC
        self.state = self._opened(in_pid_namespace) if why is None else _off(why)

    @property
    def is_steered(self) -> bool:
        """Whether every interval has to be judged for it."""
        return self._sampler is not None

    def steer(self, report: Report, now_ns: int) -> None:
        """Begin, go on or stop, by the last verdict."""
        if self._sampler is None:
            return
        if self._wanted == ALWAYS:
            self._watch(_running(report))
            return
        culprits = culprit_pids(report) if _is_asked_for(report) else frozenset()
        if culprits and culprits != self._culprits:
            self._ends_ns = now_ns + int(WINDOW_S * 1e9)
        self._culprits = culprits
        self._watch(culprits if now_ns < self._ends_ns else ())

    def begin(self, pids: Iterable[int]) -> None:
        """With the first targets, where stacks are always taken."""
        if self._wanted == ALWAYS:
            self._watch(pids)

    def reading(self) -> Optional[StackReading]:
        """What was seen so far; None before anything was asked for."""
        sampler = self._sampler
        if sampler is None or not sampler.on_ns():
            return None
        self._profile.add(sampler.take())
        stacks = self._profile.counts()
        sampled = sorted({each.pid for each in stacks})
        return StackReading(
            hz=HZ,
            on_ns=sampler.on_ns(),
            lost=sampler.lost(),
            pids=tuple(sorted(sampler.pids)) if sampler.is_on else (),
            mapped_pids=tuple(pid for pid in sampled if self._profile.maps_of(pid)),
            unwinds=self._profile.unwinds,
            stacks=stacks,
        )

    def maps_bytes(self) -> int:
        """Kernel memory of its maps."""
        return 0 if self._sampler is None else self._sampler.maps_bytes()

    def stop(self) -> None:
        """Take no more; what came is there to be read."""
        if self._sampler is not None:
            self._sampler.switch(on=False)

    def close(self) -> None:
        """Give everything back. May be called twice."""
        if self._sampler is not None:
            self._sampler.close()
            self._profile.close()
            self._sampler = None

    def _watch(self, pids: Iterable[int]) -> None:
        if self._sampler is None:
            return
        chosen = frozenset(pids)
        self._sampler.watch(chosen)
        self._sampler.switch(on=bool(chosen))

    def _opened(self, in_pid_namespace: bool) -> MeasurementState:
        try:
            self._sampler = StackSampler(in_pid_namespace=in_pid_namespace)
        except KernelCannotError as error:
            return _off(error.what)
        except OSError as error:
            return _off(_refusal(error))
        # Opens what can be opened with privileges only, too.
        from udsprobe.symbols.stack_profile import StackProfile

        self._profile = StackProfile()
        if not self._profile.unwinds:
            return MeasurementState(NAME, RESTS_ON, "degraded", WITHOUT_LIBDW)
        return MeasurementState(NAME, RESTS_ON, "on", None)


def _running(report: Report) -> Tuple[int, ...]:
    return tuple(each.pid for each in report.targets if each.state == "running")


def _is_asked_for(report: Report) -> bool:
    return report.verdict is not None and report.verdict.cause in CAUSES


def _refusal(error: OSError) -> str:
    if isinstance(error, LibbpfError):
        with suppress(IndexError):
            return f"this kernel refuses to sample stacks ({str(error).split('] ', 1)[1]})"
    return f"stacks cannot be sampled here ({error.strerror or error})"


def _off(why: str) -> MeasurementState:
    return MeasurementState(NAME, None, "off", why)
