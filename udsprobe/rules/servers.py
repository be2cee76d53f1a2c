"""Which well-known server a process is, by what it calls itself and how it was started."""

from __future__ import annotations

import re
from typing import FrozenSet, Optional, Tuple

from udsprobe.model.report import Report, Target

GENERIC = "generic"

# The name as people write it, the slug's row in tables, what `comm` begins with.
SERVERS = {
    "nginx": "nginx",
    "node": "Node",
    "postgresql": "PostgreSQL",
    "mysql": "MySQL, MariaDB",
    "redis": "Redis, Valkey",
    "php-fpm": "PHP-FPM",
    "uwsgi": "uWSGI",
    "gunicorn": "gunicorn",
    "uvicorn": "uvicorn",
    "puma": "Puma",
    "unicorn": "Unicorn",
    "apache": "Apache",
    "lighttpd": "lighttpd",
    "haproxy": "HAProxy",
    "varnish": "Varnish",
    "envoy": "Envoy",
    "squid": "Squid",
    "pgbouncer": "PgBouncer",
    "memcached": "memcached",
    "rabbitmq": "RabbitMQ",
    "java": "Java",
    "erlang": "Erlang, Elixir",
    "go": "Go",
    "python": "Python",
    "ruby": "Ruby",
    "caddy": "Caddy",
    "systemd": "systemd",
    GENERIC: "any other",
}
DATABASES = frozenset({"postgresql", "mysql", "redis", "memcached", "pgbouncer"})
# What a server has no rows for in a table, its language may have.
WRITTEN_IN = {"gunicorn": "python", "uvicorn": "python", "puma": "ruby", "unicorn": "ruby"}
# What these ask others they pass on: no function of theirs tells why.
PASS_ON = frozenset(
    {"nginx", "haproxy", "varnish", "envoy", "squid", "pgbouncer", "caddy", "lighttpd"}
)
# Each worker or thread of these serves one request at a time, and a setting says how many are.
ONE_EACH = frozenset({"php-fpm", "uwsgi", "gunicorn", "puma", "unicorn", "apache"})
# A process of these computes on one CPU at a time, whatever it serves.
ONE_CPU = frozenset(
    {
        *("node", "redis", "pgbouncer", "python", "gunicorn", "uvicorn", "ruby", "puma"),
        *("unicorn", "lighttpd", "squid"),
    }
)
# A worker of gunicorn that keeps connections is of another class than `sync`, its default.
_KEEPS_CONNECTIONS = re.compile(r"gthread|gevent|eventlet|tornado|[Uu]vicorn|--threads")
# In the order in which they are tried: a Python program that is gunicorn is gunicorn.
_COMMS: Tuple[Tuple[str, str], ...] = (
    ("nginx", "nginx"),
    ("postgres", "postgresql"),
    ("mysqld", "mysql"),
    ("mariadbd", "mysql"),
    ("redis-server", "redis"),
    ("valkey-server", "redis"),
    ("php-fpm", "php-fpm"),
    ("uwsgi", "uwsgi"),
    ("gunicorn", "gunicorn"),
    ("uvicorn", "uvicorn"),
    ("puma", "puma"),
    ("unicorn", "unicorn"),
    ("apache2", "apache"),
    ("httpd", "apache"),
    ("lighttpd", "lighttpd"),
    ("haproxy", "haproxy"),
    ("varnishd", "varnish"),
    ("cache-main", "varnish"),
    ("envoy", "envoy"),
    ("squid", "squid"),
    ("pgbouncer", "pgbouncer"),
    ("memcached", "memcached"),
    ("caddy", "caddy"),
    ("traefik", "go"),
    ("systemd", "systemd"),
    ("node", "node"),
    ("java", "java"),
    ("python", "python"),
    ("ruby", "ruby"),
)
_ERLANG = "beam.smp"
_INTERPRETERS = frozenset({"python", "ruby"})
_STARTED = re.compile(
    r"(?:^|[/ ])(gunicorn|uvicorn|unicorn|uwsgi|puma|redis-server|haproxy|pgbouncer|memcached|caddy"
    r"|nginx|node|java|python|ruby)[\d.]*(?=[ :]|$)"
)


# OpenSSH (sshd-session since 9.8) and Dropbear: a process, or three, for each connection.
_SSH = ("sshd", "dropbear")


def carries_sessions(comm: Optional[str]) -> bool:
    """What comes and goes on its connections is what users type and their commands print: no
    requests, and no replies but for those of the login."""
    return comm is not None and comm.startswith(_SSH)


def recognise(comm: str, cmdline: Optional[str] = None) -> str:
    """The slug of a server of `SERVERS`; `generic` when it is none that is known."""
    known = next((slug for start, slug in _COMMS if comm.startswith(start)), None)
    if comm == _ERLANG:
        return "rabbitmq" if "rabbit" in (cmdline or "") else "erlang"
    if known is not None and known not in _INTERPRETERS:
        return known
    words = " ".join((cmdline or "").split()[:3])
    # An interpreter is named before what it runs.
    found = _STARTED.findall(words)
    return found[-1].replace("redis-server", "redis") if found else known or GENERIC


def target_of(report: Report, pid: Optional[int]) -> Optional[Target]:
    """The target of that PID."""
    return next((each for each in report.targets if each.pid == pid), None)


def language_of(report: Report, pid: Optional[int]) -> Optional[str]:
    """That the program of a target was made in; None where that is not known."""
    target = target_of(report, pid)
    return target.language if target is not None else None


# Sleeps of a thread of Go, which a goroutine may have left to wait for something else.
IN_GOROUTINES = ("lock", "timer")


def is_go(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """The threads of these processes, None: of all targets, sleep for the scheduler of Go, whatever
    a goroutine waits for."""
    those = pids or {target.pid for target in report.targets}
    return bool(those) and all(language_of(report, pid) == "go" for pid in those)


# take_gil() of CPython (Python/ceval_gil.c) waits for 5 ms at a time, until the lock is free; Ruby
# before 3.3 has one thread wait so (thread_pthread.c). uWSGI has either of them inside.
_ASK_FOR_LOCK_AGAIN = frozenset({"python", "ruby", "uwsgi", GENERIC})


def asks_for_lock_again(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """In one of these processes, None: of all targets, a time limit may end waits for an
    interpreter's lock that is still held: in those as well that are not known."""
    those = (each for each in report.targets if pids is None or each.pid in pids)
    found = {server_of(each) for each in those}
    return any(WRITTEN_IN.get(each, each) in _ASK_FOR_LOCK_AGAIN for each in found)


def server_of(target: Optional[Target]) -> str:
    """`recognise` for a target, or the language of its program; `generic` for none."""
    if target is None:
        return GENERIC
    found = recognise(target.comm, target.cmdline)
    return target.language or GENERIC if found == GENERIC else found


def closes_each(target: Optional[Target]) -> bool:
    """A server that closes each connection after its reply, whatever its client asks for."""
    server = server_of(target)
    if target is None or server != "gunicorn":
        return server == "unicorn"
    return not _KEEPS_CONNECTIONS.search(target.cmdline or "")
