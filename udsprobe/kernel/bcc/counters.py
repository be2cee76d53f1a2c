"""What strategy `bcc` has counted, read from its maps into sample types."""

from __future__ import annotations

import ctypes
import struct
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from udsprobe.kernel.abilities.syscall_table import SyscallTable
from udsprobe.kernel.bcc.program import WORD_BYTES, BccObject
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.objects.shared_memory import Row, combined, words_at
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables.counters import (
    ABIS,
    SETTLING_READS,
    CallKeys,
    EventAccount,
    enum_names,
    latency_of_words,
    named_calls,
)
from udsprobe.kernel.tables.target_book import ProcessCounts, ProcessesSeen, ProcRecord, proc_record
from udsprobe.sample import CallCounts, CallInFlight, LatencyCounts, ServedCounts

_TOLD_STAGES = ("recv", "app", "send")


class BccCounters:
    """Everything one compiled program has counted.

    Args:
        btf: with the layouts of udsprobe.h.
        tables: native and 32-bit system-call numbers.
    """

    def __init__(
        self, counting: BccObject, btf: Btf, tables: Tuple[SyscallTable, SyscallTable]
    ) -> None:
        self._object = counting
        self._tables = tables
        self._keys = CallKeys(btf)
        self._counts = btf.structure("call_counts")
        self._latency = btf.structure("latency")
        self._account = btf.structure("bcc_account")
        self._process = btf.structure("bcc_process")
        self._thread = btf.structure("bcc_thread")
        self._connection = btf.structure("bcc_connection")
        self._in_call = btf.enum("thread_flag")["THREAD_IN_CALL"]
        self._gauges = enum_names(btf.enum("bcc_gauge"), "BCC_")
        self._stages = enum_names(btf.enum("stage"), "STAGE_")
        self._numbers = btf.enum("limits")["NR_MAX"]
        stops = btf.enum("stopped_by")
        self._stops = {"T": stops["STOPPED_BY_SIGNAL"], "t": stops["STOPPED_BY_TRACER"]}

    def calls(self) -> Tuple[CallCounts, ...]:
        """One entry for each (call, ABI, endpoint) seen so far."""
        maximum = [words_at(self._counts, "latency", "max_ns").start]
        size = ctypes.sizeof(self._counts) // WORD_BYTES
        found = []
        for key in self._object.keys("calls", 4):
            rows = self._rows("calls", key, size)
            if rows:
                index = int.from_bytes(key, "little")
                found.append(self._keys.counts(index, combined(rows, maximum)))
        return tuple(found)

    def calls_by_name(self) -> Dict[str, int]:
        """Every system call of the targets; 32-bit ones as `compat:NAME`."""
        by_abi = [
            combined(self._rows("numbers", struct.pack("<I", abi), self._numbers), ())
            for abi, _ in enumerate(ABIS)
        ]
        return named_calls(self._tables, by_abi)

    def events(self) -> EventAccount:
        """The account of all calls that ended, added up without one that is being counted."""
        for _ in range(SETTLING_READS):
            row = self._account_row()
            seen, counted, map_full, unread = row[:4]
            if seen == counted + map_full:
                break
        return EventAccount(seen, counted, map_full, unread)

    def served(self) -> ServedCounts:
        """Requests on connections that were accepted while observed."""
        whole = self._served(len(self._stages) - 1)
        return ServedCounts(
            count=whole.count,
            latency=whole,
            stages={
                name: self._served(at) for at, name in self._stages.items() if name in _TOLD_STAGES
            },
            app_activity_ns={},
            handed_over=self._account_row()[words_at(self._account, "handed_over")][0],
            pipelined=0,
        )

    def in_flight(self) -> Tuple[CallInFlight, ...]:
        """Threads inside one of the table's calls, as far as their entry was seen."""
        return tuple(
            CallInFlight(
                thread.tgid,
                thread.tid,
                self._keys.calls[thread.now.call],
                ABIS[thread.now.abi],
                self._keys.endpoints[thread.now.endpoint],
                thread.now.start_ns,
            )
            for thread in self._entries("threads", 8, self._thread)
            if thread.flags & self._in_call and thread.now.call
        )

    def targets_alive(self) -> int:
        """Target processes that have not exited."""
        processes = self._entries("processes", 4, self._process)
        return sum(not process.state.exited_ns for process in processes)

    def targets_exited(self) -> int:
        """Target processes that have exited since the beginning."""
        return self._all_gauges()["targets_exited"]

    def any_thread(self) -> bool:
        """Whether one lives that did anything."""
        return bool(self._object.keys("threads", 8))

    def turned_away(self) -> Dict[str, int]:
        """What found no room, by the map that had none; full ones only."""
        end = "_turned_away"
        gauges = self._all_gauges().items()
        return {name[: -len(end)]: n for name, n in gauges if name.endswith(end) and n}

    def calls_left(self) -> int:
        """Interrupted calls that a signal's handler never returned to."""
        return self._all_gauges()["calls_left"]

    def forget_interrupted(self) -> None:
        """Calls of threads that ended inside a handler."""
        living = set(self._object.keys("threads", 8))
        for key in self._object.keys("interrupted_calls", 16):
            if key[:8] not in living:
                self._object.delete("interrupted_calls", key)

    def processes(self, procfs: Procfs) -> ProcessesSeen:
        """All targets; the dead ones leave the map."""
        table: Dict[int, Any] = {}
        living: Dict[int, ProcRecord] = {}
        for key in self._object.keys("processes", 4):
            raw = self._object.value("processes", key, ctypes.sizeof(self._process))
            if raw is None:
                continue
            (pid,) = struct.unpack("<I", key)
            table[pid] = state = self._process.from_buffer_copy(raw).state
            if state.exited_ns:
                self._object.delete("processes", key)
                continue
            process = procfs.process(pid)
            if process is not None and not process.ended:
                counted = ProcessCounts(state.via, state.comm, state.emfile, state.enfile)
                living[pid] = proc_record(process, procfs, counted, self._stops)
        return ProcessesSeen(living, table)

    def forget_connections(self, alive: AbstractSet[int]) -> None:
        """Those whose last user is gone without closing them."""
        for key in self._object.keys("connections", 8):
            raw = self._object.value("connections", key, ctypes.sizeof(self._connection))
            if raw is not None and self._connection.from_buffer_copy(raw).tgid not in alive:
                self._object.delete("connections", key)

    def _served(self, index: int) -> LatencyCounts:
        size = ctypes.sizeof(self._latency) // WORD_BYTES
        rows = self._rows("served", struct.pack("<I", index), size)
        return latency_of_words(combined(rows, [words_at(self._latency, "max_ns").start]))

    def _account_row(self) -> Row:
        size = ctypes.sizeof(self._account) // WORD_BYTES
        return combined(self._rows("accounts", struct.pack("<I", 0), size), ())

    def _rows(self, name: str, key: bytes, words: int) -> List[Row]:
        return [list(row) for row in self._object.words(name, key, words)]

    def _entries(self, name: str, key_bytes: int, layout: Any) -> Iterator[Any]:
        for key in self._object.keys(name, key_bytes):
            raw = self._object.value(name, key, ctypes.sizeof(layout))
            if raw is not None:
                yield layout.from_buffer_copy(raw)

    def _all_gauges(self) -> Mapping[str, int]:
        named: Sequence[Tuple[int, str]] = list(self._gauges.items())[:-1]
        return {name: self._gauge(at) for at, name in named}

    def _gauge(self, at: int) -> int:
        raw = self._object.value("gauges", struct.pack("<I", at), WORD_BYTES)
        return int.from_bytes(raw or b"", "little")
