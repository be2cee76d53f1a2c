"""`udsprobe replay`: a recording as the dashboard, or as attach would have answered.

Needs no root, no BPF and no kernel of any kind: it imports none of that.
"""

from __future__ import annotations

import sys
from typing import Optional

import click

from udsprobe.commands.autopsies import chosen, full_detail, window
from udsprobe.commands.options.shared import debug_option, form_asked
from udsprobe.commands.output.answer import can_draw, follow_the_terminal, rendered, wants_colour
from udsprobe.commands.output.delivery import Outlet
from udsprobe.errors import EXIT_OK
from udsprobe.recording.reader import Recording, open_recording


@click.command(
    name="replay",
    short_help="Show a recording in the dashboard, with a time line.",
    epilog="Keys: Space plays or pauses, arrows step, [ ] a minute, - + speed, n next "
    "finding, g go to a time, ? help.",
)
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One report document of the whole recording.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="One report document per interval.")
@click.option(
    "--plain", is_flag=True, help="One readable report of the whole recording, no screen."
)
@click.option("--output", metavar="FILE", help="Write the report to this file.")
@click.option(
    "--autopsy", type=int, metavar="N", help="Open at this row of udsprobe autopsies FILE."
)
@debug_option
def command(file: str, output: Optional[str], autopsy: Optional[int], **forms: bool) -> int:
    """Replay a recording: the same screen, the same numbers, no root.

    Without a terminal it prints what attach would have printed.
    """
    form = form_asked(forms)
    with open_recording(file) as recording:
        begins = None
        if autopsy is not None:
            incident = chosen(recording, autopsy)
            full = full_detail(recording, incident)
            begins = None if full else window(incident)[0]
            recording = full or recording
        outlet = Outlet(output, sys.stdout)
        in_colour = wants_colour(outlet)
        if form == "jsonl":
            _each_interval(recording, outlet)
            return EXIT_OK
        if form == "screen" and outlet.is_terminal and can_draw():
            _watch(recording, begins)
        outlet.write(rendered(recording.report(), form, outlet, in_colour))
    return EXIT_OK


def _each_interval(recording: Recording, outlet: Outlet) -> None:
    for interval in recording.intervals():
        outlet.write(rendered(interval, "jsonl", outlet))


def _watch(recording: Recording, begins_unix_s: Optional[float]) -> None:
    from udsprobe.commands.live.player import RecordingPlayer
    from udsprobe.views.dashboard import run_replay

    if len(recording.sequences()) > 1:
        follow_the_terminal()
        player = RecordingPlayer(recording, begins_unix_s=begins_unix_s)
        run_replay(player, recording.observation.interval_s)
