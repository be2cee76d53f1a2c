"""Selectors: what they name, what they refuse, and with which words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, List, Set

import pytest

from udsprobe.errors import EXIT_NO_TARGET, EXIT_USAGE, NoTargetError, UdsprobeError, UsageError
from udsprobe.kernel.proc import cgroups
from udsprobe.kernel.proc.cgroups import CgroupMount
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Selectors, parse_pids, resolve
from udsprobe.kernel.sockets.listener_address import parse_listener
from udsprobe.kernel.sockets.sock_diag import ListeningSocket

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `python -c CODE`, waits until it says it is ready, ends it afterwards."""
    started: List[subprocess.Popen[bytes]] = []

    def python(code: str = "", **options: Any) -> subprocess.Popen[bytes]:
        wait = "\nprint('ready', flush=True); import sys; sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-c", code + wait],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            **options,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield python
    for process in started:
        process.communicate()


class Observer(Procfs):
    """A /proc in which this test is not udsprobe's parent, but a stranger.

    Children of the observer are never selected; these tests' servers are
    children of the test, so the family ties of the test itself are hidden.
    """

    def descendants(self, pids: Any, among: Any = None) -> Set[int]:
        roots = set(pids)
        return set() if roots == {os.getpid()} else super().descendants(roots, among)


def resolved(**selectors: Any) -> Set[int]:
    return {one.pid for one in resolve(Selectors(**selectors), Observer())}


def refusal(**selectors: Any) -> UdsprobeError:
    with pytest.raises(UdsprobeError) as caught:
        resolve(Selectors(**selectors), Observer())
    assert "\n" not in caught.value.line()
    assert caught.value.line().isprintable()
    return caught.value


def test_pids_come_as_pgrep_prints_them() -> None:
    assert parse_pids(["12,13", "14 15\n16", "12"]) == (12, 13, 14, 15, 16)


@pytest.mark.parametrize("text", ["", " ", ",", "abc", "-1", "0", "1.5", "１２", "1" * 11, "1;ls"])
def test_what_is_no_pid_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pids([text])
    assert caught.value.exit_code == EXIT_USAGE


def test_no_selector_is_a_usage_error() -> None:
    assert refusal().slug == "usage"


def test_observing_oneself_is_a_usage_error() -> None:
    error = refusal(pids=(os.getpid(),))
    assert (error.slug, error.exit_code) == ("usage", EXIT_USAGE)


def test_a_pid_that_nobody_has(start: Start) -> None:
    child = start()
    child.communicate()
    error = refusal(pids=(child.pid,))
    assert (error.slug, error.exit_code) == ("no-such-pid", EXIT_NO_TARGET)
    assert str(child.pid) in error.what


def test_a_zombie_has_exited() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    error = refusal(pids=(child.pid,))
    assert error.slug == "no-such-pid"
    assert "exited" in error.what
    child.wait()


def test_a_thread_id_is_told_from_its_process() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        error = refusal(pids=(thread.native_id,))
    finally:
        done.set()
        thread.join()
    assert error.slug == "thread-id"
    assert f"--pid {os.getpid()}" in error.next_step


def test_a_kernel_thread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    flags = 0x00208040
    (tmp_path / "2" / "stat").write_text(
        f"2 (kthreadd) S 0 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0"
    )
    (tmp_path / "2" / "status").write_text("Name:\tkthreadd\nTgid:\t2\n")
    with pytest.raises(NoTargetError) as caught:
        resolve(Selectors(pids=(2,)), Procfs(str(tmp_path)))
    assert caught.value.slug == "kernel-thread"


def test_every_selector_that_matches_nothing_is_named() -> None:
    error = refusal(pids=(os.getppid(),), comms=("no\x1bsuch",), listeners=("@no/such/name",))
    assert (error.slug, error.exit_code) == ("no-match", EXIT_NO_TARGET)
    assert r"--comm no\x1bsuch, --listener @no/such/name" in error.what


def test_a_name_is_the_kernels(start: Start) -> None:
    child = start("open('/proc/self/comm', 'w').write('a-very-long-process-name')")
    assert resolved(comms=("a-very-long-process-name",)) == {child.pid}
    assert resolved(comms=("a-very-long-pro",)) == {child.pid}
    assert refusal(comms=("a-very-long",)).slug == "no-match"


