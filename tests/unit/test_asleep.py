"""What /proc shows of threads that sleep, with files as the kernel writes them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from select import POLLIN, POLLOUT
from typing import FrozenSet, Optional, Tuple

import pytest

from udsprobe.kernel.proc.asleep import (
    file_lock_holders,
    holders_in,
    listed_inodes,
    pipe_written,
    polled_inodes,
    readers_of,
)

# Of a session of PostgreSQL 15 that waits for a row, Linux 6.18.
CALL = "232 0x8 0x5638f2190648 0x1 0xffffffff 0xffffffffffffffff 0x0 0x7ffdc50f4a08 0x7fa671d28ef3"
SIGNALS = "tfd:        7 events:       19 data:     5638f2190618  pos:0 ino:40e sdev:10"
CLIENT = "tfd:        6 events:       19 data:     5638f21fc3e8  pos:0 ino:3d7db6 sdev:9"
DISABLED = "tfd:        6 events: 40000000 data:     5638f21fc3e8  pos:0 ino:3d7db6 sdev:9"
HEAD = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t1038\n"
SET, SIGNALFD, RING = "anon_inode:[eventpoll]", "anon_inode:[signalfd]", "anon_inode:[io_uring]"
CLIENT_INODE, ADDRESS = 0x3D7DB6, 0x40


def polled(
    folder: Path, *members: str, call: str = CALL, fd_8: str = SET, fd_7: str = SIGNALFD
) -> Optional[FrozenSet[int]]:
    (folder / "7" / "fd").mkdir(parents=True)
    (folder / "7" / "fdinfo").mkdir()
    (folder / "7" / "syscall").write_text(f"{call}\n")
    (folder / "7" / "fdinfo" / "8").write_text(HEAD + "".join(f"{row}\n" for row in members))
    for fd, leads_to in ((8, fd_8), (7, fd_7), (6, f"socket:[{CLIENT_INODE}]")):
        os.symlink(leads_to, folder / "7" / "fd" / str(fd))
    return polled_inodes(7, str(folder))


def test_the_inodes_that_a_set_watches(tmp_path: Path) -> None:
    assert polled(tmp_path, SIGNALS, CLIENT) == {0x40E, CLIENT_INODE}


def test_what_is_switched_off_is_not_watched(tmp_path: Path) -> None:
    assert polled(tmp_path, SIGNALS, DISABLED) == {0x40E}


def test_a_set_without_members(tmp_path: Path) -> None:
    assert polled(tmp_path) == frozenset()


@pytest.mark.parametrize("inside", [SET, RING])
def test_what_stands_for_others_is_not_told(tmp_path: Path, inside: str) -> None:
    assert polled(tmp_path, SIGNALS, fd_7=inside) is None


def test_a_thread_that_is_elsewhere(tmp_path: Path) -> None:
    for number, call in enumerate(("running", "-1 0x7ffdc50f4a08 0x7fa671d28ef3", "")):
        assert polled(tmp_path / str(number), SIGNALS, call=call) is None
    assert polled(tmp_path / "file", SIGNALS, fd_8="/dev/null") is None
    assert polled_inodes(8, str(tmp_path)) is None


def test_an_event_loop_is_not_looked_through(tmp_path: Path) -> None:
    assert polled(tmp_path, *[CLIENT] * 65) is None


def listed(
    folder: Path, *members: Tuple[int, int], leads_to: str = SET
) -> Optional[FrozenSet[int]]:
    """A thread in poll(), whose list is at an address of its memory."""
    (folder / "9" / "fd").mkdir(parents=True)
    call = f"7 {ADDRESS:#x} {len(members):#x} 0xffffffff 0x0 0x0 0x0 0x7ffdc50f4a08 0x7fa671d28ef3"
    (folder / "9" / "syscall").write_text(f"{call}\n")
    rows = b"".join(struct.pack("<ihh", *member, 0) for member in members)
    (folder / "9" / "mem").write_bytes(bytes(ADDRESS) + rows)
    for fd, each in ((6, f"socket:[{CLIENT_INODE}]"), (7, "pipe:[77]"), (8, leads_to)):
        os.symlink(each, folder / "9" / "fd" / str(fd))
    return listed_inodes(9, str(folder))


def test_the_inodes_of_a_list(tmp_path: Path) -> None:
    """Closed places of it, what is polled for output, and files are nothing that it waits for."""
    members = ((6, POLLIN), (7, POLLIN | POLLOUT), (-1, POLLIN))
    assert listed(tmp_path / "both", *members) == {CLIENT_INODE, 77}
    assert listed(tmp_path / "out", (6, POLLOUT), (7, POLLIN)) == {77}
    assert listed(tmp_path / "file", (8, POLLIN), leads_to="/dev/null") == frozenset()


def test_of_a_list_that_is_none_or_not_all_told(tmp_path: Path) -> None:
    assert listed(tmp_path / "empty") is None
    assert listed(tmp_path / "set", (8, POLLIN)) is None
    assert listed(tmp_path / "gone", (9, POLLIN)) is None
    assert listed(tmp_path / "many", *[(6, POLLIN)] * 65) is None


def test_a_real_thread_in_poll() -> None:
    source = "import select, socket, sys\na, b = socket.socketpair()\np = select.poll()\n"
    source += (
        "p.register(a, select.POLLIN)\nprint(os.fstat(a.fileno()).st_ino, flush=True)\np.poll()"
    )
    argv = [sys.executable, "-c", f"import os\n{source}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        inode = int(process.stdout.readline())
        try:
            ends_s = time.monotonic() + 10
            while (found := listed_inodes(process.pid)) is None and time.monotonic() < ends_s:
                os.sched_yield()
            assert found == {inode}
        finally:
            process.kill()


READS_NOT = "import os; print('here', flush=True); os.read({}, 1)"


def test_who_reads_the_pipe_that_a_thread_writes_to() -> None:
    """One that fills its output, and one that has that output as its input."""
    filled, until_then = os.pipe(), os.pipe()
    reader_argv = [sys.executable, "-c", READS_NOT.format(until_then[0])]
    writer_argv = [sys.executable, "-c", "import os\nwhile True: os.write(1, bytes(4096))"]
    with (
        subprocess.Popen(
            reader_argv, stdin=filled[0], stdout=subprocess.PIPE, pass_fds=[until_then[0]]
        ) as reader,
        subprocess.Popen(writer_argv, stdout=filled[1]) as writer,
    ):
        assert reader.stdout is not None and reader.stdout.readline() == b"here\n"
        for fd in (*filled, until_then[0]):
            os.close(fd)
        try:
            ends_s = time.monotonic() + 10
            while (pipe := pipe_written(writer.pid)) is None and time.monotonic() < ends_s:
                os.sched_yield()
            assert pipe is not None and pipe.startswith("pipe:[")
            # Who writes to it has an end as well, from which it may not read.
            assert readers_of(pipe) == [reader.pid]
        finally:
            os.close(until_then[1])
            writer.kill()


def test_a_pipe_that_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "9" / "fd").mkdir(parents=True)
    os.symlink("pipe:[1]", tmp_path / "9" / "fd" / "0")
    # Its flags are hidden, or it has gone.
    assert readers_of("pipe:[1]", str(tmp_path)) == []
    assert readers_of("pipe:[1]", str(tmp_path / "none")) == []
    assert pipe_written(9, str(tmp_path)) is None


LOCKS = b"""1: POSIX  ADVISORY  WRITE 498 fd:01:1234 0 EOF
1: -> POSIX  ADVISORY  WRITE 512 fd:01:1234 0 EOF
1:  -> POSIX  ADVISORY  READ 513 fd:01:1234 0 EOF
2: FLOCK  ADVISORY  WRITE 600 fd:01:1235 0 EOF
2: -> FLOCK  ADVISORY  WRITE 601 fd:01:1235 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fd:01:1236 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 fd:01:1236 0 EOF
4: OFDLCK ADVISORY  WRITE -1 fd:01:1237 0 EOF
4: -> POSIX  ADVISORY  WRITE 700 fd:01:1237 0 EOF
5: FLOCK  ADVISORY  WRITE 498 fd:01:1238 0 EOF
"""


def test_who_waits_for_whom() -> None:
    assert holders_in(LOCKS) == {512: 498, 513: 498, 601: 600}


def test_threads_of_one_process_that_wait_for_two() -> None:
    more = b"2: -> FLOCK  ADVISORY  WRITE 512 fd:01:1235 0 EOF\n"
    found = holders_in(LOCKS.replace(b"3: OFD", more + b"3: OFD", 1))
    assert 512 not in found


def test_what_cannot_be_read_is_nobody(tmp_path: Path) -> None:
    assert file_lock_holders(str(tmp_path)) == {}
    assert holders_in(b"\0\n1:\n1: -> POSIX ADVISORY WRITE 5 x 0 EOF\n") == {}
