"""`udsprobe run`: start a command under observation."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any, Optional, Tuple

import click

from udsprobe.commands.live.early_imports import early_imports
from udsprobe.commands.live.launch import HeldCommand
from udsprobe.commands.live.observing import observer_of
from udsprobe.commands.live.watching import exit_code, shown_form, watch, withdraw_announcement
from udsprobe.commands.options.record_options import recorder
from udsprobe.commands.options.shared import WatchOptions, read_options, watch_options
from udsprobe.commands.output.delivery import Outlet
from udsprobe.commands.output.notices import notice


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
    options = _sharing_the_terminal(read_options(shared))
    outlet = Outlet(options.output, sys.stderr)
    withdraw_announcement(options)
    with (
        recorder(options.record) as writer,
        HeldCommand(words) as held,
        observer_of(
            options,
            [held.chosen],
            program=held.program,
            recorder=writer,
            meanwhile=early_imports(shown_form(options, outlet)),
        ) as observer,
    ):
        report = watch(observer, options, outlet, started=held.go)
        status = held.status(ended=observer.targets_alive() == 0)
    if options.output is not None or options.form not in ("json", "jsonl"):
        _tell_end(held.program[0], status)
    return exit_code(report, options)


def _sharing_the_terminal(options: WatchOptions) -> WatchOptions:
    # A dashboard, and a command that writes to the same terminal, destroy each other's output.
    shared = sys.stdout is not None and sys.stdout.isatty()
    return replace(options, form="plain") if options.form == "screen" and shared else options


def _tell_end(name: str, status: Optional[int]) -> None:
    if status is None or status == 0:
        return
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how = f"was ended by signal {number} ({signal.strsignal(number)})"
    else:
        how = f"exited with status {os.WEXITSTATUS(status)}"
    notice(f"{name} {how}")