def test_a_renamed_process_is_found_by_its_executable(tmp_path: Path) -> None:
    # As Node is, whose main thread calls itself MainThread. The name comes from
    # the path that was executed, the executable is what the path leads to.
    program = tmp_path / "udsprobe-server"
    program.write_bytes(Path("/bin/sleep").resolve().read_bytes())
    program.chmod(0o755)
    (tmp_path / "MainThread").symlink_to(program)
    child = subprocess.Popen([str(tmp_path / "MainThread"), "60"])
    try:
        process = Procfs().process(child.pid)
        assert process is not None
        assert process.comm == "MainThread"
        assert resolved(comms=("udsprobe-server",)) == {child.pid}
    finally:
        child.kill()
        child.wait()


def test_descendants_come_along_unless_told_not_to(start: Start) -> None:
    parent = start(
        "import os, sys\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    os.write(w, b'x'); os.read(0, 1); os._exit(0)\n"
        "os.read(r, 1)\n"
    )
    chosen = resolve(Selectors(pids=(parent.pid,)), Observer())
    assert {one.via for one in chosen if one.pid == parent.pid} == {"selector"}
    (child,) = [one for one in chosen if one.pid != parent.pid]
    assert (child.via, child.how) == ("fork", f"child of {parent.pid}")
    assert resolved(pids=(parent.pid,), follow=False) == {parent.pid}


def test_all_leaves_out_what_carries_our_screen(start: Start) -> None:
    child = start()
    chosen = resolved(everything=True)
    assert child.pid in chosen
    assert not chosen.intersection({os.getpid(), *Procfs().ancestors(os.getpid())} - {1})
    procfs = Procfs()
    found = [procfs.process(pid) for pid in chosen]
    assert not [one for one in found if one and one.kernel_thread]


def test_our_own_children_are_never_selected(start: Start) -> None:
    child = start("open('/proc/self/comm', 'w').write('udsprobe-child')")
    with pytest.raises(NoTargetError):
        resolve(Selectors(comms=("udsprobe-child",)))
    assert child.poll() is None


LISTENING = """
import os, socket
os.chdir({directory!r})
s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen()
"""


def test_a_path_leads_to_its_listener(start: Start, tmp_path: Path) -> None:
    child = start(LISTENING.format(directory=str(tmp_path), name="app.sock"))
    (tmp_path / "current").symlink_to("app.sock")
    for path in (tmp_path / "app.sock", tmp_path / "current"):
        assert resolved(listeners=(str(path),)) == {child.pid}


def test_of_two_listeners_by_one_name_the_path_decides(start: Start, tmp_path: Path) -> None:
    where = str(tmp_path / "app.sock")
    replaced = start(LISTENING.format(directory="/", name=where))
    os.unlink(where)
    current = start(LISTENING.format(directory="/", name=where))
    assert replaced.poll() is None
    assert resolved(listeners=(where,)) == {current.pid}


def test_an_abstract_name_is_understood_as_printed(start: Start) -> None:
    name = f"\0udsprobe-{os.getpid()}\0x"
    child = start(LISTENING.format(directory="/", name=name))
    assert resolved(listeners=(rf"@udsprobe-{os.getpid()}\x00x",)) == {child.pid}


