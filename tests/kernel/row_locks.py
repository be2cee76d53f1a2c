"""Real databases of their own, with sessions of which one can hold a row that another one wants."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Callable, Dict, List, Optional, Sequence, Type

from tests.conftest import Require
from tests.kernel.piped import PipedProgram
from tests.patience import PATIENCE_S

POLL_S = 0.02
DONE = "done-with-it"
ROW = "UPDATE accounts SET amount = amount + 1 WHERE id = 1;"
TABLE = (
    "CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount INTEGER); "
    "INSERT INTO accounts VALUES (1, 0), (2, 0);"
)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again; an error when it is never so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_at, f"never: {what}"
        time.sleep(POLL_S)


class Session(PipedProgram):
    """A client program of a database, which is told SQL by a pipe.

    Attributes:
        server_pid, server_tid: what serves it, 0 until it is set; number: what
            the database calls the session.
    """

    server_pid, server_tid, number = 0, 0, ""

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__(*argv, stderr=subprocess.STDOUT)

    def send(self, sql: str) -> None:
        """Have it executed, without waiting."""
        self.tell(f"{sql}\nSELECT '{DONE}';\n")

    def answer(self) -> List[str]:
        """The lines that the last SQL printed, once it is done."""
        return list(iter(self.says, DONE))

    def has_answered(self, within_s: float) -> bool:
        """Whether it prints something; waits so long in vain."""
        readable, _, _ = select.select([self.stdout], [], [], within_s)
        return bool(readable)

    def run(self, sql: str) -> List[str]:
        """The lines that this SQL prints."""
        self.send(sql)
        return self.answer()


class Database:
    """A server that runs until the block is left.

    Attributes:
        targets: arguments of `udsprobe attach` for it.
    """

    name, sleep, compute = "", "", ""

    def __init__(self, folder: Path, require: Require) -> None:
        self._folder, self._require = folder, require
        self._sessions: List[Session] = []
        self._process: Optional[subprocess.Popen[bytes]] = None

    def _argv(self) -> List[str]:
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _client(self) -> List[str]:
        raise NotImplementedError

    def _is_up(self) -> bool:
        raise NotImplementedError

    def _find_server(self, session: Session) -> None:
        raise NotImplementedError

    def waits(self) -> bool:
        """Whether a session waits for a row."""
        raise NotImplementedError

    def _place(self) -> Dict[str, str]:
        raise NotImplementedError

    def shell(self, line: str) -> str:
        """What a line for an administrator of the host prints, who has one such server."""
        as_we_are = re.sub("^sudo (-u postgres )?", "", line)
        done = subprocess.run(
            ["bash", "-c", as_we_are],
            env={**os.environ, **self._place()},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def folder(self) -> Path:
        """Where its socket is."""
        return self._folder

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def targets(self) -> List[str]:
        return ["--pid", str(self.pid)]

    def __enter__(self) -> Database:
        self._prepare()
        log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(self._argv(), cwd="/", stdout=log, stderr=log)
        log.close()
        wait_until(self._is_up_or_failed, f"{self.name} takes queries")
        self._judge = self.session()
        self._judge.run(TABLE)
        return self

    def _is_up_or_failed(self) -> bool:
        assert self._process is not None
        said = (self._folder / "log").read_text(errors="replace")
        assert self._process.poll() is None, said
        return self._is_up()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._process is not None
        try:
            for session in self._sessions:
                session.close()
        finally:
            self._process.terminate()
            self._process.wait(PATIENCE_S)

    def session(self) -> Session:
        """One more client, connected."""
        session = Session(self._client())
        self._sessions.append(session)
        self._find_server(session)
        return session


class Postgres(Database):
    """A process for each session, which waits in epoll_wait() for its client and for rows."""

    name, sleep = "PostgreSQL", "SELECT pg_sleep(0.3);"
    compute = "SELECT count(*) FROM generate_series(1, 1000000);"
    _AS = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")

    def _prepare(self) -> None:
        shutil.chown(self._folder, "postgres", "postgres")
        initdb = self._require("initdb")["initdb"]
        argv = [*self._AS, initdb, "-D", f"{self._folder}/data", "--no-sync", "--auth=trust"]
        argv += ["--username=postgres", "--encoding=UTF8", "--locale=C"]
        subprocess.run(argv, cwd="/", check=True, capture_output=True)

    def _argv(self) -> List[str]:
        program = self._require("postgres")["postgres"]
        argv = [*self._AS, program, "-D", f"{self._folder}/data", "-k", str(self._folder)]
        # Two sessions that wait for each other are looked for by a timer: not within a test.
        return [*argv, "-c", "listen_addresses=", "-c", "deadlock_timeout=600s"]

    def _client(self) -> List[str]:
        psql = self._require("psql")["psql"]
        return [psql, "-h", str(self._folder), "-U", "postgres", "-X", "-q", "-A", "-t", "postgres"]

    def _is_up(self) -> bool:
        argv = [self._require("pg_isready")["pg_isready"], "-q", "-h", str(self._folder)]
        return subprocess.run(argv, check=False).returncode == 0

    def _place(self) -> Dict[str, str]:
        psql = Path(self._require("psql")["psql"]).parent
        here = {"PGUSER": "postgres", "PGDATABASE": "postgres"}
        return {**here, "PATH": f"{psql}:{os.environ['PATH']}"}

    def _find_server(self, session: Session) -> None:
        (pid,) = session.run("SELECT pg_backend_pid();")
        session.server_pid = session.server_tid = int(pid)
        session.number = pid

    def waits(self) -> bool:
        return self._judge.run("SELECT count(*) FROM pg_locks WHERE NOT granted;") != ["0"]


class MariaDb(Database):
    """A thread for each session."""

    name, sleep = "MariaDB", "DO SLEEP(0.3);"
    compute = "DO BENCHMARK(3000000, MD5('a'));"

    def _prepare(self) -> None:
        data = self._folder / "data"
        (data / "mysql").mkdir(parents=True)

    def _argv(self) -> List[str]:
        program = self._require("mariadbd")["mariadbd"]
        argv = [program, "--no-defaults", f"--datadir={self._folder}/data", "--user=root"]
        argv += [f"--socket={self._folder}/sock", "--skip-networking", "--skip-grant-tables"]
        argv += [f"--pid-file={self._folder}/pid", "--innodb-buffer-pool-size=16M"]
        return [*argv, "--aria-log-dir-path=" + str(self._folder / "data"), "--skip-log-bin"]

    def _client(self, *more: str) -> List[str]:
        client = self._require("mariadb")["mariadb"]
        argv = [client, "--no-defaults", f"--socket={self._folder}/sock", "-N", "-B", "-n"]
        return [*argv, *more]

    def _is_up(self) -> bool:
        make = "CREATE DATABASE IF NOT EXISTS test;"
        done = subprocess.run(self._client("-e", make), check=False, capture_output=True)
        return done.returncode == 0

    def _place(self) -> Dict[str, str]:
        # Read behind the distribution's, which says where its own server is.
        (self._folder / ".my.cnf").write_text(f"[client]\nsocket={self._folder}/sock\n")
        return {"HOME": str(self._folder)}

    def session(self) -> Session:
        session = super().session()
        session.run("USE test;")
        return session

    def _find_server(self, session: Session) -> None:
        sql = "SELECT tid, id FROM information_schema.processlist WHERE id = CONNECTION_ID();"
        ((tid, session.number),) = (line.split() for line in session.run(sql))
        session.server_pid, session.server_tid = self.pid, int(tid)

    def waits(self) -> bool:
        # The tables of transactions are a copy, which is made anew only when nobody asks.
        (said,) = self._judge.run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits';")
        return said.split()[-1] != "0"


DATABASES: Dict[str, Type[Database]] = {"postgres": Postgres, "mariadb": MariaDb}
