"""Words of a command line: refused as usage, or taken."""

from __future__ import annotations

import os
from typing import Callable, Sequence, Tuple

from tests.fuzz.target import Target
from udsprobe.commands.live.otlp_push import _where
from udsprobe.commands.live.scrape_server import _host_and_port
from udsprobe.commands.options.lengths import seconds
from udsprobe.commands.options.moments import moment_unix_s
from udsprobe.errors import UsageError
from udsprobe.kernel.selectors import parse_pids
from udsprobe.kernel.sockets.listener_address import parse_listener
from udsprobe.servers.caddy import configured

READERS: Sequence[Callable[[str], object]] = (
    parse_listener,
    seconds,
    lambda text: parse_pids([text]),
    lambda text: moment_unix_s(text, 1_700_000_000.0, 1_700_000_100.0),
    _where,
    _host_and_port,
    lambda text: configured(text.split()),
)
SEEDS = (b"0@abstract\xff", b"0[::1]:80", b"150ms", b"12h30m", b"212,34 5", b"303:12:41.5")
MORE = (b"32026-11-21T03:12:41Z", b"3+10m", b"4grpc://[::1]:4317", b"5127.0.0.1:9435", b"6-c a")


def _words(data: bytes) -> None:
    READERS[data[0] % len(READERS)](os.fsdecode(data[1:].replace(b"\0", b"")))


def _options(data: bytes) -> None:
    if data:
        _words(bytes([data[0] - ord("0") & 0xFF]) + data[1:])


TARGETS: Tuple[Target, ...] = (Target("options", lambda: [*SEEDS, *MORE], _options, (UsageError,)),)