def test_a_socket_of_systemd_names_its_service_only(start: Start, tmp_path: Path) -> None:
    where = str(tmp_path / "activated.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(where)
        server.listen()
        code = "open('/proc/self/comm', 'w').write('systemd')"
        manager = start(code, pass_fds=[server.fileno()])
        service = start(pass_fds=[server.fileno()])
    assert resolved(listeners=(where,)) == {service.pid}
    service.communicate()
    assert refusal(listeners=(where,)).slug == "not-activated"
    assert manager.poll() is None


def test_a_port_leads_to_its_listener(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = start(pass_fds=[server.fileno()])
        server.close()
        for text in (str(port), f":{port}", f"127.0.0.1:{port}", f"localhost:{port}"):
            assert resolved(listeners=(text,)) == {child.pid}
        assert refusal(listeners=(f"127.0.0.2:{port}",)).slug == "no-match"


def tcp(address: str, host: str, port: int, inode: int) -> ListeningSocket:
    return ListeningSocket("tcp", "stream", address, None, None, (host, port), inode, 0, 128)


def test_a_host_reaches_the_exact_listener_before_a_wildcard() -> None:
    v4 = tcp("0.0.0.0:80", "0.0.0.0", 80, 1)
    loopback = tcp("127.0.0.1:80", "127.0.0.1", 80, 2)
    both = tcp("*:81", "::", 81, 3)
    v6 = tcp("[::]:82", "::", 82, 4)
    device = tcp("0.0.0.0%lo:83", "0.0.0.0", 83, 5)
    everything = (v4, loopback, both, v6, device)
    expected = {
        "80": {1, 2},
        "*:80": {1},
        "127.0.0.1:80": {2},
        "localhost:80": {2},
        "127.0.0.9:80": {1},
        "[::1]:80": set(),
        "127.0.0.1:81": {3},
        "[::1]:81": {3},
        "[0:0:0:0:0:0:0:1]:82": {4},
        "127.0.0.1:82": set(),
        "0.0.0.0%lo:83": {5},
    }
    assert {text: parse_listener(text).among(everything) for text in expected} == expected


def test_an_ipv4_address_that_an_ipv6_socket_is_bound_to(start: Start) -> None:
    """Java's: its clients use the IPv4 address."""
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::ffff:127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        child = start(pass_fds=[server.fileno()])
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        assert resolved(listeners=(f"{host}:{port}",)) == {child.pid}
    assert refusal(listeners=(f"[::1]:{port}",)).slug == "no-match"


@pytest.mark.parametrize("text", ["", " ", "@", ":", "80:", "host.example:80", "1.2.3:80", "0"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listener(text)


@pytest.mark.parametrize("text", ["65536", ":99999", "[::1]:0", "127.0.0.1:x", "::1:x"])
def test_ports_have_sixteen_bits(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listener(text)


def hierarchy(root: Path, *paths: str) -> CgroupMount:
    for path in ("", *paths):
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path / "cgroup.procs").write_text("")
    return CgroupMount(root, systemd=True)


def test_a_cgroup_is_found_below_its_mount_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "cgroup.procs").write_text("1\n")
    mount = hierarchy(tmp_path / "cgroup", "app.slice/web")
    web = tmp_path / "cgroup" / "app.slice" / "web"
    for path in ("/app.slice/web", "app.slice/web/", str(web), "app.slice/../app.slice/web"):
        assert cgroups.directories(path, [mount]) == (web,)
    for path in ("../outside", str(tmp_path / "outside"), "/nope", "/app.slice/web/cgroup.procs"):
        assert cgroups.directories(path, [mount]) == ()


def test_a_unit_is_the_cgroup_of_its_name(tmp_path: Path) -> None:
    mount = hierarchy(tmp_path, "system.slice/nginx.service/sub", "user.slice/u/app@1.service")
    service = tmp_path / "system.slice" / "nginx.service"
    assert cgroups.unit_directories("nginx", [mount]) == (service,)
    assert cgroups.unit_directories("nginx.service", [mount]) == (service,)
    assert cgroups.unit_directories("app@1", [mount]) == (
        tmp_path / "user.slice" / "u" / "app@1.service",
    )
    assert cgroups.unit_directories("ngin", [mount]) == ()
    elsewhere = CgroupMount(tmp_path, systemd=False)
    assert cgroups.unit_directories("nginx", [elsewhere]) == ()


def test_a_cgroup_holds_those_below_it_too(tmp_path: Path) -> None:
    hierarchy(tmp_path, "a/b")
    (tmp_path / "a" / "cgroup.procs").write_text("10\n0\n")
    (tmp_path / "a" / "b" / "cgroup.procs").write_text("11\n12\n")
    assert cgroups.processes(tmp_path / "a", Procfs()) == {10, 11, 12}


def test_both_cgroup_versions_are_mounted_somewhere(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "30 24 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
        "31 24 0:27 / /sys/fs/cgroup/my\\040unified rw - cgroup2 cgroup2 rw\n"
        "32 24 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
        "33 24 0:29 / /proc rw - proc proc rw\n"
    )
    assert [(mount.path, mount.systemd) for mount in cgroups.mounts(str(mountinfo))] == [
        (Path("/sys/fs/cgroup/my unified"), True),
        (Path("/sys/fs/cgroup/systemd"), True),
        (Path("/sys/fs/cgroup/cpu"), False),
    ]


def test_a_unit_without_systemd_is_a_clear_error() -> None:
    error = refusal(units=("udsprobe-no-such-unit",))
    booted = os.path.isdir("/run/systemd/system")
    assert error.slug == ("no-match" if booted else "no-systemd")
    assert error.exit_code == EXIT_NO_TARGET
