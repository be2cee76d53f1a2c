"""Who was on the CPUs that targets waited for, by name."""

from __future__ import annotations

import ctypes
import sys
from typing import (
    AbstractSet,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from udsprobe.kernel.objects.probe_object import ProbeObject
from udsprobe.kernel.objects.shared_memory import SharedGlobals
from udsprobe.kernel.proc.cpu_priority import CpuPriorities
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.tables.partner_chains import PartnerChains
from udsprobe.sample import ENDED_PID, CpuHolder, CpuPriority

# A report shows 20; the others of an interval hardly matter.
NAMES_READ_MAX = 100
# Each is in every sample, and the kernel's map holds 4096.
KEPT_MIN, KEPT_MAX = 64, 2048
# A report names 20, whether they have ended or not.
LONGEST_KEPT = 32
LOOK_AGAIN_EVERY_READS = 16
# Who is waited for less has no part in what targets suffer from; the sockets of so many are looked
# at, and of those that are connected to nobody again after so many reads.
STRANGER_SHARE_MIN = 0.02
STRANGERS_LOOKED_AT_MAX = 16
PARTNERS_LOOKED_AT_MAX = 64
LOOK_AT_STRANGERS_EVERY_READS = 4
IDLE = "idle"
_PID_BYTES = 4
# A process outside of the PID namespace that udsprobe runs in; its number is the host's.
OUTSIDE = "outside"
# As the name that such a process gives itself (udsprobe/symbols/dwarf/confined.py).
OWN_CHILD = "udsprobe-names"

_Who = Tuple[int, int]


class _Name(NamedTuple):
    comm: Optional[str]
    is_kernel: Optional[bool] = None


_NOT_KNOWN = _Name(None)
# Of those that ended: whether they were targets, or else at the other end of one's connections.
_Kind = Tuple[bool, bool]
_KINDS: Tuple[_Kind, ...] = ((False, False), (True, False), (False, True))
# Of those for whom the map had no room, which are processes that come and go.
_REST_NS = {(False, False): "holders_rest_ns", (True, False): "target_holders_rest_ns"}


class CpuHolders:
    """Reads who held CPUs, and remembers the names of those that are gone.

    When there are many, those that ended leave the kernel's map for a row of all of them, but
    for those that were waited for longest. The same row has those of a storm of processes that
    found no room in the map.

    Args:
        loaded: the object that counts.
        procfs: for names.
    """

    def __init__(self, loaded: ProbeObject, procfs: Procfs) -> None:
        self._object = loaded
        self._globals = SharedGlobals(loaded)
        self._procfs = procfs
        self._key = loaded.btf.structure("cpu_holder_key")
        self._holder = loaded.btf.structure("cpu_holder")
        self._tick_ns = loaded.btf.enum("limits")["NS_PER_TICK"]
        self._outside = loaded.btf.enum("limits")["PID_OUTSIDE"]
        self._waited_ns: Dict[_Who, int] = {}
        self._names: Dict[_Who, _Name] = {}
        self._ended_ns: Dict[_Kind, int] = dict.fromkeys(_KINDS, 0)
        self._partners: Set[_Who] = set()
        self._chains = PartnerChains(procfs)
        self._look = CpuPriorities(procfs)
        self._priorities: Dict[_Who, CpuPriority] = {}
        self._looked_at: Dict[_Who, int] = {}  # stranger → at which read
        self._kept_max = KEPT_MIN
        self._reads = 0

    def read(
        self, targets: Iterable[int] = (), own: AbstractSet[int] = frozenset()
    ) -> Tuple[CpuHolder, ...]:
        """Everybody so far.

        Args:
            targets: process ids of those that live; from them chains of connections are followed.
            own: of udsprobe's children, which have ended when names are read.
        """
        entries = self._entries()
        self._read_names(entries, own)
        self._read_partners(entries, targets)
        self._reads += 1
        often = KEPT_MIN if self._reads % LOOK_AGAIN_EVERY_READS == 0 else self._kept_max
        if len(entries) > often:
            self._forget_ended(entries)
        self._waited_ns = {who: entry.waited_ns for who, entry in entries.items()}
        return (*self._living(entries), *self._ended())

    def _living(self, entries: Dict[_Who, Any]) -> Iterator[CpuHolder]:
        return (
            CpuHolder(
                pid=pid & ~self._outside,
                started_ns=started_ns,
                comm=name.comm if pid else IDLE,
                is_target=bool(entry.is_target),
                waited_ns=entry.waited_ns,
                is_partner=(pid, started_ns) in self._partners,
                priority=self._priorities.get((pid, started_ns)),
                is_kernel=name.is_kernel,
            )
            for (pid, started_ns), entry in entries.items()
            for name in [self._names.get((pid, started_ns), _NOT_KNOWN)]
        )

    def _ended(self) -> Iterator[CpuHolder]:
        return (
            CpuHolder(ENDED_PID, 1 + number, None, kind[0], waited_ns, kind[1])
            for number, kind in enumerate(_KINDS)
            for waited_ns in [self._ended_ns[kind] + self._rest_ns(kind)]
            if waited_ns
        )

    def _rest_ns(self, kind: _Kind) -> int:
        name = _REST_NS.get(kind)
        return self._globals.get(name) if name is not None else 0

    def _forget_ended(self, entries: Dict[_Who, Any]) -> None:
        ranked = sorted(entries, key=lambda who: -entries[who].waited_ns)
        for who in ranked[LONGEST_KEPT:]:
            # Whether one outside of our PID namespace has ended cannot be seen.
            if not who[0] or who[0] & self._outside or self._process(*who) is not None:
                continue
            entry = entries.pop(who)
            is_target = bool(entry.is_target)
            self._ended_ns[is_target, who in self._partners and not is_target] += entry.waited_ns
            self._names.pop(who, None)
            self._priorities.pop(who, None)
            self._partners.discard(who)
            pid, started_ns = who
            self._object.delete("cpu_holders", bytes(self._key(started_ns=started_ns, tgid=pid)))
        # Not at every sample on a host where that many live.
        self._kept_max = min(max(KEPT_MIN, 2 * len(entries)), KEPT_MAX)

    def _entries(self) -> Dict[_Who, Any]:
        found = {}
        sizes = ctypes.sizeof(self._key), ctypes.sizeof(self._holder)
        for raw_key, raw in self._object.entries("cpu_holders", *sizes):
            key = self._key.from_buffer_copy(raw_key)
            found[key.tgid, key.started_ns] = self._holder.from_buffer_copy(raw)
        return found

    def _read_names(self, entries: Dict[_Who, Any], own: AbstractSet[int]) -> None:
        """Of those that targets waited for since the last time, the longest first."""
        grown: List[Tuple[int, _Who]] = []
        for who, entry in entries.items():
            waited_ns = entry.waited_ns - self._waited_ns.get(who, 0)
            if waited_ns:
                grown.append((waited_ns, who))
        for _, who in sorted(grown, reverse=True)[:NAMES_READ_MAX]:
            name = self._name(who, own)
            if name is not None:
                self._names[who] = name

    def _read_partners(self, entries: Dict[_Who, Any], targets: Iterable[int]) -> None:
        """The kernel keeps the last so many, dead or alive: those that are known stay known."""
        strangers = [
            who
            for who, entry in entries.items()
            if who[0] and not entry.is_target and who not in self._partners
        ]
        if not strangers:
            return
        pids = {
            int.from_bytes(raw, sys.byteorder)
            for raw, _ in self._object.entries("partners", _PID_BYTES, 1)
        }
        self._partners.update(who for who in strangers if who[0] in pids)
        asked = self._to_look_at(entries, [who for who in strangers if who[0] not in pids])
        if asked:
            living = list(targets)
            self._follow_chains(asked, living, pids)
            self._read_priorities(asked, living)

    def _follow_chains(self, asked: List[_Who], targets: Iterable[int], partners: Set[int]) -> None:
        """Who works for a partner works for the targets' requests, too."""
        ends = [
            [pid for pid in sorted(pids) if not pid & self._outside][:PARTNERS_LOOKED_AT_MAX]
            for pids in (targets, partners)
        ]
        reached = self._chains.reached([who[0] for who in asked], *ends)
        self._partners.update(who for who in asked if who[0] in reached)
        self._looked_at.update(dict.fromkeys(asked, self._reads))

    def _read_priorities(self, asked: List[_Who], targets: List[int]) -> None:
        looked_at = {who: at for who, at in self._priorities.items() if who in self._looked_at}
        strangers = {who[0]: who for who in asked if who not in self._partners}
        found = self._look.beside(strangers, targets)
        # Of one that has ended, what was known stays.
        self._priorities = {**looked_at, **{strangers[pid]: at for pid, at in found.items()}}

    def _to_look_at(self, entries: Dict[_Who, Any], strangers: List[_Who]) -> List[_Who]:
        """Those that targets waited for a good part since the last time, the longest first."""
        grown = {
            who: entry.waited_ns - self._waited_ns.get(who, 0) for who, entry in entries.items()
        }
        least_ns = max(1.0, STRANGER_SHARE_MIN * sum(grown.values()))
        self._looked_at = {who: at for who, at in self._looked_at.items() if who in entries}
        due = self._reads - LOOK_AT_STRANGERS_EVERY_READS
        asked = [
            who
            for who in strangers
            if grown[who] >= least_ns
            if not who[0] & self._outside and self._looked_at.get(who, due) <= due
        ]
        return sorted(asked, key=lambda who: -grown[who])[:STRANGERS_LOOKED_AT_MAX]

    def _name(self, who: _Who, own: AbstractSet[int]) -> Optional[_Name]:
        if who[0] & self._outside:
            return _Name(OUTSIDE)
        process = self._process(*who)
        if process is not None:
            return _Name(process.comm, process.kernel_thread)
        return _Name(OWN_CHILD) if who[0] in own else None

    def _process(self, pid: int, started_ns: int) -> Optional[Process]:
        process = self._procfs.process(pid) if pid else None
        # Another process can have the number by now.
        if process is None or process.start_ticks != started_ns // self._tick_ns:
            return None
        return process
