"""Connects that fail: nobody there, nobody listening, not allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.report import Connect, Evidence, Listener, Report
from udsprobe.rules.causes import PARTS
from udsprobe.rules.harm import FAILED, connects
from udsprobe.rules.peers.connecting import NO_ANSWER, never_answered
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import CRITICAL, INFO, WARNING, Suspect
from udsprobe.rules.thresholds import FAILED_CONNECTS_MIN, FAILED_CONNECTS_SHARE_MIN
from udsprobe.rules.wording import count, evidence, place

CAUSE = "connect-failing"
# Not failures: under way, interrupted, connected already; EAGAIN is a full queue.
_NO_FAILURE = ("EINPROGRESS", "EALREADY", "EISCONN", "EINTR", "EAGAIN")
# Asked for on the off chance, by libraries that go on without: glibc's name service cache and the
# modules of nsswitch.conf (sssd's, nss-mdns', nss-resolve's, nss-systemd's), loggers, and libuuid
# where it makes a UUID of the time (libuuid/src/gen_uuid.c of util-linux: Python's uuid1(), which
# redis-py names its locks by).
_OPTIONAL = (
    *("/run/nscd/socket", "/var/run/nscd/socket", "/dev/log", "/run/systemd/journal/"),
    *("/run/uuidd/request", "/var/run/uuidd/request", "/run/avahi-daemon/socket"),
    *("/var/run/avahi-daemon/socket", "/var/lib/sss/pipes/", "/run/systemd/userdb/"),
    "/run/systemd/resolve/io.systemd.Resolve",
)
_MEANS = {
    "ENOENT": "there is no such socket file",
    "ECONNREFUSED": "nothing listens there",
    "EACCES": "permission to the socket is denied",
    "EPERM": "it is not permitted",
    "ETIMEDOUT": "no answer",
    "ECANCELED": "the program gave up before anybody answered",
    "EHOSTUNREACH": "there is no route to that host",
    "ENETUNREACH": "there is no route to that network",
    "EPROTOTYPE": "the socket there has another type",
    "ENOTSOCK": "that file is not a socket",
    "EADDRNOTAVAIL": "no local port is left",
    "ECONNRESET": "the other end reset it",
    "ENOTDIR": "a part of the path is not a directory",
    "ELOOP": "too many symbolic links in the path",
    "ENAMETOOLONG": "the path is too long",
}


def connect_suspects(report: Report) -> List[Suspect]:
    """By the targets to others, and by others to the targets' listeners."""
    rows = report.connects or []
    made = [_failing(row, rows, report) for row in rows if row.transport != "udp"]
    met = [_refused_at(listener) for listener in report.listeners or []]
    return [each for each in (*made, *met) if each is not None]


