"""Samples as metrics: exact, cumulative, bounded, absent where nothing was measured."""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from dataclasses import replace
from typing import List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Require
from tests.unit import samples
from tests.unit.metric_pages import pages, series
from udsprobe.model.report import Finding, Verdict
from udsprobe.views.metrics.book import MetricsBook
from udsprobe.views.metrics.bounds import COARSE_NS, FINE_NS, bucketed
from udsprobe.views.metrics.catalogue import CATALOGUE, HISTOGRAM
from udsprobe.views.metrics.page import Buckets, Page
from udsprobe.views.metrics.prometheus_text import PageCollector
from udsprobe.views.metrics.series_budget import MAX_SERIES_LEAST, SHARES_PCT

APP = ("unix", "stream", "/run/app.sock", "4026531840")


def text(page: Page) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector(lambda: page))
    return generate_latest(registry).decode()


# --- buckets


@pytest.mark.parametrize("bounds", [FINE_NS, COARSE_NS])
@settings(deadline=None)
@given(durations=st.lists(st.integers(0, 1 << 40), max_size=60), at=st.integers(0, 99))
def test_no_duration_is_in_the_wrong_bucket(bounds: tuple, durations: List[int], at: int) -> None:
    durations += [bounds[at % len(bounds)], bounds[at % len(bounds)] + 1]
    expected = [0] * (len(bounds) + 1)
    for duration in durations:
        expected[bisect_left(bounds, duration)] += 1
    assert bucketed(samples.latency(durations), bounds) == (*expected, sum(durations))


# --- counters


def test_counts_are_those_of_the_sample() -> None:
    page = pages(*samples.busy_pair())[-1]
    read = ("read", "unix", "stream", "native")
    assert series(page, "udsprobe_syscall_calls_total")[read] == 1_500
    assert series(page, "udsprobe_syscall_errors_total")[(*read, "EAGAIN")] == 500
    assert series(page, "udsprobe_syscall_moved_bytes_total")[read] == 150_000
    assert series(page, "udsprobe_syscall_duration_seconds")[read].count == 1_500
    assert series(page, "udsprobe_syscall_duration_seconds")[read].sum_s == 1_500 * 1.2e-6
    assert series(page, "udsprobe_syscall_slow_seconds_total") == {
        read: 0,
        ("writev", "unix", "stream", "native"): 0,
        ("accept4", "unix", "stream", "native"): 0,
        ("epoll_pwait", "other", "", "native"): 1.5,
    }
    assert series(page, "udsprobe_served_requests_total") == {(): 1_000}
    assert series(page, "udsprobe_served_request_duration_seconds")[()].count == 1_000
    assert series(page, "udsprobe_syscall_all_total") == {(): 3_400}
    assert series(page, "udsprobe_probe_events_counted_total") == {(): 3_300}


def test_a_listener_that_goes_takes_nothing_with_it() -> None:
    one = samples.listener(inode=1, queue=samples.queue([5_000] * 7, refused={"EAGAIN": 2}))
    two = samples.listener(inode=2, queue=samples.queue([5_000] * 4))
    again = samples.listener(inode=1, queue=samples.queue([5_000], since_ns=samples.BOOT_NS + 9))
    shown = pages(
        samples.sample(0.0, listeners=(one, two)),
        samples.sample(1.0, listeners=(two,)),
        samples.sample(2.0, listeners=(two, again)),
    )
    accepted = [series(page, "udsprobe_listener_accepted_total") for page in shown]
    assert accepted == [{APP: 11}, {APP: 11}, {APP: 12}]
    refused = [series(page, "udsprobe_listener_refused_total") for page in shown]
    assert [each[(*APP, "EAGAIN")] for each in refused] == [2, 2, 2]
    waits = [series(page, "udsprobe_listener_wait_seconds")[APP].count for page in shown]
    assert waits == [11, 11, 12]
    assert [series(page, "udsprobe_listener_queues")[APP] for page in shown] == [2, 1, 2]


