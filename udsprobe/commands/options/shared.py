"""Options that `attach` and `run` share, read into one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, TypeVar

import click

from udsprobe.commands.options.lengths import given_s
from udsprobe.commands.options.privilege_options import keep_privileges_option
from udsprobe.commands.options.record_options import (
    RecordOptions,
    read_record_options,
    record_option,
)
from udsprobe.commands.options.shares import given_share
from udsprobe.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
INTERVAL_MIN_S = 0.1
_STACKS = {True: "always", None: "auto", False: "never"}
FORMS = {"json": "as_json", "jsonl": "as_jsonl", "plain": "plain"}


@dataclass(frozen=True)
class WatchOptions:
    """How to watch and how to answer.

    Attributes:
        form: `screen` (the dashboard where stdout is a terminal, else text),
            `plain`, `json` or `jsonl`.
        slo_us: the p99 that served requests should stay below.
        fail_on: least severity of a finding that makes the exit code 1.
        strategy: how the kernel calls the probes; `auto` is the first that loads.
        detail: how much is looked at, `full`, `light` or `auto`.
        budget: with `auto`, CPU seconds for light and full detail in each second.
        record: None when nothing is recorded.
        keep_privileges: nothing is given up once the probes are live.
        stacks: take stacks `always`, `auto` (while the verdict is app-cpu,
            app-blocked or upstream-wait) or `never`.
    """

    follow: bool
    interval_s: float
    duration_s: Optional[float]
    form: str
    output: Optional[str]
    ready_file: Optional[str]
    slo_us: Optional[float] = None
    fail_on: Optional[str] = None
    strategy: str = "auto"
    detail: str = "full"
    budget: float = 0.01
    record: Optional[RecordOptions] = None
    keep_privileges: bool = False
    stacks: str = "auto"


def debug_option(command: Command) -> Command:
    """Add `--debug`, taken before and after the command's name."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_set_debug,
        help="Show tracebacks and the kernel's own messages.",
    )(command)


def _set_debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        ctx.obj["debug"] = True


def watch_options(command: Command) -> Command:
    """Add the shared options to a click command."""
    for option in reversed((*_PACE, *_ANSWER, record_option, *_HOW, _FAIL_ON, debug_option)):
        command = option(command)
    return command


def pace_options(command: Command) -> Command:
    """Add those of them that say how to watch, and not how to answer."""
    for option in reversed((*_PACE, *_HOW, debug_option)):
        command = option(command)
    return command


def fail_on_option(command: Command) -> Command:
    """Add `--fail-on`."""
    return _FAIL_ON(command)


def read_options(
    given: Mapping[str, Any], *, form: Optional[str] = None, stays: bool = False
) -> WatchOptions:
    """Check what click cannot.

    Args:
        given: click's keyword arguments of `watch_options`, or of a part of them.
        form: of the output, where a command has one only.
        stays: it is there for good, so that its detail is auto where none is asked for.

    Raises:
        UsageError: `usage`.
    """
    interval, duration, slo = given["interval"], given["duration"], given["slo"]
    _check_interval(interval)
    return WatchOptions(
        follow=not given["no_follow"],
        interval_s=interval,
        duration_s=duration,
        form=form or form_asked(given),
        output=given.get("output"),
        ready_file=given["ready_file"],
        slo_us=None if slo is None else round(slo * 1e6, 3),
        fail_on=given.get("fail_on"),
        strategy=given["strategy"],
        detail=given["detail"] or ("auto" if stays else "full"),
        budget=given["budget"],
        record=read_record_options(given),
        keep_privileges=given["keep_privileges"],
        stacks=_STACKS[given.get("stacks")],
    )


def _check_interval(interval: float) -> None:
    if interval < INTERVAL_MIN_S:
        raise UsageError(
            "usage",
            f"--interval {interval:g} s is too short",
            f"give {INTERVAL_MIN_S:g} s or more",
        )


def form_asked(given: Mapping[str, Any]) -> str:
    """`json`, `jsonl`, `plain`, or `screen` where none is asked for.

    Args:
        given: click's keyword arguments.

    Raises:
        UsageError: `usage`, for more than one.
    """
    forms = [form for form, option in FORMS.items() if given.get(option)]
    if len(forms) > 1:
        raise UsageError("usage", "--json, --jsonl and --plain cannot be combined", "give one")
    return forms[0] if forms else "screen"


_PACE = (
    click.option(
        "--no-follow", is_flag=True, help="Do not observe the children that targets fork."
    ),
    click.option(
        "--interval",
        callback=given_s,
        default="1s",
        show_default=True,
        metavar="TIME",
        help="Time between two samples: 500ms, 5s; a bare number is seconds.",
    ),
    click.option(
        "--duration",
        callback=given_s,
        metavar="TIME",
        help=(
            "Stop after this time (10s, 5m, 2h); default: at Ctrl-C or when the targets have "
            "exited."
        ),
    ),
)
_ANSWER = (
    click.option("--json", "as_json", is_flag=True, help="One report document at the end."),
    click.option("--jsonl", "as_jsonl", is_flag=True, help="One report document per interval."),
    click.option("--plain", is_flag=True, help="One readable report at the end, no screen."),
    click.option("--output", metavar="FILE", help="Write the report to this file."),
)
_HOW = (
    click.option(
        "--ready-file", metavar="FILE", help="Create this file once every probe is attached."
    ),
    click.option(
        "--strategy",
        type=click.Choice(["auto", "tracepoint", "fentry", "bcc"]),
        default="auto",
        show_default=True,
        envvar="UDSPROBE_STRATEGY",
        help="How the kernel calls the probes; bcc: compiled here by BCC, for kernels without BTF.",
    ),
    click.option(
        "--detail",
        type=click.Choice(["full", "light", "auto"]),
        help=(
            "full: everything; light: requests, bytes, peers and accept queues alone, without a "
            "probe on system calls (Linux 6.3); auto: light, with full detail regularly and when "
            "pressure begins.  [default: auto with export and record --ring, else full]"
        ),
    ),
    click.option(
        "--budget",
        callback=given_share,
        default="1%",
        show_default=True,
        metavar="PERCENT",
        help="With --detail auto: CPU time for light and full detail, of one CPU and over an hour.",
    ),
    click.option(
        "--slo",
        callback=given_s,
        metavar="TIME",
        help="Treat a p99 of served requests above this (50ms, 0.2s) as pressure.",
    ),
    click.option(
        "--stacks/--no-stacks",
        default=None,
        help=(
            "Sample the targets' stacks, and where they sleep, all the time, or never; default: "
            "for 10 s once the verdict is app-cpu, app-blocked or upstream-wait."
        ),
    ),
    keep_privileges_option,
)
_FAIL_ON = click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "critical"]),
    help="Exit with status 1 if a finding has this severity or a higher one.",
)
