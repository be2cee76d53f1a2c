"""`--plain`: what it says, that it fits, and that nobody else can write on it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Callable

import pytest
from rich.cells import cell_len

from tests.unit import ill, reports, verdicts
from udsprobe.model.report import Report, SyscallsPerRequest
from udsprobe.views.text.report_text import render

KINDS = [reports.busy, reports.empty, reports.degraded, reports.hostile, reports.measured]
Kind = Callable[[], Report]


def line_with(text: str, *words: str) -> str:
    return next(line for line in text.splitlines() if all(word in line for word in words))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [80, 132])
def test_fits(kind: Kind, width: int) -> None:
    lines = render(kind(), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) <= 40


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_has_no_control_characters(kind: Kind) -> None:
    text = render(kind())
    assert all(line.isprintable() for line in text.splitlines())
    assert text.endswith("\n")


def test_colour_adds_escapes_and_changes_no_word() -> None:
    coloured = render(reports.degraded(), colour=True)
    assert "\x1b[" in coloured
    plain = render(reports.degraded())
    stripped = "".join(part.split("m", 1)[-1] for part in ("m" + coloured).split("\x1b["))
    assert stripped.split() == plain.split()


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    text = render(reports.hostile(), colour=True)
    assert "\\e[31mred" in text and "[bold]x[/bold]" in text
    assert "\x1b[31mred" not in text
    assert "\u202e" not in text and "\x07" not in text


def test_order_of_sections() -> None:
    text = render(reports.busy())
    words = [
        "verdict:",
        "── requests",
        "── listeners",
        "── system calls",
        "── targets",
        "── own cost",
    ]
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_requests() -> None:
    text = render(reports.busy())
    assert "served 48,120 · 4,812/s" in text
    assert "p50 2.10ms" in text and "p999 12.6ms" in text
    assert "6.71 system calls per request: read 2.01, epoll_pwait 1.32" in text


def test_rows_beyond_the_budget_are_counted() -> None:
    text = render(reports.busy())
    shown = [line for line in text.splitlines() if line.endswith(("   0", "   4"))]
    assert f"and {14 - len(shown)} more rows: --json has all" in text


def test_a_larger_budget_shows_every_row() -> None:
    text = render(reports.busy(), lines=60)
    assert "more rows" not in text
    assert line_with(text, "sendmsg").split()[:3] == ["sendmsg", "unix/dgram", "23"]


def test_listener_against_its_limit() -> None:
    row = line_with(render(reports.busy()), "/run/app.sock").split()
    assert row[-5:] == ["97", "129", "128=somaxconn", "node", "4711"]


def test_a_full_listener_is_named_in_a_word_and_comes_first() -> None:
    report = reports.busy(queue=129)
    assert report.listeners is not None
    turned = replace(report, listeners=report.listeners[::-1])
    lines = render(turned).splitlines()
    start = next(index for index, line in enumerate(lines) if "── listeners" in line)
    assert "FULL" in lines[start + 2] and "/run/app.sock" in lines[start + 2]


def test_a_path_that_does_not_fit_its_column_is_written_below() -> None:
    path = "/run/" + "a" * 50 + "/app.sock"
    report = replace(reports.busy(), listeners=[reports.listener(path, pids=[4711])])
    assert path in render(report)


def test_what_befell_connections_at_a_listener() -> None:
    text = render(replace(reports.busy(), listeners=[reports.crowded()]))
    row = line_with(text, "/run/app.sock").split()
    assert row[row.index("FULL") - 3 :][:5] == ["129", "129", "129", "FULL", "128=somaxconn"]
    story = " ".join(text.split())
    assert "REFUSED EAGAIN 312 · BLOCKED 3 now, 7 before: p99 123ms" in story
    assert "accepted 1,200, waited p50 9.00ms, p99 27.0ms" in story


def test_a_listener_that_suffers_comes_first_though_its_queue_is_empty_now() -> None:
    emptied = replace(reports.crowded("/run/b.sock"), depth=reports.listener("", now=0).depth)
    text = render(replace(reports.busy(), listeners=[*(reports.busy().listeners or []), emptied]))
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if "── listeners" in line)
    assert "REFUSED" in lines[start + 2]


def test_listeners_at_one_address_have_a_sum() -> None:
    text = render(replace(reports.busy(), listeners=reports.shared()))
    total = line_with(text, "0.0.0.0:8080 ×3").split()
    assert total[total.index("FULL") - 3 : total.index("FULL")] == ["17", "51", "1"]
    places = [text.index(words) for words in ("×3", "└ pid 822", "DROPPED 5", "2 more sockets")]
    assert places == sorted(places)


def test_where_the_time_goes() -> None:
    text = render(reports.measured())
    assert "app 79.9" in line_with(text, "request 1.00ms")
    assert "queued for the app 18.0" in line_with(text, "request 1.00ms")
    assert "cpu 90.0" in line_with(text, "└ app 799µs")
    assert "user 93.0" in line_with(text, "thread node 4711")
    assert text.index("verdict:") < text.index("request 1.00ms") < text.index("── requests")


@pytest.mark.parametrize(("part", "says"), [(0.75, "cpu 22.5"), (1.0, "handed over 100")])
def test_what_another_thread_replied_to_is_in_the_bar(part: float, says: str) -> None:
    """Its time is told by no thread; what is told is of the rest."""
    report = reports.measured()
    served = report.requests.served
    assert served is not None and served.stages_us.app is not None
    whole_us = (served.stages_us.app.mean or 0.0) * served.stages_us.app.count
    row = replace(ill.served_by(4711, 9), handed_over_us=part * whole_us)
    text = render(replace(report, requests=replace(report.requests, served_by=[row])))
    assert says in line_with(text, "└ app 799µs")
    assert "handed over" in line_with(text, "└ app 799µs")


def test_pipelined_requests_are_said_beside_their_latency() -> None:
    report = reports.measured()
    assert report.requests.served is not None
    served = replace(report.requests.served, turn_based=False)
    lines = render(replace(report, requests=replace(report.requests, served=served))).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  latency"))
    assert lines[place + 1] == "  pipelined: latencies are not of single requests"
    assert "pipelined" not in render(report)


def test_http2_is_said_beside_its_latency() -> None:
    report = reports.measured()
    assert report.requests.served is not None
    served = replace(report.requests.served, turn_based=False, multiplexed=4)
    text = render(replace(report, requests=replace(report.requests, served=served)))
    assert "  HTTP/2: streams share a connection, latencies are not of single requests" in text


@pytest.mark.parametrize(("handshakes", "words"), [(1, "1 TLS handshake"), (1200, "1,200 TLS")])
def test_tls_handshakes_are_said_beside_the_requests(handshakes: int, words: str) -> None:
    report = reports.measured()
    assert report.requests.served is not None
    served = replace(report.requests.served, tls_handshakes=handshakes)
    assert f"  {words}" in render(replace(report, requests=replace(report.requests, served=served)))
    assert "TLS" not in render(report)


def test_outgoing_connects_and_their_failures() -> None:
    text = render(reports.measured())
    failing, fine = line_with(text, "unix:/run/pg.sock"), line_with(text, "tcp:127.0.0.1:5432")
    assert failing.endswith("FAILED ENOENT 40")
    assert fine.endswith("EINPROGRESS 900") and "FAILED" not in fine
    assert text.index(failing) < text.index(fine)


def test_errors_by_errno() -> None:
    text = " ".join(render(reports.busy()).split())
    assert "accept4 unix EAGAIN 16,842, EMFILE 3" in text


def test_what_is_not_measured_says_why_and_is_no_zero() -> None:
    text = render(reports.degraded())
    assert "not measured: this kernel has no BTF" in text
    assert line_with(text, "/run/app.sock").split()[-4:] == ["–", "129", "128", "–"]
    assert "served 0" not in text
    assert "LOST 312 (map full 312)" in text


def test_empty_tables_say_what_would_fill_them() -> None:
    text = render(reports.empty())
    assert "none: no target listens on a Unix or TCP socket" in text
    assert "none: no target has made a call" in text
    assert "no reply was sent yet" in text


def test_the_verdict_is_not_made_up() -> None:
    assert "verdict: not measured in this version" in render(reports.busy())


def test_the_verdict_its_evidence_and_the_remedy() -> None:
    lines = render(verdicts.spinning()).splitlines()
    assert " ".join(lines[1:3]) == (
        "NOT THE TRANSPORT · critical: app-cpu · requests take 930 µs on average: node thread "
        "4711 is 98 % busy, 95 % of that in its own code · sure 99 %"
    )
    assert lines[3] == "  a free transport would save at most 1.2 % of request time"
    assert lines[4] == "  evidence: thread node 4711 is busy 98 % of the time (threshold 80 %)"
    assert lines[5] == "            99 % of request time, 919 µs per request, over 4,000 requests"
    assert lines[6].startswith("  look: see which code its CPU time is spent in")
    assert lines[8].startswith("    $ sudo perf record -F 99 -g -t 4711 -o - -- sleep 10 | ")
    assert lines[10].startswith("request ")


def test_too_few_requests_for_a_verdict() -> None:
    lines = render(verdicts.warming_up()).splitlines()
    assert lines[1] == "NOT ENOUGH DATA · warming up: 3 of ~20 requests needed"


def test_what_else_was_found_follows_the_bars_and_is_counted() -> None:
    lines = render(verdicts.everything_at_once()).splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("  also critical: "))
    assert lines[place - 1].startswith("thread node")
    shown = [line for line in lines if line.startswith("  also ")]
    told = re.search(r"\(and (\d+) more\)$", shown[-1])
    found = verdicts.everything_at_once().findings or []
    assert len(shown) + (int(told[1]) if told else 0) == len(found) - 1


@pytest.mark.parametrize("kind", verdicts.KINDS)
@pytest.mark.parametrize("width", [80, 120])
def test_every_verdict_fits_the_budget(kind: Kind, width: int) -> None:
    lines = render(kind(), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) <= 40
    assert all(line.isprintable() for line in lines)


def test_no_command_of_the_first_remedy_is_cut() -> None:
    report = verdicts.everything_at_once()
    assert report.verdict is not None
    shown = " ".join(render(report).split())
    first = report.verdict.actions[0]
    assert first.run is not None and first.say in shown
    assert f"$ {' '.join(first.run.split())}" in shown


def test_descriptors_that_are_refused_and_that_run_out() -> None:
    text = render(verdicts.everything_at_once())
    assert "descriptors: node 4711 REFUSED EMFILE 3" in text


def test_the_chain_of_targets_that_ask_each_other() -> None:
    text = render(replace(reports.busy(), requests=verdicts.chain()))
    assert line_with(text, "hop nginx 812 ×2 → node 4711").endswith("4,000  own 300µs of 1.20ms")
    assert line_with(text, "hop node 4711").endswith("own – of 900µs")


def test_a_hundred_system_calls_a_request_stay_in_two_lines() -> None:
    report = reports.busy()
    many = SyscallsPerRequest(100.0, {f"call_number_{n}": 1.0 for n in range(100)})
    crowded = replace(report, requests=replace(report.requests, syscalls_per_request=many))
    assert len(render(crowded).splitlines()) <= 40
    assert ", and 9" in render(crowded)


def test_where_targets_run_is_one_line() -> None:
    inside = {"container": "0123456789ab" + "c" * 52, "runtime": "docker"}
    rows = [
        replace(reports.target(1, "nginx"), unit="nginx.service"),
        replace(reports.target(2, "nginx"), unit="nginx.service"),
        replace(reports.target(3, "node"), **inside, unit="docker.service"),
    ]
    said = render(replace(reports.measured(), targets=rows))
    assert "runs in: nginx.service ×2 · docker 0123456789ab in docker.service ×1" in said
    assert "runs in: nginx.service\n" in render(replace(reports.measured(), targets=rows[:2]))
    assert "runs in" not in render(reports.measured())
