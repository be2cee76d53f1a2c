"""A process whose every name is an attack: each output, byte by byte."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Set

import pytest

from tests.conftest import Require
from tests.kernel.exporting import Exporting
from tests.kernel.hostile import MARK, Hostile, check_terminal, check_text
from tests.kernel.otlp_receivers import HttpReceiver
from tests.kernel.terminal import Terminal
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.patience import PATIENCE_S
from tests.unit.chromium import Page, opened
from tests.visible import invisible
from udsprobe.printable import raw_name

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

FORBIDDEN_TAGS = {"script", "img", "iframe", "object", "embed", "i", "b"}


class Said(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Seen(NamedTuple):
    """The process, a recording of it, a document for each interval, and the folder of both."""

    process: Hostile
    recording: Path
    documents: Path
    folder: Path


def say(*arguments: object, code: int = 0) -> Said:
    argv = [*UDSPROBE, *(each if isinstance(each, bytes) else str(each) for each in arguments)]
    done = subprocess.run(
        argv, cwd=REPOSITORY, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == code, done.stderr
    check_text(done.stderr)
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("h")
    recording, documents = folder / "taken\x1b[31m<b>\n", folder / "documents"
    with Hostile(folder) as process:
        window = ("--duration", "2", "--interval", "1")
        pid = process.pid
        said = say("record", "-o", recording, "--pid", pid, *window)
        assert b"taken\\x1b[31m<b>" in said.err
        say("attach", "--pid", pid, *window, "--jsonl", "--output", documents)
        yield Seen(process, recording, documents, folder)


def strings(value: Any) -> Iterator[str]:
    """Every string of a document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *strings(each))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def parsed(raw: bytes) -> Any:
    """A document: ASCII, strict JSON, no character in it that cannot be seen."""
    document = json.loads(raw.decode("ascii"), parse_constant=pytest.fail)
    for each in strings(document):
        assert not invisible(each, "\n"), ascii(each)
    return document


def addresses_of(process: Hostile) -> Set[bytes]:
    return {process.names[name] for name in ("path", "abstract", "upstream")}


def bytes_of(address: str) -> bytes:
    """The name given to bind(), of an address in a document."""
    return b"\0" + raw_name(address[1:]) if address.startswith("@") else raw_name(address)


def check_report(document: Dict[str, Any], process: Hostile) -> None:
    """A report that has every name, and each back to the bytes that it was."""
    target = next(each for each in document["targets"] if each["pid"] == process.pid)
    assert raw_name(target["comm"]) == process.names["comm"][:15]
    assert raw_name(target["cmdline"]) == process.cmdline.rstrip(b"\0").replace(b"\0", b" ")
    listening = {bytes_of(each["address"]) for each in document["listeners"]}
    assert listening == addresses_of(process)
    threads = {raw_name(each["comm"]) for each in document["time"]["threads"]}
    assert threads == {process.names["comm"][:15], process.names["thread"][:15]}
    asked = {bytes_of(each["address"]) for each in document["requests"]["upstream"]}
    assert asked == {process.names["path"], process.names["upstream"]}
    missed = {bytes_of(each["address"]) for each in document["connects"] if each["errors"]}
    assert missed == {process.names["missing"]}


def test_documents_are_strict_and_lose_no_byte(seen: Seen) -> None:
    process = seen.process
    check_report(parsed(say("report", seen.recording, "--json").out), process)
    lines = seen.documents.read_bytes().splitlines()
    assert len(lines) >= 2
    check_report(parsed(lines[0]), process)
    document = parsed(say("listeners", "--json", "--pid", process.pid).out)
    assert {bytes_of(each["address"]) for each in document["listeners"]} == addresses_of(process)
    diagnosis = parsed(say("doctor", "--json", "--pid", process.pid).out)
    assert process.names["comm"][:15] in {raw_name(each) for each in strings(diagnosis)}
    parsed(say("compare", seen.recording, seen.documents, "--json").out)


@pytest.mark.parametrize(
    "command",
    [
        "listeners",
        "report RECORDING",
        "doctor --pid PID",
        "compare RECORDING DOCUMENTS",
        "attach --plain --duration 0.3 --pid PID",
        "attach --duration 0.3 --comm COMM",
    ],
)
def test_text_is_shown_and_not_obeyed(seen: Seen, command: str) -> None:
    known: Dict[str, object] = {
        "PID": seen.process.pid,
        "RECORDING": seen.recording,
        "DOCUMENTS": seen.documents,
        "COMM": seen.process.names["comm"],
    }
    text = check_text(say(*[known.get(word, word) for word in command.split()]).out)
    # Only the comparison shows no name but its files'.
    assert ("taken\\" if command.startswith("compare") else "\\x1b[") in text


ERRORS = [
    "attach --comm NAME",
    "attach --listener NAME",
    "attach --listener NAME:x",
    "attach --cgroup NAME",
    "attach --unit NAME",
    "attach --pid NAME",
    "attach --pid PID --interval NAME",
    "attach --pid PID --strategy NAME",
    "attach --pid PID --output FOLDER/NAME/x",
    "attach --pid PID --ready-file FOLDER/NAME/x",
    "record --pid PID -o FOLDER/NAME/x",
    "report NAME",
    "report FOLDER/document",
    "compare NAME NAME",
    "compare FOLDER/document FOLDER/document",
    "replay NAME",
    "export --pid PID --bind NAME:1",
    "export --pid PID --otlp NAME",
    "run -- NAME",
    "NAME",
]


