"""Detail `light`: what it attaches, what it does not measure, what reports and verdicts say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import samples
from udsprobe.kernel.abilities import light_plan
from udsprobe.kernel.abilities.plan import EVENT_PROGRAMS, measurements, programs
from udsprobe.model.difference import report
from udsprobe.model.report import Report
from udsprobe.observe.collector import without_calls
from udsprobe.rules.judge import judged
from udsprobe.sample import Endpoint, Sample, TrafficCounts
from udsprobe.views.text.report_text import render

EVENTS = frozenset(program.name for program in EVENT_PROGRAMS)
STREAM = Endpoint("unix", "stream")


def light(sample: Sample, sent: int, received: int) -> Sample:
    moved = TrafficCounts(STREAM, sent // 64, sent, received // 32, received)
    listeners = tuple(
        each
        if each.queue is None
        else replace(
            each,
            queue=replace(
                each.queue, accepted_by=None, accepted_by_thread=None, wait=None, refused=None
            ),
        )
        for each in sample.listeners or ()
    )
    return replace(without_calls(sample, (moved,)), listeners=listeners)


def light_report() -> Report:
    first, last = samples.busy_pair()
    observed = samples.observation(
        detail="light", measurements=light_plan.light_measurements(light_plan.PROGRAMS)
    )
    return judged(report(observed, light(first, 0, 0), light(last, 64_000, 32_000)))


def test_no_program_is_on_system_calls_or_the_scheduler() -> None:
    attached = programs("tracepoint", EVENTS, "light")
    assert attached == light_plan.PROGRAMS
    assert not {name for name in attached if name.startswith(("sys_", "sched_switch", "sched_w"))}


def test_in_full_no_program_is_on_messages() -> None:
    for strategy in ("tracepoint", "fentry"):
        assert not programs(strategy, EVENTS) & light_plan.ONLY_LIGHT


@pytest.mark.parametrize("missing", sorted(light_plan.REQUIRED))
def test_light_needs_each_of_its_tracepoints(missing: str) -> None:
    assert light_plan.has_light(EVENTS)
    assert not light_plan.has_light(EVENTS - {missing})


def test_every_measurement_of_full_is_there_and_says_why_it_is_not_on() -> None:
    states = light_plan.light_measurements(light_plan.PROGRAMS)
    names = [each.name for each in states]
    full = [each.name for each in measurements(programs("tracepoint", EVENTS))]
    assert [name for name in names if name != "traffic"] == full
    for each in states:
        assert (each.state == "off") == (each.rests_on is None)
        assert (each.state == "on") == (each.reason is None)
        assert each.reason is None or each.reason.startswith("detail is light: ")


def test_what_this_kernel_lacks_is_said_too() -> None:
    told = light_plan.light_measurements(light_plan.REQUIRED, unix_unread=False)
    states = {each.name: each for each in told}
    assert states["accept_queue"].state == "degraded"
    assert "TCP only" in (states["queue_high_water"].reason or "")


def test_what_was_not_looked_at_is_none_and_not_0() -> None:
    found = light_report()
    assert found.probe.detail == "light"
    assert found.syscalls is None
    assert found.time is None
    assert found.connects is None
    assert found.requests.syscalls_per_request is None
    served = found.requests.served
    assert served is not None
    assert served.count == 1000
    assert served.latency_us.p99 is not None
    assert served.turn_based is None
    assert all(stage is None for stage in vars(served.stages_us).values())
    assert served.app_time_pct is None


def test_messages_are_counted_and_are_the_events() -> None:
    found = light_report()
    assert found.traffic is not None
    (row,) = found.traffic
    assert (row.sent_messages, row.sent_bytes) == (1000, 64_000)
    assert (row.received_messages, row.received_bytes) == (1000, 32_000)
    assert found.probe.events_seen == found.probe.events_counted == 2000


def test_the_verdict_is_unknown_and_says_the_way_to_more() -> None:
    verdict = light_report().verdict
    assert verdict is not None
    assert verdict.cause == "unknown"
    assert verdict.transport_share_pct is None
    assert "--detail full" in verdict.summary


def test_the_text_names_the_detail_and_has_the_traffic() -> None:
    text = render(light_report(), 100)
    assert "tracepoint, light on Linux" in text
    assert "sent 1,000 messages" in text
    assert "detail is light" in text
