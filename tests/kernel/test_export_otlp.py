"""OpenTelemetry metrics, as they arrive: the same numbers, cumulative, under its own names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.kernel.demo_server import REQUESTS, Demo
from tests.kernel.exporting import Exporting
from tests.kernel.live import Live
from tests.kernel.otlp_receivers import Collector, GrpcReceiver, HttpReceiver, go_that_builds_it

pytestmark = [pytest.mark.root]

FAST = {**os.environ, "OTEL_METRIC_EXPORT_INTERVAL": "200"}
FULL = ("--detail", "full")
CUMULATIVE = ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)


@pytest.fixture
def demo() -> Iterator[Demo]:
    with Demo() as served:
        yield served


def plain(attributes: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Attributes by name; integers are strings in the protocol's JSON."""
    found = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


def metrics(document: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Name → metric, of the one resource and scope."""
    (resource,) = document["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    assert scope["scope"]["name"] == "udsprobe"
    return {metric["name"]: metric for metric in scope["metrics"]}


def value(point: Dict[str, Any]) -> float:
    return float(point.get("asInt", point.get("asDouble", 0)))


def counted(document: Dict[str, Any], name: str, **wanted: str) -> float:
    """The sum of a counter's points that have these attributes (`.` written `_`)."""
    total = metrics(document)[name]["sum"]
    assert total["isMonotonic"] and total["aggregationTemporality"] in CUMULATIVE
    return sum(
        value(point)
        for point in total["dataPoints"]
        if wanted.items()
        <= {k.replace(".", "_"): v for k, v in plain(point.get("attributes", [])).items()}.items()
    )


def one_histogram(document: Dict[str, Any], name: str) -> Dict[str, Any]:
    histogram = metrics(document)[name]["histogram"]
    assert histogram["aggregationTemporality"] in CUMULATIVE
    (point,) = histogram["dataPoints"]
    return dict(point)


def assert_the_truth(documents: List[Dict[str, Any]], demo: Demo) -> None:
    """The last document says what the server says; earlier ones began at the same moment."""
    last, truth = documents[-1], demo.truth()
    assert counted(last, "udsprobe.served.requests") == truth["requests"] == REQUESTS
    at_socket = {"server_address": demo.socket, "network_transport": "unix"}
    assert counted(last, "udsprobe.listener.accepted", **at_socket) == truth["accepted"]
    moved = counted(last, "udsprobe.syscall.moved", network_transport="unix")
    assert moved == truth["bytes_in"] + truth["bytes_out"]
    latency = one_histogram(last, "udsprobe.served.request.duration")
    assert int(latency["count"]) == sum(map(int, latency["bucketCounts"])) == REQUESTS
    assert len(latency["bucketCounts"]) == len(latency["explicitBounds"]) + 1
    assert metrics(last)["udsprobe.served.request.duration"]["unit"] == "s"
    starts = {one_start(document) for document in documents}
    assert len(starts) == 1
    counts = [counted(document, "udsprobe.served.requests") for document in documents]
    assert counts == sorted(counts)


def one_start(document: Dict[str, Any]) -> str:
    (point,) = metrics(document)["udsprobe.served.requests"]["sum"]["dataPoints"]
    return str(point["startTimeUnixNano"])


def observed(demo: Demo, *arguments: str) -> Tuple[int, str]:
    """Export through a load; exit code and what was said after the first line."""
    options = ["--pid", str(demo.pid), *FULL, *arguments]
    with Exporting(options, environment=FAST) as exporting:
        demo.load()
        ended = exporting.end()
    return ended.code, ended.err


@pytest.mark.parametrize("receiver", [GrpcReceiver, HttpReceiver])
def test_a_receiver_of_the_official_packages(demo: Demo, receiver: Any) -> None:
    with receiver() as received:
        assert observed(demo, "--otlp", received.url) == (0, "")
        documents = list(received.documents)
    assert set(received.paths) <= {"/v1/metrics"}
    assert_the_truth(documents, demo)


def test_names_of_the_semantic_conventions(demo: Demo) -> None:
    environment = {**FAST, "OTEL_RESOURCE_ATTRIBUTES": "service.name=edge,deployment=blue"}
    with (
        GrpcReceiver() as received,
        Exporting(
            ["--pid", str(demo.pid), *FULL, "--otlp", received.url], environment=environment
        ) as exporting,
    ):
        assert exporting.end().code == 0
    (resource,) = received.documents[-1]["resourceMetrics"]
    about = plain(resource["resource"]["attributes"])
    assert about["service.name"] == "edge" and about["deployment"] == "blue"
    assert about["host.name"] == os.uname().nodename and about["os.type"] == "linux"
    assert about["telemetry.sdk.name"] == "opentelemetry"
    threads = metrics(received.documents[-1])["process.thread.count"]
    (point,) = threads["gauge"]["dataPoints"]
    assert plain(point["attributes"]) == {"process.pid": demo.pid}
    assert value(point) >= 1


def test_the_environment_says_where(demo: Demo, tmp_path: Path) -> None:
    """`--otlp env`, without --bind: nothing is served."""
    with HttpReceiver() as received:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = received.url
        try:
            argv = ["export", "--pid", str(demo.pid), *FULL, "--otlp", "env"]
            with Live(argv, tmp_path) as live:
                ended = live.end()
        finally:
            del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert received.documents and set(received.paths) == {"/v1/metrics"}


def test_a_collector_that_is_down_stops_nobody(demo: Demo) -> None:
    """It is said once; the scrape goes on; the end is not kept waiting for long."""
    environment = {**FAST, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    arguments = ["--pid", str(demo.pid), "--otlp", "http://127.0.0.1:9"]
    with Exporting(arguments, environment=environment) as exporting:
        demo.load()
        assert "udsprobe_served_requests_total" in exporting.text()
        ended = exporting.end()
    assert (ended.code, ended.err) == (0, "udsprobe: pushing metrics fails; retrying\n")


@pytest.mark.slow
@pytest.mark.timeout(1200)
# Both need the same build, which takes minutes.
@pytest.mark.xdist_group("collector")
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_real_collector(demo: Demo, protocol: str, tmp_path: Path, cache: Optional[Path]) -> None:
    """Built from OpenTelemetry's own modules, which needs a newer Go than Debian 12 has.

    What it adds to the receivers above is that it is not ours: the same facts are checked.
    """
    go = go_that_builds_it()
    if cache is None:
        pytest.skip("UDSPROBE_TEST_CACHE names no folder to build a collector in")
    if go is None:
        pytest.skip("no Go of 1.25 or later to build a collector with")
    with Collector(go, cache, tmp_path) as collector:
        assert observed(demo, "--otlp", getattr(collector, f"{protocol}_url")) == (0, "")
        documents = collector.documents()
    assert_the_truth(documents, demo)


@pytest.fixture(scope="session")
def cache() -> Optional[Path]:
    """Where the collector is built, and found the next time; CI has one."""
    given = os.environ.get("UDSPROBE_TEST_CACHE")
    if not given:
        return None
    Path(given).mkdir(parents=True, exist_ok=True)
    return Path(given)
