#!/usr/bin/env python3
"""Does to real servers what the table of remedies says, and looks whether it helped.

    sudo scripts/remedies_check.py [SERVER …]

Each server that is installed is started with a backlog of 5 below a directory of its own. The line
that raises the backlog of the running server is run as it is, then its `undo`; then the server's
own setting is changed, and the server reloaded or started again. What counts is the kernel's
word: Send-Q of `ss`. Writes a row for each; exits 1 when a promise is not kept.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from udsprobe.rules.remedy.table import remedies

SMALL, OWN, MORE = 5, 64, 1024
START_WITHIN_S = 40.0
_SUDO = """#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2; shift 2; exec runuser -u "$user" -- "$@"
"""


class Queue(NamedTuple):
    """A listener as `ss` shows it; `limit` is its backlog."""

    limit: int
    inode: int
    pid: int


@dataclass(frozen=True)
class Server:
    """How one is started.

    Attributes:
        program: what has to be installed.
        start: its command with a backlog, in a directory that it may fill.
        tcp: the port it listens on; None: at `s.sock` of the directory.
        reload: makes a running one take the new backlog; None: it has to start again.
        setting: as the table names it.
        factor: the backlog is so many times the setting, at least.
    """

    program: str
    start: Callable[[Path, int], Sequence[str]]
    setting: str
    tcp: Optional[int] = None
    reload: Optional[Callable[[Path, int], Sequence[str]]] = None
    user: Optional[str] = None
    socket: str = "s.sock"
    factor: int = 1
    keeps_on_reload: bool = False


def _write(place: Path, name: str, text: str) -> str:
    path = place / name
    path.write_text(text)
    return str(path)


def _nginx(place: Path, backlog: int) -> List[str]:
    text = f"""daemon off; pid {place}/pid; error_log {place}/log; events {{}}
http {{ access_log off; server {{ listen unix:{place}/s.sock backlog={backlog}; }} }}"""
    return ["nginx", "-c", _write(place, "nginx.conf", text)]


def _nginx_reload(place: Path, backlog: int) -> List[str]:
    return [*_nginx(place, backlog), "-s", "reload"]


def _python(place: Path, backlog: int) -> List[str]:
    text = f"""import socketserver
class Server(socketserver.UnixStreamServer):
    request_queue_size = {backlog}
Server("{place}/s.sock", socketserver.BaseRequestHandler).serve_forever()"""
    return ["python3", _write(place, "server.py", text)]


def _node(place: Path, backlog: int) -> List[str]:
    options = f'{{ path: "{place}/s.sock", backlog: {backlog} }}'
    return ["node", "-e", f"require('net').createServer().listen({options})"]


def _java(place: Path, backlog: int) -> List[str]:
    text = f"""public class S {{ public static void main(String[] a) throws Exception {{
    new java.net.ServerSocket(18431, {backlog}); Thread.sleep(600000); }} }}"""
    return ["java", _write(place, "S.java", text)]


def _wsgi(place: Path) -> str:
    return _write(
        place, "app.py", "def application(e, s):\n    s('200 OK', [])\n    return [b'']\n"
    )


def _uwsgi(place: Path, backlog: int) -> List[str]:
    where = [f"--socket={place}/s.sock", f"--listen={backlog}", f"--wsgi-file={_wsgi(place)}"]
    return ["uwsgi", "--plugin", "python3", "--master", *where]


def _gunicorn(place: Path, backlog: int) -> List[str]:
    _wsgi(place)
    where = ["--chdir", str(place), "--bind", f"unix:{place}/s.sock"]
    return ["gunicorn", *where, "--backlog", str(backlog), "app:application"]


def _puma(place: Path, backlog: int) -> List[str]:
    app = _write(place, "config.ru", "run ->(env) { [200, {}, ['']] }\n")
    return ["puma", "-b", f"unix://{place}/s.sock?backlog={backlog}", "-e", "production", app]


def _php_fpm(place: Path, backlog: int) -> List[str]:
    text = f"""[global]
error_log = {place}/log
pid = {place}/pid
[www]
user = www-data
listen = {place}/s.sock
listen.backlog = {backlog}
pm = static
pm.max_children = 1
"""
    return [PHP_FPM, "-F", "-n", "-y", _write(place, "fpm.conf", text)]


def _php_fpm_reload(place: Path, backlog: int) -> List[str]:
    _php_fpm(place, backlog)
    return ["kill", "-USR2", (place / "pid").read_text().strip()]


def _haproxy(place: Path, backlog: int) -> List[str]:
    text = f"""global
    stats socket {place}/admin.sock level admin expose-fd listeners
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend f
    bind unix@{place}/s.sock backlog {backlog}
    http-request return status 200
