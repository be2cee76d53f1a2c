"""`udsprobe listeners`: every listener, its queue and its owners, once or with `--watch`.

Needs neither BPF nor root: sock_diag tells anyone, /proc tells root who.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import click

from udsprobe.commands.options import completion
from udsprobe.commands.options.lengths import given_s
from udsprobe.commands.options.privilege_options import keep_privileges_option
from udsprobe.commands.options.shared import INTERVAL_MIN_S, debug_option
from udsprobe.commands.output.delivery import Outlet
from udsprobe.commands.output.notices import notice
from udsprobe.errors import NotPermittedError, UsageError
from udsprobe.kernel.abilities.privileges import LeastPrivilege
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Selectors, parse_pids, resolve
from udsprobe.kernel.sockets.listening import ListenersSeen, TargetListeners, every_listener
from udsprobe.model.report import Listener
from udsprobe.model.sockets.listener_rows import listener_row
from udsprobe.sample import ListenerReading
from udsprobe.written_files import invoking_user

SCHEMA = "udsprobe.listeners/1"
INTERVAL_MAX_S = 3600.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--pid",
    "pids",
    multiple=True,
    metavar="PID",
    shell_complete=completion.pids,
    help="Only listeners that this process and its children hold, in any namespace. Repeatable, or "
    "a list: 1,2,3 or $(pgrep -f app.js).",
)
@click.option("--json", "as_json", is_flag=True, help=f"One JSON document, {SCHEMA}.")
@click.option("--watch", "-w", is_flag=True, help="Show the table on the screen until q or Ctrl-C.")
@click.option(
    "--interval",
    callback=given_s,
    metavar="TIME",
    help="With --watch: time between two readings (500ms, 5s).  [default: 1s]",
)
@keep_privileges_option
@debug_option
@click.argument("more_pids", nargs=-1, metavar="[PID]...", shell_complete=completion.pids)
def command(
    pids: Tuple[str, ...],
    as_json: bool,
    watch: bool,
    interval: Optional[float],
    keep_privileges: bool,
    more_pids: Tuple[str, ...],
) -> None:
    """List every Unix and TCP listener: accept queue now, limit and owners.

    now/limit counts connections that are not accepted yet; at the limit, the
    backlog plus one, the kernel turns new clients away.
    =somaxconn marks a backlog as large as net.core.somaxconn allows: the
    server may have asked for more. Addresses read as in ss -n. Needs no root, but
    only root sees who owns other users' sockets.

    --watch refreshes the table and adds the maximum seen so far (max, and a tick
    in the bar). It reads the queues once per interval and misses shorter peaks;
    attach, as root, counts every connection.
    """
    outlet = Outlet(None, sys.stdout)  # raises when there is no stdout
    procfs = Procfs()
    asked = parse_pids([*pids, *more_pids])
    if watch or interval is not None:
        interval_s = _watch_interval_s(watch, as_json, interval, outlet)
        _watch(asked, procfs, interval_s, keep_privileges)
        return
    with TargetListeners(procfs) as source:
        seen = _held_by(asked, procfs, source) if asked else every_listener(procfs)
    readings = sorted(seen.listeners, key=fullest_first)
    document = _document(readings, seen.unseen) if as_json else None
    with outlet.printing():
        if document is not None:
            print(json.dumps(document, indent=2))
        elif readings:
            _print(readings, procfs)
        else:
            print("none of the named processes listens" if asked else "no listeners found")
    for reason in seen.unseen:
        notice(f"listeners may be missing: {reason}")


def _held_by(asked: Tuple[int, ...], procfs: Procfs, source: TargetListeners) -> ListenersSeen:
    chosen = resolve(Selectors(pids=asked), procfs)
    seen = source.read(one.pid for one in chosen)
    if seen.hidden and not seen.listeners:
        raise NotPermittedError(
            "owner-hidden",
            f"the sockets of process {seen.hidden[0]} are hidden from this user",
            "run as root with every capability, or without --pid",
        )
    return seen


def _watch_interval_s(
    watch: bool, as_json: bool, interval: Optional[float], outlet: Outlet
) -> float:
    if not watch:
        raise UsageError("usage", "--interval needs --watch", "add --watch")
    if as_json:
        raise UsageError("usage", "--watch and --json cannot be combined", "give one of them")
    if not (outlet.is_terminal and sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(
            "usage", "--watch needs a terminal for its screen and its keys", "leave --watch out"
        )
    if interval is None:
        return 1.0
    if not INTERVAL_MIN_S <= interval <= INTERVAL_MAX_S:
        raise UsageError(
            "usage",
            f"--interval {interval:g} s is out of range",
            f"give {INTERVAL_MIN_S:g} s to {INTERVAL_MAX_S:g} s",
        )
    return interval


def _watch(
    asked: Tuple[int, ...], procfs: Procfs, interval_s: float, keep_privileges: bool
) -> None:
    from udsprobe.commands.listeners_watch import watch

    with TargetListeners(procfs) as source:

        def look() -> ListenersSeen:
            return _held_by(asked, procfs, source) if asked else every_listener(procfs)

        if not keep_privileges:
            look()  # opens the network namespaces, which can take CAP_SYS_ADMIN
            LeastPrivilege(invoking_user()).take_effect(lambda: None)
        watch(look, lambda readings: _rows(readings, procfs), interval_s)


def fullest_first(reading: ListenerReading) -> Tuple[float, bool, str, int]:
    share = (reading.depth_now or 0) / (reading.backlog_effective + 1)
    return (-share, reading.transport != "unix", reading.address, reading.inode)


def _document(readings: Sequence[ListenerReading], unseen: Sequence[str]) -> Dict[str, Any]:
    rows = [dataclasses.asdict(listener_row(reading)) for reading in readings]
    return {"schema": SCHEMA, "listeners": rows, "unseen": list(unseen)}


def _print(readings: Sequence[ListenerReading], procfs: Procfs) -> None:
    # Rich costs as much as the rest of this command: --json goes without.
    from rich.console import Console

    from udsprobe.views.text.listeners_table import print_table

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    print_table(console, *_rows(readings, procfs))
    hidden = sum(reading.pids is None for reading in readings)
    if hidden:
        remedy = ": run as root to see them" if os.geteuid() else ""
        print(f"– {hidden} owned by processes hidden from this user{remedy}")


def _rows(
    readings: Sequence[ListenerReading], procfs: Procfs
) -> Tuple[List[Listener], Dict[int, str]]:
    """What the table shows: the listeners, and the names of their owners."""
    owners = {pid for reading in readings for pid in reading.pids or ()}
    processes = {pid: procfs.process(pid) for pid in owners}
    comms = {pid: process.comm for pid, process in processes.items() if process}
    return [listener_row(reading) for reading in readings], comms
