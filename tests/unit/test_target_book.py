"""Targets by name, from their choice to their end, whatever /proc still shows of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import AbstractSet, Dict, List, Optional, Tuple

import pytest

from udsprobe.kernel.tables.starts_and_exits import KINDS_MAX, way
from udsprobe.kernel.tables.target_book import (
    CMDLINES_PER_READ,
    EXITED_SHOWN_MAX,
    ProcessesSeen,
    TargetBook,
    TargetNames,
)
from udsprobe.sample import StartCounts, StartLimit, TargetReading

NAMES = TargetNames({0: "selector", 1: "fork"}, {0: "nobody", 1: "signal"})
STARTED_NS = 70_000_000
TICKS = 7


def reading(pid: int, comm: str, via: str = "selector", cmdline: str = "") -> TargetReading:
    argv = cmdline or f"/bin/{comm} -x"
    return TargetReading(
        *(pid, comm, argv, 1, "running", 5, 1024, via),
        fds_refused={},
        start_ticks=TICKS,
        parent=1,
        cgroup=f"/{comm}.service",
    )


class Proc:
    """/proc with these processes in it, and what was asked of it."""

    def __init__(self, **comms: str) -> None:
        self.comms: Dict[int, str] = {int(key[1:]): comm for key, comm in comms.items()}
        self.arguments = "-x"
        self.asked: List[Tuple[str, int]] = []

    def target(self, pid: int, via: str) -> Optional[TargetReading]:
        comm = self.comms.get(pid)
        return None if comm is None else reading(pid, comm, via)

    def cmdline(self, pid: int) -> Optional[str]:
        self.asked.append(("cmdline", pid))
        comm = self.comms.get(pid)
        return None if comm is None else f"/bin/{comm} {self.arguments}"

    def language(self, pid: int) -> Optional[str]:
        self.asked.append(("language", pid))
        return "go" if self.comms.get(pid) == "caddy" else None

    def cgroup(self, pid: int) -> Optional[str]:
        self.asked.append(("cgroup", pid))
        comm = self.comms.get(pid)
        return None if comm is None else f"/{comm}.service"

    def process(self, pid: int) -> Optional[SimpleNamespace]:
        comm = self.comms.get(pid)
        return None if comm is None else SimpleNamespace(comm=comm)

    def fds_open(self, pid: int) -> Optional[int]:
        self.asked.append(("fds", pid))
        return 70_000


def process(
    program: str, via: int = 0, exited_ns: int = 0, comm: str = "", **facts: int
) -> SimpleNamespace:
    """Both structures of a process in one: they share their names."""
    counts = {"emfile": 0, "enfile": 0, "threads": 1, "fds_open": 5, "fds_limit": 1024}
    starts = {"started": 0, "start_eagain": 0, "start_enomem": 0}
    ends = {"exit_code": 0, "out_of_memory": 0, "served": 0, "unanswered": 0}
    places = {"parent": 1, "netns": 4, "cgroups": 0xC0, "started_ns": STARTED_NS}
    holds = {"stopped": 0, "tracer": 0}
    record = SimpleNamespace(
        via=via, exited_ns=exited_ns, **{**counts, **starts, **ends, **places, **holds, **facts}
    )
    record.program, record.comm = program.encode(), (comm or program).encode()
    return record


class Book(TargetBook):
    """Told of every process each time, and which of them ran: all, if not said otherwise."""

    told: Dict[int, SimpleNamespace] = {}

    def tell(
        self, processes: Dict[int, SimpleNamespace], ran: Optional[AbstractSet[int]] = None
    ) -> None:
        living = {pid: each for pid, each in processes.items() if not each.exited_ns}
        changed = {pid: each for pid, each in living.items() if self.told.get(pid) != each}
        self.told = living
        self.update(ProcessesSeen(changed, processes), set(living) if ran is None else ran, NAMES)


def book(proc: Proc, *chosen: int) -> Book:
    made = Book(proc)  # type: ignore[arg-type]
    for pid in chosen:
        made.expect(pid, "selector")
    return made


def test_a_chosen_process_is_read_from_proc() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({7: process("node")})
    assert targets.readings() == (reading(7, "node"),)
    assert targets.alive() == {7}


def test_one_that_is_gone_before_the_probes_are_live_has_exited() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({})
    (shown,) = targets.readings()
    assert (shown.state, shown.comm, shown.cmdline) == ("exited", "node", "/bin/node -x")
    assert targets.alive() == frozenset()


def test_one_that_proc_never_showed_is_nothing() -> None:
    targets = book(Proc(), 7)
    targets.tell({})
    assert targets.readings() == ()


def test_one_that_is_stopped_says_by_what_until_it_goes_on() -> None:
    targets = book(Proc(p7="node"), 7)
    for value, says in ((0, None), (1, "signal"), (0, None)):
        targets.tell({7: process("node", stopped=value)})
        assert targets.readings()[0].stopped == says
    targets.tell({7: process("node", stopped=1)})
    targets.tell({7: process("node", stopped=1, exited_ns=9)})
    assert [(each.state, each.stopped) for each in targets.readings()] == [("exited", None)]


def test_a_child_is_a_target_by_fork() -> None:
    proc = Proc(p7="node", p8="node")
    targets = book(proc, 7)
    targets.tell({7: process("node"), 8: process("node", via=1)})
    assert [(one.pid, one.via) for one in targets.readings()] == [(7, "selector"), (8, "fork")]


def test_a_child_that_was_over_at_once_is_known_by_name_alone() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({7: process("node"), 8: process("git", via=1, exited_ns=5)})
    child = targets.readings()[-1]
    assert (child.comm, child.cmdline, child.state, child.via) == ("git", None, "exited", "fork")
    assert child.fds_open is None


def test_the_kernels_name_is_made_printable() -> None:
    targets = book(Proc(), 7)
    targets.tell({8: process("\x1b[31m", via=1, exited_ns=5)})
    assert targets.readings()[0].comm == "\\x1b[31m"


def test_an_exec_is_seen_at_the_next_look() -> None:
    proc = Proc(p7="sh")
    targets = book(proc, 7)
    targets.tell({7: process("sh")})
    proc.comms[7] = "node"
    targets.tell({7: process("node")})
    assert targets.readings()[0].comm == "node"


def test_the_language_is_that_of_the_program_that_runs_now() -> None:
    proc = Proc(p7="sh")
    targets = book(proc, 7)
    targets.tell({7: process("sh")})
    assert targets.readings()[0].language is None
    proc.comms[7] = "caddy"
    targets.tell({7: process("caddy")})
    assert targets.readings()[0].language == "go"
    proc.asked.clear()
    targets.tell({7: process("caddy")}, ran={7})
    assert ("language", 7) not in proc.asked
    assert targets.readings()[0].language == "go"


def test_the_language_of_a_command_to_be_run_is_told_when_it_runs() -> None:
    proc = Proc(p7="python")
    targets = book(proc, 7)
    targets.expect_program(7, "caddy", "/bin/caddy -x")
    targets.tell({7: process("python")})
    assert targets.readings()[0].language is None
    proc.comms[7] = "caddy"
    targets.tell({7: process("caddy")}, ran={7})
    assert targets.readings()[0].language == "go"


def test_the_cgroup_is_looked_up_again_after_an_exec() -> None:
    proc = Proc(p7="sh")
    targets = book(proc, 7)
    targets.tell({7: process("sh")})
    assert targets.readings()[0].cgroup == "/sh.service"
    proc.comms[7] = "node"
    targets.tell({7: process("node")})
    assert targets.readings()[0].cgroup == "/node.service"


def test_a_program_that_ended_before_it_was_looked_at_has_no_command_line() -> None:
    targets = book(Proc(p7="sh"), 7)
    targets.tell({7: process("sh")})
    targets.tell({7: process("node", exited_ns=9)})
    (shown,) = targets.readings()
    assert (shown.comm, shown.cmdline, shown.state) == ("node", None, "exited")


def test_an_exited_process_is_shown_once() -> None:
    proc = Proc(p7="node")
    targets = book(proc, 7)
    targets.tell({7: process("node")})
    del proc.comms[7]
    targets.tell({7: process("node", exited_ns=9)})
    targets.tell({})
    assert [one.state for one in targets.readings()] == ["exited"]


def test_a_command_to_be_run_has_its_own_name_before_it_runs() -> None:
    proc = Proc(p7="python")
    targets = book(proc, 7)
    targets.expect_program(7, "server", "./server --port 1")
    targets.tell({7: process("python")})
    assert (targets.readings()[0].comm, targets.readings()[0].cmdline) == (
        "server",
        "./server --port 1",
    )
    proc.comms[7] = "server"
    targets.tell({7: process("server")})
    assert targets.readings()[0].cmdline == "/bin/server -x"


def test_a_command_over_at_once_keeps_its_name() -> None:
    targets = book(Proc(p7="python"), 7)
    targets.expect_program(7, "true", "true")
    targets.tell({7: process("true", exited_ns=3)})
    (shown,) = targets.readings()
    assert (shown.comm, shown.cmdline, shown.state) == ("true", "true", "exited")


def test_the_living_come_first_and_the_exited_are_bounded() -> None:
    targets = book(Proc(p900="node"), 900)
    targets.tell({900: process("node")})
    for pid in range(EXITED_SHOWN_MAX + 10):
        targets.tell({900: process("node"), pid: process("x", via=1, exited_ns=1)})
    shown = targets.readings()
    assert shown[0].pid == 900 and shown[0].state == "running"
    assert [one.pid for one in shown[1:]] == list(range(10, EXITED_SHOWN_MAX + 10))


def test_descriptors_refused_are_kept_to_the_end() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({7: process("node", emfile=3)})
    assert targets.readings()[0].fds_refused == {"EMFILE": 3}
    targets.tell({7: process("node", exited_ns=5, emfile=4, enfile=1)})
    assert targets.readings()[0].fds_refused == {"EMFILE": 4, "ENFILE": 1}


def test_a_process_that_sleeps_is_not_looked_at_again() -> None:
    proc = Proc(p7="node", p8="node")
    targets = book(proc, 7, 8)
    targets.tell({7: process("node"), 8: process("node")})
    before, proc.asked = targets.readings(), []
    targets.tell({7: process("node"), 8: process("node", fds_open=6)}, ran=set())
    assert proc.asked == []
    assert targets.readings()[0] is before[0]
    assert targets.readings()[1].fds_open == 6


def test_one_that_ran_may_have_another_command_line() -> None:
    proc = Proc(p7="nginx")
    targets = book(proc, 7)
    targets.tell({7: process("nginx")})
    proc.arguments = "worker"
    targets.tell({7: process("nginx")}, ran=set())
    assert targets.readings()[0].cmdline == "/bin/nginx -x"
    targets.tell({7: process("nginx")}, ran={7})
    assert targets.readings()[0].cmdline == "/bin/nginx worker"


def test_command_lines_of_many_are_read_in_turn() -> None:
    pids = range(1, 2 * CMDLINES_PER_READ + 1)
    proc = Proc(**{f"p{pid}": "node" for pid in pids})
    targets = book(proc, *pids)
    everybody = {pid: process("node") for pid in pids}
    targets.tell(everybody)
    proc.arguments = "worker"
    for _ in range(2):
        targets.tell(everybody)
    assert {each.cmdline for each in targets.readings()} == {"/bin/node worker"}


def test_a_child_is_read_at_once_whoever_else_waits() -> None:
    proc = Proc(**{f"p{pid}": "node" for pid in range(1, CMDLINES_PER_READ + 10)})
    targets = book(proc)
    targets.tell({int(pid): process("node", via=1) for pid in proc.comms})
    assert {each.cmdline for each in targets.readings()} == {"/bin/node -x"}


def test_another_process_of_the_same_number_is_another_target() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({7: process("node")})
    targets.tell({7: process("node", via=1, started_ns=STARTED_NS + 10_000_000)})
    now, before = targets.readings()
    assert (now.state, now.start_ticks, now.via) == ("running", TICKS + 1, "fork")
    assert (before.state, before.start_ticks, before.via) == ("exited", TICKS, "selector")


def test_the_cgroup_is_looked_up_again_when_it_was_moved() -> None:
    proc = Proc(p7="node")
    targets = book(proc, 7)
    targets.tell({7: process("node")})
    proc.comms[7] = "other"
    targets.tell({7: process("node", cgroups=0xC1)})
    assert targets.readings()[0].cgroup == "/other.service"


def test_targets_by_their_cgroups_and_namespaces() -> None:
    targets = book(Proc(p7="node", p8="node", p9="node"), 7, 8, 9)
    processes = {7: process("node"), 8: process("node"), 9: process("node", cgroups=0xC1, netns=5)}
    targets.tell(processes)
    assert targets.by_cgroups() == {0xC0: {7, 8}, 0xC1: {9}}
    assert targets.netns() == {7: 4, 8: 4, 9: 5}
    processes[8].exited_ns = 5
    targets.tell(processes)
    assert targets.by_cgroups() == {0xC0: {7}, 0xC1: {9}}
    assert targets.netns() == {7: 4, 9: 5}


def test_descriptors_too_many_for_the_kernel_half_are_counted_by_proc() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.tell({7: process("node", fds_open=0xFFFFFFFF, fds_limit=(1 << 64) - 1)})
    assert (targets.readings()[0].fds_open, targets.readings()[0].fds_limit) == (70_000, None)


def test_who_ended_otherwise_than_with_status_0_is_added_up_by_program_and_way() -> None:
    targets = book(Proc())
    crashed = {"via": 1, "exited_ns": 5, "exit_code": 11, "served": 1, "unanswered": 2}
    targets.tell({7: process("app", **crashed), 8: process("app", via=1, exited_ns=6)})
    failed = process("sh", via=1, exited_ns=7, exit_code=3 << 8)
    targets.tell({9: process("app", **crashed), 10: failed})
    told = [(e.comm, e.how, e.processes, e.served, e.unanswered) for e in targets.exits()]
    assert told == [("app", "SIGSEGV", 2, 2, 4), ("sh", "status 3", 1, 0, 0)]


def test_what_they_start_and_cannot_start_is_added_up_by_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: List[int] = []
    limit = StartLimit("pids.max", 4, 4, "/app", "/sys/fs/cgroup/app/pids.max")
    monkeypatch.setattr(
        "udsprobe.kernel.tables.starts_and_exits.start_limit",
        lambda pid, *_: looked_at.append(pid) or limit,
    )
    targets = book(Proc(p7="app", p8="app"), 7, 8)
    alive = {7: process("app", started=3, start_eagain=2), 8: process("app", started=1)}
    targets.tell(alive)
    targets.tell(alive)
    assert targets.starts() == (StartCounts("app", 4, {"EAGAIN": 2}, (7,), limit),)
    gone = process("app", via=1, exited_ns=5, started=3, start_eagain=4, start_enomem=1, parent=8)
    targets.tell({7: gone, 8: process("app", started=2)})
    assert targets.starts() == (StartCounts("app", 5, {"EAGAIN": 4, "ENOMEM": 1}, (8,), limit),)
    assert looked_at == [7, 8]


def test_programs_without_end_are_added_up_as_others() -> None:
    targets = book(Proc())
    for number in range(KINDS_MAX + 5):
        targets.tell({7: process(f"p{number}", via=1, exited_ns=5, exit_code=1 << 8)})
    told = targets.exits()
    assert len(told) == KINDS_MAX + 1
    assert (told[-1].comm, told[-1].how, told[-1].processes) == ("others", "status 1", 5)


@pytest.mark.parametrize(
    ("code", "out_of_memory", "says"),
    [
        (0, False, ""),
        (0x100, False, "status 1"),
        (0x8B, False, "SIGSEGV"),  # with a core dump
        (9, True, "out of memory"),
        (9, False, "SIGKILL"),
        (0, True, ""),  # it was over before the kill
        (37, False, "signal 37"),
    ],
)
def test_a_status_says_how_it_ended(code: int, out_of_memory: bool, says: str) -> None:
    assert way(code, out_of_memory) == says


def test_who_traces_it_is_named_until_it_lets_go() -> None:
    targets = book(Proc(p7="node", p80="strace"), 7)
    targets.tell({7: process("node", tracer=80)})
    (told,) = targets.readings()
    assert (told.tracer_pid, told.tracer_comm) == (80, "strace")
    targets.tell({7: process("node")})
    assert targets.readings()[0].tracer_pid is None
    targets.tell({7: process("node", tracer=81)})
    assert (targets.readings()[0].tracer_pid, targets.readings()[0].tracer_comm) == (81, None)
    targets.tell({7: process("node", tracer=81, exited_ns=5)})
    assert targets.readings()[0].tracer_pid is None
