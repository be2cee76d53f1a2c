"""What the kernel half has counted, read from its maps into sample types."""

from __future__ import annotations

import ctypes
import errno
import operator
import re
import struct
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from udsprobe.kernel.abilities.syscall_table import SyscallTable
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.shared_memory import (
    AddedUp,
    ArrayAtTimes,
    Row,
    SharedArray,
    SharedGlobals,
    combined,
    words_at,
    words_of_raw,
)
from udsprobe.kernel.tables.target_book import ProcessesSeen, TargetNames
from udsprobe.printable import printable
from udsprobe.sample import (
    URING_PREFIX,
    CallCounts,
    CallInFlight,
    Endpoint,
    HttpReplyCounts,
    LatencyCounts,
    LoopCounts,
    PieceCounts,
    ServedCounts,
    ThreadActivities,
    TrafficCounts,
)

# Where Python prefers the C library's second name; 0 is the slot of the rest.
KERNEL_ERRNO_NAMES = {0: "above EHWPOISON", 35: "EDEADLK", 95: "EOPNOTSUPP"}
ABIS = ("native", "compat")
# `enum direction`
DIRECTIONS = ("sent", "received")
# Of `statuses` in `struct replies`.
FIRST_FAILED_STATUS = 500
# bpf/maps.bpf.h
FOLLOWED_HASH, FOLLOWED_SHIFT = 0x9E3779B97F4A7C15, 48
TURNED_AWAY = (
    *("threads", "processes", "connections", "listeners", "connects", "upstreams"),
    *("servers", "uring", "interrupted_calls", "waits"),
)
_MARK = struct.Struct("<II")
# Each takes about a µs; what one waits for is over in some ns, unless its task was preempted.
SETTLING_READS = 1000


def call_name(
    number: int, tables: Tuple[SyscallTable, SyscallTable], numbers: Mapping[str, int]
) -> Optional[str]:
    """Of the call that a thread sleeps in; None where it sleeps in none.

    Args:
        tables: native and 32-bit system-call numbers.
        numbers: `enum call_number`.
    """
    if number == numbers["NO_CALL"]:
        return None
    compat = numbers["COMPAT_CALL"]
    return tables[bool(number & compat)].names.get(number & ~compat)


@dataclass(frozen=True)
class ThreadReading:
    """A living thread of a target, the call it is in, if any, and its turns round a poller."""

    pid: int
    tid: int
    in_flight: Optional[CallInFlight]
    activities: ThreadActivities
    loop: LoopCounts


@dataclass(frozen=True)
class ThreadsSeen:
    """The living threads at one moment.

    Attributes:
        readings: of those that slept since the last time, the same objects.
        ran: processes with a thread that did not sleep all the time since the last time, or
            since their sockets were listed.
    """

    readings: Tuple[ThreadReading, ...]
    ran: FrozenSet[int]


@dataclass(frozen=True)
class EventAccount:
    """Calls of targets that ended: all, those in the table, those without a free series.

    Attributes:
        unread_messages: of these calls, messages whose length was not readable.
    """

    seen: int
    counted: int
    map_full: int
    unread_messages: int


