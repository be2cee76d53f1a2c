"""`udsprobe autopsies`: the times in a recording in which the verdict named a cause."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional, Tuple

import click

from udsprobe.commands.options.shared import debug_option
from udsprobe.commands.output.delivery import Outlet
from udsprobe.errors import EXIT_OK, RecordingError, UsageError
from udsprobe.model.report import Report, Verdict
from udsprobe.recording.autopsy import KEPT_S_MAX, QUIET_S, Autopsy
from udsprobe.recording.reader import Recording, open_recording
from udsprobe.recording.window_reader import overlapping
from udsprobe.views.fields.escape import fit, visible
from udsprobe.views.fields.numbers import span


@click.command(
    name="autopsies",
    short_help="List when the verdict of a recording named a cause.",
    epilog="report FILE --autopsy N and replay FILE --autopsy N open there.",
)
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@debug_option
def command(file: str, as_json: bool) -> int:
    """List the times in which the verdict of a recording named a cause.

    A ring (record --ring) keeps their surroundings beyond its own age: a minute before and the
    first ten minutes of each, the newest 24.

    \b
    udsprobe autopsies app.udsprobe
    udsprobe report app.udsprobe --autopsy 2
    udsprobe replay app.udsprobe --autopsy 2
    """
    with open_recording(file) as recording:
        rows = [
            (number, each, _judged(recording, each))
            for number, each in enumerate(recording.autopsies(), 1)
        ]
    outlet = Outlet(None, sys.stdout)
    outlet.write(_document(rows) if as_json else _text(rows, outlet.columns()))
    return EXIT_OK


_Rows = List[Tuple[int, Autopsy, Optional[Report]]]


def chosen(recording: Recording, number: int) -> Autopsy:
    """The autopsy of that number, as `udsprobe autopsies` lists them.

    Raises:
        UsageError: `usage`, there is none.
    """
    found = recording.autopsies()
    if not 1 <= number <= len(found):
        raise UsageError(
            "usage",
            f"the recording has no autopsy {number}",
            f"udsprobe autopsies {recording.path} lists {len(found) or 'none'}",
        )
    return found[number - 1]


def window(autopsy: Autopsy) -> Tuple[float, float]:
    """What its report is about: the verdict names a cause up to ten seconds after it began."""
    end = min(autopsy.last_unix_s, autopsy.first_unix_s + KEPT_S_MAX)
    return autopsy.first_unix_s - QUIET_S, end


def full_detail(recording: Recording, autopsy: Autopsy) -> Optional[Recording]:
    """The full window of detail auto that tells most of it; None: there is none.

    Raises:
        RecordingError.
    """
    # Not before the cause was named: windows of then show what was well.
    found = overlapping(recording.windows(), autopsy.first_unix_s, autopsy.kept.end)
    return None if found is None else recording.window(found.number)


def _judged(recording: Recording, autopsy: Autopsy) -> Optional[Report]:
    """By this version, of full detail where there is some; None: its samples were dropped."""
    try:
        full = full_detail(recording, autopsy)
        if full is not None:
            return full.report()
        return recording.report(*window(autopsy))
    except RecordingError as error:
        if error.slug != "recording-empty":
            raise
        return None


def _text(rows: _Rows, width: int) -> str:
    if not rows:
        return "the verdict named no cause in this recording\n"
    lines: List[str] = []
    for number, each, report in rows:
        lasted = span(each.last_unix_s - each.first_unix_s)
        when = f"{number:>3}  {_clock(each.first_unix_s)}  {lasted}"
        detail = "" if report is None else f"  ({report.probe.detail} detail)"
        causes = " → ".join(map(visible, each.causes))
        lines.append(fit(f"{when}  {causes}{detail}", width))
        verdict = None if report is None else report.verdict
        said = "its samples were dropped" if verdict is None else visible(verdict.summary)
        lines.append(fit(f"     {said}", width))
    return "\n".join(lines) + "\n"


def _document(rows: _Rows) -> str:
    told = [_entry(number, each, report) for number, each, report in rows]
    return json.dumps({"schema": "udsprobe.autopsies/1", "autopsies": told}, indent=2) + "\n"


def _entry(number: int, each: Autopsy, report: Optional[Report]) -> Dict[str, Any]:
    return {
        "number": number,
        "start": _iso(each.first_unix_s),
        "end": _iso(each.last_unix_s),
        "duration_s": round(each.last_unix_s - each.first_unix_s, 3),
        "causes": list(each.causes),
        "detail": None if report is None else report.probe.detail,
        "verdict": None if report is None else _verdict(report.verdict),
    }


def _verdict(verdict: Optional[Verdict]) -> Optional[Dict[str, Any]]:
    if verdict is None:
        return None
    return {"cause": verdict.cause, "class": verdict.class_, "summary": verdict.summary}


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _iso(unix_s: float) -> str:
    moment = datetime.fromtimestamp(unix_s, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds")
