"""Watch until the end, in the form the user asked for."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Callable, Optional

from udsprobe.commands.delivery import Outlet
from udsprobe.commands.options import WatchOptions
from udsprobe.ending import Ending
from udsprobe.errors import UsageError
from udsprobe.model.report import Report
from udsprobe.observe import Observer


def watch(
    observer: Observer,
    options: WatchOptions,
    outlet: Outlet,
    started: Optional[Callable[[], None]] = None,
) -> Report:
    """Watch, answer, and return the report of the whole window.

    Args:
        started: called once everything is live, before the first wait.

    Raises:
        DeliveryError: the report could not be written.
        UsageError: `ready-file-not-writable`.
    """
    in_colour = _wants_colour(outlet)
    with Ending(options.duration_s, observer.targets_alive) as ending:
        ending.watch(observer.alive_pids())
        if options.ready_file:
            _announce(options.ready_file)
        if started is not None:
            started()
        if options.form == "screen" and outlet.is_terminal and _can_draw():
            _watch_screen(observer, options, ending)
        else:
            _watch_quietly(observer, options, outlet, ending)
        final = observer.finish()
    if options.form != "jsonl":
        outlet.write(_rendered(final, options.form, outlet, in_colour))
    return final


def _watch_quietly(
    observer: Observer, options: WatchOptions, outlet: Outlet, ending: Ending
) -> None:
    while not ending.wait(options.interval_s):
        if options.form == "jsonl":
            outlet.write(_rendered(observer.interval(), "jsonl", outlet))
        else:
            observer.keep_up()
        ending.watch(observer.alive_pids())
    if options.form == "jsonl":
        observer.stop()
        outlet.write(_rendered(observer.interval(), "jsonl", outlet))


def _watch_screen(observer: Observer, options: WatchOptions, ending: Ending) -> None:
    from udsprobe.commands.screen import ScreenFeed
    from udsprobe.views.dashboard import run_dashboard

    run_dashboard(ScreenFeed(observer, ending, options.interval_s), options.interval_s)


def _rendered(report: Report, form: str, outlet: Outlet, in_colour: bool = False) -> str:
    from udsprobe.views.document import json_line, json_text

    if form == "json":
        return json_text(report)
    if form == "jsonl":
        return json_line(report)
    from udsprobe.views.text import render

    return render(report, outlet.columns(), colour=in_colour)


def _wants_colour(outlet: Outlet) -> bool:
    """Asked before the dashboard runs: Textual may take NO_COLOR out of the environment."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return outlet.is_terminal and not plain


def _can_draw() -> bool:
    # The dashboard reads keys from stdin; it draws on stdout, and stderr may go anywhere.
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()
    return has_keyboard and os.environ.get("TERM", "dumb") != "dumb"


def withdraw_announcement(options: WatchOptions) -> None:
    """Remove the ready file of an earlier observation: whoever waits for it would not wait."""
    path = options.ready_file
    if path and os.path.isfile(path):
        with suppress(OSError):  # `watch` says so when it cannot be made either
            os.unlink(path)


def _announce(path: str) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UsageError(
            "ready-file-not-writable",
            f"cannot create {path!r}: {error.strerror}",
            "give --ready-file a path in a directory you can write to",
        ) from error
