"""The command line: names the commands, turns errors into one line and an exit code.

Commands are imported when they are used, so that the first sample is not
kept waiting by another command's libraries.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from typing import Dict, List, Optional, Sequence, TextIO

import click

from udsprobe import __version__
from udsprobe.commands.options.shared import debug_option
from udsprobe.commands.output.delivery import DeliveryError, Outlet
from udsprobe.encodable import never_lose
from udsprobe.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, UdsprobeError, UsageError
from udsprobe.observe.ending import ignore_signals

COMMANDS = {
    "attach": "Observe running processes: system calls, listeners, requests.",
    "run": "Start a command under observation, from its first system call.",
    "record": "Record running processes to a file, without a screen.",
    "replay": "Replay a recording in the dashboard, with a time line. No root, no BPF.",
    "report": "Print the report of a recording, or of part of it.",
    "autopsies": "List when the verdict of a recording named a cause.",
    "compare": "Compare two runs: what differs, and in which stage.",
    "export": "Export metrics for Prometheus and OpenTelemetry until the targets exit.",
    "listeners": "List every listener with its queue depth, limit and owners. No root, no BPF.",
    "doctor": "Check what this kernel supports, which limits apply and which settings are wrong.",
}


class Commands(click.Group):
    """A group whose commands live in `udsprobe.commands.NAME` as `command`."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            if near and not ctx.resilient_parsing:
                ctx.fail(f"No such command {cmd_name!r}: did you mean {near[0]}?")
            return None
        module = importlib.import_module(f"udsprobe.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 a finding at or above --fail-on; 2 usage; 3 not permitted; "
    "4 not supported by this kernel; 5 no such target; 6 recording unreadable; 70 internal error.",
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="udsprobe")
@debug_option
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Is the transport really the bottleneck? Look at a live server and see."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return EXIT_USAGE
    return EXIT_OK


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command line; returns the exit code of the contract.

    Args:
        argv: default: the process's own, which ends with it.
    """
    if argv is not None:
        return _run(argv)
    code = _run(sys.argv[1:])
    ignore_signals()
    return code


def _run(argv: Sequence[str]) -> int:
    arguments = list(argv)
    stdout = sys.stdout
    for stream in (stdout, sys.stderr):
        never_lose(stream)
    asked: Dict[str, bool] = {"debug": False}
    try:
        result = cli.main(arguments, prog_name="udsprobe", standalone_mode=False, obj=asked)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else EXIT_OK
    except UdsprobeError as error:
        return _failed(error, asked["debug"])
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _misused(error)
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as stop:
        # The reader of stdout has left: click then replaces it, Rich just exits.
        if sys.stdout is not stdout or isinstance(stop.__context__, BrokenPipeError):
            return _reader_left()
        raise  # shell completion is done
    except Exception as error:
        return _failed(_told(error), asked["debug"])


def _told(error: Exception) -> UdsprobeError:
    if not isinstance(error, OSError):
        return _defect(error)
    from udsprobe.own_descriptors import descriptors_used_up

    return _lost_output() or descriptors_used_up(error.errno) or _defect(error)


def _defect(error: Exception) -> UdsprobeError:
    import traceback

    return UdsprobeError(
        "internal",
        f"{type(error).__name__}: {error}",
        "please report it with the output of the same command with --debug",
        detail=traceback.format_exc(),
    )


def _lost_output() -> Optional[DeliveryError]:
    # What could not be written is in stdout's buffer still and fails again.
    try:
        with Outlet(None, sys.stdout).printing():
            sys.stdout.write("")
            sys.stdout.flush()
    except DeliveryError as error:
        return error
    return None


def _interrupted() -> int:
    # Ctrl-C before there was a report: end as any program does that the signal ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return EXIT_INTERNAL


def _failed(error: UdsprobeError, debug: bool) -> int:
    # Started without stderr, `print` would fall back to stdout.
    if sys.stderr is not None:
        try:
            print(error.line(), file=sys.stderr, flush=True)
            if debug and error.detail:
                print(error.detail_lines(), file=sys.stderr, flush=True)
        except OSError:  # the terminal is gone; at exit Python would try once more
            _to_nowhere(sys.stderr)
    return error.exit_code


def _misused(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "udsprobe"
    what = error.format_message().rstrip(".")
    return _failed(UsageError("usage", what, f"see {where} --help"), debug=False)


def _reader_left() -> int:
    # Python flushes stdout once more at exit; let that write go nowhere.
    _to_nowhere(sys.stdout)
    return EXIT_OK


def _to_nowhere(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
