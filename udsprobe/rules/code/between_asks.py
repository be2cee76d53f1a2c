"""CPU time that passes from one question to an upstream to the next.

Who asks once for each row computes around each of these questions, an object-relational mapper far
longer than the answers take. All of that goes away with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Dict, Iterator, List, Optional, Sequence

from udsprobe.model.report import Report, WholeCall
from udsprobe.rules.accounts.service import ON_CPU, Service
from udsprobe.rules.code.sleep_calls import service_of
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.suspect import Suspect
from udsprobe.rules.thresholds import (
    ASKS_IN_LOOP_MIN,
    CODE_KIND_SHARE_MIN,
    CODE_LARGE_SHARE_MIN,
)
from udsprobe.rules.upstreams import MostAsked, asks_per_request, most_asked, times
from udsprobe.rules.wording import duration, evidence, percent

# What is told by a median of some is not known to a hundredth.
_NEARLY_ALL_MIN = 0.95


@dataclass(frozen=True)
class _Between:
    """What a service computes from one question to the next.

    Attributes:
        per_request: questions to `asked`. each_us: CPU time from one to the next, the median.
        share: what that is of all CPU time of the service, so often as it asks.
    """

    asked: MostAsked
    per_request: float
    each_us: float
    share: float

    def says(self) -> str:
        """How often, and what goes away with that."""
        share = "nearly all" if self.share >= _NEARLY_ALL_MIN else percent(self.share)
        return (
            f"each request asks {self.asked.who} {times(self.per_request)} times, and {share} of "
            "its CPU time is spent from one question to the next"
        )


def with_asks(named: Suspect, headline: str, report: Report) -> Suspect:
    """The cause with how often each request asks, where most of its CPU time is spent between.

    Args:
        named: with its functions. headline: before these were said.
    """
    found = _between(service_of(named, report), report)
    if found is None or found.share < CODE_LARGE_SHARE_MIN or _is_own_work(named, report):
        return named
    once = choice.asks_again(found.asked.server, found.asked.who)
    each = f"{duration(found.each_us)} for each of {times(found.per_request)}"
    fact = evidence("cpu_between_asks", found.share, "of 1", f"{found.says()}, {each}")
    if found.share < CODE_KIND_SHARE_MIN:
        return replace(named, evidence=(*named.evidence, fact), actions=(*named.actions, *once))
    told = f"{headline}; {found.says()}"
    rest = named.headline[len(headline) :] if named.headline.startswith(headline) else ""
    return replace(
        named,
        headline=told + rest,
        evidence=(replace(fact, threshold=CODE_KIND_SHARE_MIN), *named.evidence),
        actions=(*once, *named.actions),
    )


def _between(service: Service, report: Report) -> Optional[_Between]:
    """None where requests do not ask in a loop, or too little of their calls is kept."""
    asked = most_asked(service)
    if asked is None:
        return None
    per_request = asks_per_request(service, asked)
    spent_us = service.spent_us(*ON_CPU)
    if per_request is None or per_request < ASKS_IN_LOOP_MIN or not spent_us:
        return None
    each_us = list(_each_us(service, report, asked.address))
    if len(each_us) < ASKS_IN_LOOP_MIN:
        return None
    usual_us = median(each_us)
    share = min(1.0, usual_us * asked.count / spent_us)
    return _Between(asked, per_request, usual_us, share)


def _each_us(service: Service, report: Report, address: str) -> Iterator[float]:
    """From each question of the requests that are kept whole to the next of the same thread."""
    requests = report.requests
    for kept in (*(requests.sampled or ()), *(requests.slowest or ())):
        if not kept.calls or (service.pids is not None and kept.pid not in service.pids):
            continue
        asks = _questions(kept.calls, address)
        for begin, end in zip(asks, asks[1:]):
            yield _ran_us(kept.calls[begin : end + 1])


def _questions(calls: Sequence[WholeCall], address: str) -> List[int]:
    """Where in them it begins to ask; what is sent before an answer was read is the same question.

    On each connection by itself.
    """
    found: List[int] = []
    is_sending: Dict[Optional[int], bool] = {}
    for at, call in enumerate(calls):
        if call.whose != "upstream" or f"{call.transport}:{call.address}" != address:
            continue
        sends = call.name.rpartition(":")[2] in choice.SENDS
        if sends and not is_sending.get(call.fd):
            found.append(at)
        is_sending[call.fd] = sends
    return found


def _ran_us(calls: Sequence[WholeCall]) -> float:
    """On a CPU, from the beginning of the first to that of the last."""
    spent_us = 0.0
    for call, following in zip(calls, calls[1:]):
        off_us = call.duration_us if call.off_cpu_us is None else call.off_cpu_us
        outside_us = following.at_us - call.at_us - call.duration_us - following.runq_before_us
        spent_us += max(0.0, call.duration_us - off_us) + max(0.0, outside_us)
    return spent_us


def _is_own_work(named: Suspect, report: Report) -> bool:
    """It computes in between by itself, and not in what it asks with."""
    processes = report.stacks.processes if report.stacks is not None else ()
    own = [each for each in processes if not named.pids or each.pid in named.pids]
    samples = sum(each.samples for each in own if each.own_pct is not None)
    known = sum(each.samples * (each.own_pct or 0.0) for each in own)
    return bool(samples) and known / 100 >= CODE_KIND_SHARE_MIN * samples
