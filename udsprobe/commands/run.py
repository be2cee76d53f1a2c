"""`udsprobe run`: start a command under observation."""

from __future__ import annotations

import sys
from typing import Any, Tuple

import click

from udsprobe.commands.attach import options_of
from udsprobe.commands.delivery import Outlet
from udsprobe.commands.launch import HeldCommand
from udsprobe.commands.options import watch_options
from udsprobe.commands.watching import watch
from udsprobe.errors import EXIT_OK
from udsprobe.observe import Observer


@click.command(
    name="run",
    short_help="Start a command under observation.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@watch_options
@click.argument("words", nargs=-1, required=True, metavar="COMMAND [ARGUMENT]...")
def command(words: Tuple[str, ...], **shared: Any) -> int:
    """Observe a command from its first system call to its last, and its children.

    The command keeps stdin and stdout; the report goes to stderr or to --output.

    \b
    sudo udsprobe run --output report.json --json -- ./server --port 8080
    """
    options = options_of(shared)
    outlet = Outlet(options.output, sys.stderr)
    with (
        HeldCommand(words) as held,
        Observer(
            [held.chosen],
            interval_s=options.interval_s,
            follow=options.follow,
            program=held.program,
        ) as observer,
    ):
        watch(observer, options, outlet, started=held.go)
    return EXIT_OK
