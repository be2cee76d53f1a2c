"""Clients that close their connection before they have a reply: they gave up.

It is the harm of whatever makes their requests late or holds them up. Where nothing that is seen
does, the program itself leaves them without a reply: a callback that is never called, a queue that
nobody empties.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from udsprobe.model.code.sleeps import WAITS_FOR_WORK
from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, GivenUp, Report, ServedBy, Waiting, WaitNow
from udsprobe.rules.causes import PARTS
from udsprobe.rules.harm import FAILED, STUCK
from udsprobe.rules.peers.asked import without_answer
from udsprobe.rules.peers.late import slow_us
from udsprobe.rules.remedy import choice
from udsprobe.rules.suspects.hung import does, name_of
from udsprobe.rules.suspects.suspect import CRITICAL, Suspect
from udsprobe.rules.thresholds import (
    ACCOUNTED_FOR_MIN,
    GIVEN_UP_MIN,
    GIVEN_UP_SHARE_MIN,
    HUNG_US_MIN,
    NEAR_LIMIT,
    WAIT_SHARE_MIN,
)
from udsprobe.rules.wording import ACTIVITY_WORDS, count, duration, evidence, part, percent

GIVEN_UP = "app-blocked:given-up:"


def with_given_up(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects; clients that gave up are the harm of one of them, or one of their own."""
    found = list(suspects)
    for row in report.requests.served_by or []:
        given_up = _of_pattern(row)
        if given_up is None:
            continue
        reason = _reason(row, given_up, found)
        if reason is None:
            found.append(_suspect(report, row, given_up))
        else:
            found[found.index(reason)] = _suffered(reason, row, given_up)
    return found


def _of_pattern(row: ServedBy) -> Optional[GivenUp]:
    """More than a few, who waited as long as the slow ones that got a reply: who leaves for another
    reason waits less. At a deadline the reply comes, or the client leaves, by chance."""
    given_up = row.given_up
    if given_up is None or _count(given_up) < GIVEN_UP_MIN:
        return None
    if _share(row, given_up) < GIVEN_UP_SHARE_MIN:
        return None
    # Who never replied may speak a protocol without replies.
    least_us = (1 - NEAR_LIMIT) * slow_us(row) if row.count else HUNG_US_MIN
    return given_up if _waited_us(row, given_up) >= least_us else None


def _count(given_up: GivenUp) -> int:
    return given_up.count + given_up.kept_open


def _share(row: ServedBy, given_up: GivenUp) -> float:
    return _count(given_up) / (_count(given_up) + row.count)


def _waited_us(row: ServedBy, given_up: GivenUp) -> float:
    """Of those whose connections are still open it is not known when their clients left."""
    if given_up.waited_mean_us is not None:
        return given_up.waited_mean_us
    oldest_us = _abandoned(row).oldest_us or 0.0
    return oldest_us if oldest_us >= HUNG_US_MIN else 0.0


def _abandoned(row: ServedBy) -> Waiting:
    return row.abandoned or Waiting(0, None)


def _reason(row: ServedBy, given_up: GivenUp, suspects: Sequence[Suspect]) -> Optional[Suspect]:
    """What makes its requests so late that some clients do not wait for them, or holds them up."""
    inside = [
        each for each in suspects if each.cause in PARTS and (row.pid in each.pids or not each.pids)
    ]
    stuck = [each for each in inside if each.harm is not None and each.harm.kind == STUCK]
    late = slow_us(row) >= ACCOUNTED_FOR_MIN * _waited_us(row, given_up)
    slow = [each for each in inside if each.is_pressure and late]
    return max(stuck or slow, key=lambda each: each.share_pct, default=None)


def _suffered(reason: Suspect, row: ServedBy, given_up: GivenUp) -> Suspect:
    return replace(
        reason,
        is_pressure=True,
        severity=CRITICAL,
        seen=max(reason.seen, _count(given_up)),
        harm=_harm(row, given_up),
        evidence=(*reason.evidence, *_facts(row, given_up)),
    )


def _harm(row: ServedBy, given_up: GivenUp) -> Harm:
    share, waited_us = _share(row, given_up), given_up.waited_mean_us
    after = "" if waited_us is None else f" after {duration(waited_us)} on average"
    says = f"{part(share)} of requests end without a reply: their clients give up{after}"
    return Harm(FAILED, 100 * share, _count(given_up), None, says)


def _facts(row: ServedBy, given_up: GivenUp) -> List[Evidence]:
    says = (
        f"{count(_count(given_up), 'client')} left without a byte of a reply, "
        f"{_waited_words(row, given_up)}"
    )
    found = [evidence("given_up", _count(given_up), "requests", says, GIVEN_UP_MIN)]
    abandoned = _abandoned(row)
    if abandoned.count:
        says = (
            f"{count(abandoned.count, 'connection')} whose client has left (CLOSE_WAIT where "
            "it is TCP) the program has not closed"
        )
        found.append(evidence("abandoned", abandoned.count, "connections", says))
    return found


