"""Names of code in real servers: each has one culprit, whose function is known.

What is said of each is the table of docs/named-code.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

import pytest

from tests.conftest import Require
from tests.kernel import busy, perf_stacks, servers, tool
from tests.kernel.named_code import assert_told
from tests.patience import PATIENCE_S
from tests.scenarios.postgres import AS_POSTGRES

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

CODE = tool.REPOSITORY / "tests" / "workloads" / "code"

# ------------------------------------------------------------ PostgreSQL

FOREVER = "DO $$ BEGIN LOOP {} END LOOP; END $$"
QUERIES = {
    "pgcrypto": FOREVER.format("PERFORM crypt('secret', gen_salt('bf', 10));"),
    "md5": FOREVER.replace("$$ ", "$$ DECLARE t text := repeat('x', 1000000); ", 1).format(
        "PERFORM md5(t);"
    ),
    "pg_sleep": FOREVER.format("PERFORM pg_sleep(0.05);"),
    "commit": FOREVER.format("INSERT INTO planted VALUES (1); COMMIT;"),
    "table-lock": "BEGIN; LOCK TABLE held",
}


def postgres_at(folder: Path, require: Require) -> servers.Server:
    """An empty cluster of its own that writes to its disk at each commit."""
    tools = require("postgres", "initdb", "psql", "setpriv")
    shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    made = [*AS_POSTGRES, tools["initdb"], "-D", str(data), "--no-sync", "--auth=trust"]
    subprocess.run([*made, "-U", "postgres"], check=True, capture_output=True, cwd="/")
    argv = [*AS_POSTGRES, tools["postgres"], "-D", str(data), "-k", str(folder)]
    argv += ["-c", "listen_addresses=", "-c", "jit=off", "-c", "autovacuum=off"]
    return servers.Server(argv, f"{folder}/.s.PGSQL.5432", folder / "postgres.log")


class Sessions:
    """Of psql, each with a query that does not end.

    Attributes:
        pids: of the server's processes, by the names of the sessions.
    """

    def __init__(self, psql: str, folder: Path, queries: Mapping[str, str]) -> None:
        self._argv = [psql, "-h", str(folder), "-U", "postgres", "-q", "-t", "-A"]
        self._queries = queries
        self._stack = ExitStack()

    def ask(self, sql: str) -> str:
        """The answer to one query."""
        argv = [*self._argv, "-v", "ON_ERROR_STOP=1", "-c", sql]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> Sessions:
        for name, sql in self._queries.items():
            environment = {**os.environ, "PGAPPNAME": name}
            argv = [*self._argv, "-c", sql]
            self._stack.enter_context(busy.started(argv, environment=environment))
        busy.until(lambda: len(self._pids()) == len(self._queries), "all sessions work")
        self.pids = self._pids()
        return self

    def _pids(self) -> Dict[str, int]:
        working = self.ask(
            "SELECT application_name, pid FROM pg_stat_activity WHERE state = 'active'"
        )
        rows = (line.split("|") for line in working.split())
        return {name: int(pid) for name, pid in rows if name in self._queries}

    def __exit__(self, *raised: object) -> None:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            self.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'active'"
                " AND pid <> pg_backend_pid()"
            )
        self._stack.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Whose paths are short enough for a socket, and which other users may enter."""
    with busy.folder() as path:
        yield path


def test_postgres(short_folder: Path, require: Require) -> None:
    psql = require("psql")["psql"]
    with postgres_at(short_folder, require):
        plain = Sessions(psql, short_folder, {})
        busy.until(lambda: plain.ask("SELECT 1") == "1\n", "PostgreSQL takes queries")
        plain.ask("CREATE EXTENSION pgcrypto; CREATE TABLE planted (i int); CREATE TABLE held ()")
        holding = {"holder": "BEGIN; LOCK TABLE held; SELECT pg_sleep(1000)"}
        with Sessions(psql, short_folder, holding), Sessions(psql, short_folder, QUERIES) as all_:
            stacks = perf_stacks.taken(require("perf")["perf"], all_.pids["md5"], short_folder)
            asleep = {"pg_sleep": "epoll_wait", "commit": "fdatasync", "table-lock": "epoll_wait"}
            told = busy.observed(all_.pids, short_folder, asleep)
    assert_told("PostgreSQL", told)
    perf_stacks.assert_is_where(stacks, told["md5"]["function"])


# ------------------------------------------------------------ Redis

# Nearly as long as DEBUG POPULATE makes names: matching them is what takes long.
PREFIX = "12345678" * 14
COMMANDS: Dict[str, Sequence[str]] = {
    "keys": ("KEYS", "*[0-9]*[0-9]*x"),
    "sort": ("SORT", "planted", "ALPHA", "LIMIT", "0", "1"),
    "lua": ("EVAL", "local s = 0 for i = 1, 3000000 do s = (s * 31 + i) % 65536 end return s", "0"),
    "module": ("planted.digest",),
    "save": ("SAVE",),
    "debug-sleep": ("DEBUG", "SLEEP", "0.05"),
}
FILLED = "for i = 1, 20000 do redis.call('RPUSH', 'planted', 'value' .. (i * 7919) % 20011) end"


