"""A running process whose every name is an attack, and what no output may do with it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

from tests.patience import PATIENCE_S
from tests.visible import invisible
from tests.workloads import hostile_process

MARK = "PWNED"
RUN = f"document.title='{MARK}'"
SGR = "\x1b[38;5;213m"
"""A colour that no view of ours uses."""

ATTACKS = (
    f"{SGR}{MARK}",
    f"\x1b]52;c;{MARK}\x07\x1b]8;;http://{MARK}\x1b\\\x1b]0;{MARK}\x07",
    "\x1b[2J\x1b[1337H\x9b31m\x90q\x9c\x1bP1$q\x1b\\",
    f"[bold red]{MARK}[/bold red][@click=app.quit]x[/][link=http://{MARK}]",
    f'<script>{RUN}</script><img src=x onerror="{RUN}"></title></style>',
    '\'"`$(id)\\\\ \\x1b[31m \\u202e \\x5c {{ 7*7 }} {% x %} ,a="1"} 1\n# HELP x\n',
    "\r\n\t\b\x7f\u202egnp\u2066x\u2069\u200b\u200d\ufeff\u2028\u00ad\U000e0041",
    "e" + "\u0301" * 5,
)
"""What a name can hold that acts on a terminal, a page, a parser or a reader."""

BAD_BYTES = b"\xff\xfe\xc3\x28\xed\xa0\x80\x80\x9b[31m"
"""No UTF-8; the last four are a control sequence in one-byte codes."""

ARGUMENTS = [each.encode() for each in ATTACKS] + [BAD_BYTES, b"", b"-" + "漢".encode() * 30]


def names(folder: Path) -> Dict[str, bytes]:
    """For `hostile_process`: at most 107 bytes each, and 15 of a comm."""
    at = os.fsencode(folder)
    return {
        "comm": b"\x1b[31m<b>[b]\xff\n'\"",
        "thread": b"\x1b]0;P\x07\\x1b\xe2\x80\xae}",
        "path": at + b'/<i>\x1b[2J[red]"\\\n\xe2\x80\xae\xff.sock',
        "abstract": b"\0\x1b]52;c;UFdO\x07<script>[/]\0\x9b'\xe2\x80\x8b\\x00" + os.urandom(4),
        "upstream": b"\0"
        + b"\x1b[38;5;213m<img src=x>[bold]\\\xc2\x9b\xfe"
        + STACK
        + os.urandom(4),
        "missing": at + b"/\x1b[5n'$(id)`;#\n<svg/onload=1>[@click=quit].sock",
    }


STACK = ("e" + "\u0301" * 6).encode()
"""Marks that would be painted over the rows above."""
STACKED = re.compile("[\u0300-\u036f]{3}")


class Hostile:
    """`hostile_process.py` under a hostile executable's name, until the block is left.

    Attributes:
        pid: of the server; `pids` its children's too.
        names: what it calls itself, raw.
        executable: path of what it runs.
    """

    def __init__(self, folder: Path) -> None:
        self.names = names(folder)
        here = os.fsencode(folder)
        self.executable = here + b"/\x1b[31m[u]<b>\xff\n\xe2\x80\xae"
        shutil.copyfile(os.path.realpath(sys.executable), self.executable)
        os.chmod(self.executable, 0o700)

    def __enter__(self) -> Hostile:
        script = os.fsencode(hostile_process.__file__)
        self._process = subprocess.Popen(
            [self.executable, script, *ARGUMENTS],
            env={**os.environ, "PYTHONHOME": sys.base_prefix},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        orders = {name: raw.hex() for name, raw in self.names.items()}
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()
        self.pids: List[int] = json.loads(self._process.stdout.readline())
        self.pid = self.pids[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    @property
    def cmdline(self) -> bytes:
        """What /proc has of it."""
        return Path(f"/proc/{self.pid}/cmdline").read_bytes()


CSI = re.compile(r"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]")
CLIPBOARD = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")
"""OSC 52, which `y` sends; what an attack puts there is no base64."""
OTHERS = re.compile(r"\x1b(?:[78=>]|[()][0-9A-Z]|\]22;[a-z-]*\x07)")
"""Cursor and character set; the mouse pointer's shape, which Textual sets."""


def check_text(raw: bytes, *, colours: bool = False) -> str:
    """Text for people: strict UTF-8, lines of visible characters and, perhaps, our colours."""
    text = raw.decode("utf-8")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text) if colours else text
    assert not invisible(plain, "\n"), sorted(invisible(plain, "\n"))
    assert SGR not in text and not STACKED.search(text)
    return text


def check_terminal(raw: bytes) -> str:
    """What was sent to a terminal: nothing acts on it but sequences of our own.

    Returns:
        The text between them.
    """
    text = raw.decode("utf-8")
    for copied in CLIPBOARD.findall(text):
        assert not invisible(base64.b64decode(copied, validate=True).decode())
    acting = CSI.findall(text)
    assert not set(acting) & {SGR, "\x1b[1337H", "\x1b[5n", "\x1b[2J", "\x1b[31m"}
    plain = OTHERS.sub("", CSI.sub("", CLIPBOARD.sub("", text)))
    assert not STACKED.search(plain)
    assert not invisible(plain, "\r\n\b\x0f"), sorted(invisible(plain, "\r\n\b\x0f"))
    return plain
