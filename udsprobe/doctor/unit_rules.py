"""systemd units: what they ask for, and what the running service and its sockets have."""

from __future__ import annotations

import shlex
from typing import Iterator, Optional

from udsprobe.doctor.backlog_rules import named_backlog
from udsprobe.doctor.facts import Facts, ListenerFacts, ServiceUnit, SocketUnit
from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.model.action import RESTARTS, command


def unit_findings(facts: Facts) -> Iterator[Finding]:
    """Every difference between the unit files and what runs."""
    for service in facts.services:
        yield from _nofile(facts, service)
    for unit in facts.sockets:
        if unit.backlog is None:
            continue
        for address in unit.listens:
            listener = _listener(facts, unit, address)
            if listener is not None:
                yield from named_backlog(
                    listener, unit.backlog, "Backlog=", unit.path, f"{unit.name} (systemctl)"
                )


def _nofile(facts: Facts, unit: ServiceUnit) -> Iterator[Finding]:
    process = facts.process(unit.main_pid)
    if unit.limit_nofile is None or process is None:
        return
    hard, given = unit.limit_nofile[1], process.nofile_hard
    # The soft limit is the program's own to move; the hard one only root raises.
    if hard is None or given is None or hard == given:
        return
    yield Finding(
        "unit-nofile-not-applied",
        "info",
        unit.name,
        f"LimitNOFILE of {unit.name} is {hard}, its process {process.pid} runs with {given}",
        (
            Evidence("LimitNOFILE, hard", hard, unit.path),
            Evidence("RLIMIT_NOFILE, hard", given, f"/proc/{process.pid}/limits"),
        ),
        (
            command(
                f"sudo systemctl daemon-reload && sudo systemctl restart {shlex.quote(unit.name)}",
                "reload the unit and restart the service",
                "a unit's limits are applied when its process starts; or the program changed its "
                "own",
                effect=RESTARTS,
            ),
        ),
        (unit.path,),
        1,
    )


def _listener(facts: Facts, unit: SocketUnit, address: str) -> Optional[ListenerFacts]:
    for one in facts.listeners:
        if one.transport == "unix" and address in (one.path, one.address):
            return one
        # systemd binds its sockets in its own network namespace.
        network = facts.network(one.netns)
        here = network is not None and network.own
        if here and one.transport == "tcp" and _names(address, one):
            return one
    return None


def _names(address: str, listener: ListenerFacts) -> bool:
    if address.isdigit():
        return listener.port == int(address) and listener.host in ("::", "0.0.0.0")
    host, _, port = address.rpartition(":")
    return port == str(listener.port) and host.strip("[]") == listener.host