@pytest.mark.parametrize("command", ERRORS)
def test_errors_are_one_line_that_does_nothing(seen: Seen, command: str) -> None:
    name = os.fsdecode(b"\x1b[31m\n\x9b\xe2\x80\xae[b]\xff<i>")
    (seen.folder / "document").write_bytes(
        b'{"schema": "\\u001b[2J\\n\\ud800"}' + os.fsencode(name)
    )
    given = {"NAME": name, "PID": str(seen.process.pid), "FOLDER": str(seen.folder)}
    words = [re.sub("[A-Z]+", lambda found: given[found.group()], each) for each in command.split()]
    # Not in this process: one that attaches gives up its privileges.
    argv = [*UDSPROBE, *words]
    done = subprocess.run(
        argv, cwd=REPOSITORY, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode in (2, 5, 6)
    text = check_text(done.stderr)
    assert text.startswith("udsprobe: error[") and text.count("\n") == 1


def test_run_names_its_command_without_obeying_it(seen: Seen) -> None:
    program = os.fsencode(seen.folder) + b"/\x1b[31m\n<b>\xff"
    os.symlink("/bin/false", program)
    said = say("run", "--plain", "--", program, "\x1b]52;c;x\x07")
    assert b"\\x1b[31m\\x0a<b>" in said.err and b"\x1b" not in said.out


def test_pages_run_nothing(seen: Seen, tmp_path: Path, require: Require) -> None:
    chromium = require("chromium")["chromium"]
    say("report", seen.recording, "--html", tmp_path / "report.html")
    say("compare", seen.recording, seen.recording, "--html", tmp_path / "compare.html")
    for name in ("report", "compare"):
        html = (tmp_path / f"{name}.html").read_bytes().decode("utf-8")
        assert not invisible(html, "\n")
        # Without the page's own ban on scripts: escaping has to be enough.
        bare = re.sub(r"<meta http-equiv=[^>]*>", "", html)
        assert bare != html
        page, console = opened(bare, tmp_path, chromium)
        check_page(page)
        assert console == []


def check_page(page: Page) -> None:
    assert MARK not in page.title and page.title.startswith("udsprobe")
    assert not FORBIDDEN_TAGS & set(page.tags)
    assert page.handlers == []
    assert not invisible(page.text, "\n")
    assert "\\x1b[" in page.text and "<b>" in page.text


def test_metrics_have_the_documented_escape_and_no_other(seen: Seen) -> None:
    process = seen.process
    with HttpReceiver() as receiver:
        given = [
            "--pid",
            str(process.pid),
            "--otlp",
            receiver.url,
            "--interval",
            "0.1",
            "--detail",
            "full",
        ]
        with Exporting(given, {**os.environ, "OTEL_METRIC_EXPORT_INTERVAL": "200"}) as exporting:
            assert not invisible(exporting.text(), "\n")
            labels = [dict(labels) for _, labels in exporting.series()]
            exporting.end()
    comms = {raw_name(each["comm"]) for each in labels if "comm" in each}
    assert process.names["comm"][:15] in comms
    addresses = {bytes_of(each["address"]) for each in labels if "address" in each}
    assert addresses_of(process) <= addresses
    assert not any(invisible(each) for each in strings(receiver.documents))
    assert addresses_of(process) <= {bytes_of(each) for each in strings(receiver.documents)}


@pytest.mark.parametrize("command", ["attach", "replay", "listeners"])
def test_a_terminal_is_drawn_on_and_not_driven(
    seen: Seen, tmp_path: Path, require: Require, command: str
) -> None:
    raw = tmp_path / "raw"
    what = {
        "attach": ["attach", "--pid", str(seen.process.pid), "--interval", "0.2"],
        "replay": ["replay", str(seen.recording)],
        "listeners": ["listeners", "--watch", "--pid", str(seen.process.pid)],
    }[command]
    with Terminal(require("tmux")["tmux"], tmp_path, 132, 44) as terminal:
        terminal.take_clipboard()
        terminal.type(f"cd {shlex.quote(str(REPOSITORY))}; clear")
        script = tmp_path / "command"
        script.write_text(f"exec {shlex.join([*UDSPROBE, *what])}\n")
        terminal.copy_to(raw)
        terminal.type(f"sh {script}; echo ended $?")
        terminal.wait(lambda shown: "\\x1b[" in shown)
        if command != "listeners":
            look_around(terminal)
        assert terminal.flag("pane_title") not in (MARK, "P")
        assert terminal.flag("alternate_on") == "1"
        copied = terminal.clipboard()
        assert not invisible(copied, "\n") and MARK not in copied
        terminal.press("q")
        terminal.wait(lambda shown: "ended 0" in shown)
    check_terminal(raw.read_bytes())


def look_around(terminal: Terminal) -> None:
    """Every panel's page, the verdict's with its remedy copied, and a filter."""
    terminal.wait(lambda shown: "connect-failing" in shown)
    terminal.press("v")
    terminal.wait(lambda shown: "Esc leaves" in shown)
    terminal.press("y")
    terminal.wait(lambda shown: bool(terminal.clipboard()))
    terminal.press("Escape")
    terminal.wait(lambda shown: "Esc leaves" not in shown)
    for _ in range(6):
        terminal.press("Tab")
        terminal.press("Enter")
        terminal.wait(lambda shown: "Esc leaves" in shown)
        terminal.press("Escape")
        terminal.wait(lambda shown: "Esc leaves" not in shown)


LIAR = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"\\rTgid:\\t1", 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_name_cannot_make_a_process_pass_for_a_thread() -> None:
    # /proc/PID/status shows the comm first, and the kernel does not escape `\r` there.
    with subprocess.Popen(
        [sys.executable, "-c", LIAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as liar:
        assert liar.stdout is not None and liar.stdin is not None
        liar.stdout.readline()
        said = say("attach", "--pid", liar.pid, "--duration", "0.1", "--json")
        liar.stdin.close()
    (target,) = parsed(said.out)["targets"]
    assert raw_name(target["comm"]) == b"\rTgid:\t1"
