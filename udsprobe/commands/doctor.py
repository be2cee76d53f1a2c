"""`udsprobe doctor`: what this kernel allows, which limits bind, what configurations get wrong."""

from __future__ import annotations

import os
import platform
import sys
from typing import Optional, Tuple

import click

from udsprobe import __version__
from udsprobe.commands.options import completion
from udsprobe.commands.options.shared import debug_option
from udsprobe.commands.output.delivery import Outlet
from udsprobe.doctor.examine import SCHEMA, Machine, diagnosis
from udsprobe.doctor.finding import reaches
from udsprobe.errors import EXIT_FINDING, EXIT_OK
from udsprobe.kernel.selectors import parse_pids
from udsprobe.rules.suspects.suspect import SEVERITIES
from udsprobe.servers.gather import gather


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--pid",
    "pids",
    multiple=True,
    metavar="PID",
    shell_complete=completion.pids,
    help="Only this process, its children and their configuration. Repeatable, or "
    "a list: 1,2,3 or $(pgrep -f app.js).",
)
@click.option("--json", "as_json", is_flag=True, help=f"One JSON document, {SCHEMA}.")
@click.option("--verbose", "-v", is_flag=True, help="Also show what each measurement rests on.")
@click.option("--output", metavar="FILE", help="Write the output to this file.")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    help="Exit with status 1 if a finding has this severity or a higher one.",
)
@debug_option
@click.argument("more_pids", nargs=-1, metavar="[PID]...", shell_complete=completion.pids)
def command(
    pids: Tuple[str, ...],
    as_json: bool,
    verbose: bool,
    output: Optional[str],
    fail_on: Optional[str],
    more_pids: Tuple[str, ...],
) -> int:
    """Check the kernel, the limits and the servers' configurations. Changes nothing.

    Shows what each measurement rests on here, which limits are reached or
    shorten a queue, and which settings of nginx, systemd and Caddy are wrong, each
    with the line to change. Without --pid it checks every server it finds.

    Needs no root; what this user may not see is listed as not checked. As root it
    loads the probes briefly, without a target, to test whether they load.
    """
    asked = parse_pids([*pids, *more_pids])
    outlet = Outlet(output, sys.stdout)
    found = diagnosis(__version__, _host(), gather(asked))
    if as_json:
        from udsprobe.views.documents.doctor_document import json_text

        outlet.write(json_text(found))
    else:
        from udsprobe.views.text.doctor_text import render

        coloured = _coloured(outlet)
        outlet.write(render(found, outlet.columns(), colour=coloured, verbose=verbose))
    return EXIT_FINDING if reaches(found.findings, fail_on) else EXIT_OK


def _coloured(outlet: Outlet) -> bool:
    return outlet.is_terminal and not os.environ.get("NO_COLOR")


def _host() -> Machine:
    name = platform.uname()
    return Machine(name.release, name.machine, os.cpu_count() or 1, name.node)
