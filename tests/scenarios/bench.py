"""One case's processes and folder: started, awaited by readiness, ended by PID.

Every process is ours and gone when the bench is left. Knows servers and loads, not verdicts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.patience import PATIENCE_S
from tests.scenarios.case import TCP, UNIX
from tests.scenarios.harm import Harm, of_accounts
from tests.scenarios.programs import HERE, built, program

LOAD_S = 300
# Loads stand for other machines: they leave the servers a CPU.
AWAY = ["taskset", "--cpu-list", str((os.cpu_count() or 1) - 1)]
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Process:
    """One of our processes. `pid` is the program itself, not a wrapper that started it.

    Attributes:
        ends_in_s: how long SIGTERM has before SIGKILL.
    """

    ends_in_s = 3.0

    def __init__(self, argv: Sequence[str], log: Path, **more: Any) -> None:
        self.argv = list(argv)
        self.log = log
        self._file = log.open("ab")
        options: Dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._file, **more}
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(
            self.argv, stderr=self._file, start_new_session=True, **options
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def ended(self) -> bool:
        return self.popen.poll() is not None

    def end(self) -> None:
        """By SIGTERM, then by SIGKILL, with everything of its session."""
        for number, patience_s in ((signal.SIGTERM, self.ends_in_s), (signal.SIGKILL, PATIENCE_S)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
                os.kill(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(patience_s)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # children that outlived it
        self._file.close()


class Server(Process):
    """A process with an address."""

    address: str = ""


class Bench:
    """Where a case is built; leaving it ends everything.

    Attributes:
        folder: of the case's own, readable by everybody.
        transport: of the served listener, `unix` or `tcp`.
    """

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.folder = Path(tempfile.mkdtemp(prefix="scenario-"))
        self.folder.chmod(0o755)
        self._processes: List[Process] = []
        self._after: List[Any] = []
        self._names = 0
        self.loads: List[Load] = []

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *raised: object) -> None:
        for process in reversed(self._processes):
            process.end()
        for action in reversed(self._after):
            action()
        shutil.rmtree(self.folder, ignore_errors=True)

    def afterwards(self, action: Any) -> None:
        """Call `action` when every process has ended."""
        self._after.append(action)

    def name(self, what: str) -> str:
        """A file name not used yet."""
        self._names += 1
        return f"{what}{self._names}"

    def address(self, what: str = "app", transport: Optional[str] = None) -> str:
        """A free address: a path in the folder, or a port of loopback."""
        if (transport or self.transport) == UNIX:
            return str(self.folder / f"{self.name(what)}.sock")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    def file(self, name: str, content: str) -> str:
        """Write a file into the folder; its path."""
        path = self.folder / name
        path.write_text(content)
        return str(path)

    def start(self, argv: Sequence[str], what: str = "process", **more: Any) -> Process:
        """A process that runs until the bench is left."""
        process = Process(argv, self.folder / f"{self.name(what)}.log", **more)
        self.adopt(process)
        return process

    def adopt(self, process: Process) -> None:
        """End it when the bench is left."""
        self._processes.append(process)

    def server(
        self,
        argv: Sequence[str],
        address: str,
        what: str = "server",
        env: Optional[Mapping[str, str]] = None,
    ) -> Server:
        """A server, from the moment it answers at `address`; `env` is added to the environment."""
        log = self.folder / f"{self.name(what)}.log"
        server = Server(argv, log, env={**os.environ, **(env or {})})
        server.address = address
        self.adopt(server)
        self.wait_until(lambda: answers(address), f"{argv[0]} answers at {address}", server)
        return server

    def pids(self) -> List[int]:
        """Of all processes of the case that live."""
        return [pid for process in self._processes for pid in family_of(process.pid)]

    def family(self, pid: int) -> List[int]:
        """A process and its living descendants."""
        return family_of(pid)

    def wait_until(self, condition: Any, what: str, process: Optional[Process] = None) -> None:
        """Raises AssertionError, with the process's log, when `condition` does not come true."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            said = process.log.read_text(errors="replace")[-2000:] if process else ""
            if process is not None and process.ended():
                raise AssertionError(f"{process.argv[:4]} ended instead: {what}: {said}")
            if time.monotonic() > give_up_at:
                raise AssertionError(f"not within {PATIENCE_S} s: {what}: {said}")
            time.sleep(0.01)

    def load(
        self,
        address: str,
        request: bytes = HTTP_REQUEST,
        frame: str = "http",
        prefix: Sequence[str] = (),
        **options: float,
    ) -> Load:
        """Requests at `address`, from the moment they are answered (`client.c` has the options)."""
        content = self.folder / self.name("request")
        content.write_bytes(request)
        argv = [*AWAY, *prefix, built("load/client.c"), address, str(content), frame]
        argv += [f"{name}={value}" for name, value in {"seconds": LOAD_S, **options}.items()]
        load = Load(argv, self.folder / f"{self.name('load')}.log")
        self.adopt(load)
        self.loads.append(load)
        self.wait_until(lambda: b"warm" in load.log.read_bytes(), "the load is warm", load)
        return load

    def measure(self, seconds: float) -> Harm:
        """What the clients of all running loads account for in a window of so long."""
        self._accounts()
        time.sleep(seconds)  # the window itself
        return of_accounts(self._accounts())

    def _accounts(self) -> List[Dict[str, Any]]:
        running = [(load, load.ask()) for load in self.loads if not load.ended()]
        found: List[Dict[str, Any]] = []
        for load, before in running:
            self.wait_until(lambda one=load, n=before: one.account(n), "an account", load)
            found.append(load.account(before) or {})
        return found

    def limit_cpu(self, pid: int, percent: int) -> Path:
        """Allow a process `percent` of one CPU; its control group."""
        group = self.cpu_group(f"scenario-{pid}", percent)
        (group / "cgroup.procs").write_text(str(pid))
        return group

    def cpu_group(self, name: str, percent: int) -> Path:
        """A control group of its own (v1 or v2), gone when the bench is left."""
        first = Path("/sys/fs/cgroup/cpu")
        group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / name
        group.mkdir()
        self.afterwards(lambda: self._remove_group(group))
        self.set_quota(group, percent)
        return group

    def set_quota(self, group: Path, percent: int) -> None:
        """Allow the members of a control group `percent` of one CPU."""
        older = group / "cpu.cfs_quota_us"
        if older.exists():
            older.write_text(f"{percent * 1000}")
        else:
            (group / "cpu.max").write_text(f"{percent * 1000} 100000")

    def _remove_group(self, group: Path) -> None:
        members = group / "cgroup.procs"
        self.wait_until(lambda: not members.read_text(), "the control group is empty")
        group.rmdir()

    # -- the servers of the lab ------------------------------------------------------------------

    def node(self, *options: str, address: str = "", prefix: Sequence[str] = ()) -> Server:
        """`servers/http.js`."""
        address = address or self.address()
        argv = [*prefix, program("node"), str(HERE / "servers/http.js"), address, *options]
        return self.server(argv, address, "node")

    def python(
        self, script: str, *options: str, address: str = "", prefix: Sequence[str] = ()
    ) -> Server:
        """One of `servers/*.py`."""
        address = address or self.address()
        argv = [*prefix, sys.executable, str(HERE / "servers" / script), address, *options]
        return self.server(argv, address, "python")

    def asyncio(self, *options: str, address: str = "", prefix: Sequence[str] = ()) -> Server:
        """`servers/http_asyncio.py`."""
        return self.python("http_asyncio.py", *options, address=address, prefix=prefix)

    def limit_tasks(self, pid: int, most: int) -> None:
        """The process and its children may have so many threads together."""
        first = Path("/sys/fs/cgroup/pids")
        group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"udsprobe-tasks-{pid}"
        group.mkdir()
        self.afterwards(lambda: self._remove_group(group))
        (group / "pids.max").write_text(str(most))
        (group / "cgroup.procs").write_text(str(pid))

    def threaded(self, *options: str, address: str = "") -> Server:
        """`servers/threaded.py`."""
        return self.python("threaded.py", *options, address=address)

    def go(self, *options: str, address: str = "", prefix: Sequence[str] = ()) -> Server:
        """`servers/http.go`."""
        address = address or self.address()
        return self.server([*prefix, built("servers/http.go"), address, *options], address, "go")

    def echo(self, *sizes: int) -> Server:
        """`servers/echo.c`: bytes of a message, and of a piece of it."""
        address = self.address()
        argv = [built("servers/echo.c"), address, *(str(size) for size in sizes)]
        return self.server(argv, address, "echo")

    def handover(self, **options: int) -> Server:
        """`servers/handover.c`: threads that wait for each other; `options` in µs."""
        address = self.address()
        argv = [built("servers/handover.c"), address]
        argv += [f"{name}={value}" for name, value in options.items()]
        return self.server(argv, address, "handover")

    def service(self, *options: str) -> Server:
        """`servers/service.c`."""
        address = self.address("service")
        argv = [built("servers/service.c"), f"listen={address}", *options]
        return self.server(argv, address, "service")

    def puma(self, work: str, threads: int) -> Server:
        """Puma whose requests do that work, in Ruby; over TCP."""
        address = self.address("puma", TCP)
        reply = '[200, {"content-type" => "text/plain"}, ["ok"]]'
        config = self.file("config.ru", f"run lambda {{ |env| {work}; {reply} }}\n")
        argv = [program("puma"), "-b", f"tcp://{address}", "-t", f"{threads}:{threads}", "-w", "0"]
        return self.server([*argv, config], address, "puma", {"HOME": str(self.folder)})

    def uploads(self, address: str, connections: int, bytes_per_s: int) -> None:
        """Clients that send requests of 100 KB slowly; each has had a reply."""
        script = str(HERE / "load/uploader.py")
        clients = self.start(
            [sys.executable, script, address, str(connections), str(bytes_per_s)], "uploader"
        )
        said = b"uploading\n"
        self.wait_until(lambda: clients.log.read_bytes() == said, "they upload", clients)

    def gunicorn(self, *options: str, workers: int = 2, **environment: object) -> Server:
        """`servers/wsgi.py` by gunicorn; `environment` says what its requests cost."""
        address = self.address()
        bind = f"unix:{address}" if address.startswith("/") else address
        argv = [sys.executable, "-m", "gunicorn", "--bind", bind, "--workers", str(workers)]
        argv += ["--chdir", str(HERE / "servers"), *options, "wsgi:application"]
        env = {"HOME": str(self.folder)}  # for its control socket
        env.update((name, str(value)) for name, value in environment.items())
        return self.server(argv, address, "gunicorn", env)

    def nginx(
        self,
        location: str,
        upstream: str = "",
        listen: str = "",
        main: str = "user root;",
        workers: int = 1,
        address: str = "",
        connections: int = 1024,
    ) -> Server:
        """nginx with one server of one location.

        Args:
            location: what is in `location / { … }`.
            upstream: blocks of their own, in `http { … }`.
            listen: more parameters of `listen`.
            main: more lines at the top.
            connections: that a worker may have, to clients and upstreams.
        """
        address = address or self.address("nginx")
        at = f"unix:{address}" if address.startswith("/") else address
        folder = self.folder / self.name("nginx")
        folder.mkdir()
        text = NGINX.format(**locals())
        (folder / "nginx.conf").write_text(text)
        argv = [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
        return self.server([*argv, "-e", str(folder / "error.log")], address, "nginx")

    def redis(self, *options: str, transport: str = "") -> Server:
        """Redis without persistence."""
        address = self.address("redis", transport or None)
        at = ["--port", "0", "--unixsocket", address]
        if not address.startswith("/"):
            at = ["--bind", "127.0.0.1", "--port", address.rpartition(":")[2]]
        argv = [program("redis-server"), *at, "--save", "", "--appendonly", "no"]
        argv += ["--enable-debug-command", "yes", "--dir", str(self.folder), *options]
        return self.server(argv, address, "redis")

    def memcached(self, *options: str) -> Server:
        """With one worker thread."""
        address = self.address("memcached")
        at = ["-s", address]
        if not address.startswith("/"):
            at = ["-l", "127.0.0.1", "-p", address.rpartition(":")[2]]
        argv = [program("memcached"), *at, "-u", "root", "-U", "0", "-t", "1", "-I", "8m", *options]
        return self.server(argv, address, "memcached")

    def haproxy(self, frontend: str, backend: str = "") -> Server:
        """HAProxy that answers by itself, or by its backend `app`; more lines of both."""
        address = self.address("haproxy")
        at = f"unix@{address}" if address.startswith("/") else address
        config = self.file(
            "haproxy.cfg",
            HAPROXY.format(
                at=at,
                frontend=frontend,
                backend=HAPROXY_APP.format(backend) if backend else HAPROXY_OK,
            ),
        )
        return self.server([program("haproxy"), "-db", "-f", config], address, "haproxy")

    def caddy(self, directives: str) -> Server:
        """Caddy with one site."""
        address = self.address("caddy")
        site = ":80" if address.startswith("/") else f"http://{address}"
        bind = f"unix/{address}" if address.startswith("/") else "127.0.0.1"
        site = "http://" if address.startswith("/") else site
        text = CADDY.format(site=site, bind=bind, directives=directives)
        config = self.file("Caddyfile", text)
        env = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        argv = [program("caddy"), "run", "--config", config, "--adapter", "caddyfile"]
        return self.server(argv, address, "caddy", env)


class Load(Server):
    """A running load generator. Its last word is its account: it is waited for."""

    ends_in_s = PATIENCE_S

    def ask(self) -> int:
        """Have it write an account of the time since the last one; how many it had written."""
        written = self.log.read_bytes().count(b'{"replies"')
        os.kill(self.pid, signal.SIGUSR1)
        return written

    def account(self, after: int) -> Optional[Dict[str, Any]]:
        """The account after so many others; None before it is written."""
        lines = [line for line in self.log.read_text().splitlines(True) if line[0] == "{"]
        if len(lines) <= after or not lines[-1].endswith("\n"):
            return None
        found = json.loads(lines[-1])
        assert isinstance(found, dict)
        return found

    def result(self) -> Dict[str, Any]:
        """End it; its own account."""
        self.end()
        lines = self.log.read_text().splitlines()
        found = json.loads(lines[-1])
        assert isinstance(found, dict)
        return found


NGINX = """
daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{main}
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    sendfile on;
    {upstream}
    server {{
        listen {at} {listen};
        location / {{ {location} }}
    }}
}}
"""

HAPROXY = """
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 5s
frontend served
    bind {at}
    {frontend}
{backend}
"""
HAPROXY_OK = "    http-request return status 200 content-type text/plain string ok"
HAPROXY_APP = "backend app\n    timeout queue 60s\n    {}"

CADDY = """
{{
    admin off
    auto_https off
}}
{site} {{
    bind {bind}
    {directives}
}}
"""


def answers(address: str) -> bool:
    """Whether a server takes connections there."""
    if address.startswith("/"):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(address) == 0
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def family_of(pid: int) -> List[int]:
    """A process and its living descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += family_of(int(child))
    return found
