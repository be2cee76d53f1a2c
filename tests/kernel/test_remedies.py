"""The lines for a queue that is full do to a running server what they promise, and back."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

import pytest

from udsprobe.model.action import Action
from udsprobe.rules.remedy.row import Value
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import GENERIC

SERVER = """import os, socket, sys
kind, address, backlog = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "unix":
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
else:
    server = socket.socket(socket.AF_INET)
    server.bind(("127.0.0.1", 0))
server.listen(backlog)
print(os.fstat(server.fileno()).st_ino, flush=True)
sys.stdin.read()
"""
NOBODY = 65534


class Heard(NamedTuple):
    """A listener of a process of another user, in a network namespace of its own for TCP."""

    pid: int
    inode: int
    address: str


@pytest.fixture(autouse=True)
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run as root: where `sudo` is not installed, a stand-in runs what follows it."""
    if shutil.which("sudo") is None:
        stand_in = tmp_path / "bin" / "sudo"
        stand_in.parent.mkdir()
        stand_in.write_text('#!/bin/sh\nexec "$@"\n')
        stand_in.chmod(0o755)
        monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")


@pytest.fixture(params=["unix", "tcp"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heard]:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    address = str(tmp_path / "it's.sock") if request.param == "unix" else "127.0.0.1"
    inside = [
        "unshare",
        "-n",
        "sh",
        "-c",
        'echo 128 >/proc/sys/net/core/somaxconn; exec "$@"',
        "sh",
    ]
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    program = [sys.executable, "-c", SERVER, request.param, address, "5"]
    with subprocess.Popen(
        [*inside, *become, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Heard(process.pid, int(process.stdout.readline()), address)
        process.stdin.close()


def limit(heard: Heard) -> int:
    """Send-Q of its listener, in its own network namespace."""
    command = ["nsenter", "-t", str(heard.pid), "-n", "ss", "-Hlne", "-A", "tcp,unix"]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    (row,) = [row.split() for row in rows if " LISTEN " in row]
    return int(row[3])


def run(line: Optional[str]) -> None:
    assert line is not None
    subprocess.run(["bash", "-c", line], check=True, capture_output=True)


def values(heard: Heard) -> Dict[str, Value]:
    return {
        "pid": heard.pid,
        "inode": heard.inode,
        "address": heard.address,
        "backlog": 1024,
        "was": 5,
        "was_somaxconn": 128,
    }


def peer(heard: Heard) -> List[int]:
    """Process, user and group that a client is told; nothing over TCP."""
    if not heard.address.startswith("/"):
        return []
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(heard.address)
        return list(
            struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        )


def test_somaxconn_and_backlog_of_a_running_server(heard: Heard) -> None:
    both: Action = remedies("somaxconn", GENERIC, **values(heard))[0]
    assert limit(heard) == 5
    run(both.run)
    assert limit(heard) == 1024
    run(both.undo)
    assert limit(heard) == 5
    backlog = remedies("backlog-unix", GENERIC, **values(heard))[0]
    run(backlog.run)
    assert limit(heard) == 128  # somaxconn is as before, and cuts it


def test_clients_are_told_the_same_user(heard: Heard) -> None:
    before = peer(heard)
    run(remedies("backlog-tcp", GENERIC, **values(heard))[0].run)
    assert limit(heard) == 128
    assert peer(heard)[1:] == before[1:]
    assert not before or before[1:] == [NOBODY, NOBODY]