def test_redis(short_folder: Path, require: Require) -> None:
    tools = require("redis-server", "redis-cli", "gcc")
    module = short_folder / "planted.so"
    argv = [tools["gcc"], "-O2", "-shared", "-fPIC", "-o", str(module)]
    subprocess.run([*argv, str(CODE / "redis_module.c")], check=True)
    with ExitStack() as stack:
        pids, clients = {}, []
        for name, command in COMMANDS.items():
            folder = short_folder / name
            folder.mkdir()
            server = servers.redis(
                tools["redis-server"],
                folder,
                "--enable-debug-command",
                "yes",
                "--loadmodule",
                str(module),
            )
            pids[name] = stack.enter_context(server).pid
            client = [tools["redis-cli"], "-s", str(server.address)]
            for filling in (["DEBUG", "POPULATE", "5000", PREFIX], ["EVAL", FILLED, "0"]):
                subprocess.run([*client, *filling], check=True, capture_output=True)
            clients.append([*client, "-r", "-1", *command])
        stack.enter_context(busy.started(*clients))
        told = busy.observed(
            pids, short_folder, {"save": "fsync", "debug-sleep": "clock_nanosleep"}
        )
    assert_told("Redis", told)
    # Debian's is a link to redis-check-rdb.
    assert "sortCompare (redis-server)" in told["sort"]["stack"]


@pytest.mark.parametrize("name", ["keys", "lua", "sort"])
def test_what_redis_computes_is_in_perf_s_stacks(
    name: str, short_folder: Path, require: Require
) -> None:
    tools = require("redis-server", "redis-cli", "perf")
    server = servers.redis(tools["redis-server"], short_folder, "--enable-debug-command", "yes")
    with server as redis:
        client = [tools["redis-cli"], "-s", str(server.address)]
        for filling in (["DEBUG", "POPULATE", "5000", PREFIX], ["EVAL", FILLED, "0"]):
            subprocess.run([*client, *filling], check=True, capture_output=True)
        with busy.started([*client, "-r", "-1", *COMMANDS[name]]):
            told = busy.observed({name: redis.pid}, short_folder)
            stacks = perf_stacks.taken(tools["perf"], redis.pid, short_folder)
    perf_stacks.assert_is_where(stacks, told[name]["function"])


# ------------------------------------------------------------ nginx

NGINX = """
daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ }}
http {{
    access_log off; gzip on; gzip_comp_level 9; gzip_types *; default_type text/plain;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; keepalive_requests 1000000;
    ssl_certificate {folder}/certificate; ssl_certificate_key {folder}/key;
    ssl_session_cache off; ssl_session_tickets off; ssl_protocols TLSv1.2;
    server {{
        listen unix:{folder}/plain; listen unix:{folder}/tls ssl; root {folder};
        location ~ ^/(a+)+$ {{ return 200; }}
    }}
}}
"""


REQUEST = "GET {} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"


def nginx_at(folder: Path, require: Require, key_bits: int = 2048) -> servers.Server:
    """nginx that compresses, encrypts, and matches a regular expression."""
    tools = require("nginx", "openssl")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    (folder / "text").write_text(" ".join(str(i * 7919 % 10007) for i in range(100000)))
    argv = [
        tools["openssl"],
        "req",
        "-x509",
        "-newkey",
        f"rsa:{key_bits}",
        "-nodes",
        "-subj",
        "/CN=planted",
    ]
    argv += ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run(argv, check=True, capture_output=True)
    argv = [tools["nginx"], "-p", str(folder), "-c", str(folder / "nginx.conf")]
    return servers.Server([*argv, "-e", str(folder / "log")], f"{folder}/plain", folder / "out")


def get(path: str, uri: str, encrypted: bool) -> None:
    """One request on a connection of its own; the whole reply is read."""
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(PATIENCE_S)
        plain.connect(path)
        connection: socket.socket = plain
        if encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(plain)
        with connection:
            connection.sendall(REQUEST.format(uri).encode())
            while connection.recv(1 << 16):
                pass


@contextmanager
def got(asked: Sequence[Tuple[str, str, bool]]) -> Iterator[None]:
    """A client for each of these, which ask without end."""
    ends = threading.Event()

    def ask(path: str, uri: str, encrypted: bool) -> None:
        while not ends.is_set():
            get(path, uri, encrypted)

    threads = [threading.Thread(target=ask, args=each) for each in asked]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def worker_of(master: int) -> int:
    """nginx's, from the moment there is one."""
    children = Path(f"/proc/{master}/task/{master}/children")
    busy.until(lambda: bool(children.read_text().split()), "nginx has a worker")
    return int(children.read_text().split()[0])


def test_nginx(short_folder: Path, require: Require) -> None:
    # Matching gives up after some ten million steps.
    ways = {
        "gzip": ("plain", "/text", False),
        "regex": ("plain", f"/{'a' * 40}!", False),
        "tls": ("tls", "/pid", True),
    }
    pids: Dict[str, int] = {}
    asked: List[Tuple[str, str, bool]] = []
    with ExitStack() as stack:
        for name, (listener, uri, encrypted) in ways.items():
            folder = short_folder / name
            folder.mkdir()
            pids[name] = worker_of(stack.enter_context(nginx_at(folder, require)).pid)
            asked.append((str(folder / listener), uri, encrypted))
        stack.enter_context(got(asked))
        told = busy.observed(pids, short_folder)
    assert_told("nginx", told)
