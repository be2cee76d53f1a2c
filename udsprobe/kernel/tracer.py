"""The kernel half at work: attached, with targets to watch."""

from __future__ import annotations

import errno
import platform
import struct
from typing import List, Mapping

from udsprobe.kernel.connection_table import ConnectionTable
from udsprobe.kernel.counters import Counters, enum_names
from udsprobe.kernel.features import kernel_features
from udsprobe.kernel.libbpf import LibbpfError
from udsprobe.kernel.listener_table import ListenerTable
from udsprobe.kernel.loader import load, possible_cpus, refusal, series_max
from udsprobe.kernel.plan import EVENT_PROGRAMS
from udsprobe.kernel.probe_object import records
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.socket_roles import SocketRecord, served_sockets
from udsprobe.kernel.syscall_table import syscall_tables

BPF_NOEXIST = 1


class Tracer:
    """Strategy `tracepoint`, live and without a target.

    Args:
        follow: children of targets become targets.

    Attributes:
        attached: names of the live event programs.
        counters: everything the kernel half counts.
        via_names: value of `enum via` → `selector` or `fork`.

    Raises:
        KernelCannotError: `no-libbpf`, `no-btf`, `no-tracepoint`, `no-object`, `refused`.
        NotPermittedError: `not-root`, naming the missing capabilities.
    """

    strategy = "tracepoint"

    def __init__(self, *, follow: bool = True) -> None:
        features = kernel_features()
        tables = syscall_tables(platform.machine())
        cpus = possible_cpus()
        self._object = load(features, tables, cpus, follow=follow)
        try:
            self.counters = Counters(self._object, tables, cpus, series_max(cpus))
            names = [p.name for p in EVENT_PROGRAMS if p.name in features.tracepoints]
            for name in names:
                self._object.attach(name)
        except LibbpfError as error:
            self._object.close()
            raise refusal(error) from error
        self.attached = frozenset(names)
        self.via_names = enum_names(self._object.btf.enum("via"), "VIA_")

    def seed(self, processes: Mapping[int, int], *, dormant: bool = False) -> None:
        """Make running processes targets, all their threads at one moment.

        Args:
            processes: thread-group id → start time in clock ticks
                (/proc/PID/stat); one that is gone, or whose PID is somebody
                else's by now, is passed over.
            dormant: count from the process's next exec on, not before.
        """
        value = self._object.btf.structure("seed")()
        value.flags = self._object.btf.enum("thread_flag")["THREAD_DORMANT"] if dormant else 0
        for pid, value.start_ticks in processes.items():
            self._object.update("seed_tgids", struct.pack("<I", pid), bytes(value))
        with self.counters.seeding():
            self._object.iterate("seed_threads")
        for pid in processes:
            self._object.delete("seed_tgids", struct.pack("<I", pid))
        if not dormant:
            self.adopt_listeners()
            self._seed_connections()
            self._object.iterate("seed_upstreams")

    def adopt_listeners(self) -> None:
        """Count at every listener that a target holds, those of before included."""
        self._object.iterate("seed_listeners")

    def sweep_connections(self) -> None:
        """Forget the connections whose sockets are gone."""
        self._object.iterate("sweep_connections", over="connections")

    def listener_table(self, procfs: Procfs) -> ListenerTable:
        """The account of the targets' listeners."""
        return ListenerTable(self._object, self.counters, procfs)

    def connection_table(self, procfs: Procfs) -> ConnectionTable:
        """The account of the targets' connections."""
        return ConnectionTable(self._object, self.counters, procfs)

    def detach(self) -> None:
        """Stop counting; what was counted stays readable."""
        self._object.detach()

    def close(self) -> None:
        """Give every kernel object back. May be called twice."""
        self._object.close()

    def recursion_misses(self) -> Mapping[str, int]:
        """Program → runs the kernel skipped because it was active on that CPU already.

        Of anybody's events, not only the targets': who is asked inside the program.
        """
        return {
            name: self._object.program_info(name).recursion_misses for name in sorted(self.attached)
        }

    def run_time_ns(self) -> int:
        """Run time of the programs; it grows only while the kernel's statistics are on."""
        return sum(self._object.program_info(name).run_time_ns for name in self.attached)

    def _seed_connections(self) -> None:
        value = self._object.btf.structure("connection")()
        value.role = self._object.btf.enum("role")["ROLE_SERVED"]
        for record in served_sockets(self._open_sockets()):
            value.inode, value.endpoint = record.inode, record.endpoint
            try:
                self._object.update(
                    "connections", struct.pack("<Q", record.sk), bytes(value), BPF_NOEXIST
                )
            except LibbpfError as error:
                if error.errno != errno.EEXIST:
                    self.counters.count_turned_away_connection()

    def _open_sockets(self) -> List[SocketRecord]:
        layout = self._object.btf.structure("socket_record")
        return list(map(SocketRecord.of, records(self._object.iterate("list_sockets"), layout)))
