"""The shared options, checked and read into one value."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import click
import pytest

from udsprobe.commands.options.shared import FORMS, WatchOptions, read_options
from udsprobe.commands.options.shares import given_share
from udsprobe.errors import UsageError

BUDGET = click.Option(["--budget"])
CONTEXT = click.Context(click.Command("attach"))
GIVEN = {
    "no_follow": False,
    "interval": 1.0,
    "duration": None,
    "output": None,
    "ready_file": None,
    "strategy": "auto",
    "detail": None,
    "budget": 0.01,
    "slo": None,
    "keep_privileges": False,
}


def read(**changed: Any) -> WatchOptions:
    form, stays = changed.pop("form", None), changed.pop("stays", False)
    return read_options({**GIVEN, **changed}, form=form, stays=stays)


def test_defaults() -> None:
    assert read() == WatchOptions(True, 1.0, None, "screen", None, None)


@pytest.mark.parametrize(
    ("given", "stays", "expected"),
    [(None, False, "full"), (None, True, "auto"), ("full", True, "full"), ("auto", False, "auto")],
)
def test_detail_is_auto_for_what_stays(given: Optional[str], stays: bool, expected: str) -> None:
    assert read(detail=given, stays=stays).detail == expected


def test_what_was_given() -> None:
    options = read(no_follow=True, interval=0.1, duration=2.5, output="o", ready_file="r")
    assert options == WatchOptions(False, 0.1, 2.5, "screen", "o", "r")


@pytest.mark.parametrize("form", ["json", "jsonl", "plain"])
def test_form(form: str) -> None:
    assert read(**{FORMS[form]: True}).form == form


@pytest.mark.parametrize(
    "forms", [("json", "jsonl"), ("jsonl", "plain"), ("json", "jsonl", "plain")]
)
def test_two_forms_exclude_each_other(forms: Tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        read(**{FORMS[form]: True for form in forms})


def test_the_one_form_of_a_command() -> None:
    assert read(form="plain").form == "plain"


@pytest.mark.parametrize("interval", [0.001, 0.09])
def test_no_interval(interval: float) -> None:
    with pytest.raises(UsageError, match="--interval"):
        read(interval=interval)


@pytest.mark.parametrize("strategy", ["auto", "tracepoint", "fentry", "bcc"])
def test_strategy_by_name(strategy: str) -> None:
    assert read(strategy=strategy).strategy == strategy


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("100", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert given_share(CONTEXT, BUDGET, text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "0%", "101%", "1%%", "-1", "nan", "", "one"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        given_share(CONTEXT, BUDGET, text)
    assert raised.value.slug == "usage"
    assert "--budget" in str(raised.value)