@settings(deadline=None)
@given(
    rounds=st.lists(
        st.dictionaries(st.integers(1, 6), st.integers(0, 50), max_size=6), min_size=1, max_size=8
    )
)
def test_counters_never_fall_and_add_up(rounds: list) -> None:
    """Each round says by how much the listeners that are there have grown; others are gone."""
    standing: dict = {}
    taken, truth, total = [], [], 0
    for at, growth in enumerate(rounds):
        standing = {inode: standing.get(inode, (at, 0)) for inode in growth}
        standing = {i: (born, value + growth[i]) for i, (born, value) in standing.items()}
        total += sum(growth.values())
        truth.append(total)
        taken.append(
            samples.sample(
                float(at),
                listeners=tuple(
                    samples.listener(
                        inode=inode,
                        address=f"/run/{inode % 2}.sock",
                        queue=replace(samples.queue(), accepted=value, since_ns=born),
                    )
                    for inode, (born, value) in standing.items()
                ),
            )
        )
    shown = [series(page, "udsprobe_listener_accepted_total") for page in pages(*taken)]
    assert [sum(each.values()) for each in shown] == truth
    for earlier, later in zip(shown, shown[1:]):
        assert all(later[key] >= value for key, value in earlier.items())


def test_the_fullest_of_several_queues_is_told() -> None:
    queues = (
        samples.listener(inode=1, depth_now=3, backlog_effective=9),
        samples.listener(inode=2, depth_now=10, backlog_effective=9),
    )
    queues = tuple(replace(each, queue=samples.queue()) for each in queues)
    page = pages(samples.sample(listeners=queues))[0]
    assert series(page, "udsprobe_listener_queue_depth") == {APP: 13}
    assert series(page, "udsprobe_listener_queue_peak") == {APP: 10}
    assert series(page, "udsprobe_listener_queue_limit") == {APP: 20}
    assert series(page, "udsprobe_listener_queue_fill_ratio") == {APP: 1.0}


def test_a_namespaces_counters_are_since_attach() -> None:
    shown = pages(
        samples.sample(0.0, namespaces=(samples.namespace(listen_overflows=70),)),
        samples.sample(1.0, namespaces=(samples.namespace(listen_overflows=73),)),
    )
    values = [series(page, "udsprobe_netns_listen_overflows_total") for page in shown]
    assert values == [{("4026531840",): 0}, {("4026531840",): 3}]


# --- what is not measured


def test_not_measured_is_absent_and_never_0() -> None:
    page = pages(samples.unmeasured_sample(targets=()))[0]
    names = {metric.prometheus for metric in page.families}
    about_itself = {name for name in names if name.startswith("udsprobe_probe_")}
    assert names - about_itself == {
        "udsprobe_build_info",
        "udsprobe_attach_seconds",
        "udsprobe_measurement_info",
        "udsprobe_samples_total",
        "udsprobe_sample_timestamp_seconds",
        "udsprobe_targets",
        "udsprobe_targets_exited_total",
        "udsprobe_series_limit",
        "udsprobe_series_folded",
    }
    assert "udsprobe_probe_bpf_cpu_seconds_total" not in names


def test_what_one_target_hides_is_absent_for_it() -> None:
    seen = samples.target(pid=1, fds_open=5, fds_limit=None)
    hidden = samples.target(pid=2, fds_open=None, fds_limit=None)
    page = pages(samples.sample(targets=(seen, hidden)))[0]
    assert series(page, "udsprobe_target_open_fds") == {("1",): 5}
    assert series(page, "udsprobe_target_max_fds") == {}


def test_refused_descriptors_are_counted_for_each_process() -> None:
    first = samples.target(pid=1, fds_refused={"EMFILE": 3})
    other = samples.target(pid=2, fds_refused={"ENFILE": 4})
    again = replace(first, fds_refused={"EMFILE": 5, "ENFILE": 1})
    hidden = samples.target(pid=3, fds_refused=None)
    shown = pages(
        samples.sample(0.0, targets=(first, other, hidden)),
        samples.sample(1.0, targets=(again, hidden)),
    )
    assert [series(page, "udsprobe_target_refused_fds_total") for page in shown] == [
        {("1", "EMFILE"): 3, ("2", "ENFILE"): 4},
        {("1", "EMFILE"): 5, ("1", "ENFILE"): 1, ("2", "ENFILE"): 4},
    ]


