"""Each check of `examples/claims` fails where docs/claims.md is wrong: fed with wrong figures."""

from __future__ import annotations

import string
from pathlib import Path
from typing import List, Tuple

import pytest

from examples.claims import kernel_checks, node_checks
from examples.claims.check import CHECKS, Between, Check, Expectation, Figures, Value, demanded

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "claims.md"
assert kernel_checks and node_checks  # imported for what they register

EVERY_FIGURE = [
    pytest.param(one, name, id=f"{one.name}-{name}")
    for one in CHECKS.values()
    for name in one.expects
]


def right(expected: Expectation) -> Value:
    return (
        (expected.low + expected.high) / 2 if isinstance(expected, Between) else expected.values[0]
    )


def wrong(expected: Expectation) -> List[Value]:
    """Below and above a range, another value than the one; always one that is no number."""
    if isinstance(expected, Between):
        width = expected.high - expected.low
        return [expected.low - 0.1 * width, expected.high + 0.1 * width, "–", float("nan")]
    first = expected.values[0]
    return ["something else", *([] if isinstance(first, str) else [first - 1, first + 1])]


def right_figures(one: Check) -> Figures:
    return {name: right(expected) for name, expected in one.expects.items()}


@pytest.mark.parametrize("one", CHECKS.values(), ids=CHECKS)
def test_the_pages_own_figures_pass_and_can_be_said(one: Check) -> None:
    figures = right_figures(one)
    assert one.expects and one.wrong(figures) == []
    named = {field for _, field, _, _ in string.Formatter().parse(one.says) if field}
    assert named <= set(figures) and one.said(figures)


@pytest.mark.parametrize(("one", "name"), EVERY_FIGURE)
def test_a_wrong_figure_fails_its_check(one: Check, name: str) -> None:
    for value in wrong(one.expects[name]):
        (line,) = one.wrong({**right_figures(one), name: value})
        assert line.startswith(f"{name} is {value}, docs/claims.md says ")


@pytest.mark.parametrize(("one", "name"), EVERY_FIGURE)
def test_a_figure_that_was_not_measured_fails_its_check(one: Check, name: str) -> None:
    figures = right_figures(one)
    del figures[name]
    assert len(one.wrong(figures)) == 1


def test_a_figure_that_nobody_judges_fails() -> None:
    one = CHECKS["somaxconn-default"]
    assert one.wrong({"somaxconn": 4096, "depth": 3}) == ["depth has no range"]


# What each claim would measure if the document, and not the page, were right.
AS_THE_DOCUMENTS_SAY: List[Tuple[str, str, Value]] = [
    ("cpu-at-5000-requests", "unix_cpu_pct", 95.0),
    ("cpu-at-5000-requests", "unix_to_tcp", 18 / 27),
    ("proxied-calls", "unix_calls", 4.0),
    ("node-calls", "unix_msg", 1.0),
    ("somaxconn-default", "somaxconn", 128),
    ("full-unix-queue", "at_once", "ECONNREFUSED"),
    ("full-tcp-queue", "answer", "ECONNREFUSED"),
    ("full-queue-behind-nginx", "errno_111", 3),
    ("worker-connections-run-out", "bad_gateways", 1),
    ("context-switches", "tcp_per_trip", 2.0),
    ("loopback-packets", "packets", 42),
    ("loopback-packets", "checksum_left_to_device", "no"),
    ("nagle-on-loopback", "one_us", 44_000.0),
    ("reuseport-on-unix", "in_use", "bound"),
    ("noexec-and-inodes", "noexec", "EACCES"),
    ("idle-connections", "idle_to_alone", 1.5),
    ("strace-with-a-command", "status", 0),
    ("descriptors-at-the-wall", "served", 980),
    ("cluster-on-one-path", "listening", 1),
    ("pauses-on-both-transports", "tcp_p99_ms", 60.0),
]


@pytest.mark.parametrize(("check", "figure", "value"), AS_THE_DOCUMENTS_SAY)
def test_what_the_documents_say_fails(check: str, figure: str, value: Value) -> None:
    one = CHECKS[check]
    assert one.wrong({**right_figures(one), figure: value})


def test_the_page_states_each_range() -> None:
    assert demanded() in PAGE.read_text()


def test_the_page_names_no_check_that_does_not_exist() -> None:
    named = [
        name
        for line in PAGE.read_text().splitlines()
        for part in line.split("`")
        if part.startswith("claims ")
        for name in part.split()[1:]
        if name != "NAME"
    ]
    assert set(named) == set(CHECKS)