class Counters:
    """Everything one loaded object has counted.

    Args:
        loaded: the object; its maps stay open as long as this.
        tables: native and 32-bit system-call numbers.
        cpus: entries of the per-CPU arrays.
        series_max: series of each CPU in the array of calls.
    """

    def __init__(
        self,
        loaded: ProbeObject,
        tables: Tuple[SyscallTable, SyscallTable],
        cpus: int,
        series_max: int,
    ) -> None:
        self._object = loaded
        self._tables = tables
        self._cpus = range(cpus)
        btf = loaded.btf
        self._series_max = series_max
        call = btf.structure("call_counts")
        self._calls = ArrayAtTimes(loaded, "calls", cpus * series_max, ctypes.sizeof(call))
        self._call_maxima = [words_at(call, "latency", "max_ns").start]
        self._no_call = bytes(call())
        # By key: as it was read last, of each CPU that made any.
        self._calls_known: Dict[int, Tuple[List[bytes], CallCounts]] = {}
        self._latencies: Dict[int, Tuple[Row, LatencyCounts]] = {}
        self._by_name: Tuple[List[Row], Dict[str, int]] = ([], {})
        self._per_cpu = SharedArray(loaded, "cpus", cpus, btf.structure("cpu_counts"))
        self._globals = SharedGlobals(loaded)
        self._keys = CallKeys(btf)
        self._untold = 0
        self._activities = enum_names(btf.enum("activity"), "ACTIVITY_")
        self._awake = btf.enum("activity")["ACTIVITY_MAX"]
        self._stages = enum_names(btf.enum("stage"), "STAGE_")
        self._stages_count = btf.enum("stage")["STAGE_MAX"]
        self._all_cpus = AddedUp(self._per_cpu, self._cpus, self._places_of_maxima())
        self._process = btf.structure("process_state")
        self._living = btf.structure("process_record")
        # Every record as it was listed last → pid. -1: nobody was looked for yet.
        self._listed: Dict[bytes, int] = {}
        self._exits = -1
        self._thread = btf.structure("thread_record")
        self._doing = enum_names(btf.enum("doing"), "DOING_")
        self._call_numbers = btf.enum("call_number")
        self._mark_bytes = ctypes.sizeof(btf.structure("thread_mark"))
        self._threads: Dict[int, ThreadReading] = {}
        self._told_at_ns = 0

    @contextmanager
    def seeding(self) -> Iterator[None]:
        """While it lasts, children of processes not visited yet are adopted too."""
        self._globals.set("seeding", 1)
        try:
            yield
        finally:
            self._globals.set("seeding", 0)

    def traced_threads(self) -> int:
        """Strategy `fentry`: threads whose calls come by the tracepoints."""
        return self._globals.get("traced_threads")

    def say_tracepoints_are(self, on: bool) -> None:
        """Strategy `fentry`: whether programs stand at the tracepoints of system calls."""
        self._globals.set("tracepoints_are_on", on)

    def say_light(self, light: bool) -> None:
        """Whether no program is on system calls."""
        self._globals.set("is_light", light)
        if not light:
            self._globals.set("full_since_ns", time.monotonic_ns())

    def programs_unseen(self) -> int:
        """Strategy `fentry`: 32-bit programs that began where nobody saw their calls."""
        return self._globals.get("programs_unseen")

    def say_preempt_count_is_at(self, distance: int) -> None:
        """How far a CPU's preemption count is from its run queue, bytes."""
        self._globals.set("preempt_count_at", distance % (1 << 64))

    def stop(self) -> None:
        """Strategy `fentry`: no call counts from now on."""
        self._globals.set("stopped", 1)

    @contextmanager
    def marking(self) -> Iterator[None]:
        """A round in which every living connection is marked; marks of two rounds count."""
        following = self._globals.get("followed_round") + 1
        self._globals.set("followed_round", following)
        yield
        self._globals.set("followed_since", following - 1)

    def follow(self, sk: int) -> None:
        """As `follow` of bpf/maps.bpf.h: mark a socket's address before it enters a map."""
        slot = sk * FOLLOWED_HASH % (1 << 64) >> FOLLOWED_SHIFT
        self._globals.set_word("followed", slot, self._globals.get("followed_round") + 1)

    def endpoint(self, value: int) -> Endpoint:
        """What a value of `enum endpoint` means."""
        return self._keys.endpoints[value]

    def next_interval(self) -> int:
        """Begin another interval for high-water marks; returns the one that ended."""
        ended = self._globals.get("interval")
        self._globals.set("interval", (ended + 1) % (1 << 32))
        return ended

    def upstreams_used(self) -> int:
        """Destinations so far."""
        return self._globals.get("upstreams_used")

    def reset_open_connections(self, weight_min: int = 0, *, all_of_them: bool = True) -> None:
        """Before they are listed, which counts them and what waits on them.

        Args:
            weight_min: lighter ones are not listed unless they hold bytes to be sent.
            all_of_them: look at those as well that were empty and that nothing happened to.
        """
        self._globals.set("connections_open", 0)
        self._globals.set("listed", 0)
        self._globals.set("listed_weight_min", weight_min)
        self._globals.set("looks_at_all", all_of_them)
        self._globals.set("listing", (self._globals.get("listing") + 1) % (1 << 32))

    def listing(self) -> int:
        """The number of the last listing of connections."""
        return self._globals.get("listing")

    def begin_seeding_connections(self) -> None:
        """Bytes that are queued already waited since at least now; who sleeps on did not run."""
        self._told_at_ns = time.monotonic_ns()
        self._globals.set("seeded_ns", self._told_at_ns)

    def end_telling_arrivals(self) -> None:
        """Bytes of which nobody has told by now come later."""
        if not self._globals.get("ended_ns"):
            self._globals.set("ended_ns", time.monotonic_ns())

    def open_connections(self) -> int:
        """What the last listing counted."""
        return self._globals.get("connections_open")

    def targets_alive(self) -> int:
        """Target processes that have not exited."""
        return self._globals.get("targets_alive")

    def targets_exited(self) -> int:
        """Target processes that have exited since the beginning."""
        return self._globals.get("targets_exited")

    def untold_operations(self) -> int:
        """Of io_uring, whose completion nobody is told of."""
        self._untold = max(self._untold, self._globals.get("uring_untold"))
        return self._untold

    def turned_away(self) -> Dict[str, int]:
        """What found no room, by the map that had none; full ones only."""
        found = {name: self._globals.get(f"{name}_turned_away") for name in TURNED_AWAY}
        return {name: count for name, count in found.items() if count}

    def calls_left(self) -> int:
        """Interrupted calls that a signal's handler never returned to."""
        return self._globals.get("calls_left")

    def count_turned_away_connections(self, refused: int) -> None:
        """Count those for which the map of connections had no room."""
        name = "connections_turned_away"
        self._globals.set(name, self._globals.get(name) + refused)

    def calls(self) -> Tuple[CallCounts, ...]:
        """One entry for each (call, ABI, endpoint) seen so far."""
        found: Dict[int, List[bytes]] = {}
        used = min(self._globals.get("series_used"), self._series_max - 1)
        keys = self._globals.words("key_of_series")
        with self._calls.reading() as raw_of:
            for series in range(1, used + 1):
                raws = (raw_of(cpu * self._series_max + series) for cpu in self._cpus)
                made = [raw for raw in raws if raw != self._no_call]
                found.setdefault(keys[series], []).extend(made)
        return tuple(self._calls_of(key, raws) for key, raws in found.items())

    def _calls_of(self, key: int, raws: List[bytes]) -> CallCounts:
        known = self._calls_known.get(key)
        if known is None or known[0] != raws:
            rows = map(words_of_raw, raws or [self._no_call])
            row = combined(rows, self._call_maxima)
            known = self._calls_known[key] = raws, self._keys.counts(key, row)
        return known[1]

    def all_cpus(self) -> AddedUp:
        """What each CPU counted beside the calls, added up: what those read from that take it."""
        self._all_cpus.take()
        return self._all_cpus

    def calls_by_name(self, row: AddedUp) -> Dict[str, int]:
        """Every system call of the targets; 32-bit ones as `compat:NAME`."""
        by_number = [row.part(self._per_cpu.place(f"{abi}_calls")) for abi in ABIS]
        known = self._by_name[0]
        if not known or not all(map(operator.is_, by_number, known)):
            self._by_name = by_number, named_calls(self._tables, by_number)
        return self._by_name[1]

    def events(self) -> EventAccount:
        """The account of all calls that ended, added up without one that is being counted."""
        names = ("events_seen", "events_counted", "lost_map_full", "unread_messages")
        words = [self._per_cpu.place(name).start for name in names]
        return EventAccount(*map(sum, zip(*(self._settled(cpu, words) for cpu in self._cpus))))

    def _settled(self, cpu: int, words: Sequence[int]) -> Tuple[int, ...]:
        # Between the first two counters of a call are some nanoseconds: read again.
        for _ in range(SETTLING_READS):
            seen, counted, map_full, unread = (self._per_cpu.word(cpu, at) for at in words)
            if seen == counted + map_full:
                break
        return seen, counted, map_full, unread

    def served(self, row: AddedUp) -> ServedCounts:
        """Served requests: how many, how long each took and where."""
        latency = self._latency(row, self._per_cpu.place("served"))
        stages = self._per_cpu.place("stages")
        size = (stages.stop - stages.start) // self._stages_count
        return ServedCounts(
            count=latency.count,
            latency=latency,
            stages={
                name: self._latency(row, slice(begin, begin + size))
                for at, name in self._stages.items()
                for begin in [stages.start + at * size]
                if at < self._stages_count
            },
            app_activity_ns=self.by_activity(row.part(self._per_cpu.place("app_activity_ns"))),
            handed_over=row.part(self._per_cpu.place("handed_over"))[0],
            pipelined=row.part(self._per_cpu.place("pipelined"))[0],
            multiplexed=row.part(self._per_cpu.place("multiplexed"))[0],
            streams=row.part(self._per_cpu.place("streams"))[0],
            tls_handshakes=row.part(self._per_cpu.place("tls_handshakes"))[0],
        )

    def _latency(self, row: AddedUp, place: slice) -> LatencyCounts:
        """The same object as before where nothing was added."""
        words, known = row.part(place), self._latencies.get(place.start)
        if known is None or known[0] is not words:
            known = self._latencies[place.start] = words, latency_of_words(words)
        return known[1]

    def traffic(self, row: AddedUp) -> Tuple[TrafficCounts, ...]:
        """What the sockets of each kind moved, of those that moved anything."""
        words = row.part(self._per_cpu.place("traffic"))
        size = 2 * len(DIRECTIONS)
        rows = (
            TrafficCounts(place, *words[size * kind : size * (kind + 1)])
            for kind, place in sorted(self._keys.endpoints.items())
        )
        return tuple(each for each in rows if each.sent_messages or each.received_messages)

    def loop_busy(self, row: AddedUp) -> LatencyCounts:
        """Times between the return of a poller and its next call, of all threads."""
        return self._latency(row, self._per_cpu.place("loop_busy"))

    def exited_activity_ns(self) -> Mapping[str, int]:
        """Where the time of threads went that have ended, as it is now."""
        place = self._per_cpu.place("exited_activity_ns")
        rows = (self._per_cpu.some(cpu, place) for cpu in self._cpus)
        return self.by_activity(combined(rows, ()))

    def by_activity(self, words: Sequence[int]) -> Mapping[str, int]:
        """The thirteen, by name."""
        return {self._activities[at]: spent for at, spent in enumerate(words)}

    def processes(self) -> ProcessesSeen:
        """The targets, as far as they changed since the last call."""
        raw = self._object.iterate("list_processes")
        size = ctypes.sizeof(self._living)
        listed = {raw[at : at + size] for at in range(0, len(raw), size)}
        fresh, gone = listed - self._listed.keys(), self._listed.keys() - listed
        missing = {self._listed.pop(record) for record in gone}
        changed = {}
        for record in fresh:
            process = self._living.from_buffer_copy(record)
            changed[process.tgid] = process
            self._listed[record] = process.tgid
        exits = self.targets_exited()
        if exits == self._exits and not missing - changed.keys():
            return ProcessesSeen(changed)
        self._exits = exits
        return ProcessesSeen(changed, self.take_processes())

    def take_processes(self) -> Dict[int, Any]:
        """Process id → `struct process_state`; the dead ones leave the map."""
        found = {}
        size = ctypes.sizeof(self._process)
        for key, value in list(self._object.entries("processes", 4, size)):
            process = self._process.from_buffer_copy(value)
            found[struct.unpack("<I", key)[0]] = process
            if process.exited_ns:
                self._object.delete("processes", key)
        return found

    def threads(self) -> ThreadsSeen:
        """Every living thread of the targets."""
        seen = self._told_threads()
        if seen is None:
            self._globals.set("tell_all", 1)
            seen = self._told_threads()
            self._globals.set("tell_all", 0)
        assert seen is not None
        return seen

    def any_thread(self) -> bool:
        """Whether one lives."""
        return bool(self._object.iterate("list_processes"))

    def _told_threads(self) -> Optional[ThreadsSeen]:
        """None when it is left out what was told to somebody else."""
        began_ns = time.monotonic_ns()
        raw = self._object.iterate("list_threads")
        found: Dict[int, ThreadReading] = {}
        ran: Set[int] = set()
        at, end, whole_bytes = 0, len(raw), ctypes.sizeof(self._thread)
        while at < end:
            tid, is_whole = _MARK.unpack_from(raw, at)
            if is_whole:
                found[tid] = reading = self._thread_reading(self._thread.from_buffer_copy(raw, at))
                if not reading.activities.slept_since(self._told_at_ns):
                    ran.add(reading.pid)
                at += whole_bytes
            elif tid in self._threads:
                found[tid] = self._threads[tid]
                at += self._mark_bytes
            else:
                return None
        self._threads, self._told_at_ns = found, began_ns
        return ThreadsSeen(tuple(found.values()), frozenset(ran))

    def _places_of_maxima(self) -> List[int]:
        stages = self._per_cpu.place("stages")
        size = (stages.stop - stages.start) // self._stages_count
        at = self._per_cpu.place("served", "max_ns").start
        offset = at - self._per_cpu.place("served").start
        in_stages = (stages.start + stage * size + offset for stage in range(self._stages_count))
        return [at, *in_stages, self._per_cpu.place("loop_busy", "max_ns").start]

    def _thread_reading(self, record: Any) -> ThreadReading:
        in_flight = None
        if record.in_call:
            in_flight = CallInFlight(
                record.tgid,
                record.mark.tid,
                self._keys.calls[record.call],
                ABIS[record.abi],
                self._keys.endpoints[record.endpoint],
                record.since_ns,
            )
        who = record.tgid, record.mark.tid, printable(record.comm)
        kind, call, futex, inode = self._sleep(record)
        activities = ThreadActivities(
            *who,
            self.by_activity(record.activity_ns),
            self._activities.get(record.asleep) if record.asleep != self._awake else None,
            record.asleep_since_ns,
            kind=kind,
            call=call,
            object=futex,
            inode=inode,
        )
        loop = LoopCounts(*who, record.loops, record.busy_ns, record.busy_max_ns)
        return ThreadReading(record.tgid, record.mark.tid, in_flight, activities, loop)

    def _sleep(self, record: Any) -> Tuple[Optional[str], Optional[str], int, int]:
        """What for, in what call, and at what; nothing where it is not told."""
        if not record.doing:
            return None, None, 0, 0
        call = call_name(record.nr, self._tables, self._call_numbers)
        return self._doing[record.doing], call, record.object, record.inode


