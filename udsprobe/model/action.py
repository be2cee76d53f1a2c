"""One thing to do about a verdict or a finding: a line for a shell, or a sentence for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

LOOKS, CHANGES, RESTARTS = "looks", "changes", "restarts"
EFFECTS = (LOOKS, CHANGES, RESTARTS)


@dataclass(frozen=True)
class Action:
    """A remedy, or where to look next.

    Attributes:
        run: one line that a shell runs as it is; None: no single line does it.
        say: what to do, one sentence.
        effect: `looks` changes nothing, `changes` a setting of what runs, `restarts` a server.
        undo: a line that takes `run` back; None: there is none, or nothing to take back.
        do: `run`, or else `say`: what documents had before the others.
        why: what it is good for.
    """

    run: Optional[str]
    say: str
    effect: str
    undo: Optional[str]
    do: str
    why: str


def command(
    run: str, say: str, why: str, *, effect: str = LOOKS, undo: Optional[str] = None
) -> Action:
    """What one line of a shell does."""
    return Action(run=run, say=say, effect=effect, undo=undo, do=run, why=why)


def by_hand(say: str, why: str, *, effect: str = RESTARTS) -> Action:
    """What no single line does: a file or program is changed, and usually its server restarted."""
    return Action(run=None, say=say, effect=effect, undo=None, do=say, why=why)