def test_quotas_are_cpus_and_what_was_stopped() -> None:
    path = "/sys/fs/cgroup/web"
    held = samples.quota(periods=50, throttled_periods=20, throttled_ns=3_000_000_000)
    lifted = samples.quota(path="/sys/fs/cgroup/free", quota_us=None, usage_ns=None)
    page = pages(samples.sample(cpu=samples.cpu(cgroups=(held, lifted))))[0]
    assert series(page, "udsprobe_cgroup_cpu_quota") == {(path,): 0.5}
    throttled = series(page, "udsprobe_cgroup_cpu_throttled_seconds_total")
    assert throttled == {(path,): 3.0, ("/sys/fs/cgroup/free",): 0}
    assert series(page, "udsprobe_cgroup_cpu_throttled_periods_total")[path,] == 20
    assert series(page, "udsprobe_cgroup_cpu_periods_total")[path,] == 50
    assert series(page, "udsprobe_cgroup_cpu_usage_seconds_total") == {(path,): 0}
    hidden = pages(samples.sample(cpu=samples.cpu(cgroups=None)))[0]
    assert series(hidden, "udsprobe_cgroup_cpu_quota") == {}


def test_verdict_and_findings_are_shown_when_there_are_any() -> None:
    sample, observation = samples.sample(), samples.observation()
    page = pages(sample)[0]
    assert series(page, "udsprobe_verdict") == series(page, "udsprobe_findings") == {}
    from udsprobe.model.difference import report

    verdict = Verdict("accept-queue-full", False, 4.0, 4.1, 0.9, "", None)
    finding = Finding("queue-full", "critical", "/run/app.sock", "")
    judged = replace(
        report(observation, sample, sample), verdict=verdict, findings=[finding, finding]
    )
    page = MetricsBook(sample.unix_s).page(observation, sample, judged)
    assert series(page, "udsprobe_verdict") == {("accept-queue-full",): 1}
    assert series(page, "udsprobe_verdict_harm") == {("unknown", "unknown"): 1}
    assert series(page, "udsprobe_verdict_transport_share_ratio") == {(): 0.04}
    assert series(page, "udsprobe_findings") == {("critical", "queue-full"): 2}


# --- bounds


def crowd(number: int, listeners: int = 0, at_s: float = 0.0) -> samples.Sample:
    """So many of everything that others choose."""
    some = range(number)
    queue = samples.queue([1_000], refused={"EAGAIN": 1, "EACCES": 1})
    return samples.sample(
        at_s,
        listeners=tuple(
            samples.listener(
                inode=each,
                address=f"/run/{each}.sock",
                queue=queue,
            )
            for each in range(listeners or number)
        ),
        connects=tuple(samples.connects([1_000], address=f"/run/{each}") for each in some),
        upstream=tuple(samples.upstream([1_000], address=f"/run/{each}") for each in some),
        connections=tuple(samples.connection(local=f"/run/{each}") for each in some),
        targets=tuple(
            samples.target(pid=each + 1, fds_refused={"EMFILE": 1, "ENFILE": 1}) for each in some
        ),
        cpu=samples.cpu(cgroups=tuple(samples.quota(path=f"/sys/{each}") for each in some)),
        namespaces=tuple(samples.namespace(netns=each + 1) for each in some),
        calls=tuple(
            samples.call(f"call{each}", durations_ns=[1_000], errors={"EAGAIN": 1, "EIO": 1})
            for each in some
        ),
    )


