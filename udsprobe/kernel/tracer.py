"""The kernel half at work: attached, with targets to watch."""

from __future__ import annotations

import platform
import struct
import time
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.features import Features, kernel_features
from udsprobe.kernel.abilities.light_plan import NEEDS, has_light, light_measurements
from udsprobe.kernel.abilities.plan import (
    WAKER_PROGRAM,
    attach_order,
    measurements,
    strategies,
    tells_arrivals,
)
from udsprobe.kernel.abilities.syscall_table import syscall_tables
from udsprobe.kernel.objects.alongside import Work, nothing
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.objects.probe_object import records
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.programs.call_programs import CallPrograms
from udsprobe.kernel.programs.function_programs import Account, prototypes
from udsprobe.kernel.programs.kept import KeptPrograms
from udsprobe.kernel.programs.loaded import LoadedPrograms, load_programs
from udsprobe.kernel.programs.loader import refusal, series_max
from udsprobe.kernel.sockets.socket_roles import SocketRecord, served_sockets
from udsprobe.kernel.tables.connection_table import TICK_NS, ConnectionTable
from udsprobe.kernel.tables.counters import Counters, target_names
from udsprobe.kernel.tables.cpu_holders import CpuHolders
from udsprobe.kernel.tables.listener_table import ListenerTable
from udsprobe.kernel.tables.server_table import ServerTable
from udsprobe.kernel.tables.wakers import WaitTable
from udsprobe.kernel.tables.whole_requests import WholeRequests
from udsprobe.sample import MeasurementState

# Iterators that are read for the first time long after the start, and the map of each.
_READ_LATER = (("sweep_connections", "connections"), ("list_handshakes", "handshakes"))