"""
    return ["haproxy", "-W", "-db", "-f", _write(place, "haproxy.cfg", text)]


def _haproxy_reload(place: Path, backlog: int) -> List[str]:
    _haproxy(place, backlog)
    return ["kill", "-USR2", (place / "started").read_text()]


def _apache(place: Path, backlog: int) -> List[str]:
    text = f"""ServerRoot {place}
ServerName localhost
PidFile {place}/pid
ErrorLog {place}/log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
Listen 127.0.0.1:18432
ListenBacklog {backlog}
"""
    return ["apache2", "-X", "-d", str(place), "-f", _write(place, "apache.conf", text)]


def _pgbouncer(place: Path, backlog: int) -> List[str]:
    text = f"""[databases]
[pgbouncer]
listen_port = 18433
unix_socket_dir = {place}
listen_backlog = {backlog}
auth_type = any
"""
    return ["pgbouncer", _write(place, "pgbouncer.ini", text)]


def _postgres(place: Path, max_connections: int) -> List[str]:
    folder = place / "cluster"
    if not folder.exists():
        made = ["initdb", "-D", str(folder), "-A", "trust", "--no-sync"]
        _quiet(["runuser", "-u", "postgres", "--", POSTGRES / made[0], *made[1:]])
    options = ["-c", f"max_connections={max_connections}", "-c", "listen_addresses="]
    few = ["-c", "max_wal_senders=0", "-c", "superuser_reserved_connections=0"]
    return [str(POSTGRES / "postgres"), "-D", str(folder), "-k", str(place), *options, *few]


def _mariadb(place: Path, backlog: int) -> List[str]:
    folder = place / "data"
    if not folder.exists():
        _quiet(["mariadb-install-db", f"--datadir={folder}", "--user=mysql", "--skip-test-db"])
    where = [f"--datadir={folder}", f"--socket={place}/s.sock", f"--pid-file={place}/pid"]
    return ["mariadbd", "--no-defaults", *where, "--skip-networking", f"--back-log={backlog}"]


def _first(pattern: str) -> Path:
    found = sorted(Path("/").glob(pattern.lstrip("/")))
    return found[-1] if found else Path("/nonexistent")


PHP_FPM = str(_first("/usr/sbin/php-fpm*"))
POSTGRES = _first("/usr/lib/postgresql/*/bin")

SERVERS: Dict[str, Server] = {
    "nginx": Server("nginx", _nginx, "listen … backlog=", reload=_nginx_reload),
    "node": Server("node", _node, "server.listen({ backlog })"),
    "postgresql": Server(
        str(POSTGRES / "postgres"),
        _postgres,
        "max_connections (×2)",
        user="postgres",
        socket=".s.PGSQL.5432",
        factor=2,
    ),
    "mysql": Server("mariadbd", _mariadb, "back_log", user="mysql"),
    "redis": Server(
        "redis-server",
        lambda place, backlog: [
            *("redis-server", "--port", "0", "--unixsocket", f"{place}/s.sock"),
            *("--save", "", "--tcp-backlog", str(backlog)),
        ],
        "tcp-backlog",
    ),
    "php-fpm": Server(
        PHP_FPM, _php_fpm, "listen.backlog", reload=_php_fpm_reload, keeps_on_reload=True
    ),
    "uwsgi": Server("uwsgi", _uwsgi, "--listen"),
    "gunicorn": Server("gunicorn", _gunicorn, "--backlog"),
    "puma": Server("puma", _puma, "bind …?backlog="),
    "apache": Server("apache2", _apache, "ListenBacklog", tcp=18432),
    "haproxy": Server(
        "haproxy", _haproxy, "bind … backlog", reload=_haproxy_reload, keeps_on_reload=True
    ),
    "pgbouncer": Server(
        "pgbouncer", _pgbouncer, "listen_backlog", user="nobody", socket=".s.PGSQL.18433"
    ),
    "memcached": Server(
        "memcached",
        lambda place, backlog: ["memcached", "-s", f"{place}/s.sock", "-b", str(backlog)],
        "-b",
        user="nobody",
    ),
    "java": Server("java", _java, "new ServerSocket(port, backlog)", tcp=18431),
    "python": Server("python3", _python, "request_queue_size"),
}


def _quiet(command: Sequence[object]) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def queue(server: Server, place: Path) -> Optional[Queue]:
    """What the kernel knows of its listener; None: there is none yet."""
    unix = str(place / server.socket)
    shown = subprocess.run(
        ["ss", "-ltnpe" if server.tcp else "-xlpn"], capture_output=True, text=True, check=True
    ).stdout
    # HAProxy binds another name and renames it: the kernel knows the first.
    wanted = f":{server.tcp} " if server.tcp else f" {unix}"
    row = next((line for line in shown.splitlines() if wanted in line), None)
    pid = re.search(r"pid=(\d+)", row or "")
    if row is None or pid is None:
        return None
    words = row.split()
    if server.tcp:
        inode = re.search(r"ino:(\d+)", row)
        return Queue(int(words[2]), int(inode.group(1)) if inode else 0, int(pid.group(1)))
    return Queue(int(words[3]), int(words[5]), int(pid.group(1)))


def wait_for(server: Server, place: Path, limit: int) -> Optional[Queue]:
    """Its listener, as soon as it has that limit, or as it is after a while.

    PostgreSQL adds a few, by its version, for processes of its own.
    """
    until = time.monotonic() + START_WITHIN_S
    while True:
        found = queue(server, place)
        is_there = found is not None and _is(server, found.limit, limit)
        if is_there or time.monotonic() > until:
            return found
        time.sleep(0.05)


def _is(server: Server, limit: int, wanted: int) -> bool:
    return wanted <= limit < 2 * wanted + 30 if server.factor > 1 else limit == wanted


@contextmanager
def running(server: Server, place: Path, setting: int) -> Iterator[None]:
    """Started, and ended with all that it started."""
    if server.user is not None:
        subprocess.run(["chown", "-R", server.user, str(place)], check=True)
    command = [str(word) for word in server.start(place, setting)]
    if server.user is not None:
        subprocess.run(["chown", "-R", server.user, str(place)], check=True)
        command = ["runuser", "-u", server.user, "--", *command]
    with open(place / "said", "ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    (place / "started").write_text(str(process.pid))
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        (place / server.socket).unlink(missing_ok=True)


def line_is_kept(server: Server, name: str, place: Path) -> str:
    """The line for the running server, and its undo."""
    before = wait_for(server, place, SMALL * server.factor)
    if before is None:
        return f"FAILED: does not listen: {(place / 'said').read_text()[-300:]}"
    kind = "backlog-tcp" if server.tcp else "backlog-unix"
    where = f"127.0.0.1:{server.tcp}" if server.tcp else str(place / server.socket)
    values = {"pid": before.pid, "inode": before.inode, "backlog": MORE, "was": before.limit}
    action = remedies(kind, name, address=where, **values)[0]
    seen = [before.limit]
    for line in (action.run, action.undo):
        assert line is not None
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        after = queue(server, place)
        if done.returncode or after is None:
            return f"FAILED: {done.stderr.strip()[-200:]}"
        seen.append(after.limit)
    told = " → ".join(map(str, seen))
    return told if seen[1:] == [MORE, before.limit] else f"FAILED: {told}"


def reload_is_as_told(server: Server, place: Path) -> str:
    """A reload with the server's own setting."""
    if server.reload is None:
        return "–"
    before = queue(server, place)
    subprocess.run([*server.reload(place, OWN)], check=True, capture_output=True)
    wanted = SMALL if server.keeps_on_reload else OWN
    if server.keeps_on_reload:
        time.sleep(2)
    after = wait_for(server, place, wanted)
    told = f"{before.limit if before else '–'} → {after.limit if after else '–'}"
    return told if after is not None and after.limit == wanted else f"FAILED: {told}"


