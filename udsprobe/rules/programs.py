"""What to change in well-known servers: the exact line for each remedy.

Sources: the servers' own documentation of the options named here.
"""

from __future__ import annotations

from typing import Mapping, Optional

_BACKLOG = {
    "nginx": "listen … backlog={backlog};",
    "node": "server.listen({{path: …, backlog: {backlog}}})",
    "gunicorn": "gunicorn --backlog {backlog} …",
    "uvicorn": "uvicorn --backlog {backlog} …",
    "redis-server": "tcp-backlog {backlog}",
    "memcached": "memcached -b {backlog} …",
    "haproxy": "bind … backlog {backlog}",
    "php-fpm": "listen.backlog = {backlog}",
    "uwsgi": "listen = {backlog}",
    "postgres": "max_connections = … (PostgreSQL's backlog is twice that)",
}
# They take net.core.somaxconn as their backlog and have no option of their own.
_BACKLOG_IS_SOMAXCONN = ("caddy", "go", "traefik")
_PROFILERS = {
    "node": "node --cpu-prof … (or: perf record -F 99 -g -p {pid} -- sleep 10)",
    "python": "py-spy record -d 10 -o profile.svg --pid {pid}",
    "gunicorn": "py-spy record -d 10 -o profile.svg --pid {pid}",
    "redis-server": "redis-cli slowlog get 10",
    "java": "jcmd {pid} Thread.print",
    "postgres": "SELECT pid, wait_event, query FROM pg_stat_activity WHERE pid = {pid};",
}
_KEEPALIVE = {
    "nginx": "in the upstream block: keepalive 64; in the location: proxy_http_version 1.1; "
    'proxy_set_header Connection "";',
    "node": "new http.Agent({keepAlive: true})",
    "python": "one requests.Session() (or httpx.Client()) for all requests",
    "haproxy": "option http-keep-alive, http-reuse safe",
    "caddy": "transport http { keepalive 2m } and no `keepalive off`",
    "php-fpm": "fastcgi_keep_conn on; and keepalive in the upstream block",
}

_NODELAY = {
    "nginx": "tcp_nodelay on;",
    "node": "socket.setNoDelay(true), or net.createServer({noDelay: true}, …)",
}


def backlog_line(program: str, backlog: int) -> str:
    """How `program` is told its backlog."""
    if program in _BACKLOG_IS_SOMAXCONN:
        return f"sysctl -w net.core.somaxconn={backlog} (it asks for that much by itself)"
    line = _of(_BACKLOG, program)
    return line.format(backlog=backlog) if line else f"listen(fd, {backlog})"


def profile_command(program: str, pid: int, tid: int) -> str:
    """What tells where its CPU time goes."""
    line = _of(_PROFILERS, program)
    return line.format(pid=pid) if line else f"perf record -F 99 -g -t {tid} -- sleep 10"


def keepalive_line(program: Optional[str]) -> str:
    """How a client keeps its connections; general when it is not known."""
    line = _of(_KEEPALIVE, program or "")
    return line or "keep connections open in the client and reuse them (keep-alive, a pool)"


def nodelay_line(program: Optional[str]) -> str:
    """How a program turns Nagle's algorithm off; general when it is not known."""
    general = "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, …), or write a message in one call"
    return _of(_NODELAY, program or "") or general


def _of(table: Mapping[str, str], program: str) -> Optional[str]:
    for name, line in table.items():
        if program.startswith(name):
            return line
    return None