class Tracer:
    """The event programs of a strategy, live and without a target.

    Args:
        follow: children of targets become targets.
        strategy: `auto` (the first that this kernel loads), `tracepoint` or `fentry`.
        meanwhile: done in another thread while the kernel verifies.
        detail: `full`, or `light`: no program on system calls and on the scheduler.
        rehearsal: attach to one function of a kind only, of those that make system calls: the
            kernel takes a tenth of a second to give back each.
        kept: where programs stay when this is closed, and are taken from; a tracer before this one
            was made with the same `follow`, `strategy` and `detail`. None: they are loaded anew.

    Attributes:
        strategy: the one in use.
        detail: as it was given.
        attached: names of the event programs that are live, those of system calls with
            strategy `fentry` as long as a thread needs them.
        by_functions: system calls are seen at their functions, so not all of them.
        counters: everything the kernel half counts.
        target_names: what values of enums in process records are called.
        seeded_sockets: pid → descriptor → inode of the targets' sockets when they became
            targets; may hold listeners of others, too.
        loading_s: CPU time of this process that loading took; 0 where all was loaded before.

    Raises:
        KernelCannotError: `no-libbpf`, `no-btf`, `no-tracepoint`, `no-strategy`,
            `no-light`, `no-object`, `refused`.
        NotPermittedError: `not-root`, naming the missing capabilities.
    """

    def __init__(
        self,
        *,
        follow: bool = True,
        strategy: str = "auto",
        detail: str = "full",
        meanwhile: Work = nothing,
        rehearsal: bool = False,
        kept: Optional[KeptPrograms] = None,
    ) -> None:
        self._rehearsal = rehearsal
        self._kept = kept
        self._is_closed = False
        self.detail = detail
        loaded = None if kept is None else kept.take()
        self.loading_s = 0.0
        if loaded is not None:
            self._start(loaded)
            return
        features = kernel_features()
        if detail == "light":
            strategy = _strategy_of_light(strategy, features)
        tries = _tries(strategy, features)
        for attempt in tries:
            try:
                loaded = load_programs(
                    attempt, features, detail, follow=follow, meanwhile=meanwhile
                )
                self.loading_s += loaded.loading_s
                self._start(loaded)
                return
            except KernelCannotError:
                if attempt == tries[-1]:
                    raise

    def _start(self, loaded: LoadedPrograms) -> None:
        self._loaded, self._object, self._tables = loaded, loaded.object, loaded.tables
        self._features, self.strategy = loaded.features, loaded.strategy
        self.by_functions = bool(loaded.functions)
        self._calls = CallPrograms(self._object)
        try:
            self._attach(loaded)
        except LibbpfError as error:
            # Of no use to others either.
            self._kept = None
            self.close()
            raise refusal(error) from error
        self.seeded_sockets: Dict[int, Dict[int, int]] = {}
        self.target_names = target_names(self._object.btf)

    def _attach(self, loaded: LoadedPrograms) -> None:
        self.counters = Counters(self._object, self._tables, loaded.cpus, series_max(loaded.cpus))
        self.attached = loaded.wakers.ready(loaded.programs, self.counters)
        self.counters.say_light(self.detail == "light")
        if self._features.pid_namespace:
            self._object.iterate("learn_namespace")
        for program, over in _READ_LATER:
            self._object.prepare_iterator(program, over=over)
        # Programs that were attached before have skipped runs before.
        self._missed_before = {name: self._missed(name) for name in self.attached}
        for name in attach_order(self.attached):
            self._object.attach(name)
        functions = loaded.functions
        self._calls.begin(prototypes(functions) if self._rehearsal else functions, self.counters)

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
        self._calls.need_tracepoints()
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
        return ListenerTable(
            self._object, self.counters, procfs, sees_accepts=self.detail == "full"
        )

    def connection_table(self, procfs: Procfs) -> ConnectionTable:
        """The account of the targets' connections."""
        return ConnectionTable(
            self._object,
            self.counters,
            procfs,
            tells_arrival=tells_arrivals(self.attached),
            sees_calls=self.detail == "full",
        )

    def server_table(self, connections: ConnectionTable) -> ServerTable:
        """The account of each target's requests."""
        return ServerTable(
            *(self._object, self.counters, connections),
            tells_arrival=tells_arrivals(self.attached),
            sees_calls=self.detail == "full",
        )

    def requests_map(self) -> Optional[int]:
        """Descriptor of the map in which processes have their open requests.

        None with detail `light`, which does not see a request being received.
        """
        return None if self.detail == "light" else self._object.descriptor("servers")

    def cpu_holders(self, procfs: Procfs) -> CpuHolders:
        """The account of who was on the CPUs that targets waited for."""
        return CpuHolders(self._object, procfs)

    def wait_table(self, procfs: Procfs) -> Optional[WaitTable]:
        """The account of who ended the targets' waits; None when nothing tells."""
        if WAKER_PROGRAM not in self.attached:
            return None
        return WaitTable(self._object, syscall_tables(platform.machine()), procfs)

    def whole_requests(self, connections: ConnectionTable) -> WholeRequests:
        """The requests that are kept whole."""
        return WholeRequests(
            *(self._object, self.counters, connections, self._tables),
            tells_arrival=tells_arrivals(self.attached),
        )

    def settle(self) -> None:
        """Give back what no target needs any more. To be called now and then."""
        self._calls.settle()

    def functions_attached(self) -> int:
        """Of the kernel, with programs that `close` takes away."""
        return self._calls.functions_attached()

    def detach(self) -> None:
        """Stop counting; what was counted stays readable.

        Programs on functions stay until `close`: the kernel takes seconds for all of them.
        """
        if tells_arrivals(self.attached):
            self.counters.end_telling_arrivals()
        self._calls.stop()
        self._object.detach()

    def close(self) -> None:
        """Give every kernel object back, or to who keeps them. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._calls.close()
        if self._kept is None:
            self._object.close()
        else:
            self._kept.put(self._loaded)

    def recursion_misses(self) -> Mapping[str, int]:
        """Program → runs the kernel skipped because it was active on that CPU already.

        Of anybody's events, not only the targets': who is asked inside the program.
        """
        return {name: account.misses for name, account in self._accounts()}

    def programs_unseen(self) -> int:
        """32-bit programs that targets started where their calls are not seen."""
        return self.counters.programs_unseen() if self.by_functions else 0

    def _accounts(self) -> Iterator[Tuple[str, Account]]:
        for name in sorted(self.attached):
            info = self._object.program_info(name)
            missed = info.recursion_misses - self._missed_before[name]
            yield name, Account(info.run_time_ns, info.run_cnt, missed)
        yield from self._calls.accounts().items()

    def measurements(self) -> Tuple[MeasurementState, ...]:
        """The state of every measurement with these programs on this kernel."""
        if self.detail == "light":
            return light_measurements(self.attached, unix_unread=self._features.unix_unread)
        return measurements(
            self.attached,
            sleeping_calls=self._features.sleeping_calls,
            unix_unread=self._features.unix_unread,
            preemptible=self._features.preemptible
            or (self.by_functions and self._features.preempts),
            functions=self.by_functions,
        )

    def misses_exits(self) -> bool:
        """Whether the end of a process may have gone unseen."""
        name = "sched_process_exit"
        return self._missed(name) > self._missed_before[name]

    def _missed(self, program: str) -> int:
        return int(self._object.program_info(program).recursion_misses)

    def program_runs(self) -> Mapping[str, Tuple[int, int]]:
        """Program → run time in ns and runs, which grow while the kernel's statistics are on."""
        return {name: (account.run_time_ns, account.runs) for name, account in self._accounts()}

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
        phases = self._object.btf.enum("phase")
        now_ns = time.monotonic_ns()
        keys, values = bytearray(), bytearray()
        for record in served_sockets(sockets):
            value.inode, value.endpoint = record.inode, record.endpoint
            value.tgid = record.tgid
            asked = record.asked_ticks > 0
            value.phase = phases["PHASE_ASKED_BEFORE" if asked else "PHASE_IDLE"]
            value.turn_ns = now_ns - record.asked_ticks * TICK_NS if asked else 0
            self.counters.follow(record.sk)
            keys += struct.pack("<Q", record.sk)
            values += bytes(value)
        refused = self._object.update_all("connections", keys, values, len(bytes(value)))
        self.counters.count_turned_away_connections(refused)

    def _open_sockets(self) -> List[SocketRecord]:
        layout = self._object.btf.structure("socket_record")
        return list(map(SocketRecord.of, records(self._object.iterate("list_sockets"), layout)))


def _strategy_of_light(asked: str, features: Features) -> str:
    if not has_light(features.events):
        raise KernelCannotError("no-light", f"--detail light needs {NEEDS}", "add --detail full")
    if asked not in ("auto", "tracepoint"):
        raise KernelCannotError(
            "no-light",
            f"strategy {asked} has no detail light, which rests on tracepoints of sockets",
            "leave --strategy out, or add --detail full",
        )
    return "tracepoint"


def _tries(strategy: str, features: Features) -> Tuple[str, ...]:
    tries = strategies(
        strategy,
        features.events,
        functions=bool(features.call_functions),
        preempts=features.preempts,
    )
    if not tries:
        raise KernelCannotError(
            "no-strategy",
            f"strategy {strategy} cannot attach to anything in this kernel",
            "leave --strategy out, or give tracepoint",
        )
    return tries
