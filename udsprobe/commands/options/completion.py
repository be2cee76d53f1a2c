"""What a shell offers for `--pid`, `--comm` and `--listener`: what there is on this host now.

A name is inserted into the command line as it is, so that of strangers' names only those are
offered that no shell takes for anything else.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Iterator, List

import click
from click.shell_completion import CompletionItem

from udsprobe.errors import UdsprobeError
from udsprobe.kernel.proc.procfs import Process, Procfs
from udsprobe.kernel.sockets.sock_diag import NetworkNamespace

_HARMLESS = re.compile(r"[A-Za-z0-9_@/][A-Za-z0-9_@/.+-]*(:[0-9]+)?")


def pids(_: click.Context, __: click.Parameter, incomplete: str) -> List[CompletionItem]:
    """Ids of processes, with their names where the shell shows them."""
    named = [(str(one.pid), one.comm) for one in _processes()]
    return [CompletionItem(pid, help=comm) for pid, comm in named if pid.startswith(incomplete)]


def comms(_: click.Context, __: click.Parameter, incomplete: str) -> List[str]:
    """Names of processes."""
    return _offered((one.comm for one in _processes()), incomplete)


def listeners(_: click.Context, __: click.Parameter, incomplete: str) -> List[str]:
    """Paths, abstract names and ports that somebody listens at; HOST:PORT once it is begun."""
    return _offered(_addresses(with_host="." in incomplete), incomplete)


def _addresses(with_host: bool) -> Iterator[str]:
    with suppress(UdsprobeError, OSError), NetworkNamespace() as namespace:
        for one in namespace.listeners().sockets:
            # bash breaks words at colons: behind one, the port alone goes on.
            if one.transport == "unix" or with_host:
                yield one.address
            else:
                yield one.address.rpartition(":")[2]


def _processes() -> Iterator[Process]:
    return (one for one in Procfs().processes() if not (one.kernel_thread or one.ended))


def _offered(names: Iterator[str], incomplete: str) -> List[str]:
    return sorted({n for n in names if n.startswith(incomplete) and _HARMLESS.fullmatch(n)})
