"""The options that say whom to observe, read into processes."""

from __future__ import annotations

from typing import Any, List

import click

from udsprobe.commands.options import completion
from udsprobe.commands.options.shared import Command
from udsprobe.errors import UsageError
from udsprobe.kernel.selectors import Chosen, Selectors, parse_pids, resolve

_OPTIONS = (
    click.option(
        "--pid",
        "pids",
        multiple=True,
        metavar="PID",
        shell_complete=completion.pids,
        help="A process; repeatable, or 1,2,3.",
    ),
    click.argument("more_pids", nargs=-1, metavar="[PID]...", shell_complete=completion.pids),
    click.option(
        "--comm",
        "comms",
        multiple=True,
        metavar="NAME",
        shell_complete=completion.comms,
        help="Every process with this name.",
    ),
    click.option(
        "--listener",
        "listeners",
        multiple=True,
        metavar="ADDRESS",
        shell_complete=completion.listeners,
        help="Processes that listen on a socket path, @abstract name, PORT or HOST:PORT.",
    ),
    click.option(
        "--unit", "units", multiple=True, metavar="UNIT", help="Processes of a systemd unit."
    ),
    click.option(
        "--cgroup", "cgroups", multiple=True, metavar="PATH", help="Processes of a cgroup."
    ),
    click.option(
        "--in",
        "inside",
        type=click.IntRange(min=1),
        metavar="PID",
        help="Look --pid up in the container (PID namespace) of this process.",
    ),
    click.option("--all", "everything", is_flag=True, help="Every process but udsprobe itself."),
)


def selector_options(command: Command) -> Command:
    """Add the selectors to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen_processes(given: Any, *, follow: bool) -> List[Chosen]:
    """The processes that click's keyword arguments of `selector_options` name.

    Raises:
        UsageError: none is named. UdsprobeError: of `resolve`.
    """
    selectors = Selectors(
        pids=parse_pids((*given["pids"], *given["more_pids"])),
        comms=given["comms"],
        listeners=given["listeners"],
        units=given["units"],
        cgroups=given["cgroups"],
        everything=given["everything"],
        inside=given["inside"],
        follow=follow,
    )
    if selectors.empty:
        raise UsageError(
            "usage",
            "nothing to attach to",
            "give --pid, --comm, --listener, --unit, --cgroup or --all",
        )
    if selectors.inside is not None and not selectors.pids:
        raise UsageError(
            "usage",
            "--in needs --pid: it names the container in which the process ID is looked up",
            "add --pid with the process ID inside the container",
        )
    return list(resolve(selectors))
