"""Claims about the kernel, by sockets of this process."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Iterator, List, Tuple

from check import check

from examples.frame.namespace import own_network, tcp_counter
from tests.patience import PATIENCE_S

PINGS = 300
DELAYED_ACK_S = 0.04  # TCP_DELACK_MIN, include/net/tcp.h


def _refusal(client: socket.socket, address: object) -> str:
    client.setblocking(False)
    with client:
        number = client.connect_ex(address)  # type: ignore[arg-type]
    return errno.errorcode.get(number, "connected")


def _fill(listener: socket.socket, family: int) -> List[socket.socket]:
    """Connections until one is refused; none is accepted."""
    taken: List[socket.socket] = []
    while True:
        client = socket.socket(family)
        client.setblocking(False)
        if client.connect_ex(listener.getsockname()):
            client.close()
            return taken
        taken.append(client)


@check
def somaxconn_default() -> str:
    """A network namespace that nobody configured."""
    made = subprocess.run(
        ["unshare", "--net", "cat", "/proc/sys/net/core/somaxconn"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(made.stdout) == 4096
    return "4096 in a fresh network namespace"


@check
def somaxconn_clamps_each_namespace() -> str:
    """listen(2048) under 128, and the host's own limit meanwhile."""
    before = Path("/proc/sys/net/core/somaxconn").read_text()
    with own_network(128), tempfile.TemporaryDirectory() as folder:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/a.sock")
        listener.listen(2048)
        taken = _fill(listener, socket.AF_UNIX)
        listener.close()
    assert len(taken) == 129
    assert Path("/proc/sys/net/core/somaxconn").read_text() == before
    for client in taken:
        client.close()
    return "listen(2048) under 128 holds 129; the host's limit did not move"


@check
def full_unix_queue() -> str:
    """Non-blocking, with a time limit, and where nobody listens."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/a.sock")
        unheard = _refusal(socket.socket(socket.AF_UNIX), listener.getsockname())
        listener.listen(3)
        taken = _fill(listener, socket.AF_UNIX)
        at_once = _refusal(socket.socket(socket.AF_UNIX), listener.getsockname())
        began = time.monotonic()
        with socket.socket(socket.AF_UNIX) as patient:
            patient.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, b"\0" * 8 + b"\x40\x0d\x03" + b"\0" * 5
            )
            later = errno.errorcode[patient.connect_ex(listener.getsockname())]
        waited = time.monotonic() - began
    for client in taken:
        client.close()
    assert (len(taken), at_once, later, unheard) == (4, "EAGAIN", "EAGAIN", "ECONNREFUSED")
    assert waited >= 0.2
    return f"EAGAIN at once, blocking waits ({waited:.1f} s asked for); nobody listens: {unheard}"


@check
def full_tcp_queue() -> str:
    """No RST: the SYN is dropped and sent again."""
    with own_network(4096), socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        at = listener.getsockname()
        taken = [socket.create_connection(at) for _ in range(2)]
        # The last packet of a handshake may be behind: it is here when the queue has it.
        give_up_at = time.monotonic() + PATIENCE_S
        while _queued(listener) < len(taken):
            assert time.monotonic() < give_up_at, _queued(listener)
        with socket.socket() as late:
            late.settimeout(0.5)
            code = late.connect_ex(at)
        counted = tcp_counter("ListenOverflows")
        for client in taken:
            client.close()
    assert code == errno.EAGAIN and counted >= 1  # Python's word for: not within the time-out
    return f"no answer within 0.5 s and no RST; ListenOverflows {counted}"


def _queued(listener: socket.socket) -> int:
    """Connections that nobody has accepted yet: `tcpi_unacked` of a listener."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("8B5I", info)[12])


@check
def nagle_on_loopback() -> str:
    """write-read, and write-write-read, with and without TCP_NODELAY: medians."""
    took = {(w, nodelay): _nagle(w, nodelay) for w in (1, 2) for nodelay in (0, 1)}
    medians = {how: statistics.median(each) for how, each in took.items()}
    # A delayed acknowledgement is what only the second write waits for; a machine that is busy
    # may be slow at any, but not always.
    least_us = 0.9e6 * DELAYED_ACK_S
    assert medians[2, 0] >= least_us, took
    quickest = {how: min(each) for how, each in took.items() if how != (2, 0)}
    assert max(quickest.values()) < least_us, took
    return (
        f"one write {medians[1, 0]:.0f} µs, with TCP_NODELAY {medians[1, 1]:.0f} µs; "
        f"two writes {medians[2, 0]:,.0f} µs, with TCP_NODELAY {medians[2, 1]:.0f} µs"
    )


