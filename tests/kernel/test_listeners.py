"""Listeners as this kernel reports them, compared with the sockets' own truth and with ss."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from tests.patience import PATIENCE_S
from udsprobe.cli import main
from udsprobe.commands.listeners import command
from udsprobe.errors import NotPermittedError
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.selectors import Selectors, resolve
from udsprobe.kernel.sockets import diag_messages
from udsprobe.kernel.sockets.listening import TargetListeners, every_listener
from udsprobe.kernel.sockets.sock_diag import ListeningSocket, NetworkNamespace
from udsprobe.model.report import Listener
from udsprobe.sample import ListenerReading

Listen = Callable[..., socket.socket]
REPOSITORY = Path(__file__).resolve().parent.parent.parent
NOBODY = 65534


@pytest.fixture
def listen() -> Iterator[Listen]:
    """`listen(name, backlog, clients=0, family=AF_UNIX, type=SOCK_STREAM)`."""
    opened: List[socket.socket] = []

    def listener(
        name: Any,
        backlog: int = 16,
        clients: int = 0,
        family: int = socket.AF_UNIX,
        kind: int = socket.SOCK_STREAM,
    ) -> socket.socket:
        server = socket.socket(family, kind)
        opened.append(server)
        server.bind(name)
        server.listen(backlog)
        for _ in range(clients):
            client = socket.socket(family, kind)
            opened.append(client)
            client.connect(server.getsockname())
        return server

    yield listener
    for one in opened:
        one.close()


class Stranger(Procfs):
    """A /proc in which this test's children are not the observer's, and can be selected."""

    def descendants(
        self, pids: Iterable[int], among: Optional[Iterable[Process]] = None
    ) -> Set[int]:
        roots = set(pids)
        return set() if roots == {os.getpid()} else super().descendants(roots, among)


def inode_of(server: socket.socket) -> int:
    return os.fstat(server.fileno()).st_ino


def seen(server: socket.socket) -> ListeningSocket:
    with NetworkNamespace() as namespace:
        found = namespace.listeners()
    assert found.unseen == ()
    (one,) = [one for one in found.sockets if one.inode == inode_of(server)]
    return one


def ss(*options: str) -> Dict[int, Tuple[int, int]]:
    """Socket inode → (Recv-Q, Send-Q) of the listeners that ss prints."""
    if shutil.which("ss") is None:
        pytest.skip("ss (iproute2) is not installed")
    text = subprocess.run(
        ["ss", "-lnH", *options], stdout=subprocess.PIPE, check=True
    ).stdout.decode("utf-8", "replace")
    queues = {}
    for line in text.splitlines():
        words = line.split()
        receive = words.index("LISTEN") + 1
        marked = [word[4:] for word in words if word.startswith("ino:")]
        inode = int(marked[0]) if marked else int(words[receive + 3])
        queues[inode] = (int(words[receive]), int(words[receive + 1]))
    return queues


@pytest.mark.parametrize(
    ("kind", "name"), [(socket.SOCK_STREAM, "stream"), (socket.SOCK_SEQPACKET, "seqpacket")]
)
@pytest.mark.parametrize("clients", [0, 1, 3])
def test_a_unix_queue_is_as_deep_as_clients_wait(
    listen: Listen, tmp_path: Path, kind: int, name: str, clients: int
) -> None:
    path = str(tmp_path / "s")
    server = listen(path, 5, clients, kind=kind)
    found = seen(server)
    assert (found.transport, found.socket_type, found.address) == ("unix", name, path)
    assert (found.depth_now, found.backlog_effective) == (clients, 5)
    assert ss("-x")[found.inode] == (clients, 5)
    if clients:
        server.accept()[0].close()
        assert seen(server).depth_now == clients - 1


def test_the_unix_queue_holds_one_more_than_the_backlog(listen: Listen, tmp_path: Path) -> None:
    server = listen(str(tmp_path / "s"), 2, clients=3)
    assert seen(server).depth_now == 3
    with socket.socket(socket.AF_UNIX) as refused:
        refused.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.connect(str(tmp_path / "s"))


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1:{}"),
        (socket.AF_INET, "0.0.0.0", "0.0.0.0:{}"),
        (socket.AF_INET6, "::1", "[::1]:{}"),
        (socket.AF_INET6, "::", "*:{}"),
    ],
)
def test_a_tcp_queue_is_as_deep_as_clients_wait(
    listen: Listen, family: int, host: str, shown: str
) -> None:
    try:
        server = listen((host, 0), 7, clients=2, family=family)
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")
    found = seen(server)
    port = server.getsockname()[1]
    assert (found.transport, found.socket_type) == ("tcp", "stream")
    assert found.address == shown.format(port)
    assert found.tcp_local == (host, port)
    assert (found.depth_now, found.backlog_effective) == (2, 7)
    assert ss("-t", "-e")[found.inode] == (2, 7)


def test_ipv6_alone_and_a_device_are_told(listen: Listen) -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(("::", 0))
        server.listen()
        assert seen(server).address == f"[::]:{server.getsockname()[1]}"
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        server.listen()
        assert seen(server).address == f"0.0.0.0%lo:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\0plain", "@plain"),
        (b"\0with\0nul\0", r"@with\x00nul\x00"),
        (b"\0\xff\x1b[1m", r"@\xff\x1b[1m"),
    ],
)
def test_abstract_names_are_whole_and_visible(listen: Listen, name: bytes, shown: str) -> None:
    unique = b"-%d" % os.getpid()
    found = seen(listen(name + unique))
    assert found.address == shown + unique.decode()
    assert found.unix_name == name + unique
    assert found.unix_file is None


def test_an_autobound_name_is_abstract(listen: Listen) -> None:
    server = listen("")
    name = server.getsockname()
    assert isinstance(name, bytes)
    assert seen(server).unix_name == name


def test_paths_need_not_be_text(listen: Listen, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path / "x") + b"\xff\n"
    found = seen(listen(name))
    assert found.unix_name == name
    assert found.address == str(tmp_path / "x") + r"\xff\x0a"
    assert found.unix_file is not None
    assert found.unix_file[1] == os.stat(name).st_ino & 0xFFFFFFFF


def bind_unterminated(server: socket.socket, path: bytes) -> None:
    """bind() to a path that fills sun_path, which Python's own bind() refuses."""
    address = struct.pack("=H108s", socket.AF_UNIX, path)
    if ctypes.CDLL(None).bind(server.fileno(), address, len(address)) != 0:
        pytest.fail("bind() to a path of 108 bytes failed")


