"""Lengths of time on the command line: one grammar for every option that takes one."""

from __future__ import annotations

from typing import List

import click
import pytest

from udsprobe import cli
from udsprobe.commands.options.lengths import given_s, seconds
from udsprobe.errors import EXIT_USAGE

TAKEN = ("--duration", "--interval", "--ring", "--around", "--slo")


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("30s", 30),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("800us", 0.0008),
        ("800µs", 0.0008),
        ("1s500ms", 1.5),
        ("5m", 300),
        ("2", 2),
        ("0.25", 0.25),
        (".5", 0.5),
    ],
)
def test_lengths_of_time(text: str, length_s: float) -> None:
    assert seconds(text) == length_s


WRONG = ["", "h", "0", "0s", "-1", "-1h", "2h ", "2 h", "1w", "nan", "inf", "1e3", "1_0", "9" * 400]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_length_of_time(text: str) -> None:
    assert seconds(text) is None


def options_of(name: str) -> List[click.Parameter]:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    return command.params


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_option_that_is_a_length_takes_the_same(name: str) -> None:
    lengths = [one for one in options_of(name) if set(one.opts) & set(TAKEN)]
    assert all(one.callback is given_s for one in lengths), name


@pytest.mark.parametrize("option", TAKEN)
def test_a_wrong_length_says_what_is_taken(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["attach", "--pid", "1", option, "10 parsecs"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert f"{option} '10 parsecs' is not a duration; give one such as 500ms, 10s" in said
