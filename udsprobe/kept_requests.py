"""Which requests have to be kept so that the slowest of any time up to now are among them.

A request is among the `SLOWEST_KEPT` slowest of some time that ends now if and only if fewer than
so many later ones were slower. Of n that come in no order these are `SLOWEST_KEPT` * (1 + ln(n /
`SLOWEST_KEPT`)): 250 of all requests of a day. The same holds for those drawn by chance, with the
number drawn in the place of the latency: they are a fair sample of each such time.
"""

from __future__ import annotations

import heapq
from typing import Iterable, List, Sequence, Tuple

from udsprobe.sample import KeptRequest

SLOWEST_KEPT = 20
SAMPLED_KEPT = 4
# Each second has 20 others: all of them would be most of a recording.
LEAST_TIME_NS = 60_000_000_000
# Latencies that only fall would all be kept: then the oldest go.
KEPT_MAX = 400


def still_kept(requests: Iterable[KeptRequest]) -> Tuple[KeptRequest, ...]:
    """Those of them that are still needed, in the order of their replies."""
    every = list(requests)
    slow = _skyband([each for each in every if each.is_slow], SLOWEST_KEPT)
    drawn = _skyband([each for each in every if not each.is_slow], SAMPLED_KEPT)
    return tuple(sorted((*slow, *drawn), key=lambda each: each.replied_ns))


def told_in_samples(
    kept: Sequence[KeptRequest], now_ns: int, least_ns: int = LEAST_TIME_NS
) -> Tuple[KeptRequest, ...]:
    """Of those, what is needed for times of a minute or longer: a recording has all samples.

    Of a shorter time it has those that are among the slowest of the last minute.
    """
    begin_ns = now_ns - least_ns
    recent = [each for each in kept if each.replied_ns > begin_ns]
    slow = highest((each for each in recent if each.is_slow), SLOWEST_KEPT)
    drawn = highest((each for each in recent if not each.is_slow), SAMPLED_KEPT)
    names = {each.name for each in (*slow, *drawn)}
    return tuple(each for each in kept if each.replied_ns <= begin_ns or each.name in names)


def highest(requests: Iterable[KeptRequest], count: int) -> List[KeptRequest]:
    """So many of the highest ranks, the highest first."""
    return heapq.nlargest(count, requests, key=lambda each: each.rank)


def _skyband(requests: List[KeptRequest], count: int) -> List[KeptRequest]:
    later: List[int] = []
    kept = []
    for each in sorted(requests, key=lambda each: -each.replied_ns):
        if len(later) < count:
            heapq.heappush(later, each.rank)
        elif each.rank > later[0]:
            heapq.heapreplace(later, each.rank)
        else:
            continue
        kept.append(each)
        if len(kept) == KEPT_MAX:
            break
    return kept
