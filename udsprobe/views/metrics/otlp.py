"""A page of metrics as OpenTelemetry's: cumulative, explicit bounds, its attribute names.

The SDK's data points are written directly: its own instruments count in this process, and
have no histogram that somebody else counted.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple, Union

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from udsprobe.sample import Observation
from udsprobe.views.metrics import catalogue
from udsprobe.views.metrics.bounds import NS_PER_S, bounds_s
from udsprobe.views.metrics.ledger import Labels
from udsprobe.views.metrics.page import Buckets, Page, Value

CUMULATIVE = AggregationTemporality.CUMULATIVE

SEMANTIC: Mapping[str, str] = {
    "transport": "network.transport",
    "address": "server.address",
    "errno": "error.type",
    "pid": "process.pid",
    "comm": "process.executable.name",
    "container": "container.id",
    "runtime": "container.runtime.name",
    "pod": "k8s.pod.uid",
}
"""Our labels that OpenTelemetry's semantic conventions have a name for; others are `udsprobe.…`."""

# https://opentelemetry.io/docs/specs/semconv/resource/host/
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_INTEGERS = frozenset({"pid"})


def resource(observation: Observation) -> Resource:
    """Who reports; what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes first."""
    ours = Resource.create(
        {
            "service.name": "udsprobe",
            "service.version": observation.version,
            "host.name": observation.hostname,
            "host.arch": _ARCHITECTURES.get(observation.arch, observation.arch),
            "os.type": "linux",
            "os.version": observation.kernel,
        }
    )
    return ours.merge(OTELResourceDetector().detect())


def metrics_data(page: Page, reporter: Resource, version: str) -> MetricsData:
    """The page, ready for an exporter of the SDK."""
    start_ns, at_ns = int(page.started_unix_s * NS_PER_S), int(page.at_unix_s * NS_PER_S)
    metrics = [
        Metric(
            name=metric.otel,
            description=metric.help,
            unit=metric.otel_unit,
            data=_points(metric, rows, start_ns, at_ns),
        )
        for metric, rows in page.families.items()
    ]
    scope = ScopeMetrics(InstrumentationScope("udsprobe", version), metrics, schema_url="")
    return MetricsData([ResourceMetrics(reporter, [scope], schema_url="")])


def attribute_name(label: str) -> str:
    """The attribute that one of our labels becomes."""
    return SEMANTIC.get(label, f"udsprobe.{label}")


def _points(
    metric: catalogue.Metric, rows: Tuple[Tuple[Labels, Value], ...], start_ns: int, at_ns: int
) -> Union[Sum, Gauge, Histogram]:
    numbers: List[NumberDataPoint] = []
    histograms: List[HistogramDataPoint] = []
    for labels, value in rows:
        attributes = _attributes(metric, labels)
        if isinstance(value, Buckets):
            histograms.append(_histogram(metric, attributes, value, start_ns, at_ns))
        else:
            numbers.append(NumberDataPoint(attributes, start_ns, at_ns, value))
    if metric.kind == catalogue.HISTOGRAM:
        return Histogram(histograms, CUMULATIVE)
    if metric.kind == catalogue.COUNTER:
        return Sum(numbers, CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _histogram(
    metric: catalogue.Metric, attributes: Dict[str, Any], value: Buckets, start_ns: int, at_ns: int
) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=start_ns,
        time_unix_nano=at_ns,
        count=value.count,
        sum=value.sum_s,
        bucket_counts=value.counts,
        explicit_bounds=bounds_s(metric.bounds_ns),
        # Optional in the protocol; nobody keeps the shortest.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )


def _attributes(metric: catalogue.Metric, labels: Labels) -> Dict[str, Any]:
    """Without the empty ones: not there, and empty, are the same to Prometheus only."""
    return {
        attribute_name(label): int(text) if label in _INTEGERS and text.isdigit() else text
        for label, text in zip(metric.labels, labels)
        if text
    }
