"""When stacks are taken, and of whom: while a target's code is what the verdict blames."""

from __future__ import annotations

import platform
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Callable, FrozenSet, Iterable, Optional, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.syscall_table import syscall_tables
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.proc.own_namespaces import in_pid_namespace
from udsprobe.kernel.programs.kept import KeptPrograms
from udsprobe.kernel.stacks.loaded import LoadedStacks, load_stacks
from udsprobe.kernel.stacks.sampler import HZ, RESTS_ON, RESTS_ON_CLOCK, StackSampler
from udsprobe.sample import MeasurementState, StackReading

if TYPE_CHECKING:
    from udsprobe.model.report import Report

NAME = "stacks"
WINDOW_S = 10.0
"""After a cause is named: a thousand samples of a thread that runs all the time."""

LOOK_EVERY_S = 0.05
HELD_BYTES = 1 << 20
"""Of stacks that have no names yet: more than these are named before the interval is over."""

ALWAYS, AUTO, NEVER = "always", "auto", "never"
BY_BCC = "strategy bcc takes no stacks"
WITHOUT_LIBDW = (
    "only innermost functions of programs without frame pointers: libdw.so.1 (elfutils) is not "
    "installed"
)
NO_SLEEP = "stacks of running threads only: this kernel does not show where threads fall asleep"
CAUSES = frozenset({"app-cpu", "app-blocked", "upstream-wait"})
_RUNNING = frozenset({"app-cpu"})
_ASLEEP = CAUSES - _RUNNING


class _Looking(Thread):
    """Looks at the sampler some times a second, while that is on: a sleep that lasts is then seen,
    and no ring is full.

    Args:
        enough: done when there is more than is to be held; it must not wait for long.
    """

    def __init__(self, sampler: StackSampler, enough: Callable[[], object]) -> None:
        super().__init__(name="stacks", daemon=True)
        self._sampler, self._enough = sampler, enough
        self._ends = Event()
        self.start()

    def run(self) -> None:
        while not self._ends.wait(LOOK_EVERY_S):
            self._sampler.look()
            if self._sampler.held_bytes >= HELD_BYTES:
                self._enough()

    def end(self) -> None:
        self._ends.set()
        self.join()


