"""What replies say of themselves, against a client that knows each of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest

from tests.kernel.tool import Attached
from tests.patience import PATIENCE_S
from tests.workloads import echoing_server

pytestmark = [pytest.mark.root]

OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and some more, which makes two pieces"
FAILED = {"500": 3, "502": 5, "503": 23, "other": 4}
# As PostgreSQL 15, PgBouncer 1.18, MariaDB 10.11 and Redis 7.0 sent them; the others from sources.
POSTGRES = (
    "E\0\0\0\x50SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0Fproc.c\0L361\0"
    "RInitProcess\0\0"
)
OLD_POSTGRES = "E\0\0\0\x40SFATAL\0C53300\0Msorry, too many clients already\0Fproc.c\0\0"
POSTGRES_AFTER_LOGIN = "R\0\0\0\x08\0\0\0\0" + POSTGRES
PGBOUNCER = "E\0\0\0\x42SFATAL\0C08P01\0Mno more connections allowed (max_client_conn)\0\0"
MARIADB = "\x17\0\0\0\xff\x10\x04Too many connections"
MYSQL = "\x1d\0\0\0\xff\x10\x04#08004Too many connections"
# The one above the limit may log in: an administrator has a connection to spare.
MARIADB_AFTER_LOGIN = "\x1d\0\0\x02\xff\x10\x04#08004Too many connections"
REDIS = "-ERR max number of clients reached\r\n"
MEMCACHED = "ERROR Too many open connections\r\n"
NO_SEAT = {
    "postgresql": [POSTGRES, OLD_POSTGRES, POSTGRES_AFTER_LOGIN, PGBOUNCER],
    "mysql": [MARIADB, MYSQL, MARIADB_AFTER_LOGIN],
    "redis": [REDIS],
    "memcached": [MEMCACHED],
}
SEATED = [
    "R\0\0\0\x08\0\0\0\0S\0\0\0\x1aapplication_name\0psql\0",
    "E\0\0\0\x29SFATAL\0C08P01\0Mbouncer config error\0\0",
    "E\0\0\0\x50SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user\0\0",
    "E\0\0\0\x50SERROR\0VERROR\0C42P01\0Mrelation does not exist in this database\0\0",
    "\x1d\0\0\0\xff\x15\x04#28000Access denied for no",
    "-ERR unknown command, with args\r\n",
    "+PONG\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n and more",
    "HTTP/2.0 503 is no status line, nor",
    "HTTP/1.1 5o3 neither, and much more",
    "\x01\x06\0\x01\0\x10\0\0\x7fELF binary, not headers",
    "\x01\x07\0\x01\x7f\xff\0\0a record that is longer than what came",
]


def fastcgi(kind: int, content: str) -> str:
    """A record with padding, as PHP-FPM sends it."""
    padding = -len(content) % 8
    head = "\x01" + chr(kind) + "\0\x01" + chr(len(content) >> 8) + chr(len(content) & 0xFF)
    return head + chr(padding) + "\0" + content + "\0" * padding


# SCRAM-SHA-256 in two steps, and the end of it with what the session has.
POSTGRES_LOGIN = [
    "R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0",
    "R\0\0\0\x5c\0\0\0\x0br=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l",
    "R\0\0\0\x36\0\0\0\x0cv=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=R\0\0\0\x08\0\0\0\0",
]
POSTGRES_ROWS = "T\0\0\0\x08\0\0\0\0C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"
# Another plugin is asked for, and then all is well; an answer to a command.
MYSQL_LOGIN = ["\x17\0\0\x02\xfecaching_sha2_password\0", "\x07\0\0\x04\0\0\0\x02\0\0\0"]
MYSQL_DONE = "\x07\0\0\x01\0\x01\0\x02\0\0\0"
LOGINS = {
    "postgresql": [*POSTGRES_LOGIN, POSTGRES_ROWS, POSTGRES_ROWS],
    "mysql": [*MYSQL_LOGIN, MYSQL_DONE, MYSQL_DONE],
}


PHP_OK = fastcgi(6, "X-Powered-By: PHP/8.2.24\r\nContent-type: text/html\r\n\r\nok")
PHP_FAILED = fastcgi(6, "Status: 500 Internal Server Error\r\nContent-type: text/html\r\n\r\n")
# Short enough for the first piece, which is looked at.
PHP_WARNED = fastcgi(7, "Warning:") + PHP_FAILED


def reply(status: str) -> str:
    return OK.replace("200 OK", f"{'599' if status == 'other' else status} Failed")


class Workload:
    """One of both ends, from its first line on."""

    def __init__(self, role: str, kind: str, folder: Path) -> None:
        argv = [sys.executable, echoing_server.__file__, role, kind, str(folder / kind)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._expect("ready\n")

    def ask(self, messages: Sequence[str]) -> None:
        """On one connection."""
        self.begin(messages)
        self.done()

    def begin(self, messages: Sequence[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(messages)) + "\n")
        self._process.stdin.flush()

    def done(self) -> None:
        self._expect("done\n")

    def _expect(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture(params=["unix", "tcp"])
def ends(request: pytest.FixtureRequest, folder: Path) -> Iterator[List[Workload]]:
    """The server and its client."""
    started: List[Workload] = []
    try:
        started.append(Workload("serve", request.param, folder))
        started.append(Workload("ask", request.param, folder))
        yield started
    finally:
        for each in started:
            each.end()


def asked(ends: Sequence[Workload], folder: Path, *connections: Sequence[str]) -> Dict[str, Any]:
    """The report of both ends."""
    pids = [part for each in ends for part in ("--pid", str(each.pid))]
    with Attached(pids, folder) as watched:
        for messages in connections:
            ends[1].ask(messages)
    return watched.report


def on_both_ends(report: Dict[str, Any], field: str) -> List[Any]:
    (served,) = [row for row in report["requests"]["served_by"] if row["count"]]
    (upstream,) = report["requests"]["upstream"]
    return [served[field], upstream[field]]


def test_statuses_on_one_connection_and_on_many(ends: List[Workload], folder: Path) -> None:
    failed = [reply(status) for status, times in FAILED.items() for _ in range(times)]
    report = asked(ends, folder, [OK] * 40, [OK, *failed], *([each] for each in failed))
    for http in on_both_ends(report, "http"):
        assert http["count"] == 41 + 2 * len(failed)
        assert http["failed"] == 2 * len(failed)
        assert http["statuses"] == {status: 2 * times for status, times in FAILED.items()}
        assert 0 < http["failed_mean_us"] < 1e6
    assert report["verdict"]["harm"]["count"] == 2 * len(failed)
    assert report["verdict"]["cause"] == "app-failing"


def test_statuses_of_fastcgi(ends: List[Workload], folder: Path) -> None:
    messages = [PHP_OK] * 9 + [PHP_FAILED] * 4 + [PHP_WARNED] * 3
    for http in on_both_ends(asked(ends, folder, messages), "http"):
        assert (http["count"], http["failed"], http["statuses"]) == (16, 7, {"500": 7})


def test_what_is_no_status_is_none(ends: List[Workload], folder: Path) -> None:
    report = asked(ends, folder, *([each] for each in SEATED), SEATED)
    for http in on_both_ends(report, "http"):
        assert http == {"count": 0, "failed": 0, "failed_mean_us": None, "statuses": {}}


@pytest.mark.parametrize("database", NO_SEAT)
def test_databases_without_a_free_connection(
    ends: List[Workload], folder: Path, database: str
) -> None:
    turned_away = [["N", "N", each] for each in NO_SEAT[database]] * 5
    report = asked(ends, folder, *turned_away, *([each] for each in SEATED))
    (upstream,) = report["requests"]["upstream"]
    (listener,) = [row for row in report["listeners"] if row["accepted"]]
    assert upstream["no_seat"] == listener["no_seat"] == len(turned_away)
    assert upstream["no_seat_by"] == database
    assert report["verdict"]["cause"] == "accept-starved"
    assert report["verdict"]["harm"]["kind"] == "refused"


@pytest.mark.parametrize("said", [MARIADB, MYSQL, REDIS, MEMCACHED])
def test_servers_that_speak_first(folder: Path, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (folder / "tcp").write_text(str(listener.getsockname()[1]), encoding="ascii")
        client = Workload("ask", "tcp", folder)
        with Attached(["--pid", str(client.pid)], folder) as watched:
            for _ in range(7):
                client.begin(["", *["+PONG\r\n"] * 3])
                with listener.accept()[0] as connection:
                    connection.sendall(said.encode("latin-1"))
                    for _ in range(3):
                        connection.sendall(connection.recv(64))
                client.done()
        client.end()
    (row,) = watched.report["requests"]["upstream"]
    assert (row["no_seat"], row["count"]) == (7, 21)


def test_a_database_that_speaks_of_it_later_does_not_turn_away(
    ends: List[Workload], folder: Path
) -> None:
    report = asked(ends, folder, *[["hello"] * 5 + [POSTGRES]] * 4)
    (upstream,) = report["requests"]["upstream"]
    assert upstream["no_seat"] == 0
    assert upstream["no_seat_by"] is None


@pytest.mark.parametrize(("database", "steps"), [("postgresql", 3), ("mysql", 2)])
def test_answers_of_logins(ends: List[Workload], folder: Path, database: str, steps: int) -> None:
    """Once for each connection; what looks like one after other answers is none."""
    late = [*["hello"] * 7, LOGINS[database][steps - 1]]
    report = asked(ends, folder, *[LOGINS[database]] * 23, late, ["N", "S", "R2D2 is here"])
    (upstream,) = report["requests"]["upstream"]
    assert upstream["count"] == 23 * (steps + 2) + 8 + 3
    assert upstream["logins"] == 23 * steps
    assert 0 < upstream["login_mean_us"] < 1e6


def test_answers_to_a_request_to_encrypt_are_of_a_login(folder: Path) -> None:
    """GSSENCRequest, SSLRequest, and then "N" to something else."""
    questions = ["\0\0\0\x08\x04\xd2\x16\x30", "\0\0\0\x08\x04\xd2\x16\x2f", "another question"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (folder / "tcp").write_text(str(listener.getsockname()[1]), encoding="ascii")
        client = Workload("ask", "tcp", folder)
        with Attached(["--pid", str(client.pid)], folder) as watched:
            for _ in range(7):
                client.begin(questions)
                with listener.accept()[0] as connection:
                    for _ in questions:
                        assert connection.recv(64)
                        connection.sendall(b"N")
                client.done()
        client.end()
    (row,) = watched.report["requests"]["upstream"]
    assert (row["count"], row["logins"]) == (21, 14)


def test_what_reads_like_a_goodbye_and_is_answered_is_a_request(
    ends: List[Workload], folder: Path
) -> None:
    """Of a protocol with a length before each message, say."""
    report = asked(ends, folder, *[["X\0\0\0\x04", "\x01\0\0\0\x01", "hello"]] * 7)
    assert on_both_ends(report, "count") == [21, 21]
    assert [row["count"] for row in on_both_ends(report, "dropped")] == [0, 0]
