"""Claims about the kernel, by sockets of this process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Iterator, List

from examples.claims.check import Between, Figures, check, exactly
from examples.frame.namespace import own_network, tcp_counter
from tests.patience import PATIENCE_S

PINGS = 300


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


@check("{somaxconn} in a fresh network namespace", somaxconn=exactly(4096))
def somaxconn_default() -> Figures:
    """A network namespace that nobody configured."""
    made = subprocess.run(
        ["unshare", "--net", "cat", "/proc/sys/net/core/somaxconn"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {"somaxconn": int(made.stdout)}


@check(
    "listen(2048) under 128 holds {held}; the host's limit moved by {host_moved_by}",
    held=exactly(129),
    host_moved_by=exactly(0),
)
def somaxconn_clamps_each_namespace() -> Figures:
    """listen(2048) under 128, and the host's own limit meanwhile."""
    before = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with own_network(128), tempfile.TemporaryDirectory() as folder:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/a.sock")
        listener.listen(2048)
        taken = _fill(listener, socket.AF_UNIX)
        listener.close()
    for client in taken:
        client.close()
    after = int(Path("/proc/sys/net/core/somaxconn").read_text())
    return {"held": len(taken), "host_moved_by": after - before}


@check(
    "listen(3) holds {held}; then {at_once} at once, {after_timeout} after {waited_s:.1f} s of the "
    "0.2 s that a blocking one asked for; nobody listens: {unheard}",
    held=exactly(4),
    at_once=exactly("EAGAIN"),
    after_timeout=exactly("EAGAIN"),
    waited_s=Between(0.2, 5.0),
    unheard=exactly("ECONNREFUSED"),
)
def full_unix_queue() -> Figures:
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
    said: Figures = {"held": len(taken), "at_once": at_once, "after_timeout": later}
    return {**said, "waited_s": waited, "unheard": unheard}


@check(
    "after 0.5 s {answer}: no answer and no RST; ListenOverflows {overflows}",
    answer=exactly("EAGAIN"),  # Python's word for: not within the time-out
    overflows=Between(1, 3),
)
def full_tcp_queue() -> Figures:
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
    return {"answer": errno.errorcode.get(code, "connected"), "overflows": counted}


def _queued(listener: socket.socket) -> int:
    """Connections that nobody has accepted yet: `tcpi_unacked` of a listener."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("8B5I", info)[12])


@check(
    "quickest of 20: one write {one_us:.0f} µs, with TCP_NODELAY {one_nodelay_us:.0f} µs, two "
    "writes with TCP_NODELAY {two_nodelay_us:.0f} µs; median of two writes {two_us:,.0f} µs",
    one_us=Between(1, 1000),
    one_nodelay_us=Between(1, 1000),
    two_nodelay_us=Between(1, 1000),
    two_us=Between(36_000, 80_000),
)
def nagle_on_loopback() -> Figures:
    """write-read, and write-write-read, with and without TCP_NODELAY. A delayed acknowledgement
    (TCP_DELACK_MIN, 40 ms) is in each of the second's; a machine that is busy may be slow at any
    of the others, and not at all of them."""
    took = {(w, nodelay): _nagle(w, nodelay) for w in (1, 2) for nodelay in (0, 1)}
    return {
        "one_us": min(took[1, 0]),
        "one_nodelay_us": min(took[1, 1]),
        "two_nodelay_us": min(took[2, 1]),
        "two_us": statistics.median(took[2, 0]),
    }


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


@check(
    "{unix_per_trip:.2f} a round trip over Unix, {tcp_per_trip:.2f} over TCP",
    unix_per_trip=Between(0.4, 2.1),
    tcp_per_trip=Between(0.4, 1.5),
)
def context_switches() -> Figures:
    """Of a process that plays ping-pong with another on one CPU: voluntary ones of each round
    trip. Nobody answers while the asker runs: it sleeps once for each answer, unless it was made
    to wait for the CPU before, and the answer came meanwhile. Over Unix it is woken once more, when
    its own bytes were read (unix_write_space), and sleeps again where it runs before the answer
    is there: at most twice."""
    with _one_cpu():
        each = {family: _switches(family) for family in (socket.AF_UNIX, socket.AF_INET)}
    return {"unix_per_trip": each[socket.AF_UNIX], "tcp_per_trip": each[socket.AF_INET]}


@contextlib.contextmanager
def _one_cpu() -> Iterator[None]:
    """This process, and what it starts, on the last of its CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _switches(family: int) -> float:
    with tempfile.TemporaryDirectory() as folder, socket.socket(family) as listener:
        listener.bind(f"{folder}/a.sock" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        child = os.fork()
        if not child:
            _answer(listener.accept()[0], 1)
            os._exit(0)
        with socket.socket(family) as client:
            client.connect(listener.getsockname())
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            for _ in range(PINGS):
                client.sendall(b"x")
                client.recv(1)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        os.waitpid(child, 0)
    return (after - before) / PINGS


@check(
    "wmem_max {wmem_max:,}; SO_SNDBUF of 512 MB becomes {set_to_max:.1f} times that; a Unix stream "
    "takes {room_to_default:.2f} of wmem_default, and {narrow_to_plain:.2f} times as much before a "
    "reader with SO_RCVBUF 2048",
    wmem_max=exactly(212_992, 4_194_304),
    set_to_max=exactly(2.0),
    room_to_default=Between(0.5, 1.0),
    narrow_to_plain=exactly(1.0),
)
def buffer_limits() -> Figures:
    """wmem_max, what setsockopt() makes of more, and whose buffer a Unix stream fills."""
    limits = Path("/proc/sys/net/core")
    limit, usual = (int((limits / name).read_text()) for name in ("wmem_max", "wmem_default"))
    left, right = socket.socketpair()
    with left, right:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 29)
        size = left.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    plain = _unix_room(0)
    narrow = _unix_room(2048)
    said: Figures = {"wmem_max": limit, "set_to_max": size / limit}
    return {**said, "room_to_default": plain / usual, "narrow_to_plain": narrow / plain}


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


