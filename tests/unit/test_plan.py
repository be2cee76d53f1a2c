"""The states of the measurements: on, degraded, off, each with what it rests on or why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from udsprobe.kernel.abilities.plan import (
    EVENT_PROGRAMS,
    NO_OTHER_CALLS,
    SKIPS,
    URING,
    URING_OVERFLOW,
    URING_SUBMITS,
    measurements,
    programs,
    strategies,
)
from udsprobe.sample import MeasurementState

EVENTS = frozenset(program.name for program in EVENT_PROGRAMS)
HOOKS = {program.name: program.hook for program in EVENT_PROGRAMS}
# No kernel has both names of one tracepoint.
ALL = programs("tracepoint", EVENTS) - {"io_uring_submit_sqe"}
OPTIONAL = [p.name for p in EVENT_PROGRAMS if not p.required and p.name in ALL]
ROOT = Path(__file__).resolve().parents[2]


def test_names_are_unique() -> None:
    names = [measurement.name for measurement in measurements(ALL)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("attached", [ALL, *(ALL - {name} for name in OPTIONAL)], ids=len)
def test_whatever_is_not_on_says_why_and_what_is_on_says_by_what(attached: frozenset[str]) -> None:
    for measurement in measurements(attached):
        assert measurement.state in ("on", "degraded", "off")
        assert (measurement.reason is None) == (measurement.state == "on")
        assert (measurement.rests_on is None) == (measurement.state == "off")


@pytest.mark.parametrize("name", OPTIONAL)
def test_without_an_optional_program_something_is_no_longer_on(name: str) -> None:
    with_it = {one.name: one for one in measurements(ALL)}
    without = {one.name: one for one in measurements(ALL - {name})}
    assert with_it.keys() == without.keys()
    changed = [key for key in with_it if with_it[key] != without[key]]
    assert changed
    for key in changed:
        assert without[key].state in ("degraded", "off")
        assert name not in (without[key].rests_on or "")


def test_without_events_at_the_queue_nothing_of_a_listener_is_on() -> None:
    states = {one.name: one.state for one in measurements(ALL - {"sk_data_ready"})}
    assert [states[name] for name in ("accept_queue", "accept_wait", "refused_connects")] == [
        "degraded",
        "off",
        "off",
    ]


def test_queues_of_unix_streams_need_their_count_of_bytes() -> None:
    states = {one.name: one for one in measurements(ALL, unix_unread=False)}
    assert states["queue_high_water"].state == "degraded"
    assert "TCP only" in (states["queue_high_water"].reason or "")


def test_what_is_on_rests_on_programs_that_exist() -> None:
    for measurement in measurements(ALL):
        if measurement.state != "off" and (measurement.rests_on or "").startswith("tp_btf:"):
            first = (measurement.rests_on or "")[len("tp_btf:") :].split("+")[0]
            assert first in ALL


def test_type_names_are_those_of_the_kernels_btf() -> None:
    assert [program.type_name for program in EVENT_PROGRAMS if program.name == "sys_enter"] == [
        "btf_trace_sys_enter"
    ]


def test_every_program_is_in_the_source() -> None:
    source = (ROOT / "bpf" / "tracepoint.bpf.c").read_text()
    absent = {
        each.name
        for each in EVENT_PROGRAMS
        if f'SEC("{each.hook}/{each.at or each.name}")' not in source
        or not re.search(rf"\b{each.name}[,(]", source)
    }
    assert absent == set()


def test_a_function_stands_for_the_tracepoint_that_is_absent() -> None:
    tells = {one.name: one for one in measurements(programs("fentry", EVENTS))}
    assert {one.state for one in tells.values()} == {"on"}
    assert tells["accept_queue"].rests_on == "fentry:sock_def_readable"
    assert "sk_data_ready" not in programs("fentry", EVENTS)
    assert "sock_def_readable" not in ALL


def test_where_calls_are_seen_at_functions_nothing_rests_on_their_tracepoints() -> None:
    states = measurements(programs("fentry", EVENTS), functions=True)
    assert [one.name for one in states if "sys_e" in (one.rests_on or "")] == []
    assert {one.name: one.state for one in states if one.state != "on"} == {
        "thread_time": "degraded",
        "processes": "degraded",
        "slowest_requests": "degraded",
    }
    by_name = {one.name: one.rests_on for one in states}
    assert by_name["syscalls"] == "fentry+fexit:system calls"
    assert by_name["stages"] == "fentry:sock_def_readable+fexit:system calls"
    assert by_name["thread_time"] == ("tp_btf:sched_switch+sched_wakeup+fentry+fexit:system calls")


@pytest.mark.parametrize(
    ("functions", "preempts", "tried"),
    [
        (True, False, ("fentry", "tracepoint")),
        (True, True, ("tracepoint",)),
        (False, False, ("tracepoint",)),
    ],
)
def test_functions_are_preferred_where_no_program_is_preempted(
    functions: bool, preempts: bool, tried: tuple[str, ...]
) -> None:
    assert strategies("auto", EVENTS, functions=functions, preempts=preempts) == tried
    assert strategies("tracepoint", EVENTS, functions=functions, preempts=preempts) == (
        "tracepoint",
    )
    assert strategies("fentry", EVENTS, functions=functions, preempts=preempts) == ("fentry",)


@pytest.mark.parametrize(
    ("asked", "absent", "tried"),
    [
        ("auto", set(), ("tracepoint",)),
        ("auto", {"sk_data_ready"}, ("fentry", "tracepoint")),
        ("auto", {"sk_data_ready", "sock_def_readable"}, ("tracepoint",)),
        ("tracepoint", {"sk_data_ready"}, ("tracepoint",)),
        ("fentry", set(), ("fentry",)),
        ("fentry", {"sock_def_readable"}, ()),
    ],
)
def test_what_is_tried(asked: str, absent: set[str], tried: tuple[str, ...]) -> None:
    assert strategies(asked, EVENTS - absent) == tried


def test_the_schema_allows_every_state() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    assert '"degraded"' in json.dumps(schema)


def test_where_programs_are_skipped_nothing_that_rests_on_them_is_on() -> None:
    states = {one.name: one.state for one in measurements(ALL, preemptible=True)}
    assert {name for name, state in states.items() if state == "on"} == {"cpu", "listeners"}


def test_what_is_less_for_another_reason_keeps_it_where_programs_are_skipped() -> None:
    states = measurements(programs("fentry", EVENTS), functions=True, preemptible=True)
    (reason,) = [one.reason for one in states if one.name == "thread_time"]
    assert reason is not None
    assert NO_OTHER_CALLS in reason
    assert reason.endswith(SKIPS)


def test_io_uring_rests_on_the_name_that_this_kernel_has() -> None:
    for submit in ("io_uring_submit_req", "io_uring_submit_sqe"):
        (state,) = [m for m in measurements(ALL - URING_SUBMITS | {submit}) if m.name == "io_uring"]
        assert (state.state, state.rests_on) == ("on", f"tp_btf:{submit}+io_uring_complete")


def test_io_uring_without_word_of_full_rings_is_degraded() -> None:
    (state,) = [m for m in measurements(ALL - {URING_OVERFLOW}) if m.name == "io_uring"]
    assert state.state == "degraded" and "no room" in (state.reason or "")


def test_io_uring_is_off_where_either_end_is_not_told() -> None:
    for without in (URING, URING_SUBMITS):
        (state,) = [m for m in measurements(ALL - without) if m.name == "io_uring"]
        assert (state.state, state.rests_on) == ("off", None)
        assert "io_uring" in (state.reason or "")


def waits_of(attached: frozenset[str], **changes: bool) -> MeasurementState:
    return {one.name: one for one in measurements(attached, **changes)}["waits"]


def test_waits_have_no_authors_where_nothing_tells_of_wakes() -> None:
    without = waits_of(ALL - {"sched_waking"})
    assert (without.state, without.rests_on) == ("off", None)
    assert "sched_waking" in (without.reason or "")
    assert waits_of(ALL).state == "on"
    assert waits_of(ALL, sleeping_calls=False).state == "degraded"
