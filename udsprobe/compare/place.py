"""Where a difference of the mean latency is: its stages, and what the app did in its own."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from udsprobe.compare.comparison import Figure

WORDS = {
    "before_accept": "waiting to be accepted",
    "recv_wait": "time queued for the app",
    "recv": "receive calls",
    "app": "the app",
    "send": "send calls",
    "app_client": "waiting for the rest of the request",
    "app_cpu": "the app's CPU",
    "app_runq": "the app's wait for a CPU",
    "app_upstream": "the app's wait for its upstream",
    "app_lock": "the app's wait for locks",
    "app_disk": "the app's wait for the disk",
    "app_poll": "the app's wait in a poller",
    "app_other": "the app's other waits",
}
NEARLY_ALL_PCT, MOST_PCT = 90.0, 60.0
_NAMED, _NAMED_MIN_PCT = 3, 5.0


class Part(NamedTuple):
    """One part of the mean latency with its part of the difference, in %."""

    name: str
    figure: Figure
    share_pct: float


def parts(stages: Sequence[Figure], app: Sequence[Figure]) -> List[Part]:
    """The parts that the difference consists of, the largest first.

    The stage `app` is given by what was done in it, where both sides know that.
    """
    known = bool(app) and all(each.delta is not None for each in app)
    whole = [stage for stage in stages if not (known and stage.name == "app")]
    every = [*whole, *(app if known else ())]
    found = [Part(e.name, e, e.share_of_delta_pct) for e in every if e.share_of_delta_pct]
    return sorted(found, key=lambda part: -part.share_pct)


def place(ranked: Sequence[Part]) -> str:
    """`nearly all of it the app's CPU`; empty where no part is known."""
    if not ranked:
        return ""
    first = ranked[0]
    amount = _amount(first)
    if first.share_pct >= NEARLY_ALL_PCT:
        return f"{amount} {WORDS[first.name]}{_against(ranked)}"
    named = [f"{amount} {WORDS[first.name]}"]
    explained = first.share_pct
    for part in ranked[1:_NAMED]:
        if explained >= NEARLY_ALL_PCT or part.share_pct < _NAMED_MIN_PCT:
            break
        named.append(f"{part.share_pct:.0f} % {WORDS[part.name]}")
        explained += part.share_pct
    return ", ".join(named) + _against(ranked)


def _amount(part: Part) -> str:
    if part.share_pct >= NEARLY_ALL_PCT:
        return "nearly all of it"
    return "most of it" if part.share_pct >= MOST_PCT else f"{part.share_pct:.0f} % of it"


def _against(ranked: Sequence[Part]) -> str:
    """What changed the other way, by enough to be said."""
    last = ranked[-1]
    return f", against {WORDS[last.name]}" if last.share_pct < MOST_PCT - NEARLY_ALL_PCT else ""