@check(
    "SO_REUSEPORT on AF_UNIX: {option}; a second server with it on a path in use: {in_use}; "
    "a path left behind: {left_behind}",
    option=exactly("ENOTSUP", "taken"),
    in_use=exactly("EADDRINUSE"),
    left_behind=exactly("EADDRINUSE"),
)
def reuseport_on_unix() -> Figures:
    """SO_REUSEPORT of two that want one path, and a path that a dead server has left."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with first, second:
            option = _reuseport(first)
            _reuseport(second)
            first.bind(f"{folder}/a.sock")
            in_use = _bound(second, f"{folder}/a.sock")
            first.close()
            left = _bound(second, f"{folder}/a.sock")
    return {"option": option, "in_use": in_use, "left_behind": left}


def _reuseport(one: socket.socket) -> str:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "taken"


def _bound(one: socket.socket, path: str) -> str:
    try:
        one.bind(path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "bound"


@check(
    "bind() with noexec: {noexec}; with no inode left: {no_inode}, on tmpfs too",
    noexec=exactly("bound"),
    no_inode=exactly("ENOSPC"),
)
def noexec_and_inodes() -> Figures:
    """bind() below a tmpfs with noexec, and below one without a free inode."""
    return {"noexec": _bound_below("noexec"), "no_inode": _bound_below("nr_inodes=1")}


BIND = """
import errno, socket, sys
try:
    socket.socket(socket.AF_UNIX).bind(sys.argv[1] + "/a")
    print("bound")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def _bound_below(options: str) -> str:
    """In a tmpfs with these mount options."""
    script = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1"'
    with tempfile.TemporaryDirectory() as folder:
        argv = ["unshare", "--mount", "sh", "-c", script, "sh", folder, sys.executable, BIND]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


SIOCETHTOOL, ETHTOOL_GTXCSUM = 0x8946, 0x16  # linux/sockios.h, linux/ethtool.h
SENT_BYTES = 60_000


@check(
    "lo has an MTU of {mtu}; checksums are left to the device, so to nobody: "
    "{checksum_left_to_device}; 60,000 bytes and their acknowledgements are {packets} packets",
    mtu=exactly(65_536),
    checksum_left_to_device=exactly("yes"),
    packets=Between(1, 6),
)
def loopback_packets() -> Figures:
    """How large a packet of the loopback device is, and who computes its checksum."""
    said = subprocess.run(
        ["ip", "-details", "link", "show", "lo"], capture_output=True, text=True, check=True
    )
    mtu = int(said.stdout.split("mtu ")[1].split()[0])
    with own_network(4096):
        offloaded, packets = _checksum_is_offloaded(), _packets()
    return {
        "mtu": mtu,
        "checksum_left_to_device": "yes" if offloaded else "no",
        "packets": packets,
    }


def _checksum_is_offloaded() -> bool:
    """As `ethtool -k lo` has it."""
    asked = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_GTXCSUM, 0))
    request = struct.pack("16sP", b"lo", ctypes.addressof(asked))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request.ljust(40, b"\0"))
    return bool(struct.unpack_from("II", asked.raw)[1])


def _packets() -> int:
    """Of one write, until it is read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        before = _sent_by_loopback()
        client.sendall(b"x" * SENT_BYTES)
        have = 0
        while have < SENT_BYTES:
            have += len(server.recv(SENT_BYTES))
        return _sent_by_loopback() - before


def _sent_by_loopback() -> int:
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    row = next(line for line in lines if line.strip().startswith("lo:"))
    return int(row.partition(":")[2].split()[9])
