"""What clients suffer, from their own accounts: no word of udsprobe's. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

# A request that fails costs somebody a second try or an error page: as much as waiting for 1 s.
FAILED_COSTS_MS = 1_000.0
# From when on clients suffer: one request in a hundred fails …
FAILED_SHARE_MIN = 0.01
# … or a request costs that many times what it costs without any illness, and so much more …
COST_TIMES_WELL, COST_MORE_MS = 3.0, 3.0
# … or the slowest in a hundred do …
TAIL_TIMES_WELL, TAIL_MORE_MS = 3.0, 20.0
# … or who asks without a pause gets that much less done.
WELL_TIMES_RATE = 3.0
# Within a factor of two below those, to say either is right.
BORDER = 0.5
MOST = 0.5


@dataclass(frozen=True)
class Harm:
    """What a window cost the clients of all loads together.

    `waited_ms`: of all requests, answered or not yet. `unanswered`: at the end of the window.
    """

    replies: int
    failed: int
    unanswered: int
    waited_ms: float
    p99_ms: float
    seconds: float
    paced: bool = True

    @property
    def attempts(self) -> int:
        return self.replies + self.failed + self.unanswered

    @property
    def failed_share(self) -> float:
        return self.failed / self.attempts if self.attempts else 0.0

    @property
    def latency_ms(self) -> float:
        """On average, of those that were answered or wait."""
        count = self.replies + self.unanswered
        return self.waited_ms / count if count else 0.0

    @property
    def cost_ms(self) -> float:
        """Of one attempt on average, where a failure counts as a second."""
        if not self.attempts:
            return 0.0
        return (self.waited_ms + FAILED_COSTS_MS * self.failed) / self.attempts

    @property
    def rate_per_s(self) -> float:
        return self.replies / self.seconds if self.seconds else 0.0

    def says(self) -> str:
        """For a person."""
        failed = f"{100 * self.failed_share:.0f} % failed, " if self.failed else ""
        return f"{failed}{self.latency_ms:.1f} ms, {self.rate_per_s:.0f}/s"


def of_accounts(accounts: Sequence[Mapping[str, Any]]) -> Harm:
    """The sum of what the load generators wrote of one window."""
    failed = sum(
        one["broken"] + one["unhappy"] + sum(one["connect_errors"].values()) for one in accounts
    )
    return Harm(
        replies=sum(one["replies"] - one["unhappy"] for one in accounts),
        failed=failed,
        unanswered=sum(one["unanswered"] for one in accounts),
        waited_ms=sum(one["waited_us"] for one in accounts) / 1000,
        p99_ms=max((one["p99_us"] for one in accounts), default=0.0) / 1000,
        seconds=max((one["seconds"] for one in accounts), default=0.0),
        paced=all(one["paced"] for one in accounts),
    )


def suffering(ill: Harm, well: Harm) -> str:
    """`some`, `none`, or `border`: beside the same system without any illness."""
    found = _measure_of_harm(ill, well)
    if found >= 1.0:
        return "some"
    return "border" if found >= BORDER else "none"


def _measure_of_harm(ill: Harm, well: Harm) -> float:
    """1 is where harm begins: the worst of failures, cost, tail and throughput."""
    cost = _above(ill.cost_ms, well.cost_ms, COST_TIMES_WELL, COST_MORE_MS)
    tail = _above(ill.p99_ms, well.p99_ms, TAIL_TIMES_WELL, TAIL_MORE_MS)
    failed = max(0.0, ill.failed_share - well.failed_share) / FAILED_SHARE_MIN
    rate = 0.0 if ill.paced else well.rate_per_s / max(ill.rate_per_s, 1e-6) / WELL_TIMES_RATE
    return max(failed, cost, tail, rate)


def _above(ill: float, well: float, times: float, more: float) -> float:
    """How far `ill` is on the way to both bounds."""
    return min(ill / (times * max(well, 1e-6)), (ill - well) / more)


def removed(ill: Harm, cured: Harm, well: Harm) -> float:
    """What part of the harm a cure took away: 1 all of it, 0 none, below 0 it harms.

    Of the cost on average; where failures and averages are those of the well, of the tail. Of those
    without a pause, cost and throughput are one thing; where nothing ended, there is no cost yet.
    """
    if not ill.attempts and well.replies:
        return min(1.0, cured.rate_per_s / well.rate_per_s)
    if not ill.paced:
        return _part(ill.cost_ms, cured.cost_ms, well.cost_ms)
    if _above(ill.cost_ms, well.cost_ms, COST_TIMES_WELL * BORDER, COST_MORE_MS * BORDER) >= 1.0:
        return _part(ill.cost_ms, cured.cost_ms, well.cost_ms)
    return _part(ill.p99_ms, cured.p99_ms, well.p99_ms)


def _part(ill: float, cured: float, well: float) -> float:
    return max(-1.0, min(1.0, (ill - cured) / (ill - well))) if ill > well else 0.0
