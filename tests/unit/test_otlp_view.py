"""A page as OpenTelemetry's: the numbers of Prometheus', under its own names."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import Histogram, Sum

from tests.unit import samples
from tests.unit.metric_pages import pages
from udsprobe.views.metrics.catalogue import COUNTER, HISTOGRAM
from udsprobe.views.metrics.otlp import CUMULATIVE, attribute_name, metrics_data, resource
from udsprobe.views.metrics.page import Buckets


def test_every_series_is_a_point_of_the_same_value() -> None:
    page = pages(*samples.busy_pair())[-1]
    data = metrics_data(page, resource(samples.observation()), "0.1.0")
    sent = {m.name: m for m in data.resource_metrics[0].scope_metrics[0].metrics}
    assert len(sent) == len(page.families)
    for metric, rows in page.families.items():
        points = sent[metric.otel].data.data_points
        assert len(points) == len(rows)
        for point, (labels, value) in zip(points, rows):
            assert point.time_unix_nano > point.start_time_unix_nano
            assert set(point.attributes) == {
                attribute_name(label) for label, text in zip(metric.labels, labels) if text
            }
            if isinstance(value, Buckets):
                assert (point.count, point.sum) == (value.count, value.sum_s)
                assert tuple(point.bucket_counts) == value.counts
            else:
                assert point.value == value


def test_kinds_and_temporality() -> None:
    page = pages(*samples.busy_pair())[-1]
    data = metrics_data(page, resource(samples.observation()), "0.1.0")
    kinds = {metric.otel: metric.kind for metric in page.families}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        assert isinstance(metric.data, Sum) == (kinds[metric.name] == COUNTER)
        assert isinstance(metric.data, Histogram) == (kinds[metric.name] == HISTOGRAM)
        if isinstance(metric.data, (Sum, Histogram)):
            assert metric.data.aggregation_temporality == CUMULATIVE


def test_hostile_names_can_be_encoded() -> None:
    """Protobuf's strings are UTF-8 and nothing else."""
    listener = samples.listener(address="/run/\x1b\udcff\ud800.sock", queue=samples.queue([1]))
    page = pages(samples.sample(listeners=(listener,)))[0]
    about = resource(samples.observation(hostname="web1"))
    written = encode_metrics(metrics_data(page, about, "0.1.0")).SerializeToString()
    assert b"\\e\\xff\\ud800.sock" in written and b"\x1b\xed" not in written


def test_the_resource_follows_the_conventions() -> None:
    about = resource(samples.observation()).attributes
    assert about["service.name"] == "udsprobe" and about["service.version"] == "0.1.0"
    assert (about["host.name"], about["host.arch"], about["os.type"]) == ("web1", "amd64", "linux")
