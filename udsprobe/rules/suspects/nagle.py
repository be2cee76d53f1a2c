"""Small sends that TCP keeps back until the other end acknowledges the one before.

The server's own time of a request ends when its send call returns, so no stage and no latency
here shows it; the client waits for up to a delayed acknowledgement, 40 ms, more. Where the other
end acknowledges at once, nothing is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from udsprobe.model.action import Action
from udsprobe.model.harm import Harm
from udsprobe.model.report import Connection, Evidence, Finding, Report
from udsprobe.rules.accounts.held import Held, of_service
from udsprobe.rules.accounts.request_time import RequestTime
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.causes import PARTS
from udsprobe.rules.harm import SLOW
from udsprobe.rules.remedy.table import remedies
from udsprobe.rules.servers import recognise
from udsprobe.rules.suspects.suspect import WARNING, Suspect
from udsprobe.rules.thresholds import (
    HELD_SENDS_SHARE_MIN,
    HELD_TIME_SHARE_MIN,
    REQUESTS_MIN,
    WAIT_MEAN_US_MIN,
)
from udsprobe.rules.wording import count, duration, evidence, percent

_TIME_HELD = "held_us"
# What is held, and who acknowledges it.
_WORDS = {"served": ("reply", "client"), "upstream": ("request to an upstream", "upstream")}


def with_nagle(
    report: Report, service: Service, time: RequestTime, inside: Sequence[Suspect]
) -> List[Suspect]:
    """The causes inside a service, and messages that are held for a good part of a request.

    Of all these at most one is pressure, the longest. Threads that are occupied all the time have
    none for the requests that clients would then send earlier: what occupies them stays the root.
    A request upstream that is held is itself a part of what occupies them.
    """
    found = [each for each in of_service(report, service) if time.count and _is_felt(each)]
    if not found:
        return list(inside)
    first = max(found, key=lambda each: each.share)
    rival = next((each for each in inside if each.is_pressure and each.cause in PARTS), None)
    wins = rival is None or _comes_before(first, rival)
    overloads = wins and rival is not None and rival.overloads
    held = [
        replace(
            _suspect(report, service, each),
            is_pressure=wins and each is first,
            overloads=overloads and each is first,
        )
        for each in found
    ]
    lost = [replace(each, is_pressure=False) if wins and each is rival else each for each in inside]
    return [*lost, *held]


def _comes_before(found: Held, rival: Suspect) -> bool:
    """Both as parts of what clients wait for."""
    other = rival.share_pct / 100
    if found.role == "served":
        return not rival.overloads and found.share >= other * (1 - found.share)
    if rival.cause == "upstream-wait":
        return found.share >= other - found.share
    return not rival.overloads and found.share >= other


def _is_felt(found: Held) -> bool:
    is_long = found.mean_us >= WAIT_MEAN_US_MIN and found.share >= HELD_TIME_SHARE_MIN
    return found.is_usual and is_long


def _suspect(report: Report, service: Service, found: Held) -> Suspect:
    worst = max(found.rows, key=lambda row: row.held_us or 0.0)
    subject, (noun, reader) = f"tcp:{_address(worst)}", _WORDS[found.role]
    says = f"the last part of a {noun} waits {duration(found.mean_us)} on average in TCP"
    return Suspect(
        cause="transport",
        name=f"transport:{found.role}:{subject}",
        severity=WARNING,
        is_pressure=True,
        share_pct=100 * found.share,
        subject=subject,
        headline=f"Nagle's algorithm holds it until the {reader} acknowledges the part before, "
        "which may take 40 ms",
        evidence=(_time_held(found), *_evidence(found.rows, found.requests)),
        actions=_actions(report, worst),
        seen=found.sends,
        pids=service.pids or frozenset(),
        harm=Harm(SLOW, None, found.requests, None, says),
        near=min(found.share / HELD_TIME_SHARE_MIN, found.mean_us / WAIT_MEAN_US_MIN),
    )


def _time_held(found: Held) -> Evidence:
    says = (
        f"{duration(found.mean_us)} of {duration(found.whole_us)}, {percent(found.share)} of a "
        "request with its reply, bytes wait for an acknowledgement"
    )
    return evidence(_TIME_HELD, found.mean_us, "µs", says, WAIT_MEAN_US_MIN)


def nagle_findings(report: Report, told: Sequence[Suspect] = ()) -> List[Finding]:
    """One for all connections that this happens on again and again; the worst is its subject.

    Args:
        told: suspects that are findings already.
    """
    if any(fact.metric == _TIME_HELD for each in told for fact in each.evidence):
        return []
    found = [row for row in report.connections or [] if _is_held(row)]
    if not found:
        return []
    worst = max(found, key=lambda row: row.sends_held or 0)
    where = "" if len(found) == 1 else f" on {len(found):,} connections"
    return [
        Finding(
            id="nagle",
            severity=WARNING,
            subject=f"tcp:{_address(worst)}",
            summary=f"Bytes that were sent wait in TCP{where}: Nagle's algorithm holds them "
            "until the other end acknowledges, for up to 40 ms; no latency here includes that",
            evidence=_evidence(found, sum(row.requests or 0 for row in found)),
            actions=list(_actions(report, worst)),
        )
    ]


def _is_held(row: Connection) -> bool:
    """Often, and for long enough to matter, where that is measured."""
    held = row.sends_held or 0
    if row.held_us is not None and row.held_us < WAIT_MEAN_US_MIN * held:
        return False
    return held >= REQUESTS_MIN and held >= HELD_SENDS_SHARE_MIN * (row.requests or 0)


def _address(row: Connection) -> str:
    if row.role == "served" or row.peer is None or row.peer.address is None:
        return row.local
    return row.peer.address


def _actions(report: Report, row: Connection) -> Tuple[Action, ...]:
    comms = {target.pid: target.comm for target in report.targets}
    return remedies("nagle", recognise(comms.get(row.pid) or ""))


def _evidence(rows: Sequence[Connection], requests: int) -> List[Evidence]:
    held = sum(row.sends_held or 0 for row in rows)
    share = f", {percent(held / requests)} of the requests there" if requests else ""
    says = f"{count(held, 'send call')} left bytes to Nagle's algorithm{share}"
    waited = _waited_us(rows)
    if waited is not None and held:
        says += f", {duration(waited / held)} each"
    return [evidence("sends_held", held, "calls", says, REQUESTS_MIN)]


def _waited_us(rows: Sequence[Connection]) -> Optional[float]:
    known = [row.held_us for row in rows if row.held_us is not None]
    return sum(known) if known else None