class CallKeys:
    """What the numbers mean by which calls are counted.

    Args:
        btf: of the object that counts.
    """

    def __init__(self, btf: Btf) -> None:
        self.calls = {
            value: re.sub("^uring_", URING_PREFIX, name)
            for value, name in enum_names(btf.enum("call"), "CALL_").items()
        }
        self.endpoints = {
            value: endpoint(name)
            for value, name in enum_names(btf.enum("endpoint"), "ENDPOINT_").items()
        }
        self._layout = btf.structure("call_counts")
        limits = btf.enum("limits")
        self._calls_max, self._endpoints_max = limits["CALL_MAX"], limits["ENDPOINT_MAX"]

    def parts(self, key: int) -> Tuple[int, int, int]:
        """The values of `enum call`, `enum abi` and `enum endpoint` in a `series_key`."""
        row, place = divmod(key, self._endpoints_max)
        abi, call = divmod(row, self._calls_max)
        return call, abi, place

    def counts(self, key: int, row: Row) -> CallCounts:
        """One (call, ABI, endpoint), from the words of `struct call_counts`."""
        latency = latency_of_words(row[words_at(self._layout, "latency")])
        call, abi, place = self.parts(key)

        def number(name: str) -> int:
            return row[words_at(self._layout, name)][0]

        return CallCounts(
            name=self.calls[call],
            abi=ABIS[abi],
            endpoint=self.endpoints[place],
            calls=latency.count + number("early_calls"),
            errors=errors_by_name(row[words_at(self._layout, "errors")]),
            bytes=number("bytes"),
            wall_ns=latency.total_ns + number("early_wall_ns"),
            cpu_ns=number("cpu_ns"),
            slow_ns=number("slow_ns"),
            latency=latency,
        )


