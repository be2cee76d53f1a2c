"""Accept queues: what was asked for, what the kernel allows, what is in force.

`__sys_listen()` takes the smaller of backlog and the somaxconn of the socket's
own network namespace, once, at listen().
"""

from __future__ import annotations

import shlex
from typing import Iterator, Sequence, Tuple

from udsprobe.doctor.facts import Facts, ListenerFacts
from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.model.action import CHANGES, Action, by_hand, command

KERNEL_SOMAXCONN = 4096
"""SOMAXCONN of include/linux/socket.h: Linux commit 19f92a030ca6 (in v5.4)."""
NODE_BACKLOG = 511
"""listen()'s default in Node (lib/net.js)."""


FRAMEWORK_BACKLOG_MIN = 50
"""The smallest default of a server framework: java.net.ServerSocket's; asyncio's is 100."""
_WHERE_TO_WRITE_IT = {
    "nginx": f"listen … backlog={NODE_BACKLOG}; in its configuration",
    "node": f"server.listen({{ …, backlog: {NODE_BACKLOG} }})",
}
_IN_THE_PROGRAM = (
    f"listen(fd, {NODE_BACKLOG}) where the program calls listen(), backlog={NODE_BACKLOG} in most "
    f"frameworks; Backlog={NODE_BACKLOG} in the unit where systemd holds the socket"
)


def backlog_findings(facts: Facts) -> Iterator[Finding]:
    """Every listener whose queue is full, or as short as somaxconn makes it."""
    # What these ask for is known: they have findings of their own.
    known = {one.pid for one in facts.processes if one.kind in ("nginx", "node")}
    node_pids = {one.pid for one in facts.processes if one.kind == "node"}
    for listener in facts.listeners:
        if listener.depth_now is not None and listener.depth_now > listener.backlog:
            yield _full(listener)
        if node_pids & set(listener.pids or ()):
            yield from _of_node(listener)
        if listener.backlog < FRAMEWORK_BACKLOG_MIN and listener.backlog != listener.somaxconn:
            yield _short(listener, facts)
    for limits in facts.networks:
        bound = [
            one
            for one in facts.listeners
            if one.netns == limits.netns
            and one.backlog == limits.somaxconn
            and not known & set(one.pids or ())
        ]
        if limits.somaxconn is not None and limits.somaxconn < KERNEL_SOMAXCONN and bound:
            yield _low(limits.somaxconn, limits.own, bound)


def named_backlog(
    listener: ListenerFacts,
    asked: int,
    what: str,
    place: str,
    server: str,
    *,
    default: bool = False,
) -> Iterator[Finding]:
    """A listener whose backlog is written down somewhere.

    Args:
        what: the name of that setting. place: where it stands.
        server: what to restart.
        default: the server asks for it of itself; nobody wrote it.
    """
    most = listener.somaxconn
    if most is None:
        return
    evidence = (
        Evidence(what, asked, place),
        Evidence("net.core.somaxconn", most, f"network namespace {listener.netns}"),
        Evidence("backlog in force", listener.backlog, "sock_diag"),
    )
    if asked > most and listener.backlog <= most:
        yield _clamped(listener, asked, most, evidence, place)
    elif min(asked, most) > listener.backlog and not default:
        yield _stale(listener, asked, evidence, place, server)


def _clamped(
    listener: ListenerFacts,
    asked: int,
    most: int,
    evidence: Tuple[Evidence, ...],
    place: str,
) -> Finding:
    return Finding(
        "backlog-clamped",
        "warning",
        listener.address,
        f"{listener.address} asks for a queue of {asked} and gets {listener.backlog}: "
        f"net.core.somaxconn is {most}",
        evidence,
        (_raise_somaxconn(asked, listener),),
        (place,),
        1,
    )


