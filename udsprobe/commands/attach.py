"""`udsprobe attach`: observe processes that run already."""

from __future__ import annotations

import sys
from typing import Any

import click

from udsprobe.commands.ahead import importing
from udsprobe.commands.delivery import Outlet
from udsprobe.commands.options import WatchOptions, read_options, watch_options
from udsprobe.commands.record_options import read_record_options, recorder
from udsprobe.commands.rights import least_privilege
from udsprobe.commands.selecting import chosen_processes, selector_options
from udsprobe.commands.watching import exit_code, shown_form, watch, withdraw_announcement
from udsprobe.observe import Observer


@click.command(
    name="attach",
    short_help="Observe running processes.",
    epilog="Ctrl-C, SIGTERM and the exit of the last target end it and print the report.",
)
@selector_options
@watch_options
def command(**given: Any) -> int:
    """Observe running processes: their socket system calls, listeners and requests.

    \b
    sudo udsprobe attach --pid $(pgrep -f app.js)
    sudo udsprobe attach --listener /run/app.sock --duration 10 --json
    """
    options = options_of(given)
    chosen = chosen_processes(given, follow=options.follow)
    outlet = Outlet(options.output, sys.stdout)
    withdraw_announcement(options)
    with (
        recorder(options.record) as writer,
        Observer(
            chosen,
            interval_s=options.interval_s,
            follow=options.follow,
            slo_us=options.slo_us,
            privileges=least_privilege(options),
            strategy=options.strategy,
            recorder=writer,
            meanwhile=importing(shown_form(options, outlet)),
        ) as observer,
    ):
        report = watch(observer, options, outlet)
    return exit_code(report, options)


def options_of(shared: Any) -> WatchOptions:
    """From click's keyword arguments of `watch_options`."""
    return read_options(
        no_follow=shared["no_follow"],
        interval=shared["interval"],
        duration=shared["duration"],
        forms=(shared["as_json"], shared["as_jsonl"], shared["plain"]),
        output=shared["output"],
        ready_file=shared["ready_file"],
        strategy=shared["strategy"],
        slo=shared["slo"],
        keep_privileges=shared["keep_privileges"],
        fail_on=shared["fail_on"],
        record=read_record_options(
            shared["record"], shared["ring"], shared["on"], shared["around"]
        ),
    )
