"""Nothing is done to a target: no ptrace, no signal, no write to its memory, no stop."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import pytest

from tests.conftest import Require, give_up
from tests.kernel.actor import Caller
from tests.kernel.exporting import Exporting
from tests.kernel.live import answer
from tests.repo.source_tree import ROOT

pytestmark = pytest.mark.root

# Whatever reaches into another process, or makes it do something.
REACHES_OUT = {
    *("ptrace", "process_vm_writev", "process_vm_readv", "process_madvise", "process_mrelease"),
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"),
    *("pidfd_getfd", "kcmp", "move_pages", "migrate_pages", "prlimit64", "setpriority"),
    *("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "ioprio_set"),
}
CALL = re.compile(r"^\d+ +([a-z_0-9]+)\((.*)$", re.MULTILINE)
WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
HELPERS = Path("/usr/include/bpf/bpf_helper_defs.h")
HELPER = re.compile(r"^static \S.*\(\*(bpf_\w+)\)\(.*\) = \(void \*\) (\d+);$", re.MULTILINE)
# include/uapi/linux/bpf.h: these look, count in maps of udsprobe's, hand a record to its reader, or
# jump to another program of udsprobe's.
HARMLESS = {
    *("bpf_map_lookup_elem", "bpf_map_update_elem", "bpf_map_delete_elem"),
    *("bpf_map_push_elem", "bpf_map_pop_elem"),
    *("bpf_probe_read_kernel", "bpf_probe_read_user", "bpf_probe_read_kernel_str"),
    *("bpf_probe_read_user_str", "bpf_ktime_get_ns", "bpf_get_smp_processor_id"),
    *("bpf_get_current_pid_tgid", "bpf_get_current_task", "bpf_get_current_task_btf"),
    *("bpf_task_storage_get", "bpf_task_storage_delete", "bpf_seq_write", "bpf_task_pt_regs"),
    *("bpf_get_current_comm", "bpf_jiffies64", "bpf_get_current_cgroup_id", "bpf_per_cpu_ptr"),
    *("bpf_loop", "bpf_get_stack", "bpf_ringbuf_output", "bpf_get_ns_current_pid_tgid"),
    *("bpf_get_task_stack", "bpf_ringbuf_query", "bpf_get_prandom_u32", "bpf_tail_call"),
    "bpf_for_each_map_elem",
}
BPF_CALL = 0x85


def calls_to(traced: str) -> List[Tuple[str, str]]:
    return CALL.findall(traced)


@pytest.mark.parametrize("command", ["attach", "export"])
def test_no_system_call_reaches_out(require: Require, tmp_path: Path, command: str) -> None:
    """strace sees all of udsprobe, the target is not traced and works the while."""
    trace = tmp_path / "trace"
    prefix = [require("strace")["strace"], "-f", "-qq", "-s", "0", "-o", str(trace)]
    with Caller() as actor:
        pids = ["--pid", str(actor.pid), "--interval", "0.2"]
        if command == "export":
            with Exporting(pids, prefix=prefix) as exporting:
                actor.does("call", 17)
                exporting.wait_for_samples(5)
                actor.does("call", 3)
                actor.leave()  # which ends it; strace keeps signals from it
                assert exporting.end(None).code == 0
        else:
            ended = answer(["attach", *pids, "--duration", "0.6", "--json"], prefix)
            assert ended.code == 0
            actor.does("call", 3)
    made = calls_to(trace.read_text())
    assert {"bpf", "openat"} <= {name for name, _ in made}
    assert [line for line in made if line[0] in REACHES_OUT and not is_of_itself(*line)] == []


def is_of_itself(name: str, arguments: str) -> bool:
    """A limit or a priority of the caller's own: pid 0."""
    return name in ("prlimit64", "sched_setaffinity") and arguments.startswith("0,")


def test_nothing_of_proc_is_opened_to_be_written(require: Require, tmp_path: Path) -> None:
    """/proc/PID/mem above all."""
    trace = tmp_path / "trace"
    prefix = [require("strace")["strace"], "-f", "-qq", "-e", "trace=open,openat,openat2,creat"]
    with Caller() as actor:
        arguments = ["attach", "--pid", str(actor.pid), "--duration", "0.6", "--json"]
        assert answer(arguments, [*prefix, "-o", str(trace)]).code == 0
    made = calls_to(trace.read_text())
    assert any(f'"/proc/{actor.pid}/' in arguments for _, arguments in made)
    written = [a for _, a in made if WRITING.search(a) and re.search(r'"/(proc|sys)/', a)]
    assert written == []


def test_the_target_is_never_stopped(tmp_path: Path) -> None:
    """Its signals, its tracer and its calls, while it is observed and after."""
    with Caller() as actor:
        before = state(actor.pid)
        with Exporting(["--pid", str(actor.pid), "--interval", "0.1"]) as exporting:
            actor.does("call", 1009)
            assert exporting.text()
            assert state(actor.pid) == before
            exporting.end()
        assert state(actor.pid) == before
        assert before["TracerPid"] == "0"


def state(pid: int) -> Dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    wanted = ("TracerPid", "SigPnd", "ShdPnd", "SigBlk", "SigCgt", "Uid", "CapEff", "Seccomp")
    return {
        line.split(":")[0]: line.split(":", 1)[1].strip()
        for line in text.splitlines()
        if line.split(":")[0] in wanted
    }


def executable_sections(raw: bytes) -> Iterator[bytes]:
    """Of an ELF file of 64 bits, little endian."""
    at, size, count = struct.unpack_from("<Q", raw, 40)[0], *struct.unpack_from("<HH", raw, 58)
    for index in range(count):
        kind, flags, _, offset, length = struct.unpack_from("<IQQQQ", raw, at + index * size + 4)
        if kind == 1 and flags & 4:  # SHT_PROGBITS, SHF_EXECINSTR
            yield raw[offset : offset + length]


def helpers_called(raw: bytes) -> Set[int]:
    """Helper functions of the kernel's that any program of an object calls."""
    return {
        number
        for section in executable_sections(raw)
        for code, registers, _, number in struct.iter_unpack("<BBhi", section)
        if code == BPF_CALL and registers >> 4 == 0
    }


def test_the_programs_only_look() -> None:
    """bpf_probe_write_user, bpf_send_signal, bpf_override_return are none of theirs."""
    if not HELPERS.exists():
        give_up(f"{HELPERS} is not there: scripts/setup")
    names = {int(number): name for name, number in HELPER.findall(HELPERS.read_text())}
    assert {names[36], names[58], names[109]} == {
        *("bpf_probe_write_user", "bpf_override_return", "bpf_send_signal")
    }
    objects = list((ROOT / "udsprobe/_bpf").glob("*.bpf.o"))
    assert len(objects) >= 4
    for built in objects:
        called = {names[number] for number in helpers_called(built.read_bytes())}
        assert "bpf_map_lookup_elem" in called
        assert called <= HARMLESS, built.name
