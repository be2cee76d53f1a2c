"""`udsprobe attach`: observe processes that run already."""

from __future__ import annotations

import sys
from typing import Any, Tuple

import click

from udsprobe.commands.delivery import Outlet
from udsprobe.commands.options import WatchOptions, read_options, watch_options
from udsprobe.commands.watching import watch, withdraw_announcement
from udsprobe.errors import EXIT_OK, UsageError
from udsprobe.kernel.selectors import Selectors, parse_pids, resolve
from udsprobe.observe import Observer


@click.command(
    name="attach",
    short_help="Observe running processes.",
    epilog="Ctrl-C, SIGTERM and the exit of the last target end it and print the report.",
)
@click.option(
    "--pid", "pids", multiple=True, metavar="PID", help="A process; repeatable, or 1,2,3."
)
@click.argument("more_pids", nargs=-1, metavar="[PID]...")
@click.option(
    "--comm", "comms", multiple=True, metavar="NAME", help="Every process with this name."
)
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="ADDRESS",
    help="Whoever listens on a socket path, @abstract name, PORT or HOST:PORT.",
)
@click.option("--unit", "units", multiple=True, metavar="UNIT", help="Processes of a systemd unit.")
@click.option("--cgroup", "cgroups", multiple=True, metavar="PATH", help="Processes of a cgroup.")
@click.option("--all", "everything", is_flag=True, help="Every process but udsprobe itself.")
@watch_options
def command(
    pids: Tuple[str, ...],
    more_pids: Tuple[str, ...],
    comms: Tuple[str, ...],
    listeners: Tuple[str, ...],
    units: Tuple[str, ...],
    cgroups: Tuple[str, ...],
    everything: bool,
    **shared: Any,
) -> int:
    """Observe running processes: their socket system calls, listeners and requests.

    \b
    sudo udsprobe attach --pid $(pgrep -f app.js)
    sudo udsprobe attach --listener /run/app.sock --duration 10 --json
    """
    options = options_of(shared)
    selectors = Selectors(
        pids=parse_pids((*pids, *more_pids)),
        comms=comms,
        listeners=listeners,
        units=units,
        cgroups=cgroups,
        everything=everything,
        follow=options.follow,
    )
    if selectors.empty:
        raise UsageError(
            "usage",
            "nothing to attach to",
            "give --pid, --comm, --listener, --unit, --cgroup or --all",
        )
    chosen = resolve(selectors)
    outlet = Outlet(options.output, sys.stdout)
    withdraw_announcement(options)
    with Observer(chosen, interval_s=options.interval_s, follow=options.follow) as observer:
        watch(observer, options, outlet)
    return EXIT_OK


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
    )
