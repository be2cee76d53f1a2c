"""Small sends that TCP keeps back until the other end acknowledges the one before.

The server's own time of a request ends when its send call returns, so no stage and no latency
here shows it; the client waits for up to a delayed acknowledgement, 40 ms, more.
"""

from __future__ import annotations

from typing import List

from udsprobe.model.report import Connection, Evidence, Finding, Report
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import recognise
from udsprobe.rules.suspects.suspect import WARNING
from udsprobe.rules.thresholds import HELD_SENDS_SHARE_MIN, REQUESTS_MIN
from udsprobe.rules.wording import count, evidence, percent


def nagle_findings(report: Report) -> List[Finding]:
    """One for all connections that this happens on again and again; the worst is its subject."""
    found = [row for row in report.connections or [] if _is_held(row)]
    if not found:
        return []
    worst = max(found, key=lambda row: row.sends_held or 0)
    comms = {target.pid: target.comm for target in report.targets}
    where = "" if len(found) == 1 else f" on {len(found):,} connections"
    return [
        Finding(
            id="nagle",
            severity=WARNING,
            subject=f"tcp:{_address(worst)}",
            summary=f"Bytes that were sent wait in TCP{where}: Nagle's algorithm holds them "
            "until the other end acknowledges, for up to 40 ms; no latency here includes that",
            evidence=_evidence(found),
            actions=list(remedies("nagle", recognise(comms.get(worst.pid) or ""))),
        )
    ]


def _is_held(row: Connection) -> bool:
    held = row.sends_held or 0
    return held >= REQUESTS_MIN and held >= HELD_SENDS_SHARE_MIN * (row.requests or 0)


def _address(row: Connection) -> str:
    if row.role == "served" or row.peer is None or row.peer.address is None:
        return row.local
    return row.peer.address


def _evidence(rows: List[Connection]) -> List[Evidence]:
    held = sum(row.sends_held or 0 for row in rows)
    requests = sum(row.requests or 0 for row in rows)
    share = f", {percent(held / requests)} of the requests there" if requests else ""
    says = f"{count(held, 'send call')} left bytes to Nagle's algorithm{share}"
    return [evidence("sends_held", held, "calls", says, REQUESTS_MIN)]
