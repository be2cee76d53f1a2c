"""`udsprobe export`, scraped by the distribution's own Prometheus: its answers are the truth."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.conftest import Require
from tests.kernel.actor import Caller
from tests.kernel.demo_server import REQUESTS, Demo
from tests.kernel.exporting import Exporting, total
from tests.kernel.live import answer
from tests.kernel.prometheus_server import Prometheus
from tests.kernel.tool import REPOSITORY
from tests.patience import PATIENCE_S
from tests.workloads.queue_process import Actor, tcp, unix
from udsprobe.views.metrics.catalogue import CATALOGUE, HISTOGRAM

pytestmark = [pytest.mark.root]

FLEET = REPOSITORY / "examples" / "fleet"
NAME = re.compile(r"\b(?:\w+:)?udsprobe_\w+(?::\w+)?")
FAST = ["--interval", "0.2"]
# Where every call and request counts.
FULL = ["--detail", "full"]


@pytest.fixture
def prometheus(require: Require) -> str:
    return require("prometheus")["prometheus"]


@pytest.fixture
def demo() -> Iterator[Demo]:
    with Demo() as served:
        yield served


# ------------------------------------------------------------ what Prometheus says


def test_a_known_workload_in_prometheus(demo: Demo, prometheus: str, tmp_path: Path) -> None:
    with (
        Exporting(["--pid", str(demo.pid), *FAST, *FULL]) as exporting,
        Prometheus(prometheus, tmp_path, exporting.address) as server,
    ):
        demo.load()
        server.wait_for_sample_after(time.time())
        value = server.value
        at = f'{{address="{demo.socket}"}}'
        seen = {
            "requests": value("udsprobe_served_requests_total"),
            "accepted": value(f"udsprobe_listener_accepted_total{at}"),
            "bytes_in": value(
                'sum(udsprobe_syscall_moved_bytes_total{transport="unix",name=~"recv.*|read"})'
            ),
            "bytes_out": value(
                'sum(udsprobe_syscall_moved_bytes_total{transport="unix",name=~"send.*|write"})'
            ),
        }
        again = {
            value("udsprobe_served_request_duration_seconds_count"),
            value('udsprobe_served_request_duration_seconds_bucket{le="+Inf"}'),
            value('udsprobe_served_request_stage_seconds_count{stage="app"}'),
        }
        established = value(f"udsprobe_listener_established_total{at}")
        waits = value(f"udsprobe_listener_wait_seconds_count{at}")
        assert value("sum(udsprobe_probe_events_lost_total)") == 0
        assert value("udsprobe_targets") == 1
        assert value(f'udsprobe_target_info{{pid="{demo.pid}"}}') == 1
        assert exporting.end().code == 0
    truth = demo.truth()
    assert seen == truth
    assert truth["requests"] == REQUESTS
    assert again == {REQUESTS}
    assert established == waits == truth["accepted"]


def test_full_queues_in_prometheus(prometheus: str, tmp_path: Path) -> None:
    """One Unix queue of 7 + 1, 23 refused; its alert fires; one TCP queue with 3 waiting."""
    path = tmp_path / "full.sock"
    with (
        Actor() as server,
        Actor() as client,
        Exporting(["--pid", str(server.pid), *FAST, *FULL]) as exporting,
        Prometheus(prometheus, tmp_path, exporting.address) as asked,
    ):
        server.listen(unix(path), 7)
        asked.wait_for_sample_after(time.time())
        client.connect(unix(path), 8)
        assert client.connect(unix(path), 23, blocking=False)["results"] == {"EAGAIN": 23}
        heard = server.listen(tcp("127.0.0.1"), 16)
        client.connect(tcp("127.0.0.1", heard["port"]), 3)
        asked.wait_for_sample_after(time.time())

        def unix_value(name: str) -> Any:
            return asked.value(f'udsprobe_listener_{name}{{address="{path}"}}')

        assert unix_value("queue_depth") == 8
        assert unix_value("queue_limit") == 8
        assert unix_value("queue_peak_ever") == 8
        assert unix_value("queue_fill_ratio") == 1
        assert unix_value("established_total") == 8
        assert unix_value("accepted_total") == 0
        assert unix_value("refused_total") == 23
        tcp_depth = f'udsprobe_listener_queue_depth{{address="127.0.0.1:{heard["port"]}"}}'
        assert asked.value(tcp_depth) == 3
        assert unix_value("drops_total") is None, "Unix sockets drop nothing: not measured"
        _wait_for_alert(asked, "AcceptQueueRefuses", str(path))


def test_by_default_light_counts_all_and_a_full_queue_alerts(
    demo: Demo, prometheus: str, tmp_path: Path
) -> None:
    """Detail auto: requests without a gap, and refusals from the window that the queue opens."""
    path = unix(tmp_path / "full.sock")
    with (
        Actor() as server,
        Actor() as client,
        Exporting(["--pid", f"{demo.pid},{server.pid}", *FAST]) as exporting,
        Prometheus(prometheus, tmp_path, exporting.address) as asked,
    ):
        demo.load()
        asked.wait_for_sample_after(time.time())
        requests = asked.value("udsprobe_served_requests_total")
        server.listen(path, 7)
        asked.wait_for_sample_after(time.time())
        client.connect(path, 8)
        name = f'{{address="{tmp_path / "full.sock"}"}}'
        while not asked.value(f"udsprobe_listener_refused_total{name}"):
            client.connect(path, 5, blocking=False)
            asked.wait_for_sample_after(time.time())
        _wait_for_alert(asked, "AcceptQueueRefuses", str(tmp_path / "full.sock"))
        assert asked.value(f"udsprobe_listener_queue_fill_ratio{name}") == 1
        looked = 'udsprobe_observed_seconds_total{measurement="%s"}'
        assert asked.value(looked % "refused_connects") < asked.value(looked % "accept_queue")
        assert exporting.end().code == 0
    assert requests == demo.truth()["requests"] == REQUESTS


def _wait_for_alert(asked: Prometheus, name: str, address: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not any(
        alert["labels"]["alertname"] == name and alert["labels"]["address"] == address
        for alert in asked.alerts()
        if alert["state"] == "firing"
    ):
        assert time.monotonic() < give_up_at, asked.alerts()
        time.sleep(0.2)


def dashboard_queries() -> List[str]:
    """Every expression of the dashboard, its variables filled in."""
    (path,) = (FLEET / "grafana" / "dashboards").glob("*.json")
    board = json.loads(path.read_text())
    panels = [*board["panels"], *(p for row in board["panels"] for p in row.get("panels", []))]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    filled = [each.replace("$__rate_interval", "10s").replace("$instance", ".*") for each in found]
    assert len(filled) >= 12 and not any("$" in each for each in filled)
    return filled


def rule_queries() -> List[str]:
    import yaml

    rules = yaml.safe_load((FLEET / "prometheus" / "udsprobe.rules.yml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def recorded() -> List[str]:
    import yaml

    rules = yaml.safe_load((FLEET / "prometheus" / "udsprobe.rules.yml").read_text())
    return [r["record"] for group in rules["groups"] for r in group["rules"] if "record" in r]


def exported() -> List[str]:
    return [
        name + end
        for name, metric in CATALOGUE.items()
        for end in (("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",))
    ]


@pytest.mark.parametrize("detail", ["full", "auto"])
def test_dashboard_and_rules_ask_for_what_there_is(
    demo: Demo, prometheus: str, tmp_path: Path, detail: str
) -> None:
    with (
        Exporting(["--pid", str(demo.pid), *FAST, "--detail", detail]) as exporting,
        Prometheus(prometheus, tmp_path, exporting.address) as server,
    ):
        demo.load()
        server.wait_for_sample_after(time.time())
        for expression in (*dashboard_queries(), *rule_queries()):
            server.query(expression)
        asked = {n for e in (*dashboard_queries(), *rule_queries()) for n in NAME.findall(e)}
        known = {*exported(), *recorded()}
        assert asked <= known, asked - known
        seen = {name for name in server.names() if name.startswith("udsprobe_")}
        assert seen <= set(exported()), seen - set(exported())


# ------------------------------------------------------------ its life


@pytest.mark.usefixtures("nothing_left_over")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number: int) -> None:
    with Caller() as caller, Exporting(["--pid", str(caller.pid)]) as exporting:
        ended = exporting.end(number)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.usefixtures("nothing_left_over")
def test_it_ends_with_its_last_target() -> None:
    first, second = Caller(), Caller()
    with first, second, Exporting(["--pid", f"{first.pid},{second.pid}"]) as exporting:
        first.leave()
        assert exporting.text(), "it serves while one is left"
        second.leave()
        ended = exporting.end(None)
    assert (ended.code, ended.err) == (0, "")


def test_counters_only_grow_from_scrape_to_scrape() -> None:
    with (
        Caller() as caller,
        Exporting(["--pid", str(caller.pid), "--interval", "0.1", *FULL]) as exporting,
    ):
        before = exporting.series()
        for calls in (3, 23, 1):
            caller.does("thread", calls)
            caller.does("fork", calls)
            now = _until_sampled(exporting)
            counters = {
                key: value
                for key, value in before.items()
                if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
            }
            fallen = {
                key: (value, now.get(key))
                for key, value in counters.items()
                if now.get(key, -1.0) < value
            }
            assert fallen == {}
            before = now
        assert total(before, "udsprobe_syscall_calls_total", name="sendto", transport="unix") == 54
        assert total(before, "udsprobe_targets_exited_total") == 3


def _until_sampled(exporting: Exporting) -> Any:
    """A scrape of a sample that was begun after now."""
    begun = time.time()
    while True:
        series = exporting.series()
        if series["udsprobe_sample_timestamp_seconds", ()] > begun:
            return series
        time.sleep(0.02)


def test_an_address_in_use_is_said_before_anything_is_observed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = answer(["export", "--pid", str(os.getpid()), "--bind", address])
    assert ended.code == 2
    assert ended.line.startswith(
        f"udsprobe: error[cannot-bind]: cannot listen on {address}: Address already in use;"
    )
