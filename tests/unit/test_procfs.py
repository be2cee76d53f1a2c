"""/proc read as it is, as it was before Linux 6.2, while it vanishes, and when it is hostile."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Optional

import pytest

from tests.conftest import give_up
from tests.patience import PATIENCE_S
from udsprobe.kernel.proc.procfs import Procfs, same_file
from udsprobe.printable import printable

READY_THEN_WAIT = "print('ready', flush=True); import sys; sys.stdin.read()"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `python -c CODE`, waits until it says it is ready, ends it afterwards."""
    started: List[subprocess.Popen[bytes]] = []

    def python(code: str = "", **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code + "\n" + READY_THEN_WAIT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield python
    for process in started:
        process.communicate()


@pytest.fixture
def ended() -> int:
    """A PID that was just in use and is not any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def fake_process(root: Path, pid: int, comm: bytes, *, flags: int = 0, ppid: int = 1) -> None:
    (root / str(pid)).mkdir(parents=True)
    fields = b" S %d 0 0 0 0 %d 0 0 0 0 0 0 0 0 20 0 3 0 777 0 0" % (ppid, flags)
    (root / str(pid) / "stat").write_bytes(b"%d (%s)" % (pid, comm) + fields)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"nginx", "nginx"),
        ("naïve-日本".encode(), "naïve-日本"),
        (b"\xff\xfe/x", r"\xff\xfe/x"),
        (b"a\x00b", r"a\x00b"),
        (b"\x1b[31mred\x07", r"\x1b[31mred\x07"),
        (b"two\nlines\r", r"two\x0alines\x0d"),
        ("\u202eevil\u200b".encode(), r"\u202eevil\u200b"),
        ("\u2028\u00a0".encode(), r"\u2028\u00a0"),
        ("\U000e0041".encode(), r"\U000e0041"),
        (b"[bold]:smile:\\", "[bold]:smile:\\"),
    ],
)
def test_what_processes_call_themselves_is_made_visible(raw: bytes, shown: str) -> None:
    assert printable(raw) == shown


@pytest.mark.parametrize("comm", [b"a) R 1 (b", b") (", b"x\n y", b"\xff\x1b["])
def test_a_name_cannot_forge_the_fields_behind_it(tmp_path: Path, comm: bytes) -> None:
    fake_process(tmp_path, 12, comm, ppid=9)
    process = Procfs(str(tmp_path)).process(12)
    assert process is not None
    assert (process.comm_raw, process.ppid, process.state) == (comm, 9, "S")
    assert (process.threads, process.start_ticks) == (3, 777)
    assert process.comm.isprintable()


def test_kernel_threads_are_told_by_their_flag(tmp_path: Path) -> None:
    fake_process(tmp_path, 2, b"kthreadd", flags=0x00208040)
    fake_process(tmp_path, 30, b"[kthreadd]", flags=0x00400040)
    found = {one.pid: one.kernel_thread for one in Procfs(str(tmp_path)).processes()}
    assert found == {2: True, 30: False}


def test_a_process_is_read_as_it_is(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    code = (
        "import threading; e = threading.Event()\n"
        "for _ in range(4): threading.Thread(target=e.wait, daemon=True).start()"
    )
    child = start(code)
    procfs = Procfs()
    process = procfs.process(child.pid)
    assert process is not None
    assert (process.ppid, process.threads, process.kernel_thread) == (os.getpid(), 5, False)
    own = procfs.process(os.getpid())
    assert own is not None
    assert process.start_ticks >= own.start_ticks
    reading = procfs.target(child.pid, "fork")
    assert reading is not None
    assert (reading.threads, reading.state, reading.via) == (5, "running", "fork")
    assert reading.cmdline is not None
    assert reading.cmdline.startswith(f"{sys.executable} -c import threading")
    assert "\n" not in reading.cmdline


def test_a_process_that_has_gone_is_none_everywhere(ended: int) -> None:
    procfs = Procfs()
    assert procfs.process(ended) is None
    assert procfs.cmdline(ended) is None
    assert procfs.fds_open(ended) is None
    assert procfs.fds_limit(ended) is None
    assert procfs.socket_fds(ended) is None
    assert procfs.netns(ended) is None
    assert procfs.thread_group(ended) is None
    assert procfs.target(ended, "selector") is None
    assert procfs.cgroups(ended) == {}
    assert procfs.owners([1], [ended]).hidden == frozenset()


def test_a_zombie_is_no_target() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    process = Procfs().process(child.pid)
    assert process is not None
    assert process.ended
    assert Procfs().target(child.pid, "selector") is None
    child.wait()


@pytest.mark.parametrize("kernel_counts", [True, False], ids=["6.2", "before 6.2"])
def test_open_descriptors_are_counted(
    start: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    kernel_counts: bool,
) -> None:
    child = start("import os; pipes = [os.pipe() for _ in range(50)]")
    if not kernel_counts:
        monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_size=0))
    elif os.stat(f"/proc/{child.pid}/fd").st_size == 0:
        pytest.skip("this kernel is older than 6.2")
    # stdin, stdout, stderr and the pipes
    assert Procfs().fds_open(child.pid) == 103


def test_the_limit_is_the_soft_one(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    child = start(f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (123, {hard}))")
    assert Procfs().fds_limit(child.pid) == 123


def test_an_inherited_socket_has_two_owners(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        inode = os.fstat(held.fileno()).st_ino
        child = start(pass_fds=[held.fileno()])
        owners = Procfs().owners([inode], [os.getpid(), child.pid])
        assert owners.of(inode) == tuple(sorted([os.getpid(), child.pid]))
        assert Procfs().holds(child.pid, held.fileno(), inode)
        assert not Procfs().holds(child.pid, 0, inode)


@pytest.mark.parametrize("refuses", ["listdir", "readlink"])
def test_hidden_descriptors_leave_the_owners_unknown(
    monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, refuses, refuse)
    owners = Procfs().owners([4711], [os.getpid()])
    assert owners.hidden == {os.getpid()}
    assert owners.of(4711) is None


def test_a_socket_that_nobody_holds_has_no_owners() -> None:
    assert Procfs().owners([0], [os.getpid()]).of(0) == ()


def test_relatives_are_followed_both_ways(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    grandparent = start(
        "import os\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    if not os.fork(): os.write(w, b'x')\n"
        "    os.read(0, 1); os._exit(0)\n"
        "os.read(r, 1)\n"
    )
    procfs = Procfs()
    found = procfs.descendants([grandparent.pid])
    assert len(found) == 2
    assert grandparent.pid not in found
    assert all(os.getpid() in procfs.ancestors(pid) for pid in found)
    assert found < procfs.descendants([os.getpid()])


def test_a_thread_names_its_process() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert Procfs().thread_group(thread.native_id) == os.getpid()
    finally:
        done.set()
        thread.join()


NOTE = b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0"


@pytest.mark.parametrize(
    ("start", "language"),
    [
        (b"\x7fELF" + bytes(4000) + NOTE + b"id", "go"),
        (b"\x7fELF" + bytes(4000) + NOTE.replace(b"Go", b"GO"), None),
        (b"\x7fELF" + bytes(40_000) + NOTE, None),
        (b"#!/bin/sh\n" + NOTE, None),
        (b"", None),
    ],
    ids=["go", "gnu", "too far in", "no program", "empty"],
)
def test_the_language_of_a_program(tmp_path: Path, start: bytes, language: Optional[str]) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "exe").write_bytes(start)
    assert Procfs(str(tmp_path)).language(7) == language
    assert Procfs(str(tmp_path)).language(8) is None


def test_the_language_of_real_programs(tmp_path: Path) -> None:
    """Of one that was linked with C's libraries and stripped, too."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "exe").symlink_to(sys.executable)
    assert Procfs(str(tmp_path)).language(7) is None
    for number, flags in enumerate(["", "-linkmode=external -s -w"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "exe").symlink_to(go_program(tmp_path, flags))
        assert Procfs(str(tmp_path)).language(number) == "go", flags


def go_program(folder: Path, flags: str) -> Path:
    source, made = folder / "main.go", folder / f"program{flags.replace(' ', '')}"
    source.write_text("package main\n\nfunc main() {}\n")
    argv = ["go", "build", "-ldflags", flags, "-o", str(made), str(source)]
    try:
        subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    except FileNotFoundError:
        give_up("go is not installed")
    return made


def test_cgroup_paths_may_hold_colons(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(b"4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/x:y\xff\n")
    assert Procfs(str(tmp_path)).cgroups(7) == {
        "cpu,cpuacct": "/a",
        "name=systemd": "/b",
        "": r"/x:y\xff",
    }


def test_a_socket_file_is_known_by_device_and_inode(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        found = (tmp_path / "s").stat()
    device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
    inode = found.st_ino & 0xFFFFFFFF
    (tmp_path / "link").symlink_to("s")
    assert same_file(os.fsencode(tmp_path / "link"), device, inode)
    assert not same_file(os.fsencode(tmp_path / "s"), device, inode + 1)
    assert not same_file(os.fsencode(tmp_path), device, (tmp_path.stat().st_ino) & 0xFFFFFFFF)
    assert not same_file(b"\0", device, inode)


def test_cpu_time_that_a_process_wanted() -> None:
    """At least what the C library says it took, but for the clock's ticks."""
    procfs, tick_ns = Procfs(), 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    began_ns, before = time.process_time_ns(), procfs.wanted_cpu_ns(os.getpid())
    while time.process_time_ns() - began_ns < 10 * tick_ns:
        pass
    after = procfs.wanted_cpu_ns(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before >= 8 * tick_ns


def test_cpu_time_of_nobody(tmp_path: Path) -> None:
    assert Procfs(str(tmp_path)).wanted_cpu_ns(1) is None