def _stale(
    listener: ListenerFacts,
    asked: int,
    evidence: Tuple[Evidence, ...],
    place: str,
    server: str,
) -> Finding:
    return Finding(
        "backlog-not-applied",
        "warning",
        listener.address,
        f"{listener.address} should have a queue of {asked} and has {listener.backlog}: "
        "the setting or somaxconn was raised after listen()",
        evidence,
        (
            by_hand(
                f"restart {server}; a reload keeps the socket as it is",
                "the queue's limit is set at listen(), from somaxconn at that moment",
            ),
        ),
        (place,),
        1,
    )


def _of_node(listener: ListenerFacts) -> Iterator[Finding]:
    most = listener.somaxconn
    if most is None or listener.backlog != most or most >= NODE_BACKLOG:
        return
    yield Finding(
        "node-backlog-clamped",
        "warning",
        listener.address,
        f"Node's default queue length is {NODE_BACKLOG}; {listener.address} has "
        f"{listener.backlog}, which is net.core.somaxconn",
        (
            Evidence("net.core.somaxconn", most, f"network namespace {listener.netns}"),
            Evidence("backlog in force", listener.backlog, "sock_diag"),
        ),
        (_raise_somaxconn(KERNEL_SOMAXCONN, listener),),
    )


def _full(listener: ListenerFacts) -> Finding:
    return Finding(
        "accept-queue-full",
        "critical",
        listener.address,
        f"the accept queue of {listener.address} is full now: new clients wait or are refused",
        (
            Evidence("connections waiting", listener.depth_now, "sock_diag"),
            Evidence("backlog in force", listener.backlog, "sock_diag"),
        ),
        (
            command(
                "sudo udsprobe attach --listener " + shlex.quote(listener.address),
                "see why connections are not accepted",
                "a longer queue only helps with bursts: first find out why connections are not "
                "accepted",
            ),
        ),
    )


def _short(listener: ListenerFacts, facts: Facts) -> Finding:
    kinds = {one.kind for one in facts.processes if one.pid in (listener.pids or ())}
    written = next((_WHERE_TO_WRITE_IT[k] for k in sorted(kinds) if k in _WHERE_TO_WRITE_IT), None)
    turned = (
        "clients wait in connect(), and non-blocking ones get EAGAIN"
        if listener.transport == "unix"
        else "their SYNs are dropped, and clients retry after a second"
    )
    return Finding(
        "backlog-short",
        "info",
        listener.address,
        f"{listener.address} has room for {listener.backlog + 1} connections that are not "
        f"accepted yet; in a larger burst {turned}",
        (
            Evidence("backlog in force", listener.backlog, "sock_diag"),
            Evidence("net.core.somaxconn", listener.somaxconn, "what it could be"),
        ),
        (
            by_hand(
                written or _IN_THE_PROGRAM,
                "then restart it: the limit is set at listen()",
            ),
        ),
    )


def _low(most: int, own: bool, bound: Sequence[ListenerFacts]) -> Finding:
    shown = ", ".join(one.address for one in bound[:3])
    more = f" and {len(bound) - 3} more" if len(bound) > 3 else ""
    where = "" if own else f" in network namespace {bound[0].netns}"
    return Finding(
        "somaxconn-low",
        "info",
        f"net.core.somaxconn{where}",
        f"somaxconn is {most}{where}, below the kernel's default of {KERNEL_SOMAXCONN}; as short "
        f"are the queues of {shown}{more}, which may have asked for more",
        (Evidence("net.core.somaxconn", most, f"network namespace {bound[0].netns}"),),
        (_raise_somaxconn(KERNEL_SOMAXCONN, bound[0], own),),
    )


def _raise_somaxconn(to: int, listener: ListenerFacts, own: bool = True) -> Action:
    """In the network namespace of the listener, which is `own` or that of its process."""
    inside = "" if own or not listener.pids else f"nsenter -t {listener.pids[0]} -n "
    return command(
        f"sudo {inside}sysctl -w net.core.somaxconn={to}",
        f"raise the limit of accept queues to {to}, then restart the server",
        "the limit is set at listen(); `attach` sees what a server asks for when it starts",
        effect=CHANGES,
    )
