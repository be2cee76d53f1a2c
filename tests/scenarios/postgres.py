"""PostgreSQL on a bench, and pgbench as its load."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from tests.scenarios.bench import AWAY, LOAD_S, Bench, Load, Process, Server
from tests.scenarios.case import TCP, UNIX
from tests.scenarios.programs import program

# PostgreSQL refuses to run as root.
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
PORT = "5432"


# progress: 2.0 s, 57.0 tps, lat 17.374 ms stddev 0.1, 0 failed
PROGRESS = re.compile(
    r"progress: [\d.]+ s, ([\d.]+) tps, lat ([\d.]+|NaN) ms.*?(?:, (\d+) failed)?$"
)


class Pgbench(Load):
    """Its accounts are of whole seconds, as it prints them."""

    ends_in_s = Server.ends_in_s

    def _lines(self) -> List[Tuple[str, str, str]]:
        text = self.log.read_text(errors="replace")
        return [found.groups("0") for found in map(PROGRESS.match, text.splitlines()) if found]

    def ask(self) -> int:
        before = len(self._lines())
        self._since, self._asked = getattr(self, "_asked", before), before
        return before

    def account(self, after: int) -> Optional[Dict[str, Any]]:
        """Of the seconds since it was asked the last time but one."""
        lines = self._lines()[self._since : after]
        replies = sum(float(tps) for tps, _, _ in lines)
        waited_ms = sum(float(tps) * float(ms) for tps, ms, _ in lines if ms != "NaN")
        return {
            "replies": round(replies),
            "broken": sum(int(failed) for _, _, failed in lines),
            "unhappy": 0,
            "connect_errors": {},
            "unanswered": 0,
            "paced": False,
            "waited_us": 1000 * waited_ms,
            "p99_us": 0.0,
            "seconds": float(len(lines)),
        }


class Postgres:
    """A cluster of its own in the bench's folder.

    Attributes:
        socket: its Unix path.
        pid: of the postmaster.
    """

    def __init__(self, bench: Bench, transport: str = "", options: Sequence[str] = ()) -> None:
        self._bench = bench
        self._folder = bench.folder / bench.name("postgres")
        self._folder.mkdir()
        shutil.chown(self._folder, "postgres", "postgres")
        self._make_cluster()
        unix = (transport or bench.transport) == UNIX
        port = PORT if unix else bench.address(transport="tcp").rpartition(":")[2]
        self.socket = f"{self._folder}/.s.PGSQL.{port}"
        self._at = ["-h", str(self._folder) if unix else "127.0.0.1", "-p", port]
        argv = [*AS_POSTGRES, program("postgres"), "-D", f"{self._folder}/data", "-p", port]
        argv += ["-k", str(self._folder), "-c", f"listen_addresses={'' if unix else '127.0.0.1'}"]
        argv += ["-c", "fsync=off", *options]
        self.address = self.socket if unix else f"127.0.0.1:{port}"
        self._server = bench.server(argv, self.address, "postgres")
        bench.wait_until(self._is_up, "PostgreSQL takes queries", self._server)

    @property
    def pid(self) -> int:
        return self._server.pid

    def _make_cluster(self) -> None:
        argv = [*AS_POSTGRES, program("initdb"), "-D", f"{self._folder}/data", "--no-sync"]
        argv += ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        subprocess.run(argv, cwd="/", check=True, capture_output=True)

    def _is_up(self) -> bool:
        argv = [program("pg_isready"), "-q", *self._at]
        return subprocess.run(argv, check=False).returncode == 0

    @property
    def folder(self) -> Path:
        """Of its socket."""
        return self._folder

    def _client(self, name: str) -> List[str]:
        return [program(name), *self._at, "-U", "postgres"]

    def run(self, sql: str) -> None:
        """Execute SQL."""
        argv = [*self._client("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]
        subprocess.run(argv, check=True, capture_output=True)

    def hold(self, sql: str) -> Process:
        """A session that executes SQL, and says no more: its transaction stays open."""
        argv = [*self._client("psql"), "-q", "-v", "ON_ERROR_STOP=1", "postgres"]
        session = self._bench.start(argv, "session", stdin=subprocess.PIPE)
        assert session.popen.stdin is not None
        session.popen.stdin.write(f"{sql}\n\\echo done\n".encode())
        session.popen.stdin.flush()
        is_done = b"done\n"
        self._bench.wait_until(lambda: session.log.read_bytes() == is_done, "it is done", session)
        return session

    def pgbench(self, script: str, clients: int = 4, *options: str) -> Server:
        """Run `script` again and again, from the moment it has done so for a second."""
        path = self._bench.file(self._bench.name("script"), script)
        argv = [*AWAY, *self._client("pgbench"), "-n", "-f", path, "-c", str(clients), "-P", "1"]
        argv += ["-T", str(LOAD_S), *options, "postgres"]
        return start_pgbench(self._bench, argv)

    def copy_slowly(self, sql: str, reader: Sequence[str]) -> None:
        """Have psql receive the rows of `sql`, and `reader` take them from psql."""
        psql = [*self._client("psql"), "-q", "-c", f"COPY ({sql}) TO STDOUT", "postgres"]
        sender = self._bench.start(psql, "psql", stdout=subprocess.PIPE)
        taker = self._bench.start(reader, "reader", stdin=sender.popen.stdout)
        self._bench.wait_until(lambda: taker.log.stat().st_size > 0, "rows are read", taker)


def start_pgbench(bench: Bench, argv: Sequence[str]) -> Pgbench:
    """It, from the moment it has worked for a second."""
    log: Path = bench.folder / f"{bench.name('pgbench')}.log"
    load = Pgbench(argv, log)
    bench.adopt(load)
    bench.loads.append(load)
    bench.wait_until(lambda: b"progress:" in log.read_bytes(), "pgbench is warm", load)
    return load


PGBOUNCER = """
[databases]
postgres = host={folder} port=5432 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = {mode}
default_pool_size = {pool}
"""


def pgbouncer(
    bench: Bench, postgres: Postgres, pool: int, mode: str = "transaction"
) -> Tuple[Server, Callable[[str, int], Pgbench]]:
    """PgBouncer before a cluster on a Unix socket, and a function that starts clients of it."""
    address = bench.address("pgbouncer", TCP)
    port = address.rpartition(":")[2]
    users = bench.file("users", '"postgres" ""\n')
    text = PGBOUNCER.format(folder=postgres.folder, port=port, users=users, pool=pool, mode=mode)
    argv = [*AS_POSTGRES, program("pgbouncer"), bench.file("pgbouncer.ini", text)]
    server = bench.server(argv, address, "pgbouncer")

    def clients(sql: str, count: int) -> Pgbench:
        script = bench.file(bench.name("script"), sql)
        argv = [*AWAY, program("pgbench"), "-h", "127.0.0.1", "-p", port, "-U", "postgres"]
        argv += ["-n", "-f", script, "-c", str(count), "-P", "1", "-T", str(LOAD_S), "postgres"]
        return start_pgbench(bench, argv)

    return server, clients
