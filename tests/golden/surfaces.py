"""What every surface says of a recording, as text.

The recordings are of the lab's cases (`tests/scenarios/cases/`), one for each cause, made by
earlier versions and kept: a change that rewords a surface, or reads an old recording otherwise,
shows as a difference of these texts.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, Iterator, List

from prometheus_client import CollectorRegistry, generate_latest

from udsprobe import cli
from udsprobe.model.difference import report
from udsprobe.recording import Recording
from udsprobe.views.metrics.book import MetricsBook
from udsprobe.views.metrics.prometheus_text import PageCollector
from udsprobe.views.text.report_text import render

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
PACKED = ".xz"
SUFFIX = f".udsprobe{PACKED}"
FOR_PROGRAMS = (".json", "metrics.txt")
PAIRS = (("transport.echo-4-mb-unix", "transport.echo-4-mb-tcp"),)
"""Recordings that are compared: one load, two transports."""


def names() -> List[str]:
    """The recordings: `CAUSE.CASE`."""
    return sorted(path.name[: -len(SUFFIX)] for path in (HERE / "recordings").glob(f"*{SUFFIX}"))


def kept(name: str) -> Dict[str, str]:
    """File name → what is expected; what no person reads is packed."""
    found = {}
    for path in sorted((EXPECTED / name).iterdir()):
        packed = path.suffix == PACKED
        raw = lzma.decompress(path.read_bytes()) if packed else path.read_bytes()
        found[path.stem if packed else path.name] = raw.decode()
    return found


def keep(name: str, shown: Dict[str, str]) -> None:
    """Write what is expected from now on."""
    folder = EXPECTED / name
    folder.mkdir(parents=True)
    for surface, text in shown.items():
        raw = text.encode()
        if surface.endswith(FOR_PROGRAMS):
            (folder / f"{surface}{PACKED}").write_bytes(lzma.compress(raw, preset=9))
        else:
            (folder / surface).write_bytes(raw)


def pair_name(first: str, second: str) -> str:
    """What the comparison of two recordings is kept as."""
    return f"{first}+{second}"


def unpacked(name: str, folder: Path) -> Path:
    """The recording as a file that udsprobe opens."""
    path = folder / f"{name}.udsprobe"
    path.write_bytes(lzma.decompress((HERE / "recordings" / f"{name}{SUFFIX}").read_bytes()))
    return path


def answer(path: Path, command: str, *arguments: str) -> str:
    """What a command prints that is given this file, from the file's own folder."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), _inside(path.parent):
        status = cli.main([command, path.name, *arguments])
    assert status == 0, (command, arguments)
    return out.getvalue()


def of_recording(path: Path) -> Dict[str, str]:
    """File name → what that surface says."""
    answer(path, "report", "--html", "page.html")
    with Recording(str(path)) as recording:
        whole = recording.report()
    return {
        "report.json": answer(path, "report", "--json"),
        "plain-80.txt": render(whole, 80),
        "plain-120.txt": render(whole, 120),
        "page.txt": words((path.parent / "page.html").read_text(encoding="utf-8")),
        "metrics.txt": metrics(path),
    }


def of_pair(first: Path, second: Path) -> Dict[str, str]:
    """File name → what `compare` says."""
    return {
        "compare.txt": answer(first, "compare", second.name),
        "compare.json": answer(first, "compare", second.name, "--json"),
    }


def words(page: str) -> str:
    """What a page says to its reader, a line for each piece of text."""
    reader = _Words()
    reader.feed(page)
    return "".join(f"{line}\n" for line in reader.lines)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []
        self._is_style = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._is_style = tag == "style"

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text and not self._is_style:
            self.lines.append(text)


def metrics(path: Path) -> str:
    """The page of metrics at the last sample."""
    with Recording(str(path)) as recording:
        numbers = recording.sequences()
        taken = [recording.sample(number) for number in numbers]
        book = MetricsBook(taken[0].unix_s)
        for before, sample in zip(taken, taken[1:]):
            latest = report(recording.observation, before, sample)
            page = book.page(recording.observation, sample, latest)
    registry = CollectorRegistry()
    registry.register(PageCollector(lambda: page))
    return generate_latest(registry).decode()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