def setting_is_kept(server: Server, place: Path) -> str:
    """Started again with the server's own setting."""
    found = wait_for(server, place, OWN * server.factor)
    told = f"{OWN} → {found.limit if found else '–'}"
    is_kept = found is not None and _is(server, found.limit, OWN * server.factor)
    return told if is_kept else f"FAILED: {told}"


def check(name: str) -> List[str]:
    """One row of the table."""
    server = SERVERS[name]
    if shutil.which(server.program) is None:
        return [name, "not installed", "", "", ""]
    with tempfile.TemporaryDirectory(prefix=f"remedies-{name}-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        with running(server, place, SMALL):
            row = [line_is_kept(server, name, place), reload_is_as_told(server, place)]
        with running(server, place, OWN):
            row.append(setting_is_kept(server, place))
    return [name, *row, f"`{server.setting}`"]


def main(names: Sequence[str]) -> int:
    """Exit status."""
    with tempfile.TemporaryDirectory(prefix="remedies-") as folder:
        if shutil.which("sudo") is None:
            sudo = Path(_write(Path(folder), "sudo", _SUDO))
            sudo.chmod(0o755)
            os.environ["PATH"] += f":{folder}"
        print("| server | line for the running server, and its undo | reload | restart | setting |")
        print("|---|---|---|---|---|")
        failed = False
        for name in names or SERVERS:
            row = check(name)
            failed |= any(cell.startswith("FAILED") for cell in row)
            print(f"| {' | '.join(row)} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    sys.exit(main(sys.argv[1:]))
