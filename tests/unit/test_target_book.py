"""Targets by name, from their choice to their end, whatever /proc still shows of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Dict, Optional

from udsprobe.kernel.target_book import EXITED_SHOWN_MAX, TargetBook
from udsprobe.sample import TargetReading

VIAS = {0: "selector", 1: "fork"}


def reading(pid: int, comm: str, via: str = "selector", cmdline: str = "") -> TargetReading:
    argv = cmdline or f"/bin/{comm} -x"
    return TargetReading(
        pid, comm, argv, 1, "running", 5, 1024, via, fds_refused={}, cgroup=f"/{comm}.service"
    )


class Proc:
    """/proc with these processes in it."""

    def __init__(self, **comms: str) -> None:
        self.comms: Dict[int, str] = {int(key[1:]): comm for key, comm in comms.items()}

    def target(self, pid: int, via: str, cgroup: Optional[str] = None) -> Optional[TargetReading]:
        comm = self.comms.get(pid)
        if comm is None:
            return None
        found = reading(pid, comm, via)
        return found if cgroup is None else replace(found, cgroup=cgroup)


def process(comm: str, via: int = 0, exited_ns: int = 0, **refused: int) -> SimpleNamespace:
    counts = {"emfile": 0, "enfile": 0, **refused}
    return SimpleNamespace(comm=comm.encode(), via=via, exited_ns=exited_ns, **counts)


def book(proc: Proc, *chosen: int) -> TargetBook:
    made = TargetBook(proc)  # type: ignore[arg-type]
    for pid in chosen:
        made.expect(pid, "selector")
    return made


def test_a_chosen_process_is_read_from_proc() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.update({7: process("node")}, VIAS)
    assert targets.readings() == (reading(7, "node"),)
    assert targets.alive() == {7}


def test_one_that_is_gone_before_the_probes_are_live_has_exited() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.update({}, VIAS)
    (shown,) = targets.readings()
    assert (shown.state, shown.comm, shown.cmdline) == ("exited", "node", "/bin/node -x")
    assert targets.alive() == frozenset()


def test_one_that_proc_never_showed_is_nothing() -> None:
    targets = book(Proc(), 7)
    targets.update({}, VIAS)
    assert targets.readings() == ()


def test_a_child_is_a_target_by_fork() -> None:
    proc = Proc(p7="node", p8="node")
    targets = book(proc, 7)
    targets.update({7: process("node"), 8: process("node", via=1)}, VIAS)
    assert [(one.pid, one.via) for one in targets.readings()] == [(7, "selector"), (8, "fork")]


def test_a_child_that_was_over_at_once_is_known_by_name_alone() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.update({7: process("node"), 8: process("git", via=1, exited_ns=5)}, VIAS)
    child = targets.readings()[-1]
    assert (child.comm, child.cmdline, child.state, child.via) == ("git", None, "exited", "fork")
    assert child.fds_open is None


def test_the_kernels_name_is_made_printable() -> None:
    targets = book(Proc(), 7)
    targets.update({8: process("\x1b[31m", via=1, exited_ns=5)}, VIAS)
    assert targets.readings()[0].comm == "\\x1b[31m"


def test_an_exec_is_seen_at_the_next_look() -> None:
    proc = Proc(p7="sh")
    targets = book(proc, 7)
    targets.update({7: process("sh")}, VIAS)
    proc.comms[7] = "node"
    targets.update({7: process("node")}, VIAS)
    assert targets.readings()[0].comm == "node"


def test_the_cgroup_is_looked_up_again_after_an_exec() -> None:
    proc = Proc(p7="sh")
    targets = book(proc, 7)
    targets.update({7: process("sh")}, VIAS)
    assert targets.readings()[0].cgroup == "/sh.service"
    proc.comms[7] = "node"
    targets.update({7: process("node")}, VIAS)
    assert targets.readings()[0].cgroup == "/node.service"


def test_a_program_that_ended_before_it_was_looked_at_has_no_command_line() -> None:
    targets = book(Proc(p7="sh"), 7)
    targets.update({7: process("sh")}, VIAS)
    targets.update({7: process("node", exited_ns=9)}, VIAS)
    (shown,) = targets.readings()
    assert (shown.comm, shown.cmdline, shown.state) == ("node", None, "exited")


def test_an_exited_process_is_shown_once() -> None:
    proc = Proc(p7="node")
    targets = book(proc, 7)
    targets.update({7: process("node")}, VIAS)
    del proc.comms[7]
    targets.update({7: process("node", exited_ns=9)}, VIAS)
    targets.update({}, VIAS)
    assert [one.state for one in targets.readings()] == ["exited"]


def test_a_command_to_be_run_has_its_own_name_before_it_runs() -> None:
    proc = Proc(p7="python")
    targets = book(proc, 7)
    targets.expect_program(7, "server", "./server --port 1")
    targets.update({7: process("python")}, VIAS)
    assert (targets.readings()[0].comm, targets.readings()[0].cmdline) == (
        "server",
        "./server --port 1",
    )
    proc.comms[7] = "server"
    targets.update({7: process("server")}, VIAS)
    assert targets.readings()[0].cmdline == "/bin/server -x"


def test_a_command_over_at_once_keeps_its_name() -> None:
    targets = book(Proc(p7="python"), 7)
    targets.expect_program(7, "true", "true")
    targets.update({7: process("true", exited_ns=3)}, VIAS)
    (shown,) = targets.readings()
    assert (shown.comm, shown.cmdline, shown.state) == ("true", "true", "exited")


def test_the_living_come_first_and_the_exited_are_bounded() -> None:
    targets = book(Proc(p900="node"), 900)
    targets.update({900: process("node")}, VIAS)
    for pid in range(EXITED_SHOWN_MAX + 10):
        targets.update({900: process("node"), pid: process("x", via=1, exited_ns=1)}, VIAS)
    shown = targets.readings()
    assert shown[0].pid == 900 and shown[0].state == "running"
    assert [one.pid for one in shown[1:]] == list(range(10, EXITED_SHOWN_MAX + 10))


def test_descriptors_refused_are_kept_to_the_end() -> None:
    targets = book(Proc(p7="node"), 7)
    targets.update({7: process("node", emfile=3)}, VIAS)
    assert targets.readings()[0].fds_refused == {"EMFILE": 3}
    targets.update({7: process("node", exited_ns=5, emfile=4, enfile=1)}, VIAS)
    assert targets.readings()[0].fds_refused == {"EMFILE": 4, "ENFILE": 1}
