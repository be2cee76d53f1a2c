"""Caddy: hops over TCP that never leave the host."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional

from udsprobe.doctor.addresses import loopback_port
from udsprobe.doctor.facts import CaddyFacts, CaddyHop, Facts, ListenerFacts
from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.model.action import by_hand


def caddy_findings(facts: Facts, caddy: CaddyFacts) -> Iterator[Finding]:
    """One finding for each local TCP destination that somebody here listens on."""
    by_dial: Dict[str, List[CaddyHop]] = {}
    for hop in caddy.hops:
        by_dial.setdefault(hop.dial, []).append(hop)
    for dial, hops in by_dial.items():
        port = loopback_port(dial)
        listener = None if port is None else _local(facts, caddy, port)
        if listener is not None:
            yield _loopback(facts, caddy, hops[0], listener)


def _local(facts: Facts, caddy: CaddyFacts, port: int) -> Optional[ListenerFacts]:
    return next(
        (
            one
            for one in facts.listeners
            if one.transport == "tcp" and one.port == port and one.netns == caddy.netns
        ),
        None,
    )


def _loopback(facts: Facts, caddy: CaddyFacts, hop: CaddyHop, listener: ListenerFacts) -> Finding:
    owner = next((facts.process(pid) for pid in listener.pids or ()), None)
    who = "a process of this host" if owner is None else f"{owner.comm} {owner.pid}"
    chain = owner is not None and owner.kind == "caddy"
    ours = ", ".join(hop.listens) or hop.server
    socket = f"unix//run/caddy-{listener.port}.sock"
    there = f"bind {socket} in that site" if chain else f"have {who} listen on that path"
    return Finding(
        "caddy-loopback-hop",
        "info",
        hop.dial,
        f"Caddy's {ours} sends to {hop.dial} over TCP, and {who} on this host answers"
        + (": a chain of Caddys" if chain else ""),
        (
            Evidence("dial", hop.dial, caddy.config_path or f"caddy {caddy.pid}"),
            Evidence("listens", who, listener.address),
        ),
        (
            by_hand(
                f"reverse_proxy {socket}, and {there}",
                "keeps the bytes out of TCP; run `udsprobe attach` first: its "
                "max_gain_pct says how much of a request that saves",
            ),
        ),
        (caddy.config_path,) if caddy.config_path else (),
        1 if caddy.config_path else 0,
    )
