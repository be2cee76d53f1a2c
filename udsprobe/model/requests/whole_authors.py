"""Who ended the waits of one request, where the waits of its thread in the window leave no other.

Waits are counted by thread, not by request. If all others together ended less of a thread's waits
of a kind than this request waited, then the rest of its wait was ended by the one author.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Dict, List, Optional, Sequence, Tuple

from udsprobe.model.report import Author, Wait, WholeAuthor, WholeRequest, WholeWait

# Who ended less of it is not named.
ENDED_SHARE_MIN = 0.5
# Kinds of sleep of a request → kinds of waits.
_KINDS = {"lock": ("lock", "file_lock"), "other": ("child", "sleep", "pipe", "other")}
_US_PER_S = 1e6

_Who = Tuple[str, Optional[int], Optional[int]]


def with_authors(
    requests: Sequence[WholeRequest], waits: Sequence[Wait], began_unix_s: float
) -> List[WholeRequest]:
    """The requests, with the authors of their waits.

    Args:
        waits: of the window. began_unix_s: when it did: what arrived before may have waited then.
    """
    by_thread: Dict[Tuple[int, int], List[Wait]] = {}
    for row in waits:
        by_thread.setdefault((row.pid, row.tid), []).append(row)
    return [
        _with_authors(each, by_thread.get((each.pid, each.tid), []))
        if _arrived_unix_s(each) >= began_unix_s
        else each
        for each in requests
    ]


def _arrived_unix_s(request: WholeRequest) -> float:
    return datetime.fromisoformat(request.at).timestamp() - request.latency_us / _US_PER_S


def _with_authors(request: WholeRequest, rows: List[Wait]) -> WholeRequest:
    waits = [replace(each, author=_author(each, rows)) for each in request.waits]
    return replace(request, waits=waits)


def _author(wait: WholeWait, rows: List[Wait]) -> Optional[WholeAuthor]:
    rows = [row for row in rows if row.kind in _KINDS.get(wait.kind, (wait.kind,))]
    spent: Dict[_Who, float] = {}
    for each in (author for row in rows for author in row.authors):
        who = each.by, each.pid, each.tid
        spent[who] = spent.get(who, 0.0) + each.total_us
    most = max(spent, key=lambda who: spent[who], default=None)
    if most is None or most[0] not in ("thread", "process"):
        return None
    others_us = sum(row.total_us for row in rows) - spent[most]
    least_us = min(wait.total_us, spent[most], wait.total_us - others_us)
    if least_us < ENDED_SHARE_MIN * wait.total_us:
        return None
    return WholeAuthor(*most, comm=_comm(most, rows), least_us=least_us)


def _comm(who: _Who, rows: List[Wait]) -> Optional[str]:
    found: List[Author] = [
        each for row in rows for each in row.authors if (each.by, each.pid, each.tid) == who
    ]
    return found[0].comm