class _Naming(Thread):
    """Does some work each time that it is told to, beside who looks: reading symbols takes half a
    second at first."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(name="names", daemon=True)
        self._work = work
        self._is_due, self._ends = Event(), False
        self.start()

    def run(self) -> None:
        while self._is_due.wait() and not self._ends:
            self._is_due.clear()
            self._work()

    def tell(self) -> None:
        self._is_due.set()

    def end(self) -> None:
        self._ends = True
        self._is_due.set()
        self.join()


def tried() -> MeasurementState:
    """What `attach` would say of stacks here, by opening and closing everything they need."""
    taking = StackTaking(AUTO, "", in_pid_namespace=in_pid_namespace())
    taking.close()
    return taking.state


class StackTaking:
    """Made before privileges are given up; takes nothing until it is steered to.

    Args:
        wanted: `always`, `auto` (for a while after the verdict is one of `CAUSES`) or `never`.
        strategy: of the probes beside it.
        requests: descriptor of the map with the processes' open requests, where there is one.
        kept: where its programs are taken from, and stay when this is closed; None: nowhere.

    Attributes:
        state: of the measurement; what it cannot do is said there.
        loading_s: CPU time of this process that loading took; 0 where all was loaded before.
    """

    def __init__(
        self,
        wanted: str,
        strategy: str,
        *,
        in_pid_namespace: bool = False,
        requests: Optional[int] = None,
        kept: Optional[KeptPrograms] = None,
    ) -> None:
        self._wanted, self._kept = wanted, kept
        self.loading_s = 0.0
        self._sampler: Optional[StackSampler] = None
        self._looking: Optional[_Looking] = None
        self._naming: Optional[_Naming] = None
        # Of the profile.
        self._lock = Lock()
        self._culprits: Tuple[str, FrozenSet[int]] = ("", frozenset())
        self._ends_ns = 0
        self._parked_at_ns = 0
        self._maps_bytes, self._was_on = 0, False
        why = {NEVER: "--no-stacks was given"}.get(wanted)
        if strategy == "bcc":
            why = BY_BCC
        self.state = self._opened(in_pid_namespace, requests) if why is None else _off(why)

    @property
    def is_steered(self) -> bool:
        """Whether every interval has to be judged for it."""
        return self._sampler is not None

    def steer(self, report: Report, now_ns: int) -> None:
        """Begin, go on or stop, by the last verdict; after privileges were given up."""
        if self._sampler is None:
            return
        self._follow(report, now_ns)
        self.keep_looking()

    def keep_looking(self) -> None:
        """While it is on; after privileges were given up: a thread would keep its own."""
        if self._sampler is not None and self._sampler.is_on and self._looking is None:
            self._naming = _Naming(self._name_some)
            self._looking = _Looking(self._sampler, self._naming.tell)

    def _follow(self, report: Report, now_ns: int) -> None:
        if self._wanted == ALWAYS:
            self._watch(_running(report), CAUSES)
            return
        cause = _cause(report)
        pids = culprits(report) if cause else frozenset()
        was, known = self._culprits
        known = known if cause == was else frozenset()
        if not pids <= known:
            self._ends_ns = now_ns + int(WINDOW_S * 1e9)
        # Which workers serve differs from interval to interval: once all were watched it is over.
        known |= pids
        self._culprits = (cause, known)
        watched = known.intersection(_running(report)) if now_ns < self._ends_ns else ()
        self._watch(watched, frozenset({cause}))

    def begin(self, pids: Iterable[int]) -> None:
        """With the first targets, where stacks are always taken."""
        if self._wanted == ALWAYS:
            self._watch(pids, CAUSES)

    def reading(self) -> Optional[StackReading]:
        """What was seen so far; None before anything was asked for."""
        sampler = self._sampler
        if sampler is None or not (sampler.on_ns() or sampler.asleep_on_ns()):
            return None
        with self._lock:
            return self._read(sampler)

    def _read(self, sampler: StackSampler) -> StackReading:
        on_ns, asleep_on_ns = sampler.on_ns(), sampler.asleep_on_ns()
        # Naming them takes a while, in which more come.
        self._profile.add(sampler.take())
        self._look_at_parked(sampler, asleep_on_ns)
        stacks = self._profile.counts()
        sampled = sorted({each.pid for each in stacks})
        return StackReading(
            hz=HZ,
            on_ns=on_ns,
            lost=sampler.lost(),
            pids=tuple(sorted(sampler.pids)) if sampler.is_on else (),
            mapped_pids=tuple(pid for pid in sampled if self._profile.names_code_of(pid)),
            unwinds=self._profile.unwinds,
            stacks=stacks,
            asleep_on_ns=asleep_on_ns,
            waits_lost=sampler.waits_lost(),
            sees_owing=sampler.sees_owing,
        )

    def _name_some(self) -> None:
        """What is held, unless all of it is being named anyway."""
        if self._sampler is not None and self._lock.acquire(blocking=False):
            try:
                self._profile.add_some(self._sampler.take_held())
            finally:
                self._lock.release()

    def _look_at_parked(self, sampler: StackSampler, asleep_on_ns: int) -> None:
        """No thread sleeps for what waits in a runtime for another one, a lock or time."""
        if sampler.watches_sleep:
            self._profile.look_at_parked(sampler.pids, asleep_on_ns - self._parked_at_ns)
        self._parked_at_ns = asleep_on_ns

    def maps_bytes(self) -> int:
        """Kernel memory of its maps, which does not change while it is off."""
        if self._sampler is None:
            return 0
        was_on, self._was_on = self._was_on, self._sampler.is_on
        if was_on or self._was_on or not self._maps_bytes:
            self._maps_bytes = self._sampler.maps_bytes()
        return self._maps_bytes

    def children_ns(self) -> int:
        """CPU time of processes of its own, which is in no clock of this one."""
        return 0 if self._sampler is None else self._profile.children_ns

    def children(self) -> FrozenSet[int]:
        """The pids that these had."""
        return frozenset() if self._sampler is None else self._profile.children

    def stop(self) -> None:
        """Take no more; what came is there to be read."""
        self._end_looking()
        if self._sampler is not None and self._sampler.is_on:
            self._sampler.switch(running=False, asleep=False)
            self._profile.add(self._sampler.take())
            self._profile.settle()

    def _end_looking(self) -> None:
        # A thread that wakes up 20 times a second for nothing takes a quarter of all our time.
        looking, self._looking = self._looking, None
        naming, self._naming = self._naming, None
        for thread in (looking, naming):
            if thread is not None:
                thread.end()

    def close(self) -> None:
        """Give everything back. May be called twice."""
        self._end_looking()
        sampler, self._sampler = self._sampler, None
        if sampler is None:
            return
        self._profile.close()
        try:
            if self._kept is not None:
                self._kept.put_stacks(sampler.release())
                return
        except LibbpfError:
            pass
        sampler.close()

    def _watch(self, pids: Iterable[int], causes: FrozenSet[str]) -> None:
        if self._sampler is None:
            return
        chosen = frozenset(pids)
        if chosen:
            with self._lock:
                self._sampler.watch(chosen, self._profile.runtimes_of)
            self._sampler.switch(running=bool(_RUNNING & causes), asleep=bool(_ASLEEP & causes))
        else:
            self.stop()

    def _opened(self, in_pid_namespace: bool, requests: Optional[int]) -> MeasurementState:
        try:
            sampler = StackSampler(self._programs(in_pid_namespace, requests))
        except KernelCannotError as error:
            return _off(error.what)
        except OSError as error:
            return _off(_refusal(error))
        self._sampler = sampler
        # Opens what can be opened with privileges only, too.
        from udsprobe.symbols.stack_profile import StackProfile

        names = syscall_tables(platform.machine())[0].names
        self._profile = StackProfile(names)
        rests_on = RESTS_ON if sampler.sees_sleep else RESTS_ON_CLOCK
        lacks = [] if self._profile.unwinds else [WITHOUT_LIBDW]
        lacks += [] if sampler.sees_sleep else [NO_SLEEP]
        state = "degraded" if lacks else "on"
        return MeasurementState(NAME, rests_on, state, "; ".join(lacks) or None)

    def _programs(self, in_pid_namespace: bool, requests: Optional[int]) -> LoadedStacks:
        kept = None if self._kept is None else self._kept.take_stacks()
        if kept is not None:
            return kept
        loaded = load_stacks(in_pid_namespace=in_pid_namespace, requests=requests)
        self.loading_s = loaded.loading_s
        return loaded


def _running(report: Report) -> Tuple[int, ...]:
    return tuple(each.pid for each in report.targets if each.state == "running")


def culprits(report: Report) -> FrozenSet[int]:
    """The processes whose stacks tell more of the verdict; of an upstream, who asks by itself."""
    # With the first report: before it, what there is to count is waiting.
    from udsprobe.model.code.stacks import culprit_pids
    from udsprobe.rules.servers import PASS_ON, recognise

    found = culprit_pids(report)
    if _cause(report) != "upstream-wait":
        return found
    targets = (each for each in report.targets if each.pid in found)
    return frozenset(
        each.pid for each in targets if recognise(each.comm, each.cmdline) not in PASS_ON
    )


def _cause(report: Report) -> str:
    """The verdict's, where stacks tell more of it."""
    cause = "" if report.verdict is None else report.verdict.cause
    return cause if cause in CAUSES else ""


def _refusal(error: OSError) -> str:
    if isinstance(error, LibbpfError):
        with suppress(IndexError):
            return f"this kernel refuses to sample stacks ({str(error).split('] ', 1)[1]})"
    return f"stacks cannot be sampled here ({error.strerror or error})"


def _off(why: str) -> MeasurementState:
    return MeasurementState(NAME, None, "off", why)
