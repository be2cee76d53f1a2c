"""Limits of the host, of network namespaces and of processes, against what is used now."""

from __future__ import annotations

from typing import Callable, Iterator, Optional, Tuple

from udsprobe.doctor.facts import Facts, NetworkLimits, ProcessFacts
from udsprobe.doctor.finding import Evidence, Finding
from udsprobe.model.action import CHANGES, Action, by_hand, command

NEAR_PCT = 90
"""From here on a burst of a tenth of what there is ends in an error."""
KERNEL_DGRAM_QLEN = 10
"""net.unix.max_dgram_qlen as unix_net_init() sets it."""

_Setting = Tuple[str, str, str, Callable[[int], bool], str, int]
# Id, severity, sysctl, what is wrong with it, what that means, what it should be.
_SETTINGS: Tuple[_Setting, ...] = (
    (
        "tcp-abort-on-overflow",
        "warning",
        "net.ipv4.tcp_abort_on_overflow",
        lambda value: value != 0,
        "a full accept queue resets clients instead of letting them try again",
        0,
    ),
    (
        "tcp-syncookies-off",
        "warning",
        "net.ipv4.tcp_syncookies",
        lambda value: value == 0,
        "a burst that fills the queue of half-open connections turns clients away",
        1,
    ),
    (
        "tcp-syncookies-always",
        "info",
        "net.ipv4.tcp_syncookies",
        lambda value: value == 2,
        "every connection uses SYN cookies, a setting for tests of the network stack",
        1,
    ),
    (
        "max-dgram-qlen-low",
        "info",
        "net.unix.max_dgram_qlen",
        lambda value: value < KERNEL_DGRAM_QLEN,
        "below the kernel's default of 10: senders to Unix datagram sockets block sooner",
        KERNEL_DGRAM_QLEN,
    ),
)


def limit_findings(facts: Facts) -> Iterator[Finding]:
    """Everything that is used up, or set so that connections suffer."""
    host = facts.host
    yield from _near(
        "file-max-near-limit",
        "fs.file-max",
        host.files_open,
        host.file_max,
        "/proc/sys/fs/file-nr",
        "ENFILE",
    )
    most = min((n for n in (host.threads_max, host.pid_max) if n is not None), default=None)
    name = "kernel.pid_max" if most == host.pid_max else "kernel.threads-max"
    yield from _near(
        "threads-near-limit", name, host.threads, most, "/proc/loadavg", "EAGAIN from fork()"
    )
    for process in facts.processes:
        yield from _nofile(facts, process)
    for limits in facts.networks:
        yield from _network(facts, limits)


def _near(
    slug: str, name: str, used: Optional[int], most: Optional[int], source: str, error: str
) -> Iterator[Finding]:
    if used is None or not most or used * 100 < most * NEAR_PCT:
        return
    yield Finding(
        slug,
        "critical",
        name,
        f"{used} of {most} ({name}) are in use: at the limit every process gets {error}",
        (Evidence("in use", used, source), Evidence(name, most, _sysctl_file(name))),
        (
            command(
                f"sudo sysctl -w {name}={most * 2}",
                f"double the host's {name}",
                "or find the process that holds most of them: `ls /proc/*/fd`",
                effect=CHANGES,
                undo=f"sudo sysctl -w {name}={most}",
            ),
        ),
    )


def _nofile(facts: Facts, process: ProcessFacts) -> Iterator[Finding]:
    used, most = process.fds_open, process.nofile_soft
    if used is None or not most or used * 100 < most * NEAR_PCT:
        return
    who = f"{process.comm} {process.pid}"
    yield Finding(
        "nofile-near-limit",
        "critical",
        who,
        f"{who} has {used} of {most} descriptors open: at the limit accept() and connect() "
        "fail with EMFILE",
        (
            Evidence("open descriptors", used, f"/proc/{process.pid}/fd"),
            Evidence("RLIMIT_NOFILE, soft", most, f"/proc/{process.pid}/limits"),
            Evidence("RLIMIT_NOFILE, hard", process.nofile_hard, f"/proc/{process.pid}/limits"),
        ),
        (
            _raise(process, most),
            command(
                f"sudo prlimit --pid {process.pid} --nofile={most * 4}:{most * 4}",
                f"raise the limit of open files of {who}",
                "changes the running process until it restarts",
                effect=CHANGES,
            ),
        ),
    )


def _raise(process: ProcessFacts, most: int) -> Action:
    if process.unit is not None:
        return by_hand(
            f"LimitNOFILE={most * 4} under [Service] of {process.unit} (systemctl edit)",
            "then restart the service",
        )
    return by_hand(
        f"ulimit -n {most * 4} where it is started", "up to the hard limit; above it needs root"
    )


def _network(facts: Facts, limits: NetworkLimits) -> Iterator[Finding]:
    tcp = any(one.netns == limits.netns and one.transport == "tcp" for one in facts.listeners)
    where = "" if limits.own else f" in network namespace {limits.netns}"
    for slug, severity, name, bad, says, line in _SETTINGS:
        value: Optional[int] = getattr(limits, name.rsplit(".", 1)[1])
        if value is None or not bad(value) or (name.startswith("net.ipv4.") and not tcp):
            continue
        yield Finding(
            slug,
            severity,
            f"{name}{where}",
            f"{name} is {value}{where}: {says}",
            (Evidence(name, value, _sysctl_file(name)),),
            (_set(name, line, limits.own, where),),
        )


def _set(name: str, line: int, own: bool, where: str) -> Action:
    why = "for new sockets and connections"
    setting = f"sysctl -w {name}={line}"
    if not own:
        return by_hand(f"{setting}{where}", why, effect=CHANGES)
    return command(f"sudo {setting}", f"set {name} of this host", why, effect=CHANGES)


def _sysctl_file(name: str) -> str:
    return f"/proc/sys/{name.replace('.', '/')}"
