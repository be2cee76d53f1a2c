"""All rules over all facts, and the diagnosis that every view shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional, Tuple

from udsprobe.doctor.backlog_rules import backlog_findings
from udsprobe.doctor.caddy_rules import caddy_findings
from udsprobe.doctor.facts import ConfigError, Facts, NetworkLimits, ProcessFacts
from udsprobe.doctor.finding import Evidence, Finding, shown_places, worst_first
from udsprobe.doctor.kernel_rules import kernel_findings
from udsprobe.doctor.limit_rules import limit_findings
from udsprobe.doctor.nginx.rules import nginx_findings
from udsprobe.doctor.unit_rules import unit_findings
from udsprobe.host_facts import HostLimits, KernelFacts, NotChecked
from udsprobe.model.action import by_hand

SCHEMA = "udsprobe.doctor/1"


@dataclass(frozen=True)
class Machine:
    """Where it ran: release of the kernel, machine type, CPUs, host name."""

    kernel: str
    arch: str
    cpus: int
    hostname: str


@dataclass(frozen=True)
class Server:
    """A server whose configuration was looked at.

    Attributes:
        kind: `nginx`, `node`, `caddy` or `systemd`. name: of the unit; the pid else.
        config: its file; None when it has none or that is not known.
        says: what was read, one clause.
    """

    kind: str
    pid: Optional[int]
    name: str
    config: Optional[str]
    says: str


@dataclass(frozen=True)
class Diagnosis:
    """The document, see docs/doctor.schema.json."""

    version: str
    host: Machine
    kernel: KernelFacts
    limits: HostLimits
    networks: Tuple[NetworkLimits, ...]
    processes: Tuple[ProcessFacts, ...]
    servers: Tuple[Server, ...]
    findings: Tuple[Finding, ...]
    not_checked: Tuple[NotChecked, ...]
    schema: str = SCHEMA


def examine(facts: Facts) -> Tuple[Finding, ...]:
    """Every finding, the worst first."""
    return worst_first(_distinct(_all(facts)))


def diagnosis(version: str, host: Machine, facts: Facts) -> Diagnosis:
    """The facts with everything that follows from them."""
    return Diagnosis(
        version=version,
        host=host,
        kernel=facts.kernel,
        limits=facts.host,
        networks=facts.networks,
        processes=facts.processes,
        servers=tuple(_servers(facts)),
        findings=examine(facts),
        not_checked=facts.not_checked,
    )


def _all(facts: Facts) -> Iterator[Finding]:
    yield from kernel_findings(facts.kernel)
    yield from limit_findings(facts)
    yield from backlog_findings(facts)
    for nginx in facts.nginx:
        yield from _unknown(f"nginx {nginx.pid}", nginx.errors)
        yield from nginx_findings(facts, nginx)
    for caddy in facts.caddy:
        yield from _unknown(f"caddy {caddy.pid}", caddy.errors)
        yield from caddy_findings(facts, caddy)
    yield from _unknown("systemd", facts.unit_errors)
    yield from unit_findings(facts)


def _unknown(server: str, errors: Iterable[ConfigError]) -> Iterator[Finding]:
    for slug, reason, says, fix in (
        ("config-unreadable", "unreadable", "cannot be read", "make it readable, or run as root"),
        ("config-broken", "broken", "is broken", "fix it; the server's own check says more"),
    ):
        found = [one for one in errors if one.reason == reason]
        if not found:
            continue
        first = found[0]
        where = first.path if first.line is None else f"{first.path}:{first.line}"
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        places, total = shown_places(
            one.path if one.line is None else f"{one.path}:{one.line}" for one in found
        )
        yield Finding(
            slug,
            "warning",
            where,
            f"the configuration of {server} {says}: {where}: {first.says}{more}",
            tuple(Evidence("reason", one.says, one.path) for one in found[:5]),
            (by_hand(fix, "its contents were not checked"),),
            places,
            total,
        )


def _distinct(findings: Iterable[Finding]) -> List[Finding]:
    return list(dict.fromkeys(findings))


def _servers(facts: Facts) -> Iterator[Server]:
    for nginx in facts.nginx:
        version = ".".join(map(str, nginx.version)) if nginx.version else "of unknown version"
        says = f"{version}, {nginx.files} files, {nginx.lines} lines, {len(nginx.workers)} workers"
        yield Server("nginx", nginx.pid, str(nginx.pid), nginx.config_path, says)
    for process in facts.processes:
        if process.kind == "node":
            held = [one for one in facts.listeners if process.pid in (one.pids or ())]
            says = ", ".join(f"{one.address} (backlog {one.backlog})" for one in held[:4])
            yield Server(
                "node",
                process.pid,
                str(process.pid),
                None,
                (says or "no listener") + "; keepAliveTimeout cannot be read from outside",
            )
    for caddy in facts.caddy:
        says = f"{len(caddy.hops)} destinations"
        yield Server("caddy", caddy.pid, str(caddy.pid), caddy.config_path, says)
    for unit in facts.services:
        nofile = "not set" if unit.limit_nofile is None else _limits(unit.limit_nofile)
        yield Server("systemd", unit.main_pid, unit.name, unit.path, f"LimitNOFILE {nofile}")
    for socket in facts.sockets:
        backlog = "not set" if socket.backlog is None else str(socket.backlog)
        yield Server("systemd", None, socket.name, socket.path, f"Backlog {backlog}")


def _limits(pair: Tuple[Optional[int], Optional[int]]) -> str:
    return ":".join("infinity" if one is None else str(one) for one in pair)
