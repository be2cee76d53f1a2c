"""The states of the measurements: on, degraded, off, each with what it rests on or why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from udsprobe.kernel.plan import EVENT_PROGRAMS, measurements

ALL = frozenset(program.name for program in EVENT_PROGRAMS)
OPTIONAL = [program.name for program in EVENT_PROGRAMS if not program.required]
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
    assert {name for name in ALL if f'SEC("tp_btf/{name}")' not in source} == set()


def test_the_schema_allows_every_state() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    assert '"degraded"' in json.dumps(schema)
