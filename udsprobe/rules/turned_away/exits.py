"""Processes that end while they serve: crashes, and kills for want of memory or by another process.

What they had received gets no reply, and until another is there nobody accepts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, List, Optional, Sequence

from udsprobe.model.harm import Harm
from udsprobe.model.report import Evidence, Exits, Report
from udsprobe.model.threads.exits import ASKED_TO_END, OUT_OF_MEMORY, is_status
from udsprobe.rules.causes import QUEUES, WAITING
from udsprobe.rules.harm import FAILED
from udsprobe.rules.remedy import choice
from udsprobe.rules.servers import carries_sessions
from udsprobe.rules.suspects.suspect import CRITICAL, DROPPED, WARNING, Suspect
from udsprobe.rules.thresholds import EXITS_PER_S_MIN, GIVEN_UP_MIN, GIVEN_UP_SHARE_MIN
from udsprobe.rules.turned_away.failing_replies import CAUSE
from udsprobe.rules.wording import count, evidence, part

# A master does so when a worker takes too long: gunicorn aborts it first, PHP-FPM asks it to end.
_BY_TIME_LIMIT = frozenset({"SIGKILL", "SIGABRT"}) | ASKED_TO_END


def with_exits(report: Report, suspects: Sequence[Suspect]) -> List[Suspect]:
    """The suspects, and one for each program whose processes end; where they wait for too long,
    their requests without a reply are the harm of what they wait for."""
    found = list(suspects)
    for row in report.exits or ():
        if not _is_told(report, row, suspects):
            continue
        reason = _reason(report, row, found)
        own = _suspect(report, row)
        if reason is None:
            gone = _pids(report, row)
            found = [each for each in found if not _is_same(each, gone)]
            found.append(own)
        elif reason.harm is None and own.harm is not None:
            more = (*reason.evidence, *own.evidence)
            found[found.index(reason)] = replace(reason, harm=own.harm, evidence=more)
    return found


def _is_told(report: Report, row: Exits, suspects: Sequence[Suspect]) -> bool:
    """Of processes that never served, only where connections wait for one that does; of those that
    are asked to end, where requests are lost and it is no stop of all. The status of a session's
    process (SSH) is how its client left, or its command's."""
    if row.how in ASKED_TO_END:
        return _loses(report, row) and _goes_on_without(report, row)
    if is_status(row.how) and carries_sessions(row.comm):
        return _loses(report, row)
    starved = any(each.is_pressure and each.cause in QUEUES for each in suspects)
    return bool(row.served) or (starved and row.processes >= GIVEN_UP_MIN)


def _reason(report: Report, row: Exits, suspects: Sequence[Suspect]) -> Optional[Suspect]:
    if row.how not in _BY_TIME_LIMIT:
        return None
    gone = _pids(report, row)
    pressing = [
        each
        for each in suspects
        if each.is_pressure and each.cause in WAITING and (not each.pids or each.pids & gone)
        # Who waits for these waits in vain, as they end.
        if not each.waits_for & gone
    ]
    return max(pressing, key=lambda each: each.share_pct, default=None)


def _goes_on_without(report: Report, row: Exits) -> bool:
    """Others of that program live."""
    return any(each.comm == row.comm and each.state != "exited" for each in report.targets)


def _pids(report: Report, row: Exits) -> FrozenSet[int]:
    """Of that program, those alive too: what one waits for, the others wait for."""
    return frozenset(each.pid for each in report.targets if each.comm == row.comm)


def _is_same(each: Suspect, gone: FrozenSet[int]) -> bool:
    """The same requests, told by their connections."""
    return each.kind == DROPPED and bool(each.pids) and each.pids <= gone


def _suspect(report: Report, row: Exits) -> Suspect:
    lost, ended = row.unanswered or 0, _ended_requests(report, row)
    share = lost / ended if ended else 0.0
    loses = _loses(report, row)
    again, nobody = _goes_on(report, row), _leaves_nobody(report, row)
    is_pressure = loses or again or nobody
    says = "nobody serves any more" if nobody else f"{part(share)} of requests end without a reply"
    return Suspect(
        cause=CAUSE,
        name=f"{CAUSE}:exits:{row.comm}:{row.how}",
        severity=CRITICAL if is_pressure else WARNING,
        is_pressure=is_pressure,
        share_pct=100.0 if nobody or not row.served else 100 * share,
        subject=row.comm,
        headline=_headline(report, row),
        evidence=(_fact(row),),
        actions=choice.exits(report, row),
        seen=max(row.processes, ended),
        overloads=is_pressure,
        pids=_pids(report, row),
        harm=Harm(FAILED, 100 * share, lost, None, says) if loses or nobody else None,
    )


def _ended_requests(report: Report, row: Exits) -> int:
    """With a reply, or without because of these."""
    served = report.requests.served
    return (row.unanswered or 0) + (served.count if served is not None else 0)


def _loses(report: Report, row: Exits) -> bool:
    """Requests, so many and such a part of all that it is no chance."""
    lost = row.unanswered or 0
    is_part = lost >= GIVEN_UP_SHARE_MIN * _ended_requests(report, row)
    return lost >= GIVEN_UP_MIN and is_part


def _goes_on(report: Report, row: Exits) -> bool:
    """Again and again: what starts in their place is missing until it is there.

    A process for each connection may end with a status when it has told its client why.
    """
    if is_status(row.how) and row.served:
        return False
    return row.processes >= max(GIVEN_UP_MIN, EXITS_PER_S_MIN * report.window.duration_s)


def _leaves_nobody(report: Report, row: Exits) -> bool:
    """The last target crashed, or was killed for its memory."""
    is_crash = row.how == OUT_OF_MEMORY or (row.how.startswith("SIG") and row.how != "SIGKILL")
    return is_crash and all(each.state == "exited" for each in report.targets)


def _headline(report: Report, row: Exits) -> str:
    """`67 processes of gunicorn ended by SIGSEGV in 4.0 s`."""
    return f"{_who(row)} {_ended(row)} in {report.window.duration_s:.1f} s"


def _who(row: Exits) -> str:
    return f"{count(row.processes, 'process', 'processes')} of {row.comm}"


def _ended(row: Exits) -> str:
    if is_status(row.how):
        return f"ended with {row.how}"
    if row.how == OUT_OF_MEMORY:
        were = "was" if row.processes == 1 else "were"
        return f"{were} killed, {row.how}"
    return f"ended by {row.how}"


def _fact(row: Exits) -> Evidence:
    says = f"{_who(row)} {_ended(row)}"
    if row.served and row.unanswered is not None:
        says += f", with {count(row.unanswered, 'request')} received and not answered"
    elif not row.served:
        says += ", before they served a request"
    least = GIVEN_UP_MIN if row.processes >= GIVEN_UP_MIN else None
    return evidence("exits", row.processes, "processes", says, least)
