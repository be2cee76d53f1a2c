"""`udsprobe attach`: observe processes that run already."""

from __future__ import annotations

import sys
from typing import Any

import click

from udsprobe.commands.live.early_imports import early_imports
from udsprobe.commands.live.observing import observer_of
from udsprobe.commands.live.watching import exit_code, shown_form, watch, withdraw_announcement
from udsprobe.commands.options.record_options import recorder
from udsprobe.commands.options.selecting import chosen_processes, selector_options
from udsprobe.commands.options.shared import read_options, watch_options
from udsprobe.commands.output.delivery import Outlet


@click.command(
    name="attach",
    short_help="Observe running processes.",
    epilog="Ends at Ctrl-C, at SIGTERM or when the last target exits, and prints the report.",
)
@selector_options
@watch_options
def command(**given: Any) -> int:
    """Observe running processes: their socket system calls, listeners and requests.

    \b
    sudo udsprobe attach --pid $(pgrep -f app.js)
    sudo udsprobe attach --listener /run/app.sock --duration 10 --json
    """
    options = read_options(given)
    chosen = chosen_processes(given, follow=options.follow)
    outlet = Outlet(options.output, sys.stdout)
    withdraw_announcement(options)
    with (
        recorder(options.record) as writer,
        observer_of(
            options, chosen, recorder=writer, meanwhile=early_imports(shown_form(options, outlet))
        ) as observer,
    ):
        report = watch(observer, options, outlet)
    return exit_code(report, options)
