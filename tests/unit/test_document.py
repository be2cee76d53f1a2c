"""The report document: valid against its schema, in the contract's order, safe to print."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterator

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import samples
from tests.unit.samples import OTHER, TCP, UNIX, UNIX_DGRAM, call, in_flight, listener, sample
from udsprobe.model import report as report_module
from udsprobe.model.difference import report
from udsprobe.model.report import SCHEMA, Report
from udsprobe.sample import Sample
from udsprobe.views.documents.report_document import document, json_line, json_text

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA_DOCUMENT: Dict[str, Any] = json.loads((DOCS / "report.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA_DOCUMENT)
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}

DATACLASSES = [
    each
    for _, each in inspect.getmembers(report_module, inspect.isclass)
    if dataclasses.is_dataclass(each)
]


def definition(of: type) -> Dict[str, Any]:
    if of is Report:
        return SCHEMA_DOCUMENT
    found: Dict[str, Any] = SCHEMA_DOCUMENT["$defs"][of.__name__]
    return found


def busy() -> Report:
    return report(samples.observation(), *samples.busy_pair())


def filled(kind: Any) -> Any:
    """A value of this type with every optional part present."""
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        return filled(arguments[0])
    if typing.get_origin(kind) is list:
        return [filled(arguments[0])]
    if typing.get_origin(kind) is dict:
        return {}
    if kind in DATACLASSES:
        hints = typing.get_type_hints(kind)
        return kind(**{name: filled(hint) for name, hint in hints.items()})
    return {str: "text", int: 3, float: 0.5, bool: True}[kind]


def with_enums(value: Any, rules: Dict[str, Any]) -> Any:
    """`value` with each free string replaced by the first one the schema allows."""
    rules = resolved(rules)
    if "const" in rules:
        return rules["const"]
    if "enum" in rules:
        return rules["enum"][0]
    if isinstance(value, list):
        return [with_enums(each, rules["items"]) for each in value]
    if isinstance(value, dict) and "properties" in rules:
        return {key: with_enums(each, rules["properties"][key]) for key, each in value.items()}
    return value


def resolved(rules: Dict[str, Any]) -> Dict[str, Any]:
    reference = rules.get("$ref") or (rules.get("anyOf") or [{}])[0].get("$ref")
    if reference is None:
        return rules
    found: Dict[str, Any] = SCHEMA_DOCUMENT["$defs"][reference.rpartition("/")[2]]
    return found


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA_DOCUMENT)


def test_the_schema_defines_the_reports_dataclasses_and_nothing_else() -> None:
    names = {each.__name__ for each in DATACLASSES} - {"Report"}
    assert set(SCHEMA_DOCUMENT["$defs"]) == names


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: str(kind.__name__))
def test_each_field_is_in_the_schema_and_vice_versa(kind: type) -> None:
    rules = definition(kind)
    fields = [field.name.rstrip("_") for field in dataclasses.fields(kind)]
    if kind is Report:
        fields = ["schema", *(name for name in fields if name != "schema")]
    assert list(rules["properties"]) == fields
    assert rules["required"] == fields
    assert rules["additionalProperties"] is False


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: str(kind.__name__))
def test_each_field_has_the_dataclass_type_and_a_description(kind: type) -> None:
    hints = {name.rstrip("_"): hint for name, hint in typing.get_type_hints(kind).items()}
    for name, rules in definition(kind)["properties"].items():
        optional = type(None) in typing.get_args(hints[name])
        hint = typing.get_args(hints[name])[0] if optional else hints[name]
        assert rules["description"].endswith("."), name
        assert ("Null:" in rules["description"]) == optional, name
        if "const" not in rules:
            assert_same_type(rules, hint, optional)


def assert_same_type(rules: Dict[str, Any], hint: Any, optional: bool) -> None:
    if dataclasses.is_dataclass(hint):
        reference = {"$ref": f"#/$defs/{hint.__name__}"}  # type: ignore[union-attr]
        one_of = [reference, {"type": "null"}]
        assert rules.get("anyOf") == one_of if optional else rules["$ref"] == reference["$ref"]
        return
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    expected = {list: "array", dict: "object"}.get(origin) or SCALARS[hint]
    assert rules["type"] == ([expected, "null"] if optional else expected)
    if "enum" in rules:
        assert (None in rules["enum"]) == optional
    if origin is list:
        assert_same_type(rules["items"], arguments[0], optional=False)
    if origin is dict:
        assert rules["additionalProperties"]["type"] == SCALARS[arguments[1]]


def test_a_report_with_every_part_validates() -> None:
    everything = document(filled(Report))
    VALIDATOR.validate(with_enums(everything, SCHEMA_DOCUMENT))


@pytest.mark.parametrize(
    "spoil",
    [
        {"extra": 1},
        {"schema": "udsprobe.report/2"},
        {"targets_exited": -1},
        {"targets_exited": 1.5},
        {"host": {}},
        {"window": None},
    ],
)
def test_a_spoiled_document_does_not_validate(spoil: Dict[str, Any]) -> None:
    VALIDATOR.validate(document(busy()))
    assert not VALIDATOR.is_valid({**document(busy()), **spoil})


def test_the_page_explains_every_part_of_the_document() -> None:
    page = (DOCS / "report.md").read_text("utf-8")
    for name in SCHEMA_DOCUMENT["properties"]:
        assert f"`{name}`" in page, name


def test_keys_are_in_the_documents_order() -> None:
    keys = list(document(busy()))
    assert keys == list(SCHEMA_DOCUMENT["properties"])
    assert keys[:2] == ["schema", "version"]
    assert document(busy())["schema"] == SCHEMA


def test_text_and_line_are_the_same_document() -> None:
    shown = busy()
    assert json.loads(json_text(shown)) == json.loads(json_line(shown)) == document(shown)
    assert json_line(shown).index("\n") == len(json_line(shown)) - 1
    assert json_text(shown).endswith("}\n")


def test_integers_stay_exact_and_floats_have_three_decimals() -> None:
    shown = busy()
    exact = 2**53 + 1
    probe = replace(shown.probe, rss_bytes=exact, attach_ms=1.23456, self_cpu_pct=100 / 3)
    plain = json.loads(json_text(replace(shown, probe=probe)))["probe"]
    assert plain["rss_bytes"] == exact
    assert (plain["attach_ms"], plain["self_cpu_pct"]) == (1.235, 33.333)


def test_system_calls_per_request_keep_their_digits() -> None:
    last = sample(
        1, served=samples.served([500] * 70_000), syscalls_by_name={"read": 70_000, "accept4": 3}
    )
    shown = document(report(samples.observation(), sample(), last))
    by_syscall = shown["requests"]["syscalls_per_request"]["by_syscall"]
    assert by_syscall == {"read": 1.0, "accept4": 4.286e-05}


def test_undecodable_bytes_become_visible_escapes() -> None:
    hostile = b"/run/\xff\xfe\xc3\xa9.sock".decode("utf-8", "surrogateescape")
    last = sample(
        1,
        listeners=(listener(address=hostile),),
        targets=(samples.target(comm="\ud800x", cmdline="\x1b[2J\x7f\x9b\n"),),
    )
    shown = report(samples.observation(), sample(), last)
    assert document(shown)["listeners"][0]["address"] == "/run/\\xff\\xfe\u00e9.sock"
    assert document(shown)["targets"][0]["comm"] == "\\ud800x"
    printed = json_line(shown)
    assert printed.rstrip("\n").isprintable()
    assert printed.isascii()
    assert json.loads(printed)["targets"][0]["cmdline"] == "\x1b[2J\x7f\x9b\n"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    shown = busy()
    spoiled = replace(shown, probe=replace(shown.probe, attach_ms=value))
    with pytest.raises(ValueError, match="JSON"):
        json_text(spoiled)


texts = st.text(st.characters(exclude_categories=()), max_size=20)
counters = st.integers(0, 2**62)
durations = st.lists(st.integers(0, 2**42), max_size=30)
endpoints = st.sampled_from([UNIX, UNIX_DGRAM, TCP, OTHER])
errors = st.dictionaries(st.sampled_from(["EAGAIN", "EPIPE"]), st.integers(0, 9))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


rows = st.builds(call, st.sampled_from(["read", "writev"]), endpoints, durations, errors=errors)
targets = st.builds(
    samples.target,
    pid=st.integers(1, 2**22),
    comm=texts,
    cmdline=maybe(texts),
    state=st.sampled_from(["running", "exited"]),
    fds_open=maybe(counters),
    fds_limit=maybe(counters),
    via=st.sampled_from(["selector", "fork"]),
)
listeners = st.builds(
    listener,
    transport=st.sampled_from(["unix", "tcp"]),
    address=texts,
    pids=maybe(st.lists(counters, max_size=3).map(tuple)),
    backlog_effective=st.integers(0, 2**31),
    backlog_requested=maybe(st.integers(-(2**31), 2**31)),
    somaxconn=maybe(st.integers(0, 2**31)),
)
probes = st.builds(
    samples.probe,
    events_seen=counters,
    lost_missed=counters,
    missed_by_program=st.just({}),
    turned_away=counters,
    cpu_ns=st.integers(80_000_000, 2**50),
    bpf_cpu_ns=maybe(counters),
    bpf_measured_ns=maybe(counters),
    maps_bytes=maybe(counters),
)


@st.composite
def later_samples(draw: st.DrawFn) -> Sample:
    return sample(
        draw(st.floats(0, 1e6)),
        unix_s=draw(st.floats(0, 4e9)),
        calls=draw(maybe(st.lists(rows, max_size=4).map(tuple))),
        in_flight=draw(maybe(st.lists(st.builds(in_flight), max_size=3).map(tuple))),
        syscalls_by_name=draw(maybe(st.dictionaries(st.sampled_from(["read", "x"]), counters))),
        targets=draw(st.lists(targets, max_size=3).map(tuple)),
        listeners=draw(maybe(st.lists(listeners, max_size=3).map(tuple))),
        served=draw(maybe(durations.map(samples.served))),
        probe=draw(probes),
    )


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value))
        yield from strings(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


@settings(max_examples=60, deadline=None)
@given(later_samples(), st.sampled_from([sample(), samples.unmeasured_sample()]))
def test_every_document_validates(last: Sample, first: Sample) -> None:
    shown = report(samples.observation(), first, last)
    read_back = json.loads(json_line(shown), parse_constant=pytest.fail)
    VALIDATOR.validate(read_back)
    assert datetime.fromisoformat(read_back["window"]["start"]).tzinfo == timezone.utc
    assert not any("\ud800" <= each <= "\udfff" for text in strings(read_back) for each in text)
