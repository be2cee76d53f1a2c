"""`udsprobe record`: observe running processes into a file, without a screen."""

from __future__ import annotations

import os
from typing import Any

import click

from udsprobe.commands.live.observing import observer_of
from udsprobe.commands.live.watching import exit_code, watch, withdraw_announcement
from udsprobe.commands.options.record_options import (
    bounds,
    recorder,
    retention_options,
)
from udsprobe.commands.options.selecting import chosen_processes, selector_options
from udsprobe.commands.options.shared import fail_on_option, pace_options, read_options
from udsprobe.commands.output.delivery import Outlet
from udsprobe.commands.output.notices import notice


@click.command(
    name="record",
    short_help="Record running processes to a file.",
    epilog="Ends at Ctrl-C, at SIGTERM or when the last target exits. After a kill or a power "
    "failure the file has all samples but the last; keep FILE-wal with it.",
)
@selector_options
@click.option(
    "-o",
    "--output",
    "record",
    required=True,
    metavar="FILE",
    help="The file to create; an existing file is not overwritten.",
)
@retention_options
@pace_options
@fail_on_option
def command(**shared: Any) -> int:
    """Record every sample to FILE, without a screen.

    udsprobe replay shows FILE in the dashboard and udsprobe report prints its
    report, both on any machine and without root. sqlite3 and
    DuckDB can query it.

    \b
    sudo udsprobe record -o app.udsprobe --listener /run/app.sock
    sudo udsprobe record -o app.udsprobe --comm node --ring 2h
    sudo udsprobe record -o app.udsprobe --comm node --on critical
    """
    options = read_options(shared, form="plain", stays=shared["ring"] is not None)
    chosen = chosen_processes(shared, follow=options.follow)
    withdraw_announcement(options)
    assert options.record is not None
    with (
        recorder(options.record) as writer,
        observer_of(options, chosen, recorder=writer) as observer,
    ):
        notice(f"recording to {options.record.path!r}: {bounds(options.record)}")
        report = watch(
            observer,
            options,
            Outlet(os.devnull, None),
            given_up=lambda: writer is not None and writer.failure is not None,
        )
    return exit_code(report, options)
