"""What a command line answers: exit codes, one line for each mistake, help for each command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from udsprobe import __version__, cli
from udsprobe.commands.options import selecting
from udsprobe.errors import EXIT_INTERNAL, EXIT_USAGE

UDSPROBE = [sys.executable, "-m", "udsprobe"]
ROOT = Path(cli.__file__).parents[1]
FULL = Path("/dev/full")


def only_line(text: str) -> str:
    assert text.endswith("\n") and text.count("\n") == 1, text
    return text[:-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["atach"], "error[usage]: No such command 'atach': did you mean attach?"),
        (["listners"], "error[usage]: No such command 'listners': did you mean listeners?"),
        (["bogus"], "error[usage]: No such command 'bogus'; see udsprobe --help"),
        (["attach"], "error[usage]: nothing to attach to; give --pid"),
        (["attach", "--bogus"], "error[usage]: No such option"),
        (["attach", "--pid"], "error[usage]: Option '--pid' requires an argument"),
        (["attach", "--pid", "x"], "error[usage]: `x` is not a process ID"),
        (["attach", "--pid", ""], "error[usage]: `` is not a process ID"),
        (["attach", "--pid", "1", "--duration", "-1"], "error[usage]: --duration '-1' is no"),
        (["attach", "--pid", "1", "--duration", "0"], "error[usage]: --duration '0' is not a d"),
        (["attach", "--pid", "1", "--duration", "nan"], "error[usage]: --duration 'nan'"),
        (["attach", "--pid", "1", "--duration", "inf"], "error[usage]: --duration 'inf'"),
        (["attach", "--pid", "1", "--duration", "1w"], "error[usage]: --duration '1w' is"),
        (
            ["attach", "--pid", "1", "--interval", "0.01"],
            "error[usage]: --interval 0.01",
        ),
        (
            ["attach", "--pid", "1", "--interval", "nan"],
            "error[usage]: --interval 'nan' is not a d",
        ),
        (["attach", "--pid", "1", "--json", "--plain"], "error[usage]: --json, --jsonl and --pl"),
        (["run"], "error[usage]: Missing argument 'COMMAND"),
        (["run", "--", "/no/such"], "error[no-such-command]: command '/no/such' was not found"),
        (["listeners", "--pid", "-"], "error[usage]: `-` is not a process ID"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: List[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(arguments)
    written = capsys.readouterr()
    assert (code, written.out) == (EXIT_USAGE, "")
    assert only_line(written.err).startswith(f"udsprobe: {says}")


def test_hostile_arguments_stay_visible(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["\x1b[2J\nudsprobe: all is well\x9b"]) == EXIT_USAGE
    assert only_line(capsys.readouterr().err).isprintable()


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)], ids=str)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_of_every_command(
    command: List[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, option]) == 0
    written = capsys.readouterr()
    assert written.out.startswith(" ".join(["Usage: udsprobe", *command, "["]))
    assert "--debug" in written.out and written.err == ""


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in cli.COMMANDS)


def test_without_a_command_the_help_is_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == EXIT_USAGE
    written = capsys.readouterr()
    assert written.out == "" and written.err.startswith("Usage: udsprobe")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"udsprobe, version {__version__}\n"


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: object) -> None:
        raise RuntimeError("a defect\x1b[2J\nover two lines")

    monkeypatch.setattr(selecting, "resolve", crash)


@pytest.mark.usefixtures("crashing")
def test_a_crash_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["attach", "--pid", "1"]) == EXIT_INTERNAL
    line = only_line(capsys.readouterr().err)
    assert line.startswith("udsprobe: error[internal]: RuntimeError: a defect\\x1b[2J over two")
    assert "--debug" in line


@pytest.mark.usefixtures("crashing")
@pytest.mark.parametrize(
    "arguments", [["--debug", "attach", "--pid", "1"], ["attach", "--pid", "1", "--debug"]]
)
def test_debug_shows_the_traceback_after_the_line(
    arguments: List[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == EXIT_INTERNAL
    said = capsys.readouterr().err
    assert "\x1b" not in said and "RuntimeError: a defect\\x1b[2J" in said
    first, second, *rest = said.splitlines()
    assert first.startswith("udsprobe: error[internal]")
    assert second == "Traceback (most recent call last):"
    assert any("in crash" in line for line in rest)


def test_debug_of_an_observed_command_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--", "/no/such", "--debug"]) == EXIT_USAGE
    only_line(capsys.readouterr().err)


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """Run it with `"$@"` as udsprobe."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script, "bash", *UDSPROBE],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["--help", "listeners", "listeners --json"])
def test_a_full_disk_is_one_line(command: str) -> None:
    done = shell(f'"$@" {command} > /dev/full')
    assert done.returncode == EXIT_INTERNAL
    assert only_line(done.stderr).startswith("udsprobe: error[output-failed]")


@pytest.mark.parametrize("command", ["attach --pid $$", "listeners", "listeners --json"])
def test_no_stdout_is_one_line(command: str) -> None:
    done = shell(f'"$@" {command} >&-')
    assert done.returncode == EXIT_INTERNAL
    assert only_line(done.stderr).startswith("udsprobe: error[stdout-closed]")


@pytest.mark.parametrize("command", ["--help", "listeners", "listeners --json"])
def test_a_reader_that_leaves_is_no_failure(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*UDSPROBE, *command.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_without_stderr_goes_nowhere_else() -> None:
    done = shell('"$@" bogus 2>&-')
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")


def test_ctrl_c_before_there_is_a_report_ends_it_as_the_signal_does() -> None:
    script = (
        "import sys\n"
        "from udsprobe import cli\n"
        "from udsprobe.commands.options import selecting\n"
        "def interrupted(_): raise KeyboardInterrupt\n"
        "selecting.resolve = interrupted\n"
        "sys.exit(cli.main(['attach', '--pid', '1']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (-signal.SIGINT, "", "")