def named_calls(
    tables: Tuple[SyscallTable, SyscallTable], by_number: Sequence[Sequence[int]]
) -> Dict[str, int]:
    """Calls by name from those by number, of each ABI; 32-bit ones as `compat:NAME`."""
    totals: Dict[str, int] = {}
    for abi, table, numbers in zip(ABIS, tables, by_number):
        prefix = "" if abi == "native" else f"{abi}:"
        for number, calls in enumerate(numbers):
            if calls:
                name = prefix + table.names.get(number, f"syscall_{number}")
                totals[name] = totals.get(name, 0) + calls
    return totals


def endpoint(name: str) -> Endpoint:
    """`unix_stream` → Endpoint("unix", "stream"); the names of `enum endpoint`."""
    transport, _, socket_type = name.partition("_")
    implied = {"tcp": "stream", "udp": "dgram"}
    return Endpoint(transport, socket_type or implied.get(transport))


def errors_by_name(slots: Sequence[int]) -> Mapping[str, int]:
    """errno name → failures, from the slots of `call_counts.errors`."""
    return {error_name(number): count for number, count in enumerate(slots) if count}


def error_name(number: int) -> str:
    """The kernel's name of an errno."""
    known = KERNEL_ERRNO_NAMES.get(number) or errno.errorcode.get(number)
    return known or f"errno {number}"


