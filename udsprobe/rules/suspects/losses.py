"""What was not counted, where it could change the verdict."""

from __future__ import annotations

from typing import List

from udsprobe.model.report import Evidence, Finding, Probe, Report
from udsprobe.rules.suspects.suspect import INFO, WARNING
from udsprobe.rules.wording import count, evidence

_LOST_SHARE_MIN = 0.001
_PIPELINED = (
    "Clients send more before they have a reply (pipelining): a request here is everything "
    "received before a reply began"
)
_MULTIPLEXED = (
    "Clients speak HTTP/2, and which streams share a connection was not seen: counts and latencies "
    "here are of turns (bytes in, then bytes out), not of requests"
)


def account_findings(report: Report) -> List[Finding]:
    """Losses, and requests that are no turns."""
    return [*_lost(report), *_not_turn_based(report)]


def _lost(report: Report) -> List[Finding]:
    probe = report.probe
    facts = _facts(probe)
    if not facts:
        return []
    return [
        Finding(
            id="measurement-incomplete",
            severity=WARNING if _is_severe(probe) else INFO,
            subject="udsprobe",
            summary="Some events were not counted; the verdict rests on the others",
            evidence=facts,
        )
    ]


def _is_severe(probe: Probe) -> bool:
    """Whether the verdict could be another one with what is missing."""
    share = _lost_calls(probe) / probe.events_seen if probe.events_seen else 0.0
    return bool(share >= _LOST_SHARE_MIN or probe.turned_away or probe.events_unaccounted)


def _facts(probe: Probe) -> List[Evidence]:
    facts = []
    lost, skipped, amiss = _lost_calls(probe), _skipped(probe), probe.events_unaccounted
    if lost:
        says = f"{count(lost, 'system call')} of {probe.events_seen:,} not counted"
        facts.append(evidence("events_lost", lost, "calls", says, _LOST_SHARE_MIN))
    if probe.turned_away:
        says = f"{count(probe.turned_away, 'entry', 'entries')} found no room in a map"
        by_map = [f"{name} {number:,}" for name, number in probe.turned_away_by_map.items()]
        says += f" ({', '.join(by_map)})" if by_map else ""
        facts.append(evidence("turned_away", probe.turned_away, "entries", says))
    if skipped and (facts or skipped >= _LOST_SHARE_MIN * probe.events_seen):
        says = (
            f"{count(skipped, 'run')} of other probes skipped by the kernel, for events of any "
            "process"
        )
        facts.append(evidence("missed_runs", skipped, "runs", says))
    if amiss:
        says = (
            f"{amiss:,} of {probe.events_seen:,} system calls neither counted nor reported as lost"
        )
        facts.append(evidence("events_unaccounted", amiss, "calls", says))
    return facts


def _lost_calls(probe: Probe) -> int:
    return probe.events_lost.map_full + probe.events_lost.ring_full + probe.events_lost.missed


def _skipped(probe: Probe) -> int:
    """Runs that `missed` is not about: of switches, arrivals, forks."""
    return sum(probe.missed_by_program.values()) - probe.events_lost.missed


def _not_turn_based(report: Report) -> List[Finding]:
    served = report.requests.served
    if served is None or served.turn_based is not False:
        return []
    return [
        Finding(
            id="not-turn-based",
            severity=INFO,
            subject=None,
            summary=_MULTIPLEXED if served.multiplexed else _PIPELINED,
        )
    ]