def without_harmless_failures(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects; connects of the targets that fail are no pressure where a part of request time
    is, and of all replies it is known that none says that the server failed.

    So it is where a proxy asks time and again whether an upstream is there that no request needs.
    """
    if not any(each.is_pressure and each.cause in PARTS for each in suspects):
        return list(suspects)
    if not _all_replies_are_good(report):
        return list(suspects)
    own = {place(row) for row in report.listeners or ()}
    return [
        replace(each, severity=WARNING, is_pressure=False)
        if each.cause == CAUSE and each.is_pressure and each.subject not in own
        else each
        for each in suspects
    ]


def _all_replies_are_good(report: Report) -> bool:
    rows = [row for row in report.requests.served_by or () if row.count]
    seen = [row.http for row in rows if row.http is not None and row.http.count >= row.count]
    return 0 < len(rows) == len(seen) and not any(each.failed for each in seen)


def failures(row: Connect) -> Dict[str, int]:
    """errno → connects that failed, in the call or in the background."""
    totals: Dict[str, int] = {}
    for errors in (row.errors, row.failed_in_background):
        for error, number in errors.items():
            if error not in _NO_FAILURE:
                totals[error] = totals.get(error, 0) + number
    return totals


def _failing(row: Connect, rows: List[Connect], report: Report) -> Optional[Suspect]:
    failed = _without_full_queues(row, report)
    total = sum(failed.values())
    if not total:
        return None
    error = max(failed, key=lambda name: failed[name])
    has_fallback = _has_fallback(row, rows, error)
    share = min(1.0, total / row.calls) if row.calls else 1.0
    is_minor = has_fallback or row.address.startswith(_OPTIONAL)
    is_pattern = total >= FAILED_CONNECTS_MIN and share >= FAILED_CONNECTS_SHARE_MIN
    subject = place(row)
    return Suspect(
        cause=CAUSE,
        name=f"connect-failing:{subject}",
        severity=INFO if is_minor else CRITICAL if is_pattern else WARNING,
        is_pressure=is_pattern and not is_minor,
        share_pct=100 * share,
        subject=subject,
        headline=_say(error),
        evidence=_evidence(failed, row.calls, is_pattern),
        actions=choice.connect_failing(error, row.transport, row.address),
        seen=total,
        harm=connects(FAILED, total, row.calls, f"to {subject} fail"),
    )


def _without_full_queues(row: Connect, report: Report) -> Dict[str, int]:
    """As `failures`, without those that a full queue on this host does not answer."""
    failed = failures(row)
    if never_answered(row, report):
        for error in NO_ANSWER:
            failed[error] = failed.get(error, 0) - row.failed_in_background.get(error, 0)
    return {error: number for error, number in failed.items() if number > 0}


def _refused_at(listener: Listener) -> Optional[Suspect]:
    refused = listener.refused or {}
    failed = {name: n for name, n in refused.items() if name not in _NO_FAILURE and n}
    total = sum(failed.values())
    if not total:
        return None
    subject = place(listener)
    error = max(failed, key=lambda name: failed[name])
    came = (listener.established or 0) + sum(refused.values())
    return Suspect(
        cause=CAUSE,
        name=f"connect-failing:{subject}",
        severity=CRITICAL if total >= FAILED_CONNECTS_MIN else WARNING,
        is_pressure=total >= FAILED_CONNECTS_MIN,
        share_pct=100 * total / came,
        subject=subject,
        headline=_say(error),
        evidence=_evidence(failed, came, total >= FAILED_CONNECTS_MIN),
        actions=choice.connect_failing(error, listener.transport, listener.address),
        seen=total,
        harm=connects(FAILED, total, came, f"to {subject} fail"),
    )


def _has_fallback(row: Connect, rows: List[Connect], error: str) -> bool:
    """Whether the same is tried in the other family of addresses, and works there.

    `localhost` is tried as ::1 and then as 127.0.0.1; of other names both are tried at once, and
    the slower attempt is given up (RFC 8305).
    """
    host, _, port = row.address.rpartition(":")
    twin = {"[::1]": "127.0.0.1", "127.0.0.1": "[::1]"}.get(host)
    others = [each for each in rows if each.transport == "tcp"]
    others = [each for each in others if each.calls > sum(failures(each).values())]
    if error == "ECANCELED":
        same = [each for each in others if each.address.rpartition(":")[2] == port]
        return any(_is_ipv6(each) != _is_ipv6(row) for each in same)
    return any(each.address == f"{twin}:{port}" for each in others)


def _is_ipv6(row: Connect) -> bool:
    return row.address.startswith("[")


def _say(error: str) -> str:
    return f"{error}, {_MEANS[error]}" if error in _MEANS else error


def _evidence(failed: Dict[str, int], calls: int, is_pattern: bool) -> Tuple[Evidence, ...]:
    return tuple(
        evidence(
            "failed_connects",
            number,
            "connects",
            f"{count(number, 'connect')} of {calls:,} failed with {_say(error)}",
            FAILED_CONNECTS_MIN if is_pattern else None,
        )
        for error, number in sorted(failed.items(), key=lambda item: -item[1])
    )