@pytest.mark.parametrize("limit", [MAX_SERIES_LEAST, 5_000])
def test_ten_thousand_listeners_stay_below_the_cap(limit: int) -> None:
    sample = crowd(500, listeners=10_000)
    first, second = pages(sample, replace(sample, sequence=1), max_series=limit)
    assert first.series() <= limit and second.series() <= limit
    lines = [line for line in text(second).splitlines() if line and line[0] != "#"]
    assert len(lines) == second.series()
    accepted = series(second, "udsprobe_listener_accepted_total")
    assert sum(accepted.values()) == 10_000
    own = len(accepted) - 1
    assert own > 0 and accepted[("other",) * 4] == 10_000 - own
    assert ("other",) * 4 not in series(second, "udsprobe_listener_queue_limit")
    assert sum(series(second, "udsprobe_listener_refused_total").values()) == 20_000
    folded = series(second, "udsprobe_series_folded")
    assert set(folded) == {(kind,) for kind in SHARES_PCT}
    assert folded["listeners",] == 10_000 - own
    assert series(second, "udsprobe_series_limit") == {(): limit}


def test_the_shares_are_all_there_is() -> None:
    assert sum(SHARES_PCT.values()) == 100


def test_who_has_a_place_keeps_it() -> None:
    sample = crowd(300)
    assert sample.listeners is not None
    turned = replace(sample, sequence=1, listeners=sample.listeners[::-1])
    first, second = pages(sample, turned, max_series=MAX_SERIES_LEAST)
    name = "udsprobe_listener_accepted_total"
    assert series(first, name) == series(second, name)


def test_a_few_findings_of_many_kinds() -> None:
    sample, observation = samples.sample(), samples.observation()
    from udsprobe.model.difference import report

    findings = [Finding(f"f{each:03}", "info", None, "") for each in range(200)]
    judged = replace(report(observation, sample, sample), findings=findings)
    page = MetricsBook(sample.unix_s).page(observation, sample, judged)
    assert len(series(page, "udsprobe_findings")) == 61
    assert sum(series(page, "udsprobe_findings").values()) == 200


# --- the format


HOSTILE = '/run/\x1b[2J"\\\n\u202e{}a=1,\udcff.sock'


def test_hostile_names_reach_nobody() -> None:
    sample = samples.sample(
        listeners=(samples.listener(address=HOSTILE, queue=samples.queue([1])),),
        targets=(samples.target(comm=HOSTILE),),
    )
    written = text(pages(sample)[0])
    assert "\x1b" not in written and "\u202e" not in written
    addresses = {
        found.labels["address"]
        for family in text_string_to_metric_families(written)
        for found in family.samples
        if "address" in found.labels
    }
    assert addresses == {'/run/\\e[2J"\\\\n\\u202e{}a=1,\\xff.sock'}


def test_the_text_says_what_the_page_says() -> None:
    page = pages(*samples.busy_pair())[-1]
    read = {
        (found.name, tuple(sorted(found.labels.items()))): found.value
        for family in text_string_to_metric_families(text(page))
        for found in family.samples
    }
    checked = 0
    for metric, rows in page.families.items():
        for labels, value in rows:
            named = tuple(sorted(zip(metric.labels, labels)))
            if isinstance(value, Buckets):
                assert read[f"{metric.prometheus}_count", named] == value.count
                assert read[f"{metric.prometheus}_sum", named] == value.sum_s
            else:
                assert read[metric.prometheus, named] == value
            checked += metric.series
    assert checked == len(read) == page.series()


def test_promtool_finds_no_fault_with_names_and_units(require: Require) -> None:
    promtool = require("promtool")["promtool"]
    for page in (pages(*samples.busy_pair())[-1], pages(crowd(3))[-1]):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text(page), capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_open_metrics_is_written_too() -> None:
    registry = CollectorRegistry(auto_describe=False)
    page = pages(*samples.busy_pair())[-1]
    registry.register(PageCollector(lambda: page))
    assert open_metrics(registry).decode().endswith("# EOF\n")


def test_names_are_unique_and_histograms_have_bounds() -> None:
    assert len({metric.otel for metric in CATALOGUE.values()}) == len(CATALOGUE)
    for metric in CATALOGUE.values():
        assert bool(metric.bounds_ns) == (metric.kind == HISTOGRAM)
