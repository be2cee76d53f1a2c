"""Servers that close each connection after its reply: their clients can keep none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.reports import target
from tests.unit.test_rules import churning, verdict
from udsprobe.rules.remedy.table import remedies

CLIENT = "keep connections open in the client"
GTHREAD = "--worker-class gthread"


@pytest.mark.parametrize(
    ("comm", "cmdline", "expected"),
    [
        ("unicorn", "unicorn worker[0] -c unicorn.rb", "serve with Puma"),
        ("puma", "puma 5.6.5 (tcp://0.0.0.0:80) [app]", CLIENT),
        ("gunicorn", "python3 /usr/bin/gunicorn -w 4 app", GTHREAD),
        ("gunicorn", "python3 /usr/bin/gunicorn -k gevent -w 4 app", CLIENT),
        ("gunicorn", "python3 /usr/bin/gunicorn --threads 8 app", CLIENT),
        ("gunicorn", "python3 /usr/bin/gunicorn -k uvicorn.workers.UvicornWorker app", CLIENT),
    ],
)
def test_the_remedy_is_one_that_the_server_can_have(comm: str, cmdline: str, expected: str) -> None:
    served = replace(target(4711, comm), cmdline=cmdline)
    found = verdict(replace(churning(4000, 1e6), targets=[served]))
    assert found.cause == "connection-churn"
    assert expected in found.actions[0].say


def test_each_connection_of_a_database_is_a_login() -> None:
    of_web = verdict(replace(churning(4000, 1e6), targets=[target(4711, "node")]))
    assert "login" not in of_web.summary
    found = verdict(replace(churning(4000, 1e6), targets=[target(4711, "postgres")]))
    assert "a connection for each request (those of its login included) to" in found.summary
    assert [CLIENT in each.say for each in found.actions] == [True, False]
    assert "PgBouncer" in found.actions[1].say


def test_lighttpd_keeps_no_connection_to_what_it_asks() -> None:
    (another,) = remedies("churn", "lighttpd")
    assert "fastcgi_keep_conn" in another.say
    over_unix, _ = remedies("churn", "lighttpd", port=9000)
    assert "Unix socket" in over_unix.say and "9000" in over_unix.say
