"""The shared options, checked and read into one value."""

from __future__ import annotations

from typing import Any, Tuple

import pytest

from udsprobe.commands.options import WatchOptions, read_options
from udsprobe.errors import UsageError

GIVEN = {
    "no_follow": False,
    "interval": 1.0,
    "duration": None,
    "forms": (False, False, False),
    "output": None,
    "ready_file": None,
    "strategy": "auto",
}


def read(**changed: Any) -> WatchOptions:
    return read_options(**{**GIVEN, **changed})


def test_defaults() -> None:
    assert read() == WatchOptions(True, 1.0, None, "screen", None, None)


def test_what_was_given() -> None:
    options = read(no_follow=True, interval=0.1, duration=2.5, output="o", ready_file="r")
    assert options == WatchOptions(False, 0.1, 2.5, "screen", "o", "r")


@pytest.mark.parametrize(
    ("forms", "form"),
    [
        ((True, False, False), "json"),
        ((False, True, False), "jsonl"),
        ((False, False, True), "plain"),
    ],
)
def test_form(forms: Tuple[bool, bool, bool], form: str) -> None:
    assert read(forms=forms).form == form


@pytest.mark.parametrize("forms", [(True, True, False), (False, True, True), (True, True, True)])
def test_two_forms_exclude_each_other(forms: Tuple[bool, bool, bool]) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        read(forms=forms)


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
def test_no_duration(duration: float) -> None:
    with pytest.raises(UsageError, match="--duration"):
        read(duration=duration)


@pytest.mark.parametrize("interval", [0.0, 0.09, -1.0, float("nan"), float("inf")])
def test_no_interval(interval: float) -> None:
    with pytest.raises(UsageError, match="--interval"):
        read(interval=interval)


@pytest.mark.parametrize("strategy", ["auto", "tracepoint", "fentry", "bcc"])
def test_strategy_by_name(strategy: str) -> None:
    assert read(strategy=strategy).strategy == strategy