def _waited_words(row: ServedBy, given_up: GivenUp) -> str:
    if given_up.waited_mean_us is not None:
        return f"after {duration(given_up.waited_mean_us)} on average"
    return f"the oldest of their requests is {duration(_abandoned(row).oldest_us or 0.0)} old"


def _suspect(report: Report, row: ServedBy, given_up: GivenUp) -> Suspect:
    found = Suspect(
        cause="app-blocked",
        name=f"{GIVEN_UP}{name_of(row)}",
        severity=CRITICAL,
        is_pressure=True,
        share_pct=100 * _share(row, given_up),
        subject=name_of(row),
        headline=_headline(report, row),
        evidence=tuple(_facts(row, given_up)),
        actions=choice.unanswered(report, row.pid),
        seen=_count(given_up),
        pids=frozenset([row.pid]),
        harm=_harm(row, given_up),
    )
    upstream = _upstream_share(row, given_up)
    if upstream >= WAIT_SHARE_MIN:
        return _for_upstream(report, row, found, upstream)
    return _with_stuck_pool(report, row, found)


def _upstream_share(row: ServedBy, given_up: GivenUp) -> float:
    """Of what those waited who left, that in which it waited for requests of its own.

    Of connections that are still open, by the oldest of either, where as many of its own have no
    answer.
    """
    if given_up.waited_mean_us is not None:
        return (given_up.upstream_mean_us or 0.0) / max(1.0, given_up.waited_mean_us)
    if row.asking.count < given_up.kept_open:
        return 0.0
    waited_us = max(1.0, _abandoned(row).oldest_us or 0.0)
    return min(1.0, (row.asking.oldest_us or 0.0) / waited_us)


def _with_stuck_pool(report: Report, row: ServedBy, found: Suspect) -> Suspect:
    """With its threads that are in the middle of something for long, while its loop is free.

    What the loop hands to them waits for these: of Node's four, file systems that do not answer
    can have all.
    """
    waits = _in_the_middle(report, row.pid)
    if not waits or does(report, row.pid)[0] != "blocked_poll":
        return found
    call, longest = waits[0].call, duration(waits[0].lasted_us)
    says = f"{count(len(waits), 'thread')} of {name_of(row)} in {call}, the longest for {longest}"
    fact = evidence("stuck_threads", waits[0].lasted_us, "µs", says, HUNG_US_MIN)
    sleep = "thread sleeps" if len(waits) == 1 else "threads sleep"
    return replace(
        found,
        headline=f"{found.headline}; {len(waits)} other {sleep} in {call}, for {longest} now",
        evidence=(*found.evidence, fact),
        actions=(*choice.stuck(report, row.pid), *found.actions),
    )


def _in_the_middle(report: Report, pid: int) -> List[WaitNow]:
    """Of its threads that do not serve, those that sleep for long in the call that most of them
    sleep in, where that is none in which one waits for work; the longest first."""
    by_call: Dict[str, List[WaitNow]] = {}
    for each in report.waits_now or ():
        is_work = each.call is not None and each.call not in WAITS_FOR_WORK
        if each.pid == pid and not each.is_serving and is_work and each.lasted_us >= HUNG_US_MIN:
            by_call.setdefault(each.call or "", []).append(each)
    most = max(by_call.values(), key=len, default=[])
    return sorted(most, key=lambda each: -each.lasted_us)


def is_idle_beside(root: Suspect, report: Report) -> bool:
    """Its clients give up while its threads wait for events: it sleeps on nothing else for them."""
    waiting = all(does(report, pid)[0] == "blocked_poll" for pid in root.pids)
    return root.name.startswith(GIVEN_UP) and waiting


def _headline(report: Report, row: ServedBy) -> str:
    doing, share = does(report, row.pid)
    # What idle threads of a pool sleep in is no reason.
    meanwhile = ""
    if doing == "blocked_poll":
        words = ACTIVITY_WORDS[doing]
        meanwhile = f", and its threads that serve are {words} for {part(share)} of the time"
    return f"{name_of(row)} does not answer them{meanwhile}"


def _for_upstream(report: Report, row: ServedBy, found: Suspect, share: float) -> Suspect:
    """It waited for its own requests meanwhile."""
    asked = without_answer(report, row)
    who = "an upstream" if asked is None else asked.where
    says = f"it waited for requests of its own for {percent(share)} of that time"
    found = replace(
        found,
        cause="upstream-wait",
        name="upstream-wait:given-up" if asked is None else f"upstream-wait:{asked.address}",
        headline=f"{name_of(row)} waits for {who} meanwhile",
        evidence=(*found.evidence, evidence("upstream", share, "of 1", says, WAIT_SHARE_MIN)),
        actions=(),
    )
    if asked is None:
        return found
    return replace(
        found,
        subject=asked.address,
        actions=choice.upstream(asked.pid, asked.who, asked.address),
        waits_for=asked.pids,
    )
