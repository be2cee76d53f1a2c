"""Which function asks the upstream that requests wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Set, Tuple

import pytest

from tests.unit import ill, reports
from tests.unit.test_code_places import APP, LIBC, found, slept
from udsprobe.model.code.asked_in import asked_in
from udsprobe.model.code.frames import Frame, is_installed
from udsprobe.model.code.places import Row, places
from udsprobe.model.code.stacks import culprit_pids
from udsprobe.model.report import Report, Upstream, Verdict
from udsprobe.observe.stack_taking import culprits
from udsprobe.rules.judge import judged
from udsprobe.sample import StackCounts

STOCK = "/run/stock.sock"
Frames = Tuple[Tuple[str, str], ...]
RECEIVES: Frames = (("main", APP), ("order", APP), ("stock", APP), ("recv", LIBC))


def asking(*counts: StackCounts, rows: Optional[List[Upstream]] = None) -> Verdict:
    """Of a service that asks an upstream of 20 ms for each request; a second was watched."""
    rows = rows or [ill.upstream(950, 20_000, STOCK)]
    share = 100 * sum(row.count * 20_000 for row in rows) / (950 * 21_000)
    requests = ill.served(950, app=21_000, upstream=min(share, 97), cpu=2)
    report = ill.service(requests, ill.thread(blocked_recv=0.9), upstream=rows)
    verdict = judged(replace(report, stacks=found(*counts)), slo_us=1000.0).verdict
    assert verdict is not None and verdict.cause == "upstream-wait"
    return verdict


def test_it_is_told_behind_what_the_upstream_takes() -> None:
    """Of 1.9 s that requests waited in that second; a thread that has none waits for its client."""
    idle = slept("recvfrom", ("main", APP), ("next", APP), ("recv", LIBC), ms=900, owing_ms=0)
    verdict = asking(slept("recvfrom", *RECEIVES, ms=1900, owing_ms=1900), idle)
    assert "takes 20 ms per request: 100 % in stock (app)." in verdict.summary
    assert [each.own for each in verdict.code] == ["stock (app)"]
    assert [each.says for each in verdict.evidence if each.metric == "code_share"] == [
        "100 % in stock (app), of 1.9 s that requests waited for answers"
    ]


def test_all_calls_are_added_up_by_function() -> None:
    polls: Frames = (*RECEIVES[:3], ("poll", LIBC))
    others: Frames = (("main", APP), ("prices", APP), ("poll", LIBC))
    verdict = asking(
        slept("recvfrom", *RECEIVES, ms=500, owing_ms=500),
        slept("poll", *polls, ms=500, owing_ms=500),
        slept("poll", *others, ms=600, owing_ms=600),
    )
    told = [(each.own, round(each.share_pct)) for each in verdict.code]
    assert told == [("stock (app)", 62), ("prices (app)", 38)]


@pytest.mark.parametrize(
    ("call", "frames", "owing_ms"),
    [
        ("recvfrom", RECEIVES, 90),
        ("recvfrom", (("main", APP), ("recv", LIBC))[1:], 1900),
        ("epoll_wait", RECEIVES, 1900),
        ("futex", RECEIVES, 1900),
        ("poll", (("order", APP), ("sqliteDefaultBusyCallback", APP)), 1900),
    ],
    ids=["far-less-than-is-waited", "no-function-of-its-own", "events", "a-lock", "known-for-else"],
)
def test_what_may_be_another_wait_is_not_told(call: str, frames: Frames, owing_ms: int) -> None:
    verdict = asking(slept(call, *frames, ms=2000, owing_ms=owing_ms))
    assert verdict.code == []


@pytest.mark.parametrize(("others", "is_told"), [(100, True), (900, False)])
def test_of_two_upstreams_it_may_be_the_other_s(others: int, is_told: bool) -> None:
    """44 % of the time is waited in one function; the other upstream takes 9 %, or 46 %."""
    rows = [ill.upstream(950, 11_000, STOCK), ill.upstream(others, 10_000, "/run/users.sock")]
    verdict = asking(
        slept("recvfrom", *RECEIVES, ms=525, owing_ms=525),
        slept("recvfrom", ("main", APP), ("users", APP), ("recv", LIBC), ms=350, owing_ms=350),
        slept("recvfrom", ("main", APP), ("log", APP), ("recv", LIBC), ms=325, owing_ms=325),
        rows=rows,
    )
    assert bool(verdict.code) == is_told


GO = "proxy"
# Of Traefik, whose connections from clients are of a type of its own.
FROM_CLIENT: Frames = (
    *(("net/http.(*connReader).backgroundRead", GO), ("main.(*tracked).Read", APP)),
    *(("net.(*conn).Read", GO), ("internal/poll.runtime_pollWait", GO)),
)


def test_what_reads_from_the_client_of_go_asks_nobody() -> None:
    """It looks for the end of the connection as long as the handler runs, for each request."""
    asks = (("main.(*tripper).RoundTrip", APP), ("net/http.(*persistConn).roundTrip", GO))
    reads = slept("goroutine for bytes", *FROM_CLIENT, ms=1900, owing_ms=1900)
    found = asking(reads, slept("goroutine for bytes", *asks, ms=1900, owing_ms=1900))
    assert [each.own for each in found.code] == ["main.(*tripper).RoundTrip (app)"]
    assert asking(reads).code == []


def waiting_tasks(ms: int, *frames: Tuple[str, str]) -> StackCounts:
    """Of asyncio, by their functions and files, the outermost first."""
    text = "\n".join(
        f"{function}\tpython3\t{file}\t{7 if file else ''}" for function, file in frames
    )
    times = {"slept_ns": ms * 10**6, "owing_ns": ms * 10**6}
    return StackCounts(1, "off-cpu", text, 4, 0, call="task", **times)


def test_of_tasks_that_wait_for_a_lock_or_a_pool_the_library_tells() -> None:
    """They do so in a function of the program, as those that wait for an answer."""
    locks = waiting_tasks(
        900, ("put", "/srv/app.py"), ("Lock.acquire", "/usr/lib/python3.11/asyncio/locks.py")
    )
    answers = waiting_tasks(300, ("orders", "/srv/app.py"), ("Future.__await__", ""))
    assert [each.own for each in asking(locks, answers).code] == ["orders (app.py:7)"]


def test_where_threads_ask_for_tasks_these_are_told() -> None:
    """A function of FastAPI that is no coroutine."""
    anyio = "/srv/v/lib/python3.11/site-packages/anyio/_backends/_asyncio.py"
    in_thread = waiting_tasks(
        1900,
        ("app", "/srv/app.py"),
        ("AsyncIOBackend.run_sync_in_worker_thread", anyio),
        ("Future.__await__", ""),
    )
    verdict = asking(in_thread, slept("recvfrom", *RECEIVES, ms=1900, owing_ms=1900))
    assert [each.own for each in verdict.code] == ["stock (app)"]


@pytest.mark.parametrize("call", ["task for bytes", "goroutine for bytes", "async function"])
def test_what_waits_inside_a_runtime_is_told_before_its_threads(call: str) -> None:
    """It was looked at now and then: how long it waited is not known."""
    inside = slept(call, ("serve", APP), ("fetch", APP), ms=1000, owing_ms=1000)
    verdict = asking(inside, slept("recvfrom", *RECEIVES, ms=1900, owing_ms=1900))
    assert [each.own for each in verdict.code] == ["fetch (app)"]


def test_async_functions_that_were_met_seldom_are_not_told() -> None:
    """V8 moves them meanwhile: of a few it may be the innermost that were missed."""
    inside = slept("async function", ("serve", APP), ms=300, owing_ms=300)
    assert asking(inside).code == []


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("Connection._read_bytes", "/srv/v/lib/python3.11/site-packages/pymysql/connections.py"),
        ("Client.query", "/srv/node_modules/pg/lib/client.js"),
        ("Mysql2::Client#query", "/var/lib/gems/3.1.0/gems/mysql2-0.5.6/lib/mysql2/client.rb"),
        ("PG::Connection#exec", "/usr/lib/ruby/vendor_ruby/pg/connection.rb"),
        ("Predis\\Client::read", "/srv/vendor/predis/predis/src/Client.php"),
        ("org.postgresql.core.PGStream.receiveChar", "PGStream.java"),
        ("okhttp3.internal.http1.Http1Codec.read", "Http1Codec.java"),
        ("github.com/lib/pq.(*conn).recv", "/root/go/pkg/mod/github.com/lib/pq@v1.10.9/conn.go"),
    ],
)
def test_a_library_that_was_installed_is_passed_over(function: str, file: str) -> None:
    language = file.rpartition(".")[2]
    library, shop = Frame(function, "m", file, 7), Frame("shop.stock", "m", f"shop.{language}", 3)
    assert is_installed(library) and not is_installed(shop)
    row = Row(1, "off-cpu", "recvfrom", "", (shop, library), 1, 0, 9, 9, 9)
    assert [each.own for each in asked_in([row])] == [shop.named()]
    alone = row._replace(frames=(library,))
    assert [each.own for each in asked_in([alone])] == [library.named()]


def on_cpu(samples: int, *functions: str) -> Row:
    frames = tuple(Frame(each, "app", "/srv/app.py", 1) for each in functions)
    return Row(1, "on-cpu", "", "", frames, samples, 0, 0, 0, samples)


@pytest.mark.parametrize(
    ("through", "itself", "first"),
    [
        # Of all it has half, and of what it calls there is a little less.
        (48, 3, "svd"),
        (38, 3, "svd"),
        (30, 20, "do_GET"),
    ],
)
def test_who_only_calls_another_is_passed_over(through: int, itself: int, first: str) -> None:
    others = [on_cpu(1, f"helper_{at}") for at in range(100 - through - itself)]
    served = [on_cpu(through, "do_GET", "stats", "svd"), on_cpu(itself, "do_GET")]
    assert places([*served, *others])[0].function == first


def asked_by(cause: str, subject: Optional[str], *comms: str) -> Report:
    """Processes 2, 3 and so on, the first two of which serve."""
    report = reports.measured()
    served = [ill.served_by(pid, 100) for pid in (2, 3)]
    return replace(
        report,
        verdict=Verdict(cause, False, None, None, 0.9, "it waits", subject),
        targets=[reports.target(pid, comm) for pid, comm in enumerate(comms, 2)],
        requests=replace(report.requests, served_by=served),
    )


def test_stacks_are_those_of_who_asks() -> None:
    report = asked_by("upstream-wait", "tcp:127.0.0.1:5432", "gunicorn", "gunicorn", "gunicorn")
    assert culprit_pids(report) == {2, 3}


@pytest.mark.parametrize(("comms", "pids"), [(("nginx", "python3"), {3}), (("nginx",) * 2, set())])
def test_who_passes_requests_on_is_left_alone(comms: Tuple[str, ...], pids: Set[int]) -> None:
    assert culprits(asked_by("upstream-wait", "unix:/run/app.sock", *comms)) == pids
    assert culprits(asked_by("app-blocked", None, *comms)) == {2, 3}
