"""`--record`, `--ring`, `--on`, `--around`: what a recording keeps, and the one who writes it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, TypeVar

import click

from udsprobe.commands.options.lengths import given_s
from udsprobe.commands.output.notices import notice
from udsprobe.errors import UsageError
from udsprobe.recording.retention import AROUND_S, SEVERITIES, Retention
from udsprobe.views.fields.numbers import span

if TYPE_CHECKING:
    from udsprobe.recording.writer import Recorder

Command = TypeVar("Command", bound=Callable[..., Any])
_MIB = 1 << 20


@dataclass(frozen=True)
class RecordOptions:
    """Where to record and what to keep."""

    path: str
    retention: Retention


def retention_options(command: Command) -> Command:
    """Add `--ring`, `--on` and `--around` to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def record_option(command: Command) -> Command:
    """Add `--record FILE` and what goes with it."""
    option = click.option(
        "--record", metavar="FILE", help="Write every sample to FILE, for replay and report."
    )
    return option(retention_options(command))


def read_record_options(given: Mapping[str, Any]) -> Optional[RecordOptions]:
    """None when nothing is recorded.

    Args:
        given: click's keyword arguments; `record` is the path.

    Raises:
        UsageError: `usage`.
    """
    path, ring, on, around = (given.get(name) for name in ("record", "ring", "on", "around"))
    if path is None:
        if ring or on or around:
            raise UsageError(
                "usage", "--ring, --on and --around need --record", "add --record FILE"
            )
        return None
    if around and not on:
        raise UsageError("usage", "--around needs --on", "add --on SEVERITY")
    return RecordOptions(path, Retention(ring, on, around or AROUND_S))


@contextmanager
def recorder(options: Optional[RecordOptions]) -> Iterator[Optional[Recorder]]:
    """The recorder, if one is asked for; says on stderr what it holds in the end.

    Raises:
        UsageError: `recording-exists`, `recording-not-writable`.
        RecordingFailedError: `recording-failed`, when all else is done.
    """
    if options is None:
        yield None
        return
    from udsprobe.recording.writer import Recorder

    with Recorder(options.path, options.retention) as writer:
        yield writer
    if writer.failure is not None:
        raise writer.failure
    if writer.samples:
        notice(_held(writer))


def bounds(options: RecordOptions) -> str:
    """What is kept and how large the file can become, for people."""
    retention, parts = options.retention, []
    if retention.ring_s is not None and retention.bytes_max is not None:
        parts.append(f"the last {span(retention.ring_s)}")
        parts.append(f"at most {retention.bytes_max / _MIB:.0f} MiB")
    if retention.severity is not None:
        around = span(retention.around_s)
        parts.append(f"{around} around findings of at least {retention.severity}")
    return ", ".join(parts) or "everything"


def _held(writer: Recorder) -> str:
    size = os.path.getsize(writer.path) / _MIB
    return (
        f"recorded {writer.samples} samples of {span(writer.recorded_s)} in "
        f"{writer.path!r}, {size:.1f} MiB; udsprobe replay shows them"
    )


_OPTIONS = (
    click.option(
        "--ring",
        callback=given_s,
        metavar="TIME",
        help="Keep only the last TIME (30m, 2h, 1d): older samples are dropped.",
    ),
    click.option(
        "--on",
        type=click.Choice(SEVERITIES),
        help="Record only around findings of at least this severity, and the newest minutes.",
    ),
    click.option(
        "--around",
        callback=given_s,
        metavar="TIME",
        help="With --on: time to keep before and after a finding.  [default: 5m]",
    ),
)
