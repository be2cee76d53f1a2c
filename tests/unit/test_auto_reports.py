"""One report of light and of a full window: whose figures are where, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Iterable

import jsonschema
import pytest

from tests.unit import samples
from tests.unit.test_light import EVENTS, light_report
from udsprobe.auto.beginnings import Sign
from udsprobe.auto.composing import NO_WINDOW, UNPROBED, FullWindow, composed
from udsprobe.auto.control import Costs
from udsprobe.auto.costs import CALL_NS, at_rate, programs_s, running_s
from udsprobe.auto.pressure import PAST_MIN, Pressure
from udsprobe.compare.tally import tally
from udsprobe.kernel.abilities.plan import measurements, programs
from udsprobe.model.coverage import observed_s
from udsprobe.model.difference import report
from udsprobe.model.report import Latency, Measurement, Report, Verdict, Window
from udsprobe.observe.collector import without_calls
from udsprobe.observe.unprobed import unprobed_measurements
from udsprobe.rules.judge import judged
from udsprobe.sample import Sample
from udsprobe.views.documents.report_document import document
from udsprobe.views.fields import words
from udsprobe.views.fields.breakdown import stages
from udsprobe.views.text.report_text import render

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
NS = 1_000_000_000
OF_FULL = measurements(programs("tracepoint", EVENTS))


def full_report() -> Report:
    first, last = samples.busy_pair()
    found = judged(report(samples.observation(measurements=OF_FULL), first, last))
    return replace(found, window=Window(found.window.start, 1.25))


def unprobed(sample: Sample) -> Sample:
    """The same where nothing has a probe."""
    seen = without_calls(sample, ())
    listeners = tuple(replace(each, queue=None) for each in sample.listeners or ())
    return replace(
        seen,
        traffic=None,
        served=None,
        served_by=None,
        upstream=None,
        connections=None,
        connections_open=None,
        listeners=listeners,
    )


def unprobed_report() -> Report:
    first, last = samples.busy_pair()
    observed = samples.observation(
        detail="auto", strategy=UNPROBED, measurements=unprobed_measurements()
    )
    return judged(report(observed, unprobed(first), unprobed(last)))


def rows(found: Report) -> dict[str, Measurement]:
    return {each.name: each for each in found.probe.measurements}


def with_cause(found: Report, cause: str, class_: str) -> Report:
    assert found.verdict is not None
    verdict: Verdict = replace(found.verdict, cause=cause, class_=class_)
    return replace(found, verdict=verdict)


def test_without_a_window_what_light_lacks_is_not_measured() -> None:
    found = composed(light_report(), None)
    assert found.syscalls is None
    assert found.time is None
    assert rows(found)["syscalls"].state == "off"
    assert rows(found)["syscalls"].reason == NO_WINDOW
    assert words.full_detail(found) == "full detail: not yet"
    jsonschema.validate(document(found), SCHEMA)


def test_what_fails_is_the_reason() -> None:
    found = composed(light_report(), None, trouble="windows cannot be opened")
    assert rows(found)["stages"].reason == "windows cannot be opened"


def test_that_no_window_can_be_opened_any_more_is_said_beside_the_newest() -> None:
    told = rows(composed(light_report(), FullWindow(full_report()), trouble="it fails"))["syscalls"]
    assert (told.state, told.reason) == ("degraded", "it fails")
    assert told.coverage is not None
    assert rows(composed(light_report(), FullWindow(full_report())))["syscalls"].state == "on"


def test_each_figure_is_from_where_it_is_said_to_be() -> None:
    light, full = light_report(), full_report()
    found = composed(light, FullWindow(full))
    assert found.syscalls == full.syscalls
    assert found.time == full.time
    assert found.traffic == light.traffic
    assert found.window == light.window
    assert found.requests.served is not None
    assert light.requests.served is not None
    assert full.requests.served is not None
    assert found.requests.served.count == light.requests.served.count
    assert found.requests.served.stages_us == full.requests.served.stages_us
    assert found.requests.served.stages_latency_us == full.requests.served.latency_us
    told = rows(found)["syscalls"]
    assert told.state == "on"
    assert told.coverage is not None
    assert (told.coverage.from_, told.coverage.observed_s) == (full.window.start, 1.25)
    assert rows(found)["traffic"].coverage is None
    assert rows(found)["served_requests"].coverage is None
    plain = document(found)
    assert plain["probe"]["detail"] == "auto"
    jsonschema.validate(plain, SCHEMA)


@pytest.mark.parametrize(("streams", "turn_based"), [(0, True), (2, True), (3, False)])
def test_what_light_counts_where_requests_are_streams_is_turns(
    streams: int, turn_based: bool
) -> None:
    full = full_report()
    assert full.requests.served is not None
    served = replace(
        full.requests.served, count=200, turn_based=True, multiplexed=0, streams=streams
    )
    window = FullWindow(replace(full, requests=replace(full.requests, served=served)))
    found = composed(light_report(), window).requests.served
    assert found is not None
    assert (found.turn_based, found.streams) == (turn_based, None)
    assert found.multiplexed == (0 if turn_based else streams)


def test_nothing_that_a_window_measures_is_left_out() -> None:
    light = light_report()
    full = replace(full_report(), waits_now=[], waits_now_total=0, locks=[], stacks=None)
    found = composed(light, FullWindow(full))
    of_full = [
        each.name
        for each in fields(Report)
        if getattr(light, each.name) is None and getattr(full, each.name) is not None
    ]
    assert {"time", "syscalls", "waits_now", "locks"} <= set(of_full)
    assert [getattr(found, name) for name in of_full] == [getattr(full, name) for name in of_full]
    assert composed(light, FullWindow(full, is_fresh=False)).waits_now is None


def test_without_light_everything_that_takes_a_probe_is_of_the_window() -> None:
    base, full = unprobed_report(), full_report()
    found = composed(base, FullWindow(full))
    assert found.requests == full.requests
    assert found.connections == full.connections
    assert found.traffic is None
    assert found.probe.strategy == full.probe.strategy
    assert found.probe.events_seen == full.probe.events_seen
    assert found.listeners and full.listeners
    assert found.listeners[0].accepted == full.listeners[0].accepted
    assert found.listeners[0].depth.max == full.listeners[0].depth.max
    told = rows(found)
    assert {each.name for each in told.values() if each.coverage is None} == {
        *("processes", "listeners", "cpu"),
        *(each.name for each in told.values() if each.state == "off"),
    }
    assert observed_s(found, "served_requests") == 1.25
    assert found.window == base.window
    jsonschema.validate(document(found), SCHEMA)
    assert tally(document(found)).sums["requests"] is None


def test_without_light_and_without_a_window_nothing_is_0() -> None:
    found = composed(unprobed_report(), None)
    assert found.requests.served is None
    assert found.connections is None
    assert found.listeners and found.listeners[0].accepted is None
    assert rows(found)["served_requests"].reason == NO_WINDOW
    jsonschema.validate(document(found), SCHEMA)


def test_without_light_each_measurement_of_full_is_there() -> None:
    names = [each.name for each in unprobed_measurements()]
    assert names == [each.name for each in OF_FULL]


def test_rates_are_of_the_time_that_was_observed() -> None:
    found = composed(light_report(), FullWindow(full_report()))
    assert observed_s(found, "syscalls") == 1.25
    assert observed_s(found, "traffic") == found.window.duration_s


def test_the_mean_request_by_stage_is_that_of_the_window() -> None:
    full = full_report()
    served = composed(light_report(), FullWindow(full)).requests.served
    assert served is not None
    assert full.requests.served is not None
    slow = replace(served, latency_us=Latency(count=1, mean=1e9))
    assert stages(slow) == stages(full.requests.served)


@pytest.mark.parametrize(
    ("full", "fresh", "light", "told"),
    [
        ("app-cpu", True, "accept-queue-full", "app-cpu"),
        ("healthy", True, "accept-queue-full", "accept-queue-full"),
        ("healthy", True, "unknown", "healthy"),
        ("app-cpu", False, "unknown", "unknown"),
        ("app-cpu", False, "accept-queue-full", "accept-queue-full"),
    ],
)
def test_whose_verdict_it_is(full: str, fresh: bool, light: str, told: str) -> None:
    classes = {"healthy": "healthy", "unknown": "unknown"}
    window = with_cause(full_report(), full, classes.get(full, "not-transport"))
    base = with_cause(light_report(), light, classes.get(light, "set-up"))
    found = composed(base, FullWindow(window, is_fresh=fresh))
    assert found.verdict is not None
    assert found.verdict.cause == told
    is_of_full = rows(found)["verdict"].coverage is not None
    assert is_of_full == (found.verdict.cause == full)
    assert ("what light sees" in words.full_detail(found)) != is_of_full


def test_live_the_verdict_is_of_the_last_seconds() -> None:
    whole = with_cause(full_report(), "app-cpu", "not-transport")
    now = with_cause(full_report(), "healthy", "healthy")
    base = with_cause(light_report(), "unknown", "unknown")
    window = FullWindow(whole, now)
    verdicts = [composed(base, window, live=live).verdict for live in (False, True)]
    assert [each and each.cause for each in verdicts] == ["app-cpu", "healthy"]


def test_plain_says_when_full_detail_was() -> None:
    found = composed(light_report(), FullWindow(full_report()))
    line = next(line for line in render(found).splitlines() if "full detail" in line)
    assert line.strip().startswith("full detail: 1.25 s of the last ")


def test_compare_takes_only_what_is_of_the_whole_window() -> None:
    found = tally(document(composed(light_report(), FullWindow(full_report()))))
    assert found.sums["requests"]
    assert found.sums["syscalls"] is None
    assert found.sums["app_us"] is None
    assert found.sums["cpu_us"] is None


# signs of pressure


def names(signs: Iterable[Sign]) -> list[str]:
    return [each.name for each in signs]


def test_a_quiet_service_shows_no_sign() -> None:
    quiet = replace(with_cause(light_report(), "unknown", "unknown"), listeners=[])
    assert Pressure().signs(quiet, {1: 0}) == ()


def test_a_cause_that_light_names_is_one() -> None:
    found = with_cause(light_report(), "accept-queue-full", "set-up")
    assert "light names accept-queue-full" in names(Pressure().signs(found, {}))


def test_a_queue_that_is_half_full_is_one() -> None:
    base = with_cause(light_report(), "unknown", "unknown")
    assert base.listeners
    listener = base.listeners[0]
    for depth, expected in ((64, False), (65, True)):
        row = replace(listener, depth=replace(listener.depth, max=depth, limit=129), drops=0)
        signs = Pressure().signs(replace(base, listeners=[row]), {})
        assert any("half full" in each for each in names(signs)) == expected


def test_a_busy_process_is_one_from_its_second_interval_on() -> None:
    base = replace(with_cause(light_report(), "unknown", "unknown"), listeners=[])
    second = replace(base, window=Window(base.window.start, 1.0))
    following = Pressure()
    assert following.signs(second, {7: 5 * NS, 8: 0}) == ()
    (sign,) = following.signs(second, {7: 5 * NS + 900_000_000, 8: 1})
    assert sign == Sign("processes are busy", 0.9)
    assert following.signs(second, {7: 5 * NS + 950_000_000, 9: 90 * NS}) == ()


def test_a_p99_far_above_its_own_past_is_one() -> None:
    base = replace(with_cause(light_report(), "unknown", "unknown"), listeners=[])
    assert base.requests.served is not None

    def at(p99: float) -> Report:
        assert base.requests.served is not None
        latency = Latency(count=100, mean=p99 / 2, p50=p99 / 2, p99=p99, max=p99)
        served = replace(base.requests.served, count=100, latency_us=latency)
        return replace(base, requests=replace(base.requests, served=served))

    following = Pressure()
    assert all(following.signs(at(2_000.0), {}) == () for _ in range(PAST_MIN))
    assert following.signs(at(4_000.0), {}) == ()
    (sign,) = following.signs(at(50_000.0), {})
    assert sign == Sign("the p99 of served requests is up", 50_000.0)


def test_another_busy_process_is_a_stronger_sign() -> None:
    base = replace(with_cause(light_report(), "unknown", "unknown"), listeners=[])
    second = replace(base, window=Window(base.window.start, 1.0))
    following = Pressure()
    following.signs(second, {7: 0, 8: 0})
    (one,) = following.signs(second, {7: NS, 8: 0})
    (both,) = following.signs(second, {7: 2 * NS, 8: NS})
    assert (one.name, one.strength, both.strength) == (both.name, 1.0, 2.0)


# what windows cost


def test_measured_run_time_is_taken_and_else_a_stated_one() -> None:
    full = full_report()
    measured = replace(full, probe=replace(full.probe, bpf_cpu_pct=12.0))
    assert programs_s(measured) == pytest.approx(0.12)
    assert running_s(0.125, measured) == pytest.approx(0.1 + 0.12)
    told = replace(full, probe=replace(full.probe, bpf_cpu_pct=None, events_seen=1000))
    assert programs_s(told) == pytest.approx(1000 * CALL_NS / NS / 1.25)


def test_costs_grow_with_the_rate() -> None:
    assert at_rate(Costs(1.0, 0.1), 100.0, 300.0) == Costs(1.0, pytest.approx(0.3))
    assert at_rate(Costs(1.0, 0.1), None, 300.0) == Costs(1.0, 0.1)
    assert at_rate(Costs(1.0, 0.1), 100.0, 0.0) == Costs(1.0, 0.1)
