"""A page in a real Chromium: what it made of the document, and what its console said."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, List, Tuple

RAN = "document.title='ran'"
HOSTILE = (
    f"<script>{RAN};console.error('ran')</script>",
    f'"><img src=x onerror="{RAN}">',
    f"{{{{ 7*7 }}}}<svg/onload={RAN}>",
    "\x1b[31m\u202egpj.exe$x^2$&amp;</title></style>",
)
"""Names that would run a script, or act on a terminal."""

CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom"),
)


class Page(HTMLParser):
    """What Chromium made of a document.

    Attributes:
        tags: every element's name.
        title, text: as shown.
        handlers: attributes that would run a script.
    """

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.tags: List[str] = []
        self.handlers: List[str] = []
        self.ids: List[str] = []
        self.title = self.text = ""
        self._open: List[str] = []
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "title":
            self.title += data
        elif not self._open or self._open[-1] != "style":
            self.text += data


def opened(html: str, folder: Path, chromium: str) -> Tuple[Page, List[str]]:
    """The page after it was loaded, and what its console said."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    done = subprocess.run(
        [chromium, *CHROMIUM, f"--user-data-dir={folder / 'profile'}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Page(done.stdout), console
