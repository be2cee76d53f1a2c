"""Watch until the end, in the form the user asked for."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Optional

from udsprobe.commands.options.shared import WatchOptions
from udsprobe.commands.output.answer import can_draw, follow_the_terminal, rendered, wants_colour
from udsprobe.commands.output.delivery import Outlet
from udsprobe.errors import EXIT_FINDING, EXIT_OK, UsageError
from udsprobe.observe.ending import Ending
from udsprobe.observe.live_observer import LiveObserver
from udsprobe.written_files import open_to_write

if TYPE_CHECKING:
    from udsprobe.model.report import Report


def watch(
    observer: LiveObserver,
    options: WatchOptions,
    outlet: Outlet,
    started: Optional[Callable[[], None]] = None,
    given_up: Optional[Callable[[], bool]] = None,
) -> Report:
    """Watch, answer, and return the report of the whole window.

    Args:
        started: called once everything is live, before the first wait.
        given_up: asked after each sample: whether there is no use in going on.

    Raises:
        DeliveryError: the report could not be written.
        UsageError: `ready-file-not-writable`.
    """
    in_colour = wants_colour(outlet)
    with Ending(options.duration_s, observer.targets_alive) as ending:
        ending.watch(observer.alive_pids())
        if options.ready_file:
            announce(options.ready_file)
        if started is not None:
            started()
        if shown_form(options, outlet) == "screen":
            _watch_screen(observer, options, ending)
        else:
            _watch_quietly(observer, options, outlet, ending, given_up)
        final = observer.window() if options.form == "jsonl" else observer.finish()
    if options.form != "jsonl":
        outlet.write(rendered(final, options.form, outlet, in_colour))
    return final


def shown_form(options: WatchOptions, outlet: Outlet) -> str:
    """The form asked for; text where a screen was and cannot be drawn."""
    if options.form != "screen" or (outlet.is_terminal and can_draw()):
        return options.form
    return "plain"


def exit_code(report: Report, options: WatchOptions) -> int:
    """1 when the report has a finding that `--fail-on` asks about."""
    if options.fail_on is None:
        return EXIT_OK
    from udsprobe.rules.suspects.suspect import SEVERITIES

    least = SEVERITIES.index(options.fail_on)
    found = any(SEVERITIES.index(each.severity) >= least for each in report.findings or [])
    return EXIT_FINDING if found else EXIT_OK


def _watch_quietly(
    observer: LiveObserver,
    options: WatchOptions,
    outlet: Outlet,
    ending: Ending,
    given_up: Optional[Callable[[], bool]],
) -> None:
    is_told = options.form == "jsonl"
    while not ending.wait(options.interval_s if is_told else observer.pace_s(options.interval_s)):
        if is_told:
            outlet.write(rendered(observer.interval(), "jsonl", outlet))
        else:
            observer.keep_up()
        ending.watch(observer.alive_pids())
        if given_up is not None and given_up():
            ending.stop()
    if is_told:
        observer.stop()
        outlet.write(rendered(observer.interval(), "jsonl", outlet))


def _watch_screen(observer: LiveObserver, options: WatchOptions, ending: Ending) -> None:
    from udsprobe.commands.live.screen import ScreenFeed
    from udsprobe.views.dashboard import run_dashboard

    follow_the_terminal()
    run_dashboard(ScreenFeed(observer, ending, options.interval_s), options.interval_s)


def withdraw_announcement(options: WatchOptions) -> None:
    """Remove the ready file of an earlier observation: whoever waits for it would not wait."""
    path = options.ready_file
    if path and os.path.isfile(path):
        with suppress(OSError):  # `watch` says so when it cannot be made either
            os.unlink(path)


def announce(path: str) -> None:
    """Create the ready file: every probe is live.

    Raises:
        UsageError: `ready-file-not-writable`.
    """
    try:
        os.close(open_to_write(path, empty=False))
    except OSError as error:
        raise UsageError(
            "ready-file-not-writable",
            f"cannot create {path!r}: {error.strerror}",
            "give --ready-file a path in a directory you can write to",
        ) from error
