"""`udsprobe report`: the report of a recording, or of a part of it."""

from __future__ import annotations

import sys
from typing import Optional, Sequence, Tuple

import click

from udsprobe.commands import autopsies
from udsprobe.commands.options.moments import moment_unix_s
from udsprobe.commands.options.shared import debug_option
from udsprobe.commands.output.answer import rendered, wants_colour
from udsprobe.commands.output.delivery import Outlet, WholeFile, html_libraries
from udsprobe.errors import EXIT_OK, RecordingError, UsageError
from udsprobe.model.code.stacks import CPU, OFF_CPU, every_stack
from udsprobe.model.report import Report
from udsprobe.recording.reader import Recording, open_recording
from udsprobe.sample import Sample


@click.command(name="report", short_help="Print the report of a recording, or of part of it.")
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="The report document.")
@click.option(
    "--html",
    metavar="OUT",
    help="Write one HTML page with plots to this file; it needs no network.",
)
@click.option(
    "--from",
    "begins",
    metavar="TIME",
    help="Start at this time: 03:12, 2026-11-21T03:12:41 (UTC), +10m after the start, -5m before "
    "the end.",
)
@click.option("--to", "ends", metavar="TIME", help="End at this time, in the same format.")
@click.option(
    "--autopsy", type=int, metavar="N", help="The time of this row of udsprobe autopsies FILE."
)
@click.option(
    "--folded",
    metavar="OUT",
    help="Write the stacks to this file, a line each, for flame graph programs.",
)
@click.option(
    "--pprof", metavar="OUT", help="Write the stacks to this file in the format of pprof."
)
@click.option(
    "--asleep",
    is_flag=True,
    help="With --folded or --pprof: the stacks of sleeping threads, by their time (folded: µs).",
)
@click.option("--output", metavar="FILE", help="Write the output to this file.")
@debug_option
def command(
    file: str,
    as_json: bool,
    html: Optional[str],
    folded: Optional[str],
    pprof: Optional[str],
    asleep: bool,
    begins: Optional[str],
    ends: Optional[str],
    autopsy: Optional[int],
    output: Optional[str],
) -> int:
    """Print the report of a recording, the same that attach would have made.

    \b
    udsprobe report app.udsprobe
    udsprobe report app.udsprobe --json --from 03:11 --to 03:14
    udsprobe report app.udsprobe --html incident.html
    udsprobe report app.udsprobe --folded stacks.txt
    """
    files = {"--html": html, "--folded": folded, "--pprof": pprof}
    _check_forms([name for name, path in files.items() if path is not None], as_json, output)
    if asleep and folded is None and pprof is None:
        raise UsageError("usage", "--asleep goes with --folded or --pprof", "give one of them")
    if autopsy is not None and (begins is not None or ends is not None):
        raise UsageError("usage", "--autopsy cannot be combined with --from and --to", "give one")
    with open_recording(file) as recording:
        if autopsy is not None:
            full = autopsies.full_detail(recording, autopsies.chosen(recording, autopsy))
            begins, ends = (None, None) if full else _times_of(recording, autopsy)
            recording = full or recording
        if folded is not None or pprof is not None:
            _write_stacks(recording, begins, ends, folded, pprof, asleep=asleep)
            return EXIT_OK
        if html is not None:
            _write_page(recording, begins, ends, html)
            return EXIT_OK
        report = report_of(recording, begins, ends)
    form = "json" if as_json else "plain"
    if output is not None:
        with WholeFile(output) as whole:
            whole.write(rendered(report, form, whole))
        return EXIT_OK
    outlet = Outlet(None, sys.stdout)
    outlet.write(rendered(report, form, outlet, wants_colour(outlet)))
    return EXIT_OK


def _times_of(recording: Recording, number: int) -> Tuple[str, str]:
    """As `--from` and `--to` take them."""
    start, end = autopsies.window(autopsies.chosen(recording, number))
    began = max(0.0, start - recording.start_unix_s)
    return f"+{began:.3f}", f"+{max(0.0, end - recording.start_unix_s):.3f}"


def _check_forms(asked: Sequence[str], as_json: bool, output: Optional[str]) -> None:
    if len(asked) > 1:
        raise UsageError("usage", f"{' and '.join(asked)} cannot be combined", "give one")
    if asked and (as_json or output is not None):
        what = "page" if asked[0] == "--html" else "stacks"
        raise UsageError(
            "usage",
            f"{asked[0]} cannot be combined with --json or --output",
            f"{asked[0]} OUT writes the {what} to OUT",
        )


def _write_stacks(
    recording: Recording,
    begins: Optional[str],
    ends: Optional[str],
    folded: Optional[str],
    pprof: Optional[str],
    *,
    asleep: bool,
) -> None:
    from udsprobe.views.documents import folded as as_text
    from udsprobe.views.documents import pprof as as_message

    first, last = (
        recording.sample(n) for n in recording.ends(*_moments_of(recording, begins, ends))
    )
    stacks = every_stack(first, last, OFF_CPU if asleep else CPU)
    if not stacks or last.stacks is None:
        raise RecordingError(
            "no-stacks",
            "no stacks were taken in this part of the recording",
            "record with --stacks; without it they are taken once the verdict asks for them",
        )
    comms = {each.pid: each.comm for sample in (first, last) for each in sample.targets}
    if folded is not None:
        with WholeFile(folded, "--folded") as whole:
            whole.write(as_text.folded(stacks, comms))
    if pprof is not None:
        sampled_s = (_on_ns(last, asleep=asleep) - _on_ns(first, asleep=asleep)) / 1e9
        with WholeFile(pprof, "--pprof") as whole:
            whole.write_bytes(
                as_message.pprof(
                    stacks,
                    comms,
                    hz=last.stacks.hz,
                    unix_s=first.unix_s,
                    sampled_s=sampled_s,
                )
            )


def _on_ns(sample: Sample, *, asleep: bool) -> int:
    """How long stacks of that kind had been taken by then."""
    if sample.stacks is None:
        return 0
    return sample.stacks.asleep_on_ns if asleep else sample.stacks.on_ns


def _write_page(
    recording: Recording, begins: Optional[str], ends: Optional[str], path: str
) -> None:
    with html_libraries():
        from udsprobe.views.html.report_page import Moment, render
    report = report_of(recording, begins, ends)
    first, last = recording.ends(*_moments_of(recording, begins, ends))
    found = [
        Moment(each.first_unix_s, each.last_unix_s, each.severity, each.id, each.summary)
        for each in recording.findings
        if each.last_sequence > first and each.first_sequence <= last
    ]
    with WholeFile(path, "--html") as page:
        page.write(render(report, recording.timeline(first, last), found))


def report_of(recording: Recording, begins: Optional[str], ends: Optional[str]) -> Report:
    """The report between two times as users write them; None is the start, or the end.

    Raises:
        UsageError: `usage`. RecordingError.
    """
    return recording.report(*_moments_of(recording, begins, ends))


def _moments_of(
    recording: Recording, begins: Optional[str], ends: Optional[str]
) -> Tuple[Optional[float], Optional[float]]:
    def unix_s(text: Optional[str]) -> Optional[float]:
        if text is None:
            return None
        return moment_unix_s(text, recording.start_unix_s, recording.end_unix_s)

    return unix_s(begins), unix_s(ends)
