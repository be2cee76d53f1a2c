"""A session waits for a row that another one holds: it is named, and so is its client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest

from tests.conftest import Require
from tests.kernel.row_locks import DATABASES, ROW, Database, Postgres, Session, wait_until
from tests.kernel.test_waits import assert_sums
from tests.kernel.tool import Attached, Report
from udsprobe.rules.remedy.table import remedies

pytestmark = [pytest.mark.root, pytest.mark.alone]

Row = Dict[str, Any]
# What PostgreSQL's sessions sleep in for a row, and MariaDB's.
KIND = {"postgres": "poll", "mariadb": "lock"}
US_PER_S = 1e6


class Waited(NamedTuple):
    """`least_us`, `most_us`: within the wait for the row, and around it."""

    holder: Session
    waiter: Session
    least_us: float
    most_us: float
    report: Report

    def row(self, kind: str) -> Row:
        (found,) = (
            row
            for row in self.report["waits"]
            if (row["tid"], row["kind"]) == (self.waiter.server_tid, kind)
        )
        assert isinstance(found, dict)
        return found


@pytest.fixture(params=sorted(DATABASES))
def database(request: Any, require: Require, tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "database").mkdir()
    # PostgreSQL has a user of its own, who passes through these.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with DATABASES[request.param](tmp_path / "database", require) as running:
        yield running


def waited(database: Database, folder: Path, meanwhile: str) -> Waited:
    """One session holds a row, does something or nothing, and commits; another wants the row."""
    holder, waiter, third = (database.session() for _ in range(3))
    with Attached(database.targets, folder) as observation:
        holder.run(f"BEGIN; {ROW}")
        around = time.monotonic()
        waiter.send(ROW)
        wait_until(database.waits, "a session waits for a row")
        began = time.monotonic()
        # Of which the third is nobody's author.
        (third if meanwhile == "idle" else holder).run(sql(database, meanwhile))
        least_us = (time.monotonic() - began) * US_PER_S
        holder.run("COMMIT;")
        waiter.answer()
        most_us = (time.monotonic() - around) * US_PER_S
    assert_sums(observation.report)
    return Waited(holder, waiter, least_us, most_us, observation.report)


def sql(database: Database, meanwhile: str) -> str:
    return database.compute if meanwhile == "compute" else database.sleep


def by(parts: List[Row], tid: int) -> float:
    return sum(part["total_us"] for part in parts if part["tid"] == tid)


def names(parts: List[Row]) -> Set[Tuple[str, Any]]:
    return {(part["by"], part["tid"]) for part in parts}


@pytest.mark.parametrize("meanwhile", ["idle", "compute", "sleep"])
def test_who_holds_a_row_is_named(database: Database, tmp_path: Path, meanwhile: str) -> None:
    seen = waited(database, tmp_path, meanwhile)
    row = seen.row(KIND[type(database).__name__.lower()])
    holder = seen.holder.server_tid
    assert seen.least_us <= by(row["authors"], holder) <= seen.most_us
    # PostgreSQL waits for the client as it does for a row.
    assert names(row["authors"]) <= {("thread", holder), ("thread", seen.waiter.pid)}


def test_a_client_that_is_silent_in_its_transaction(database: Database, tmp_path: Path) -> None:
    seen = waited(database, tmp_path, "idle")
    row = seen.row(KIND[type(database).__name__.lower()])
    roots = [part for part in row["roots"] if part["tid"] == seen.holder.pid]
    assert by(roots, seen.holder.pid) > 0.5 * row["total_us"]
    served_by = f"{seen.holder.server_pid}/{seen.holder.server_tid}"
    assert {part["via"][0].rpartition(" ")[2] for part in roots} == {served_by}
    assert_request(seen, row["kind"])
    assert names(row["roots"]) <= {
        ("thread", tid) for tid in (seen.holder.server_tid, seen.holder.pid, seen.waiter.pid)
    }


def assert_request(seen: Waited, kind: str) -> None:
    """The request that waited has the same author, if its session waited less for work."""
    kept = seen.report["requests"]["slowest"]
    (request,) = (
        each
        for each in kept
        if each["tid"] == seen.waiter.server_tid and each["latency_us"] >= seen.least_us
    )
    (wait,) = (each for each in request["waits"] if each["kind"] == kind)
    author = wait["author"]
    if author is None:
        assert kind == "poll"
        return
    assert (author["by"], author["tid"]) == ("thread", seen.holder.server_tid)
    assert author["least_us"] <= wait["total_us"]


def test_a_wait_that_goes_on(database: Database, tmp_path: Path) -> None:
    """At the end of the window: by thread, since when, in what call; who ends it is not said."""
    holder, waiter, third = (database.session() for _ in range(3))
    with Attached(database.targets, tmp_path) as observation:
        holder.run(f"BEGIN; {ROW}")
        waiter.send(ROW)
        wait_until(database.waits, "a session waits for a row")
        began = time.monotonic()
        # A second and longer.
        for _ in range(4):
            third.run(database.sleep)
        least_us = (time.monotonic() - began) * US_PER_S
    holder.run("COMMIT;")
    waiter.answer()
    rows = observation.report["waits_now"]
    assert_stuck(observation.report["verdict"], waiter)
    (row,) = (each for each in rows if each["tid"] == waiter.server_tid)
    assert row["pid"] == waiter.server_pid
    # Threads of a process that owes a reply come first: MariaDB has more of them.
    assert all(each["pid"] == row["pid"] for each in rows[: rows.index(row)])
    assert row["kind"] == KIND[type(database).__name__.lower()]
    assert row["call"] == {"poll": "epoll_wait", "lock": "futex"}[row["kind"]]
    assert row["lasted_us"] >= least_us
    assert row["replies_owed"] == 1
    # Nobody woke anybody there before.
    assert row["last_woken_by"] is None
    assert row["is_serving"]
    if row["kind"] == "poll":
        assert row["polls_clients"] is False
        assert row["connection"] == "served"
        assert row["peer"]["pid"] == waiter.pid
    else:
        assert row["lock"] is not None


def assert_stuck(verdict: Row, waiter: Session) -> None:
    """Whoever holds the row is not known: the thread that waits is named, and nobody else."""
    who = {waiter.server_pid, waiter.server_tid}
    assert verdict["cause"] == "app-blocked"
    assert (verdict["harm"]["kind"], verdict["harm"]["count"]) == ("stuck", 1)
    assert verdict["harm"]["since_s"] >= 1
    assert set(verdict["subject"].split()[-1].split("/")) == {str(pid) for pid in who}
    assert "who will end that is not known yet" in verdict["summary"]


def test_the_verdict_when_nothing_else_is_asked(database: Database, tmp_path: Path) -> None:
    """No request completes in the window."""
    holder, waiter = database.session(), database.session()
    holder.run(f"BEGIN; {ROW}")
    with Attached(database.targets, tmp_path) as observation:
        waiter.send(ROW)
        assert not waiter.has_answered(within_s=2.0)
    holder.run("COMMIT;")
    waiter.answer()
    assert observation.report["requests"]["served"]["count"] == 0
    assert_stuck(observation.report["verdict"], waiter)
    assert observation.report["verdict"]["harm"]["share_pct"] == 100


def test_who_waited_before_we_came(tmp_path: Path, database: Database) -> None:
    """What PostgreSQL's process polls is not its client; of MariaDB's threads that is not told."""
    holder, waiter = database.session(), database.session()
    holder.run(f"BEGIN; {ROW}")
    waiter.send(ROW)
    wait_until(database.waits, "a session waits for a row")
    with Attached(database.targets, tmp_path) as observation:
        assert not waiter.has_answered(within_s=2.0)
    holder.run("COMMIT;")
    waiter.answer()
    verdict = observation.report["verdict"]
    if isinstance(database, Postgres):
        assert_stuck(verdict, waiter)
        assert verdict["confidence"] < 0.5
    else:
        assert verdict["cause"] == "unknown"


def test_the_line_that_finds_who_holds_the_row(database: Database, tmp_path: Path) -> None:
    """As the verdict offers it, but for `sudo`; of PostgreSQL it says where the server is."""
    holder, waiter = database.session(), database.session()
    holder.run(f"BEGIN; {ROW}")
    with Attached(database.targets, tmp_path) as observation:
        waiter.send(ROW)
        assert not waiter.has_answered(within_s=2.0)
        said = database.shell(observed_line(database))
    holder.run("COMMIT;")
    waiter.answer()
    assert observation.report["verdict"]["actions"][0]["run"] == observed_line(database)
    (row,) = (line for line in said.splitlines() if line.split()[:1] == [waiter.number])
    assert holder.number in row.split()


def observed_line(database: Database) -> str:
    server = {"Postgres": "postgresql", "MariaDb": "mysql"}[type(database).__name__]
    run = remedies("hung", server, pid=1)[0].run
    assert run is not None
    return run.replace("psql ", f"psql -h {database.folder} ", 1)
