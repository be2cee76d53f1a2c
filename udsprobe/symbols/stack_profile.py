"""Samples of stacks → counts of named stacks, as a sample of the observation holds them."""

from __future__ import annotations

import platform
from typing import (
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from udsprobe.kernel.objects.own_memory import give_back
from udsprobe.kernel.proc.process_memory import ProcessMemory
from udsprobe.kernel.stacks.raw_stacks import (
    Came,
    Event,
    Held,
    RawStack,
    SleepBegan,
    SleepTime,
    Untold,
    Wait,
    event_of,
    pid_of,
)
from udsprobe.kernel.stacks.runtimes import Runtimes
from udsprobe.kernel.stacks.v8_frames import V8Frame
from udsprobe.sample import (
    ASYNC_FUNCTION,
    GOROUTINE,
    GOROUTINE_FOR_BYTES,
    TASK,
    TASK_FOR_BYTES,
    StackCounts,
)
from udsprobe.symbols.cpython.stacks import PythonStacks
from udsprobe.symbols.frame_rules import MACHINES, Machine
from udsprobe.symbols.go.goroutine_stacks import GoroutineStacks
from udsprobe.symbols.java.stacks import JavaStacks
from udsprobe.symbols.kernel_functions import KernelFunctions
from udsprobe.symbols.php.stacks import PhpStacks
from udsprobe.symbols.process_names import CodeFrame, ParkedStack, ProcessNames
from udsprobe.symbols.ruby.stacks import RubyStacks
from udsprobe.symbols.target_images import TargetImages
from udsprobe.symbols.unwinding import Activation, Beside, Place, State, Unwinder
from udsprobe.symbols.v8.stacks import V8Stacks

STACKS_MAX = 2000
"""Different ones that are kept; of a further one its innermost function alone."""

PROCESSES_MAX = 200
THREADS_MAX = 64
"""Of one stack, that are told apart."""

AT_ONCE = 64
"""Of what came, that are taken apart and counted together."""

HOLDERS_MAX = 8
"""Stacks of who has a lock that is waited for in one place; of further ones it is not known."""

SLEEPS_MAX = 10_000
"""That go on at one moment, or whose end was lost."""

CPU, OFF_CPU = "cpu", "off-cpu"
KERNEL = "[kernel]"
_ROOTS = frozenset(
    ("_start", "__libc_start_call_main", "__libc_start_main", "start_thread", "clone", "clone3")
)
# The way into the scheduler says nothing of what is waited for.
_SCHEDULER = frozenset(
    (
        *("__schedule", "schedule", "schedule_timeout", "schedule_preempt_disabled"),
        *("io_schedule", "io_schedule_timeout", "schedule_hrtimeout_range"),
        *("schedule_hrtimeout_range_clock", "__perf_event_task_sched_out"),
    )
)
Row = Tuple[int, str, str, str]
Way = Tuple[List[Activation], bool]
"""From what runs outwards; whether to the outermost function."""

# Programs of 32 bits have other numbers for their calls, and their stacks below this.
_ABOVE_32_BITS = 1 << 32


class _Sleep(NamedTuple):
    """One that goes on; `ns` so far."""

    row: Row
    tid: int
    is_whole: bool
    is_owing: bool
    ns: int


class _Process:
    """Where the names of one process's functions are."""

    def __init__(self, pid: int, images: TargetImages, machine: Optional[Machine]) -> None:
        self.pid = pid
        self.names = ProcessNames(pid, images)
        self.unwinder = None if machine is None else Unwinder(machine, self._place, self.begins)
        self._memory = ProcessMemory(pid)
        self.python = PythonStacks(pid, images, self._memory)
        self.php = PhpStacks(pid, images, self._memory, self.names.is_made_at_run_time)
        self.ruby = RubyStacks(pid, images, self._memory)
        self.v8 = V8Stacks(pid, images, self._memory, self.names.has_code)
        self.java = JavaStacks(pid, images, self._memory)
        self.goroutines = GoroutineStacks(self.names, self._memory, self.unwinder)
        self._look()
        self.rest()

    def refresh(self) -> None:
        """It may have loaded other code."""
        self.python.begin_round()
        self.php.begin_round()
        self.ruby.begin_round()
        self.v8.begin_round()
        if self.unwinder is not None:
            self.unwinder.begin_round()
        is_other = self.java.begin_round()
        if self.names.refresh():
            self._look()
            is_other = True
        if is_other and self.unwinder is not None:
            self.unwinder.forget()

    def begins(self, address: int) -> bool:
        """Whether threads or the program begin in the function there."""
        return self.names.frame(address).function in _ROOTS

    def _place(self, address: int) -> Optional[Place]:
        of_java = self.java.place(address)
        if of_java is not None:
            return of_java
        found = self.names.place(address)
        if self.v8.layout is None or found is None or found.rule:
            return found
        if self.names.is_made_at_run_time(address):
            return found._replace(may_lack_frame=True)
        if found.by_frame_pointer:
            return found
        # Builtins of V8 keep frame pointers; in a stripped file they have no names to know them by.
        is_nameless = self.names.frame(address) == CodeFrame(None, self.v8.module)
        return found._replace(by_frame_pointer=is_nameless)

    def rest(self) -> None:
        """Until more is asked for: it keeps nothing open."""
        self._memory.close()

    def _look(self) -> None:
        self.goroutines.forget()
        self.python.look(self.names.mapped)
        self.php.look(self.names.mapped)
        self.ruby.look(self.names.mapped)
        self.v8.look(self.names.mapped)
        self.java.look(self.names.mapped)

    def frames(self, activations: Sequence[Activation], raw: RawStack) -> List[CodeFrame]:
        """The functions of a stack, also of what is interpreted in it; the innermost first."""
        if raw.python and self.python.layout is not None:
            # With -X perf every function of Python has code of its own, which is no other function.
            of_c = [each for each in activations if not self.names.is_trampoline(each.address)]
            return self.python.merged([self.names.frame(each.address) for each in of_c], raw.python)
        native = [self.names.frame(each.address) for each in activations]
        if raw.php and self.php.layout is not None:
            return self.php.merged(activations, native, raw.php)
        if raw.ruby and self.ruby.layout is not None:
            return self.ruby.merged(native, raw.ruby)
        if self.java.is_there:
            return self.java.named(activations, native, raw)
        if self.v8.layout is None:
            return [one for each in activations for one in self.names.frames(each.address)]
        return self.v8.named(activations, native, raw.v8)


class _Sums:
    """Of one stack."""

    def __init__(self) -> None:
        self.samples = self.truncated = self.ns = self.owing_ns = self.owing = 0
        self.threads: Dict[int, int] = {}
        self.held_by: Dict[str, int] = {}
        # Most are as they were a second ago: two samples share what was told of them.
        self.told: Optional[StackCounts] = None

    def add(self, samples: int, ns: int, owing_ns: int, *, is_whole: bool) -> None:
        self.told = None
        self.samples += samples
        self.truncated += 0 if is_whole else samples
        self.ns += ns
        self.owing_ns += owing_ns

    def add_ran(self, raw: RawStack, *, is_whole: bool) -> None:
        """One sample of what ran."""
        self.add(1, 0, 0, is_whole=is_whole)
        self.owing += raw.is_owing
        self._add_thread(raw.tid, 1)

    def add_sleep(self, sleep: _Sleep) -> None:
        """One, or what it has had so far."""
        self.add(1, sleep.ns, sleep.ns if sleep.is_owing else 0, is_whole=sleep.is_whole)
        self._add_thread(sleep.tid, sleep.ns)

    def add_holders(self, texts: Sequence[str], ns: int) -> None:
        """Waits for a lock, in equal parts for all who have it; none: it is not known who."""
        for text in texts or ("",):
            is_kept = text in self.held_by or len(self.held_by) < HOLDERS_MAX
            kept = text if is_kept else ""
            self.held_by[kept] = self.held_by.get(kept, 0) + ns // (len(texts) or 1)

    def _add_thread(self, tid: int, amount: int) -> None:
        if tid in self.threads or len(self.threads) < THREADS_MAX:
            self.threads[tid] = self.threads.get(tid, 0) + amount


def as_line(frame: CodeFrame) -> str:
    """`function TAB module TAB file TAB line`; what is not known is empty."""
    line = "" if frame.line is None else str(frame.line)
    return "\t".join((frame.function or "", frame.module or "", frame.file or "", line))


def as_text(frames: Sequence[CodeFrame]) -> str:
    """Lines of a stack, the outermost first, of frames that have the innermost first."""
    return "\n".join(as_line(frame) for frame in reversed(frames))


class StackProfile:
    """Counts since the observation began.

    Args:
        call_names: of system calls by their numbers here.
    """

    def __init__(self, call_names: Optional[Mapping[int, str]] = None) -> None:
        self._call_names = call_names or {}
        machine = MACHINES.get(platform.machine())
        self._machine = machine
        self._images = TargetImages(machine)
        self._kernel = KernelFunctions()
        self._processes: Dict[int, _Process] = {}
        self._counts: Dict[Row, _Sums] = {}
        self._sleeps: Dict[Wait, _Sleep] = {}
        self._untold: Dict[Tuple[int, int, int], Untold] = {}

    @property
    def unwinds(self) -> bool:
        """Callers are found by call frame information, not by frame pointers alone."""
        return self._images.unwinds

    @property
    def children_ns(self) -> int:
        """CPU time of processes that read what names need."""
        return self._images.children_ns

    @property
    def children(self) -> FrozenSet[int]:
        """The pids that these had."""
        return self._images.children

    def add(self, came: Came) -> None:
        """Count what came, each stack under the names that its addresses have now."""
        self._count(came, list(self._processes.values()))
        give_back()

    def add_some(self, came: Came) -> None:
        """The same, between two times at which all is counted: nobody else is looked at."""
        pids = {pid_of(each) for each in came.events}
        self._count(came, [each for pid, each in self._processes.items() if pid in pids])

    def _count(self, came: Came, processes: Sequence[_Process]) -> None:
        for process in processes:
            process.refresh()
        for at in range(0, len(came.events), AT_ONCE):
            self._count_some(came.events[at : at + AT_ONCE])
        for sums in came.untold:
            self._process(sums.pid).names.want(sums.ip)
        self._look()
        for sums in came.untold:
            self._add_untold(sums)
        for process in self._processes.values():
            process.rest()
        self._images.rest()

    def _count_some(self, held: Sequence[Held]) -> None:
        events = [event_of(each) for each in held]
        ways = [self._way(event) for event in events]
        self._look()
        for event, way in zip(events, ways):
            if isinstance(event, RawStack):
                row, is_whole = self._row(event, way, CPU)
                self._sums(row).add_ran(event, is_whole=is_whole)
            elif isinstance(event, SleepBegan):
                self._fell_asleep(event, way)
            else:
                self._slept(event)

    def _look(self) -> None:
        """What can be told of the addresses of the stacks is then known."""
        if self._images.look():
            for process in self._processes.values():
                process.names.forget()

    def _way(self, event: Event) -> Way:
        if isinstance(event, SleepTime):
            return [], False
        raw = event.stack if isinstance(event, SleepBegan) else event
        process = self._process(raw.pid)
        way = self._activations(raw, process)
        for each in way[0]:
            process.names.want(each.address)
        return way

    def look_at_parked(self, pids: Iterable[int], ns: int) -> None:
        """Count where goroutines, tasks and async functions wait at this moment, each for the time
        since the last look.

        Args:
            ns: that time.
        """
        for process in [known for pid in sorted(pids) if (known := self._looked_at(pid))]:
            for goroutine in process.goroutines.waiting():
                kind = GOROUTINE_FOR_BYTES if goroutine.for_bytes else GOROUTINE
                self._add_parked(process.pid, kind, goroutine, ns)
            for task in process.python.waiting_tasks():
                kind = TASK_FOR_BYTES if task.for_bytes else TASK
                self._add_parked(process.pid, kind, task, ns)
            for function in process.v8.waiting_functions():
                self._add_parked(process.pid, ASYNC_FUNCTION, function, ns)
            process.rest()
        self._images.rest()

    def _add_parked(self, pid: int, call: str, stack: ParkedStack, ns: int) -> None:
        wanted = (pid, OFF_CPU, call, as_text(stack.frames))
        row, waited_ns = self._kept(wanted), ns * stack.waiting
        owing_ns = waited_ns if stack.is_owing else 0
        is_whole = stack.is_whole and row == wanted
        self._sums(row).add(stack.waiting, waited_ns, owing_ns, is_whole=is_whole)
        if stack.held_by is not None:
            self._sums(row).add_holders([as_text(each) for each in stack.held_by], waited_ns)

    def _looked_at(self, pid: int) -> Optional[_Process]:
        """None: it is one of more than `PROCESSES_MAX`."""
        if pid not in self._processes and len(self._processes) >= PROCESSES_MAX:
            return None
        return self._process(pid)

    def counts(self) -> Tuple[StackCounts, ...]:
        """All stacks that were seen; sleeps that go on count with what they have had so far."""
        going_on: Dict[Row, _Sums] = {}
        for sleep in self._sleeps.values():
            going_on.setdefault(sleep.row, _Sums()).add_sleep(sleep)
        rows = {**dict.fromkeys(self._counts), **dict.fromkeys(going_on)}
        return tuple(self._told(row, going_on.get(row)) for row in rows)

    def _told(self, row: Row, going_on: Optional[_Sums]) -> StackCounts:
        counted = self._counts.get(row) or _Sums()
        if going_on is not None:
            return _told(row, counted, going_on)
        if counted.told is None:
            counted.told = _told(row, counted, _Sums())
        return counted.told

    def settle(self) -> None:
        """No more is heard of the sleeps that go on."""
        for sleep in self._sleeps.values():
            self._sums(sleep.row).add_sleep(sleep)
        self._sleeps.clear()

    def runtimes_of(self, pid: int) -> Optional[Runtimes]:
        """How the frames of what interprets a process's code are followed.

        None: it is one of more than `PROCESSES_MAX`, and was not looked at.
        """
        process = self._looked_at(pid)
        if process is None:
            return None
        return Runtimes(
            process.python.layout, process.v8.layout, process.php.layout, process.ruby.layout
        )

    def names_code_of(self, pid: int) -> bool:
        """Whether what it makes at run time, or interprets, has names: by a perf map that may be
        read, or by the memory of CPython, V8, PHP, Ruby or HotSpot.
        """
        known = self._processes.get(pid)
        if known is None:
            return False
        by_memory = (known.python, known.v8, known.php, known.ruby, known.java)
        return known.names.has_perf_map or any(each.has_named for each in by_memory)

    def close(self) -> None:
        """Let go of all files."""
        self._images.close()
        self._kernel.close()
        self._processes.clear()

    def _fell_asleep(self, event: SleepBegan, way: Way) -> None:
        if len(self._sleeps) >= SLEEPS_MAX:
            self.settle()
        row, is_whole = self._row(event.stack, way, OFF_CPU)
        self._sleeps[event.wait] = _Sleep(row, event.stack.tid, is_whole, event.is_owing, 0)

    def _slept(self, event: SleepTime) -> None:
        sleep = self._sleeps.get(event.wait)
        if sleep is None:
            return
        sleep = sleep._replace(ns=max(sleep.ns, event.ns))
        self._sleeps[event.wait] = sleep
        if event.has_ended:
            del self._sleeps[event.wait]
            self._sums(sleep.row).add_sleep(sleep)

    def _add_untold(self, sums: Untold) -> None:
        key = (sums.pid, sums.call, sums.ip)
        before = self._untold.get(key, Untold(*key, 0, 0, 0))
        self._untold[key] = sums
        waits = sums.waits - before.waits
        if not waits:
            return
        names = self._process(sums.pid).names
        frame = names.frame(sums.ip) if sums.ip else _NOBODY
        owing_ns = sums.owing_ns - before.owing_ns
        row = self._kept((sums.pid, OFF_CPU, self._call(sums.call), as_line(frame)))
        self._sums(row).add(waits, sums.ns - before.ns, owing_ns, is_whole=False)

    def _row(self, raw: RawStack, way: Way, on: str) -> Tuple[Row, bool]:
        """Under which it counts; whether its stack reaches its outermost function."""
        process = self._process(raw.pid)
        activations, is_whole = way
        frames = [CodeFrame(self._kernel.at(ip), KERNEL) for ip in raw.kernel]
        if on == OFF_CPU:
            frames = _without_scheduler(frames)
        frames += process.frames(activations, raw)
        is_whole = is_whole or process.php.is_whole(raw.php) or process.ruby.is_whole(raw.ruby)
        lines = [as_line(frame) for frame in reversed(frames)] or [as_line(_NOBODY)]
        call = self._call(raw.call) if on == OFF_CPU and _is_64_bit(raw) else ""
        row = (raw.pid, on, call, "\n".join(lines))
        kept = self._kept(row)
        return kept, is_whole and kept == row

    def _kept(self, row: Row) -> Row:
        """Itself, or when there are too many its innermost function alone."""
        if row in self._counts or len(self._counts) < STACKS_MAX:
            return row
        pid, on, call, text = row
        return pid, on, call, text.rpartition("\n")[2]

    def _call(self, number: int) -> str:
        return self._call_names.get(number, "")

    def _sums(self, row: Row) -> _Sums:
        return self._counts.setdefault(row, _Sums())

    def _activations(self, raw: RawStack, process: _Process) -> Way:
        """Of the program, the innermost first; whether they reach its outermost function."""
        registers = raw.registers
        if not registers.ip or process.unwinder is None:
            return self._by_frame_pointers(raw, process)
        start = State(registers.ip, registers.sp, registers.fp, registers.link or None)
        beside = Beside(registers.x86, _chained(raw.v8))
        return process.unwinder.callers(start, raw.memory, beside)

    def _by_frame_pointers(self, raw: RawStack, process: _Process) -> Way:
        """The callers only where they lead to where threads begin: else they are anything."""
        if not raw.user:
            return [], not raw.kernel
        addresses = [raw.user[0], *(address - 1 for address in raw.user[1:])]
        is_whole = process.begins(addresses[-1])
        found = [Activation(each, 0) for each in (addresses if is_whole else addresses[:1])]
        return found, is_whole

    def _process(self, pid: int) -> _Process:
        known = self._processes.get(pid)
        if known is None:
            if len(self._processes) >= PROCESSES_MAX:
                self._processes.clear()
            machine = self._machine if self.unwinds else None
            known = self._processes[pid] = _Process(pid, self._images, machine)
        return known


def _chained(frames: Sequence[V8Frame]) -> Dict[int, int]:
    """Words of memory that follow from frame pointers: further out than was copied."""
    outer = [each.fp for each in frames[1:]] + [0]
    words = {each.fp: fp for each, fp in zip(frames, outer)}
    return {**words, **{each.fp + 8: each.caller for each in frames}}


_NOBODY = CodeFrame(None, None)


def _is_64_bit(raw: RawStack) -> bool:
    return raw.registers.sp >= _ABOVE_32_BITS


def _without_scheduler(frames: List[CodeFrame]) -> List[CodeFrame]:
    first = 0
    while first < len(frames) and frames[first].function in _SCHEDULER:
        first += 1
    return frames[first:]


def _told(row: Row, counted: _Sums, going_on: _Sums) -> StackCounts:
    pid, on, call, frames = row
    return StackCounts(
        pid=pid,
        on=on,
        call=call,
        frames=frames,
        samples=counted.samples + going_on.samples,
        truncated=counted.truncated + going_on.truncated,
        slept_ns=counted.ns + going_on.ns,
        owing_ns=counted.owing_ns + going_on.owing_ns,
        owing_samples=counted.owing if on == CPU else None,
        # Not of those that go on: there may be no room for their threads when they end, and what
        # was told only grows.
        threads=dict(counted.threads),
        held_by=dict(counted.held_by),
    )
