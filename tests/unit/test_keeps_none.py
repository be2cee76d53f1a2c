"""Servers that close each connection after its reply: their clients can keep none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.reports import target
from tests.unit.test_rules import churning, verdict

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