def latency_of(record: Any) -> LatencyCounts:
    """From the ctypes twin of `struct latency`."""
    return LatencyCounts(record.count, record.total_ns, record.max_ns, tuple(record.slots))


def http_replies_of(record: Any) -> HttpReplyCounts:
    """From the ctypes twin of `struct replies`."""
    names = (str(FIRST_FAILED_STATUS + at) for at in range(len(record.statuses) - 1))
    counted = zip((*names, "other"), record.statuses) if record.failed else ()
    statuses = {status: count for status, count in counted if count}
    return HttpReplyCounts(record.http, record.failed, record.failed_ns, statuses)


def pieces_of(record: Any, paused_activity_ns: Mapping[str, int]) -> PieceCounts:
    """From the ctypes twin of `struct pieces`, and what threads did in the pauses."""
    return PieceCounts(record.count, record.transfer_ns, record.paused_ns, paused_activity_ns)


def latency_of_words(words: Sequence[int]) -> LatencyCounts:
    """From the words of `struct latency`."""
    count, total_ns, max_ns, *slots = words
    return LatencyCounts(count, total_ns, max_ns, tuple(slots))


def target_names(btf: Btf) -> TargetNames:
    """What values in `struct process_record` are called."""
    return TargetNames(
        enum_names(btf.enum("via"), "VIA_"), enum_names(btf.enum("stopped_by"), "STOPPED_BY_")
    )


def enum_names(enum: Mapping[str, int], prefix: str) -> Dict[int, str]:
    """Value → name in lower case, without the prefix C wants."""
    return {value: name[len(prefix) :].lower() for name, value in enum.items()}
