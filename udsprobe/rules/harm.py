"""Who suffers, and how much: what a verdict begins with.

A connect that is refused hurts more than a request that is late, whatever made
it so. Knows harms and how they rank, and not what causes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Optional

from udsprobe.model.harm import NOT_SEEN, Harm
from udsprobe.model.report import Latency, Report
from udsprobe.model.requests.reply_pieces import in_all, paused_us
from udsprobe.rules.accounts.service import tail_us
from udsprobe.rules.causes import FAILED_CONNECTS
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.wording import duration, part, place

REFUSED, FAILED, STUCK, SLOW, NONE = "refused", "failed", "stuck", "slow", "none"
# Turned away is worse than no answer yet, and that is worse than a late one.
_RANKS = {REFUSED: 3, FAILED: 3, STUCK: 2, SLOW: 1}
# Of fewer the 99th percentile is the slowest, which is more than 1 % of them.
WITH_A_HUNDREDTH = 100

NOBODY = Harm(NONE, 0.0, 0, None, "no client is affected")


def rank(suspect: Suspect) -> int:
    """How bad it is for who suffers; higher is worse, 0 is nobody."""
    if not suspect.is_pressure:
        return 0
    return _RANKS[SLOW] if suspect.harm is None else _RANKS[suspect.harm.kind]


def worst(suspects: Iterable[Suspect], report: Report) -> Harm:
    """Of all that presses, what hurts most; nobody suffers where nothing does."""
    pressing = [each for each in suspects if each.is_pressure]
    if not pressing:
        return NOBODY
    first = max(pressing, key=lambda each: (rank(each), felt(each, report)))
    return first.harm if first.harm is not None else slow_requests(report)


def felt(suspect: Suspect, report: Report) -> float:
    """The part of its users that meets it, in %.

    What a service asks of others counts by the requests that it serves: one
    lookup in thousands that fails is no outage.
    """
    harm, served = suspect.harm, report.requests.served
    if harm is None or harm.share_pct is None:
        return suspect.share_pct
    if suspect.cause not in FAILED_CONNECTS or served is None or not served.count:
        return harm.share_pct
    if suspect.subject in {place(row) for row in report.listeners or ()}:
        return harm.share_pct
    return 100 * min(1.0, (harm.count or 0) / served.count)


def connects(kind: str, count: int, of: int, verb: str) -> Harm:
    """`99 % of connects refused`."""
    share = min(1.0, count / of) if of else 1.0
    return Harm(kind, 100 * share, count, None, f"{part(share)} of connects {verb}")


def slow_requests(report: Report) -> Harm:
    """Nobody is turned away; requests take longer than they have to."""
    served = report.requests.served
    latency = served.latency_us if served is not None else None
    if latency is None or not latency.count or latency.mean is None:
        return Harm(SLOW, None, None, None, "a thread is saturated")
    return Harm(SLOW, None, latency.count, None, _how_paused(report) or _how_slow(latency))


def _how_paused(report: Report) -> Optional[str]:
    """None where requests wait for longer until their replies begin than for the rest of them."""
    rows = report.requests.served_by or ()
    until_begun_us = sum((row.latency_us.mean or 0.0) * row.count for row in rows)
    if sum(map(paused_us, rows)) <= until_begun_us:
        return None
    after = duration(in_all(rows).transfer_mean_us or 0.0)
    return f"replies end {after} after they begin on average"


def _how_slow(latency: Latency) -> str:
    tail = tail_us(latency)
    if tail is not None and latency.count < WITH_A_HUNDREDTH:
        return f"the slowest of {latency.count} requests takes {duration(latency.max or tail)}"
    if tail is not None:
        return f"1 % of requests take {duration(tail)} or more"
    return f"requests take {duration(latency.mean or 0.0)} on average"


def not_enough_seen(says: str = NOT_SEEN.says) -> Harm:
    """Whether anybody suffers cannot be told."""
    return replace(NOT_SEEN, says=says)
