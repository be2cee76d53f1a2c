"""`python -m udsprobe.demo`: server, load and udsprobe together, or one of the first two."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from udsprobe.demo.load import Plan, send
from udsprobe.demo.server import serve
from udsprobe.demo.show import Show


def main(argv: Optional[List[str]] = None) -> int:
    """Run one part of the demo, or all of it; returns the exit code."""
    options = _parser().parse_args(argv)
    if options.part == "serve":
        serve()
        return 0
    if options.part == "load":
        send(_plan(options, Path(options.socket)))
        return 0
    return Show(options.seconds, options.count, options.view).run()


def _plan(options: argparse.Namespace, socket: Path) -> Plan:
    return Plan(
        socket=socket,
        connections=options.connections,
        rate_per_s=options.rate,
        requests_per_connection=options.requests_per_connection,
        count=options.count,
        seconds=None if options.count else options.seconds,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="A Unix-socket server under load, observed by udsprobe. "
        "Everything it starts is gone when it ends.",
    )
    _add_bounds(parser)
    view = parser.add_mutually_exclusive_group()
    for name in ("plain", "json", "jsonl"):
        view.add_argument(
            f"--{name}", dest="view", action="store_const", const=name, help=f"as attach --{name}"
        )
    parser.set_defaults(part=None)
    parts = parser.add_subparsers(metavar="PART", help="only one part, for tests")
    parts.add_parser("serve", help="only the server").set_defaults(part="serve")
    load = parts.add_parser("load", help="only the load")
    load.set_defaults(part="load")
    load.add_argument("--socket", required=True, help="where the server listens")
    _add_bounds(load)
    load.add_argument("--connections", type=_positive_int, default=16)
    load.add_argument("--rate", type=_positive, default=2000.0, help="requests per second")
    load.add_argument("--requests-per-connection", type=_positive_int, default=100)
    return parser


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=_positive, default=10.0, help="how long; default 10")
    parser.add_argument("--count", type=_positive_int, help="this many requests exactly, instead")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and a day")
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