@pytest.mark.parametrize("length", [107, 108])
def test_the_longest_paths_are_whole(length: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as server:
        path = (short + "/").ljust(length, "s")
        bind_unterminated(server, path.encode())
        server.listen()
        assert len(seen(server).address) == length
        assert seen(server).address == path


def test_an_answer_of_many_datagrams_is_read_to_its_end(listen: Listen) -> None:
    servers = [listen(f"\0udsprobe-{os.getpid()}-{number:0>90}") for number in range(400)]
    inodes = {inode_of(server) for server in servers}
    with NetworkNamespace() as namespace:
        assert inodes <= {one.inode for one in namespace.listeners().sockets}


def test_a_netlink_error_is_raised_and_not_waited_for() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:
        netlink.settimeout(PATIENCE_S)
        netlink.send(diag_messages.unix_listeners_request(socket.AF_APPLETALK, 77))
        with pytest.raises(FileNotFoundError):
            list(diag_messages.answers(netlink.recv(65536), 77))


def test_answers_to_another_request_are_not_ours() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:
        netlink.settimeout(PATIENCE_S)
        netlink.send(diag_messages.unix_listeners_request(socket.AF_UNIX, 5))
        assert list(diag_messages.answers(netlink.recv(65536), 6)) == []


def test_listeners_can_be_read_inside_an_event_loop(listen: Listen) -> None:
    server = listen(f"\0udsprobe-loop-{os.getpid()}", 3)

    async def read() -> int:
        return seen(server).backlog_effective

    assert asyncio.run(read()) == 3


def test_looking_at_listeners_brings_no_event_loop() -> None:
    code = "import sys, udsprobe.kernel.sockets.sock_diag; assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


# ------------------------------------------------------------ owners


def reading_of(readings: Tuple[ListenerReading, ...], inode: int) -> List[ListenerReading]:
    return [reading for reading in readings if reading.inode == inode]


def forked_child_holding() -> Tuple[int, int]:
    """A child that holds everything we hold, and the pipe that ends it."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    return pid, write


def test_a_fork_makes_a_second_owner(listen: Listen, tmp_path: Path) -> None:
    server = listen(str(tmp_path / "s"))
    inode = inode_of(server)
    with TargetListeners() as source:
        (before,) = reading_of(source.read([os.getpid()]).listeners, inode)
        assert before.pids == (os.getpid(),)
        child, life = forked_child_holding()
        both = tuple(sorted([os.getpid(), child]))
        (during,) = reading_of(source.read(both).listeners, inode)
        assert during.pids == both
        (everybody,) = reading_of(every_listener().listeners, inode)
        assert everybody.pids == both
        os.close(life)
        os.waitpid(child, 0)
        (after,) = reading_of(source.read(both).listeners, inode)
        assert after.pids == (os.getpid(),)
        assert (after.netns, after.somaxconn) == (
            os.stat("/proc/self/ns/net").st_ino,
            int(Path("/proc/sys/net/core/somaxconn").read_text()),
        )


def test_a_closed_listener_is_gone_and_a_new_one_appears(listen: Listen) -> None:
    with TargetListeners() as source:
        first = listen(f"\0udsprobe-first-{os.getpid()}")
        inode = inode_of(first)
        assert reading_of(source.read([os.getpid()]).listeners, inode)
        first.close()
        second = listen(f"\0udsprobe-second-{os.getpid()}")
        found = source.read([os.getpid()]).listeners
        assert not reading_of(found, inode)
        assert reading_of(found, inode_of(second))


def test_a_listener_of_a_process_that_was_not_asked_about_is_left_out(listen: Listen) -> None:
    server = listen(f"\0udsprobe-other-{os.getpid()}")
    with TargetListeners() as source:
        assert not reading_of(source.read([os.getppid()]).listeners, inode_of(server))


# ------------------------------------------------------------ network namespaces

ELSEWHERE = """
import os, socket, subprocess, sys
open('/proc/sys/net/core/somaxconn', 'w').write('7')
u = socket.socket(socket.AF_UNIX); u.bind('\\0elsewhere'); u.listen(100)
c = socket.socket(socket.AF_UNIX); c.connect('\\0elsewhere')
t = socket.socket(); t.bind(('0.0.0.0', 8080)); t.listen(100)
print(os.fstat(u.fileno()).st_ino, os.fstat(t.fileno()).st_ino, flush=True)
sys.stdin.read()
"""


@dataclasses.dataclass
class Container:
    pid: int
    netns: int
    unix_inode: int
    tcp_inode: int


@pytest.fixture
def container() -> Iterator[Container]:
    """A process in a network namespace of its own, with somaxconn 7 and two listeners."""
    process = subprocess.Popen(
        ["unshare", "-n", sys.executable, "-c", ELSEWHERE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    inodes = process.stdout.readline().split()
    if len(inodes) == 2:
        netns = os.stat(f"/proc/{process.pid}/ns/net").st_ino
        yield Container(process.pid, netns, int(inodes[0]), int(inodes[1]))
    process.communicate()
    if len(inodes) != 2:
        pytest.fail("unshare -n did not work")


@pytest.mark.root
def test_listeners_of_another_network_namespace(container: Container, listen: Listen) -> None:
    own = os.stat("/proc/self/ns/net").st_ino
    assert container.netns != own
    server = listen(f"\0udsprobe-own-{os.getpid()}")
    with TargetListeners() as source:
        for _ in range(2):
            found = source.read([os.getpid(), container.pid]).listeners
            (theirs,) = reading_of(found, container.unix_inode)
            (ours,) = reading_of(found, inode_of(server))
            (tcp,) = reading_of(found, container.tcp_inode)
            assert (theirs.address, theirs.netns) == ("@elsewhere", container.netns)
            assert (theirs.depth_now, theirs.backlog_effective, theirs.somaxconn) == (1, 7, 7)
            assert (tcp.address, tcp.backlog_effective) == ("0.0.0.0:8080", 7)
            assert theirs.pids == (container.pid,)
            assert (ours.netns, ours.somaxconn) == (
                own,
                int(Path("/proc/sys/net/core/somaxconn").read_text()),
            )


@pytest.mark.root
def test_looking_elsewhere_does_not_take_us_there(container: Container) -> None:
    own = os.stat("/proc/self/ns/net").st_ino
    threads = threading.active_count()
    with NetworkNamespace.of(container.pid) as namespace:
        assert namespace.inode == container.netns
        assert namespace.somaxconn() == 7
        assert threading.active_count() == threads
        assert os.stat("/proc/self/ns/net").st_ino == own
        assert os.stat("/proc/thread-self/ns/net").st_ino == own


@pytest.mark.root
def test_a_namespace_is_let_go_with_its_last_target(container: Container) -> None:
    with TargetListeners() as source:
        source.read([os.getpid()])
        before = len(os.listdir("/proc/self/fd"))
        source.read([os.getpid(), container.pid])
        assert len(os.listdir("/proc/self/fd")) > before
        source.read([os.getpid()])
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_a_port_in_a_container_is_found(container: Container) -> None:
    chosen = resolve(Selectors(listeners=("@elsewhere",)), Stranger())
    assert {one.pid for one in chosen} == {container.pid}


@pytest.mark.root
def test_another_users_namespace_is_closed(container: Container) -> None:
    def look() -> int:
        with pytest.raises(NotPermittedError) as caught:
            NetworkNamespace.of(container.pid)
        print(caught.value.slug, flush=True)
        return caught.value.exit_code

    assert as_nobody(look) == ("foreign-netns\n", 3)


# ------------------------------------------------------------ cgroups


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A new cgroup in the first hierarchy that lets us make one."""
    from udsprobe.kernel.proc import cgroups

    for mount in cgroups.mounts():
        directory = mount.path / f"udsprobe-test-{os.getpid()}.service"
        try:
            directory.mkdir()
        except OSError:
            continue
        yield directory
        directory.rmdir()
        return
    pytest.skip("no cgroup hierarchy can be written here")


@pytest.mark.root
def test_a_cgroup_and_a_unit_name_their_processes(cgroup: Path) -> None:
    child, life = forked_child_holding()
    (cgroup / "below").mkdir()
    try:
        (cgroup / "below" / "cgroup.procs").write_text(str(child))
        for selectors in (
            Selectors(cgroups=(f"/{cgroup.name}",)),
            Selectors(cgroups=(str(cgroup),)),
            Selectors(units=(cgroup.name,)),
            Selectors(units=(cgroup.stem,)),
        ):
            assert {one.pid for one in resolve(selectors, Stranger())} == {child}
    finally:
        os.close(life)
        os.waitpid(child, 0)
        (cgroup / "below").rmdir()


# ------------------------------------------------------------ the command


def test_json_has_the_reports_shape(listen: Listen, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    inode_of(listen(path, 4, clients=2))
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert document["schema"] == "udsprobe.listeners/1"
    (row,) = [row for row in document["listeners"] if row["address"] == path]
    assert set(row) == {field.name for field in dataclasses.fields(Listener)}
    assert row["pids"] == [os.getpid()]
    assert row["backlog"]["effective"] == 4
    assert row["depth"] == {"now": 2, "max": None, "limit": 5, "histogram": None}
    assert row["refused"] is None


def test_a_backlog_at_somaxconn_is_marked(listen: Listen) -> None:
    limit = int(Path("/proc/sys/net/core/somaxconn").read_text())
    name = f"udsprobe-max-{os.getpid()}"
    listen(f"\0{name}", limit + 1)
    (line,) = [line for line in table().splitlines() if name in line]
    assert f"0/{limit + 1}" in line
    assert f"{limit}=somaxconn" in line


def test_the_table_fits_80_columns_and_hides_nothing_hostile(
    listen: Listen, tmp_path: Path
) -> None:
    listen(os.fsencode(tmp_path) + b"/\x1b[31m[bold]:x:\xff", 1, clients=2)
    listen("\0" + "日本" * 15 + str(os.getpid()))
    text = table()
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 80
    assert "2/2 FULL" in text
    wide = table(COLUMNS="200")
    assert rf"{tmp_path}/\x1b[31m[bold]:x:\xff" in wide


def test_the_fullest_queue_is_first(listen: Listen) -> None:
    listen(f"\0udsprobe-full-{os.getpid()}", 1, clients=2)
    rows = json.loads(CliRunner().invoke(command, ["--json"]).output)["listeners"]
    shares = [row["depth"]["now"] / row["depth"]["limit"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] >= 1


@pytest.mark.root
def test_nobody_sees_queues_but_not_owners(listen: Listen) -> None:
    server = listen(f"\0udsprobe-nobody-{os.getpid()}", 4, clients=2)

    def as_a_stranger() -> int:
        server.close()  # the child's copy
        return main(["listeners"])

    main(["listeners"])  # imports what nobody may not be able to read
    text, code = as_nobody(as_a_stranger)
    assert code == 0
    (line,) = [line for line in text.splitlines() if f"nobody-{os.getpid()}" in line]
    assert line.split()[-1] == "–"
    assert "2/5" in line
    assert "run as root" in text
    refused, code = as_nobody(lambda: main(["listeners", "--pid", str(os.getppid())]))
    assert code == 3
    assert refused.startswith("udsprobe: error[owner-hidden]: ")


def test_only_what_a_process_holds(listen: Listen) -> None:
    listen(f"\0udsprobe-mine-{os.getpid()}")
    arguments = [sys.executable, "-m", "udsprobe", "listeners", "--json", "--pid"]
    result = subprocess.run(
        [*arguments, str(os.getpid())], stdout=subprocess.PIPE, check=True, cwd=REPOSITORY
    )
    rows = json.loads(result.stdout)["listeners"]
    assert f"@udsprobe-mine-{os.getpid()}" in {row["address"] for row in rows}
    assert all(os.getpid() in row["pids"] for row in rows)


def table(**environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "udsprobe", "listeners"],
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )
    return result.stdout.decode()


def as_nobody(look: Callable[[], int]) -> Tuple[str, int]:
    """What a forked child without privileges prints, and its exit code."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code = 99
        try:
            os.dup2(write, 1)
            sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w"), encoding="utf-8")
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = look()
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(write)
    with open(read, encoding="utf-8") as output:
        text = output.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
