"""The kernel half at work: attached, with targets to watch."""

from __future__ import annotations

import platform
import struct
from typing import Dict, Iterable, List, Mapping, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.alongside import Work, nothing
from udsprobe.kernel.connection_table import ConnectionTable
from udsprobe.kernel.counters import Counters, enum_names
from udsprobe.kernel.cpu_holders import CpuHolders
from udsprobe.kernel.features import Features, kernel_features
from udsprobe.kernel.libbpf import LibbpfError
from udsprobe.kernel.listener_table import ListenerTable
from udsprobe.kernel.loader import load, possible_cpus, refusal, series_max
from udsprobe.kernel.plan import attach_order, measurements, programs, strategies
from udsprobe.kernel.probe_object import records
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.server_table import ServerTable
from udsprobe.kernel.socket_roles import SocketRecord, served_sockets
from udsprobe.kernel.syscall_table import syscall_tables
from udsprobe.sample import MeasurementState


class Tracer:
    """The event programs of a strategy, live and without a target.

    Args:
        follow: children of targets become targets.
        strategy: `auto` (the first that this kernel loads), `tracepoint` or `fentry`.
        meanwhile: done in another thread while the kernel verifies.

    Attributes:
        strategy: the one in use.
        attached: names of the live event programs.
        counters: everything the kernel half counts.
        via_names: value of `enum via` → `selector` or `fork`.
        seeded_sockets: pid → descriptor → inode of the targets' sockets when they became
            targets; may hold listeners of others, too.

    Raises:
        KernelCannotError: `no-libbpf`, `no-btf`, `no-tracepoint`, `no-strategy`,
            `no-object`, `refused`.
        NotPermittedError: `not-root`, naming the missing capabilities.
    """

    def __init__(
        self, *, follow: bool = True, strategy: str = "auto", meanwhile: Work = nothing
    ) -> None:
        features = kernel_features()
        tries = strategies(strategy, features.events)
        if not tries:
            raise KernelCannotError(
                "no-strategy",
                f"strategy {strategy} finds nothing in this kernel to attach to",
                "leave --strategy out, or give tracepoint",
            )
        for self.strategy in tries:
            try:
                self._start(features, follow, meanwhile)
                break
            except KernelCannotError:
                if self.strategy == tries[-1]:
                    raise

    def _start(self, features: Features, follow: bool, meanwhile: Work) -> None:
        tables = syscall_tables(platform.machine())
        cpus = possible_cpus()
        self.attached = programs(self.strategy, features.events)
        self._object = load(
            features, tables, cpus, self.attached, follow=follow, meanwhile=meanwhile
        )
        try:
            self.counters = Counters(self._object, tables, cpus, series_max(cpus))
            if features.pid_namespace:
                self._object.iterate("learn_namespace")
            for name in attach_order(self.attached):
                self._object.attach(name)
        except LibbpfError as error:
            self._object.close()
            raise refusal(error) from error
        self._features = features
        self.seeded_sockets: Dict[int, Dict[int, int]] = {}
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
            self._seed_connections(processes)
            self._object.iterate("seed_upstreams")

    def adopt_listeners(self) -> None:
        """Count at every listener that a target holds, those of before included."""
        self._object.iterate("seed_listeners")

    def sweep_connections(self) -> None:
        """Forget the connections whose sockets are gone; what lives is marked anew."""
        with self.counters.marking():
            self._object.iterate("sweep_connections", over="connections")

    def listener_table(self, procfs: Procfs) -> ListenerTable:
        """The account of the targets' listeners."""
        return ListenerTable(self._object, self.counters, procfs)

    def connection_table(self, procfs: Procfs) -> ConnectionTable:
        """The account of the targets' connections."""
        return ConnectionTable(
            self._object, self.counters, procfs, tells_arrival="sk_data_ready" in self.attached
        )

    def server_table(self, connections: ConnectionTable) -> ServerTable:
        """The account of each target's requests."""
        return ServerTable(self._object, self.counters, connections)

    def cpu_holders(self, procfs: Procfs) -> CpuHolders:
        """The account of who was on the CPUs that targets waited for."""
        return CpuHolders(self._object, procfs)

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

    def measurements(self) -> Tuple[MeasurementState, ...]:
        """The state of every measurement with these programs on this kernel."""
        return measurements(
            self.attached,
            sleeping_calls=self._features.sleeping_calls,
            unix_unread=self._features.unix_unread,
            preemptible=self._features.preemptible,
        )

    def misses_exits(self) -> bool:
        """Whether the end of a process may have gone unseen."""
        return bool(self._object.program_info("sched_process_exit").recursion_misses)

    def program_runs(self) -> Mapping[str, Tuple[int, int]]:
        """Program → run time in ns and runs, which grow while the kernel's statistics are on."""
        infos = {name: self._object.program_info(name) for name in sorted(self.attached)}
        return {name: (info.run_time_ns, info.run_cnt) for name, info in infos.items()}

    def maps_bytes(self) -> int:
        """Memory of all maps, as the kernel accounts for it."""
        return self._object.maps_bytes()

    def _seed_connections(self, pids: Iterable[int]) -> None:
        self.counters.begin_seeding_connections()
        sockets = self._open_sockets()
        self.seeded_sockets = {pid: {} for pid in pids}
        for record in sockets:
            self.seeded_sockets.setdefault(record.tgid, {})[record.fd] = record.inode
        value = self._object.btf.structure("connection")()
        value.role = self._object.btf.enum("role")["ROLE_SERVED"]
        keys, values = bytearray(), bytearray()
        for record in served_sockets(sockets):
            value.inode, value.endpoint = record.inode, record.endpoint
            value.tgid = record.tgid
            self.counters.follow(record.sk)
            keys += struct.pack("<Q", record.sk)
            values += bytes(value)
        refused = self._object.update_all("connections", keys, values, len(bytes(value)))
        self.counters.count_turned_away_connections(refused)

    def _open_sockets(self) -> List[SocketRecord]:
        layout = self._object.btf.structure("socket_record")
        return list(map(SocketRecord.of, records(self._object.iterate("list_sockets"), layout)))