def _nagle(writes: int, nodelay: int) -> List[float]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    answering = threading.Thread(target=_answer, args=(server, writes * 10), daemon=True)
    answering.start()
    took = []
    with client:
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(writes):
                client.sendall(b"x" * 10)
            client.recv(1)
            took.append(1e6 * (time.perf_counter() - began))
    answering.join()
    return took


def _answer(server: socket.socket, size: int) -> None:
    with server:
        while True:
            have = 0
            while have < size:
                got = len(server.recv(size - have))
                if not got:
                    return
                have += got
            server.sendall(b"y")


@check
def context_switches() -> str:
    """Of a process that plays ping-pong with another on one CPU: voluntary ones of each round
    trip."""
    with _one_cpu():
        each = {family: _switches(family) for family in (socket.AF_UNIX, socket.AF_INET)}
    unix, tcp = each[socket.AF_UNIX], each[socket.AF_INET]
    said = (
        f"{unix[0]:.2f} a round trip over Unix, {tcp[0]:.2f} over TCP; "
        f"median {unix[1]:.0f} and {tcp[1]:.0f} µs"
    )
    # On one CPU nobody answers while the asker runs. It sleeps once for each answer, unless it
    # was made to wait for the CPU before, and the answer came meanwhile.
    assert max(unix[0], tcp[0]) < 2, said
    return said


@contextlib.contextmanager
def _one_cpu() -> Iterator[None]:
    """This process, and what it starts, on the last of its CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _switches(family: int) -> Tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder, socket.socket(family) as listener:
        listener.bind(f"{folder}/a.sock" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        child = os.fork()
        if not child:
            _answer(listener.accept()[0], 1)
            os._exit(0)
        took = []
        with socket.socket(family) as client:
            client.connect(listener.getsockname())
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            for _ in range(PINGS):
                began = time.perf_counter()
                client.sendall(b"x")
                client.recv(1)
                took.append(1e6 * (time.perf_counter() - began))
            after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        os.waitpid(child, 0)
    return (after - before) / PINGS, statistics.median(took)


@check
def buffer_limits() -> str:
    """wmem_max, what setsockopt() makes of more, and whose buffer a Unix stream fills."""
    limit = int(Path("/proc/sys/net/core/wmem_max").read_text())
    left, right = socket.socketpair()
    with left, right:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 29)
        size = left.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    plain = _unix_room(0)
    narrow = _unix_room(2048)
    assert size == 2 * limit and plain == narrow
    return (
        f"wmem_max {limit:,}; SO_SNDBUF of 512 MB becomes {size:,}; a Unix stream takes "
        f"{plain:,} bytes, and as many before a reader with SO_RCVBUF 2048"
    )


def _unix_room(receive_buffer: int) -> int:
    left, right = socket.socketpair()
    with left, right:
        if receive_buffer:
            right.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        left.setblocking(False)
        sent = 0
        try:
            while True:
                sent += left.send(b"x" * 4096)
        except BlockingIOError:
            return sent


@check
def reuseport_on_unix() -> str:
    """SO_REUSEPORT, and a path that a dead server has left."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with first, second:
            try:
                first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                option = "taken, without effect"
            except OSError as error:
                option = errno.errorcode[error.errno or 0]
            first.bind(f"{folder}/a.sock")
            first.close()
            try:
                second.bind(f"{folder}/a.sock")
                stale = "bound"
            except OSError as error:
                stale = errno.errorcode[error.errno or 0]
    assert stale == "EADDRINUSE"
    return f"SO_REUSEPORT on AF_UNIX: {option}; a path left behind: {stale}"


@check
def noexec_and_inodes() -> str:
    """bind() below a tmpfs with noexec, and below one without a free inode."""
    with tempfile.TemporaryDirectory() as folder:
        script = (
            f"mount -t tmpfs -o noexec none {folder} && python3 -c 'import socket as s;"
            f's.socket(1).bind("{folder}/a")\' && umount {folder} && '
            f"mount -t tmpfs -o nr_inodes=1 none {folder} && python3 -c 'import socket as s;"
            f's.socket(1).bind("{folder}/a")\''
        )
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
        )
    assert done.returncode and "No space left" in done.stderr, done.stderr
    return "noexec: bind() works; no inode left: ENOSPC, on tmpfs too"


@check
def loopback_packets() -> str:
    """How large a packet of the loopback device is."""
    said = subprocess.run(
        ["ip", "-details", "link", "show", "lo"], capture_output=True, text=True, check=True
    )
    mtu = said.stdout.split("mtu ")[1].split()[0]
    assert mtu == "65536"
    return f"lo has an MTU of {mtu}: 64 KB are one packet"
