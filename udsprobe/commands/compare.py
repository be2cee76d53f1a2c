"""`udsprobe compare A B`: two runs side by side, what differs and in which stage."""

from __future__ import annotations

import sys
from typing import Optional

import click

from udsprobe.commands.options.shared import debug_option
from udsprobe.commands.output.delivery import Outlet, WholeFile, html_libraries
from udsprobe.commands.output.sources import read_runs
from udsprobe.compare import compare
from udsprobe.compare.comparison import SCHEMA, Comparison
from udsprobe.errors import UsageError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help=f"One JSON document, {SCHEMA}.")
@click.option(
    "--html", metavar="OUT", help="Write one HTML page to this file; it needs no network."
)
@debug_option
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
def command(a: str, b: str, as_json: bool, html: Optional[str]) -> None:
    """Compare two runs: TCP against Unix sockets, before against after.

    A and B are report documents (attach --json or --jsonl, a file each) or
    recordings; several runs of one side are A1,A2,A3. A change smaller than
    the noise is no difference; the noise comes from repeated runs, or
    from the intervals of --jsonl and of recordings. docs/compare.md says how.

    \b
      udsprobe attach --pid 4711 --duration 30 --jsonl --output tcp.jsonl
      udsprobe attach --pid 4712 --duration 30 --jsonl --output unix.jsonl
      udsprobe compare tcp.jsonl unix.jsonl
    """
    if as_json and html is not None:
        raise UsageError("usage", "--json and --html cannot be combined", "give one of them")
    comparison = compare(read_runs(a), read_runs(b))
    if html is not None:
        _page(comparison, html)
        return
    outlet = Outlet(None, sys.stdout)
    outlet.write(_json(comparison) if as_json else _text(comparison, outlet))


def _json(comparison: Comparison) -> str:
    from udsprobe.views.documents.compare_document import json_text

    return json_text(comparison)


def _text(comparison: Comparison, outlet: Outlet) -> str:
    from udsprobe.views.text.compare_text import render

    return render(comparison, outlet.columns(), colour=outlet.is_terminal)


def _page(comparison: Comparison, path: str) -> None:
    with html_libraries():
        from udsprobe.views.html.compare_page import render
    with WholeFile(path, "--html") as page:
        page.write(render(comparison))
